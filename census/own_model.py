"""A model that Transformers' auto classes do not build: a module its authors build, with what census must be told.

It stands where a Transformers config does, in `census.measure` and below. What a config and its classes say of a
model, a bare module does not: which module is the table of its tokens, and which one is its head.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from torch import nn


@dataclass(frozen=True)
class OwnModel:
    """A model by what builds it.

    Its layers are the entries of its module lists, and its forward takes tokens, (sequences, length), first. It is
    built on the meta device and used up by the measurement, so what is passed builds it, and is not the model.

    Attributes:
        build: builds the model, without arguments.
        model_type: what stands in a model type's place, in messages and in a golden's path.
        embedding: the path of the table that looks up its tokens, an `nn.Embedding`.
        head: the path of the module that makes logits, with a weight of (vocabulary, width).
        max_position_embeddings: how many positions it has, where it has a table of them.
    """

    build: Callable[[], nn.Module]
    model_type: str
    embedding: str
    head: str
    max_position_embeddings: int | None = None

    is_encoder_decoder: ClassVar[bool] = False

    def get_text_config(self, decoder: bool) -> OwnModel:
        """Return itself, as a config of nothing but a language model does."""
        return self
