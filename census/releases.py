"""What Transformers' releases since 5.0 spell differently, asked of what is there and never of a version's number.

Each function here answers for every release; nothing else in census tells one release from another.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedConfig


def query_length(q_length: int | None, cache_position: torch.Tensor | None) -> int:
    """Return how many queries a mask is made for: stated since 5.4, before as the positions of the queries."""
    if q_length is not None:
        return q_length
    assert cache_position is not None, "a mask is made for a number of queries or for their positions"
    return cache_position.shape[0]


def text_class(config_class: type[PreTrainedConfig]) -> type | None:
    """Return the class of a composite config's language model, `AutoConfig` where its file chooses it; None if none.

    Stated among the defaults of a composite's parts since 5.20, before as their classes alone.
    """
    parts: Mapping[str, type] = config_class.sub_configs
    return parts.get("text_config")


def own_fields(config_class: type[PreTrainedConfig]) -> tuple[str, ...]:
    """Return the fields a config class knows: a dataclass's since 5.4, before what it and its bases are made of."""
    if dataclasses.is_dataclass(config_class):
        return tuple(field.name for field in dataclasses.fields(config_class))
    made_of = [inspect.signature(base).parameters for base in config_class.__mro__[:-1]]
    return tuple(dict.fromkeys(name for names in made_of for name in names if name not in ("self", "kwargs")))


def stated_depth(config: PreTrainedConfig) -> int | None:
    """Return how many layers a config states; towers of Qwen's kind call it `depth` alone before 5.23."""
    depth: int | None = getattr(config, "num_hidden_layers", None) or getattr(config, "depth", None)
    return depth
