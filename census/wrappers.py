"""The functions that a call comes to, through the decorators, partials, methods, callables and modules around them."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from types import FunctionType, MethodType

from torch import nn

_DEEPEST = 8
"""How many wrappers around a function are looked through: kernels' own layers around Transformers' decorator are 3."""


def functions_within(held: object) -> Iterator[FunctionType]:
    """Yield the functions that a call of what is held may come to: itself, and what it wraps, from the outside in."""
    return _within(held, _DEEPEST, set())


def _within(held: object, depth: int, seen: set[int]) -> Iterator[FunctionType]:
    if depth == 0 or id(held) in seen or not callable(held) or isinstance(held, type):
        return
    seen.add(id(held))
    if isinstance(held, FunctionType):
        yield held
    for inner in _wrapped(held):
        yield from _within(inner, depth - 1, seen)


def _wrapped(held: object) -> Iterator[object]:
    """Yield what a callable may call that it carries with it."""
    if isinstance(held, functools.partial):
        yield held.func
    elif isinstance(held, MethodType):
        yield held.__func__
        if not isinstance(held.__self__, nn.Module):
            yield from vars(held.__self__).values() if hasattr(held.__self__, "__dict__") else ()
    elif isinstance(held, FunctionType):
        yield getattr(held, "__wrapped__", None)
        for cell in held.__closure__ or ():
            try:
                yield cell.cell_contents
            except ValueError:  # a name that is not bound yet
                continue
    else:
        yield from vars(held).values() if hasattr(held, "__dict__") else ()
        yield getattr(held, "__wrapped__", None)
        # A class's own, since what an instance hands out leads back to the instance.
        yield from (vars(kind).get(name) for kind in _own_classes(held) for name in ("forward", "__call__"))


def _own_classes(held: object) -> list[type]:
    return [kind for kind in type(held).__mro__ if kind is not nn.Module and kind is not object]
