"""Layers by how they are built: which layers of a stack are the same layer.

Two layers are the same where the classes, parameters and plain attributes of all their modules agree, the
layer's own index apart. Plain attributes count because a flag or a window changes what runs while every
parameter keeps its shape.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence, Set

import torch
from torch import nn

from census.torch_private import parameters_of

_MODULE_STATE = frozenset(vars(nn.Module()))
"""What every module carries for torch's own sake: parameters, hooks and the like."""

Signature = tuple[Hashable, ...]


def parameter_shapes(layer: nn.Module) -> tuple[tuple[str, tuple[int, ...]], ...]:
    """Return the path and shape of every parameter of a layer, in the order of its modules."""
    return tuple((name, tuple(parameter.shape)) for name, parameter in layer.named_parameters())


def layer_signatures(layers: Sequence[nn.Module], places: Sequence[int]) -> tuple[Signature, ...]:
    """Return a signature for each layer; equal signatures are layers built the same.

    Args:
        layers: the layers.
        places: the place of each in its list, which is its own index where it holds one.
    """
    modules = [list(layer.named_modules()) for layer in layers]
    attributes = [_plain_attributes(held) for held in modules]
    of_a_class: dict[type, list[int]] = {}
    for index, layer in enumerate(layers):
        of_a_class.setdefault(type(layer), []).append(index)
    of_index = {
        layer_class: _index_attributes([(attributes[index], places[index]) for index in indices])
        for layer_class, indices in of_a_class.items()
    }
    return tuple(
        (
            tuple((path, _class_name(module), _shapes(module)) for path, module in held),
            frozenset(item for item in own.items() if item[0] not in of_index[type(layer)]),
        )
        for layer, held, own in zip(layers, modules, attributes, strict=True)
    )


def _shapes(module: nn.Module) -> Hashable:
    return tuple((name, None if held is None else tuple(held.shape)) for name, held in parameters_of(module).items())


def own_attributes(module: nn.Module) -> Set[str]:
    """Return the names of what a module carries beside its parameters, buffers, children and torch's own state."""
    return vars(module).keys() - _MODULE_STATE


def _plain_attributes(modules: Sequence[tuple[str, nn.Module]]) -> dict[tuple[str, str], Hashable]:
    return {(path, name): _plain(vars(module)[name]) for path, module in modules for name in own_attributes(module)}


def _index_attributes(held: Sequence[tuple[dict[tuple[str, str], Hashable], int]]) -> set[tuple[str, str]]:
    """Return the attributes that hold a layer's place in every layer that has them, of attributes and places."""

    def is_place(value: Hashable, place: int) -> bool:
        return type(value) is int and value == place

    named = {name for own, place in held for name, value in own.items() if is_place(value, place)}
    return {name for name in named if all(is_place(own[name], place) for own, place in held if name in own)}


def _plain(value: object) -> Hashable:
    """Return a value that compares as the attribute does; of an object no more than its class."""
    if isinstance(value, bool | int | float | str | bytes | None | torch.dtype):
        return value
    if isinstance(value, list | tuple):
        return tuple(_plain(item) for item in value)
    if isinstance(value, dict):
        return tuple((str(key), _plain(item)) for key, item in value.items())
    if isinstance(value, torch.Tensor):
        return ("tensor", tuple(value.shape))
    if callable(value) and hasattr(value, "__qualname__"):
        return f"{value.__module__}.{value.__qualname__}"
    return _class_name(value)


def _class_name(value: object) -> str:
    return f"{type(value).__module__}.{type(value).__qualname__}"
