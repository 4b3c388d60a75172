"""What Transformers' releases since 5.0 spell differently, asked of what is there and never of a version's number.

Each function here answers for every release; nothing else in census tells one release from another. Private names of
Transformers are used here alone, and a release that lacks one is refused.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from census.errors import ReleaseError

if TYPE_CHECKING:
    import torch
    from torch import nn
    from transformers import PreTrainedConfig, PreTrainedModel
    from transformers.models.auto.auto_factory import _BaseAutoModelClass

    AutoClass = type[_BaseAutoModelClass]
    """AutoModel, AutoModelForCausalLM, ..."""


def _private(holder: Any, name: str) -> Any:
    """Return what a class of Transformers holds under a private name.

    Raises:
        ReleaseError: the installed release has none of that name.
    """
    try:
        return getattr(holder, name)
    except AttributeError:
        from transformers import __version__

        raise ReleaseError.of("transformers", __version__, f"no {name} of {holder.__name__}") from None


def classes_of(auto: AutoClass) -> Mapping[type, Any]:
    """Return what an auto class builds of each class of configs: a class, or several of which one is chosen."""
    classes: Mapping[type, Any] = _private(auto, "_model_mapping")
    return classes


def model_of(model_class: type[PreTrainedModel], config: PreTrainedConfig, **how: Any) -> nn.Module:
    """Return a config's model of a class that is not chosen by it, made as an auto class makes one."""
    model: nn.Module = _private(model_class, "_from_config")(config, **how)
    return model


@contextmanager
def registered(interface: Any, name: str, function: Callable[..., Any]) -> Iterator[None]:
    """Register a function with one of Transformers' interfaces, and take it out afterwards."""
    held = _private(interface, "_global_mapping")
    interface.register(name, function)
    try:
        yield
    finally:
        held.pop(name, None)


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
