"""Operators on fake tensors, each run once: what it returned is made again where it is given the same.

What an operator returns on fake tensors is settled by the shapes, strides, offsets and types of the tensors it is given
and by its other arguments. Torch's fake tensor mode remembers that too, for symbolic shapes, devices and tensor
subclasses as well; a census has none of them, and spent most of its time on telling so.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from census.torch_private import FakeTensor, FakeTensorMode, OpOverload, in_kernel, schema_of, shown_as_fake, storage_of

_CPU = torch.device("cpu")
_PLAIN = frozenset({bool, int, float, str, type(None), torch.dtype, torch.device, torch.layout, torch.memory_format})
_HANGS_ON_VALUES = {torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape}
_MOST = 1 << 15
"""Results that are remembered at most, of nearly a kilobyte each; then all are forgotten: a process stays small."""


@dataclass(frozen=True, slots=True)
class _Made:
    """A tensor that an operator returned.

    Attributes:
        shape: its shape.
        stride: its strides.
        offset: where it starts in its memory.
        dtype: its type.
        view_of: the place of the argument whose memory it is on, -1 where it has memory of its own.
    """

    shape: tuple[int, ...]
    stride: tuple[int, ...]
    offset: int
    dtype: torch.dtype
    view_of: int


class _UnsettledError(Exception):
    """What can be said of an operator's arguments does not settle what it returns."""


_FIRST_ARGUMENT = object()
"""What an operator returns that writes to its first argument."""

_results: dict[object, Any] = {}
"""By an operator and what it was given: a `_Made`, several, or `_FIRST_ARGUMENT`; None where it is run each time."""


class FakeOperators:
    """The operators on the fake tensors of one mode.

    Args:
        mode: the mode; it is active while operators run.
    """

    def __init__(self, mode: FakeTensorMode) -> None:
        self._mode = mode
        # What a fake tensor carries beside its memory is the same for all of one mode whose values are unknown.
        self._state = vars(FakeTensor(mode, torch.empty((), device="meta"), _CPU))

    def run(self, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Return what an operator returns."""
        if func is torch.ops.prim.device.default:
            return args[0].fake_device
        try:
            named = [(name, _described(argument)) for name, argument in kwargs.items()]
            key = (func, torch.get_default_dtype(), *map(_described, args), *named)
        except _UnsettledError:
            return func(*args, **kwargs)
        if key not in _results:
            returned = func(*args, **kwargs)
            if len(_results) >= _MOST:
                _results.clear()
            _results[key] = _settled(func, args, returned)
            return returned
        made = _results[key]
        if made is None:
            return func(*args, **kwargs)
        if made is _FIRST_ARGUMENT:
            return args[0]
        with in_kernel(self._mode):
            if type(made) is _Made:
                return self._make(made, args)
            return type(made)(self._make(one, args) for one in made)

    def _make(self, made: _Made, args: tuple[Any, ...]) -> FakeTensor:
        if made.view_of < 0:
            memory = torch.empty_strided(made.shape, made.stride, dtype=made.dtype, device="meta")
        else:
            memory = torch.as_strided(args[made.view_of], made.shape, made.stride, made.offset)
        tensor = shown_as_fake(memory, _CPU)
        vars(tensor).update(self._state)
        return tensor


def _described(argument: Any) -> tuple[Any, ...]:
    """Return what of an argument settles what an operator returns.

    Raises:
        _UnsettledError: it is neither a plain value nor a fake tensor on the CPU of unknown values.
    """
    kind = type(argument)
    if kind is FakeTensor:
        dtype = argument.dtype
        if argument.constant is not None or argument.fake_device != _CPU or dtype.is_complex:
            raise _UnsettledError
        return argument.shape, argument.stride(), argument.storage_offset(), dtype
    if kind is list or kind is tuple:
        return (kind, *map(_described, argument))
    if kind not in _PLAIN:
        raise _UnsettledError
    # One, 1.0 and True are equal, and make different types of what they are added to.
    return kind, argument


def _settled(func: OpOverload, args: Sequence[Any], returned: Any) -> object:
    """Return what makes an operator's result again, None where its arguments do not settle it."""
    if not _HANGS_ON_VALUES.isdisjoint(func.tags) and not _takes_positions(func, args):
        return None
    schema = schema_of(func)
    if schema.is_mutable:
        first, *others = (argument.alias_info is not None and argument.alias_info.is_write
                          for argument in schema.arguments)  # fmt: skip
        reshapes = torch.Tag.inplace_view in func.tags
        return _FIRST_ARGUMENT if first and not any(others) and not reshapes and returned is args[0] else None
    try:
        if type(returned) in (list, tuple):
            return type(returned)([_made(args, part) for part in returned])
        return _made(args, returned)
    except _UnsettledError:
        return None


def _takes_positions(func: OpOverload, args: Sequence[Any]) -> bool:
    """Tell whether an operator is an index by positions: it returns as many entries as there are positions."""
    masks = (torch.bool, torch.uint8, torch.int8)
    return func is torch.ops.aten.index.Tensor and not any(
        isinstance(index, torch.Tensor) and index.dtype in masks for index in args[1]
    )


def _made(args: Sequence[Any], returned: Any) -> _Made:
    """Return one tensor of an operator's result as it can be made again.

    Raises:
        _UnsettledError: it is no fake tensor of unknown values, or an argument itself, or a view as another type.
    """
    if type(returned) is not FakeTensor:
        raise _UnsettledError
    shape, stride, offset, dtype = _described(returned)
    shown = [place for place, argument in enumerate(args) if _memory(argument) == _memory(returned)]
    if any(args[place] is returned or args[place].dtype != dtype for place in shown):
        raise _UnsettledError
    return _Made(tuple(shape), tuple(stride), offset, dtype, shown[0] if shown else -1)


def _memory(argument: Any) -> int:
    return storage_of(argument) if isinstance(argument, torch.Tensor) else -1
