"""What hears a forward: operators and functions, while a layer runs, as events.

Operators are heard for everything that computes, functions for what no operator shows as it is.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from unittest.mock import patch

import torch
import torch.nn.functional as F  # noqa: N812
from torch.overrides import TorchFunctionMode

from census.events import DROPOUT, ActivationCall, Event, Value
from census.torch_private import FakeTensor, OpOverload, TorchDispatchMode, grouped_mm, schema_of, storage_of

_DROPOUTS = frozenset(
    {
        F.dropout, F.dropout1d, F.dropout2d, F.dropout3d,
        F.alpha_dropout, F.feature_alpha_dropout, torch.dropout,
    }
)  # fmt: skip
_FINDS = frozenset({torch.nonzero, torch.Tensor.nonzero})
_ASKS = frozenset({torch.Tensor.item, torch.Tensor.__bool__, torch.Tensor.__int__, torch.Tensor.__float__})
_NOTHING: Mapping[torch.dtype, object] = {torch.bool: False, torch.float32: 0.0, torch.float64: 0.0}
"""What a number of a fake tensor is taken for outside the layers: no padding, no layer dropped, nothing special."""
_SPLITS = frozenset({torch.split, torch.Tensor.split})
_REPEATS = frozenset({torch.repeat_interleave, torch.Tensor.repeat_interleave})


class _Groups(list[int]):
    """The sizes of groups, which a fake tensor does not know: how many there are."""

    def __init__(self, number: int) -> None:
        super().__init__([0] * number)


_SHAPE_ONLY = frozenset(
    f"aten.{kind}_{form}"
    for kind, form in (
        *((kind, "like") for kind in ("empty", "zeros", "ones", "full", "rand", "randn")),
        *(("new", form) for form in ("empty", "zeros", "ones", "full", "empty_strided")),
    )
)
"""Operators that take a tensor for its shape and type alone: nothing of it is in what they return."""


Operate = Callable[[OpOverload, tuple[Any, ...], dict[str, Any]], Any]
"""Runs an operator with its arguments, those by name last."""


def _as_torch_does(func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    return func(*args, **kwargs)


@dataclass
class Recorder(TorchDispatchMode):
    """Hears operators while a layer runs, and numbers every tensor version it meets.

    Attributes:
        operate: what runs the operators.
    """

    values: list[Value] = field(default_factory=list)
    names: dict[int, str] = field(default_factory=dict)
    events: list[Event] = field(default_factory=list)
    activations: list[ActivationCall] = field(default_factory=list)
    modules: list[str] = field(default_factory=list)
    activation: str | None = None
    layer: str | None = None
    stream: int | None = None
    paused: int = 0
    failed: str | None = None
    operate: Operate = _as_torch_does

    def __post_init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # torch's
        self._numbers: dict[int, int] = {}
        self._alive: list[torch.Tensor] = []
        self._written: dict[int, int] = {}
        self._kernel: dict[str, object] = {}
        self._repeated: dict[int, torch.Tensor] = {}

    def where(self) -> str:
        """Say what was running, for an error."""
        if self.failed is not None:
            return self.failed
        if self.layer is None:
            return "the forward outside its layers"
        inside = self.modules[-1] if self.modules else ""
        return f"{self.layer}.{inside}" if inside else self.layer

    def number(self, tensor: torch.Tensor) -> int:
        """Return the number of a tensor's present version.

        Memory that was written through another tensor since makes a new version, of the old one and of what
        was written.
        """
        known = self._numbers.get(id(tensor))
        if known is None:
            return self._new(tensor)
        written = self._written.get(storage_of(tensor), -1) if self._written else -1
        if written <= known:
            return known
        number = self._new(tensor)
        self.events.append(Event("aten.alias", self._module(), (known, written), (number,)))
        return number

    def _new(self, tensor: torch.Tensor) -> int:
        self.values.append(Value(tuple(tensor.shape), self.names.get(id(tensor))))
        number = len(self.values) - 1
        self._numbers[id(tensor)] = number
        self._alive.append(tensor)
        return number

    def name(self, tensor: torch.Tensor, name: str) -> None:
        """Name a parameter or buffer; one that two layers share may have another name in each, and a number for it."""
        if self.names.get(id(tensor)) != name:
            self.names[id(tensor)] = name
            self._numbers.pop(id(tensor), None)

    def came_from_outside(self, tensor: torch.Tensor) -> bool:
        """Tell whether a tensor was made of what came from outside the running layer, its stream apart."""
        makers = {value: event for event in self.events for value in event.outputs}
        pending = [self.number(tensor)]
        seen = set(pending)
        for value in pending:
            event = makers.get(value)
            inputs = event.inputs if event is not None else ()
            pending.extend(taken for taken in inputs if taken not in seen)
            seen.update(inputs)
        return self.stream not in seen

    def repeats(self, repeated: torch.Tensor, tensor: torch.Tensor) -> None:
        """Note that a tensor holds another one's entries, each several times."""
        self._repeated[id(repeated)] = tensor
        self._alive.append(repeated)

    def unrepeated(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return what a tensor repeats the entries of, the tensor itself where it repeats none."""
        return self._repeated.get(id(tensor), tensor)

    def describe_kernel(self, attributes: dict[str, object]) -> None:
        """Take the attributes of the score kernel that runs next."""
        self._kernel = attributes

    def hear(
        self,
        op: str,
        inputs: Sequence[torch.Tensor],
        outputs: Sequence[torch.Tensor],
        attributes: Mapping[str, object],
    ) -> None:
        """Record one thing that is no operator: a dropout, a recurrence."""
        if self.layer is None or self.paused:
            return
        taken = tuple(self.number(tensor) for tensor in inputs)
        made = tuple(self._new(tensor) for tensor in outputs)
        self.events.append(Event(op, self._module(), taken, made, (), self.activation, attributes))

    def _module(self) -> str:
        return self.modules[-1] if self.modules else ""

    def __torch_dispatch__(
        self,
        func: OpOverload,
        types: object,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        kwargs = kwargs or {}
        if self.layer is None or self.paused or func is torch.ops.prim.device.default:
            return self.operate(func, args, kwargs)
        arguments = (*args, *kwargs.values())
        tensors = [tensor for argument in arguments for tensor in tensors_of(argument)]
        op = schema_of(func).name.replace("::", ".")
        inputs = () if op in _SHAPE_ONLY else tuple(map(self.number, tensors))
        result = self.operate(func, args, kwargs)
        written = _written_arguments(func, args, kwargs)
        outputs = tuple(self._new(tensor) for tensor in (written or list(tensors_of(result))))
        for tensor, number in zip(written, outputs, strict=False):
            self._written[storage_of(tensor)] = number
        if not outputs:
            return result
        scalars = tuple(argument for argument in arguments if not isinstance(argument, torch.Tensor))
        attributes = self._kernel if op == "census.attention" else {}
        self.events.append(Event(op, self._module(), inputs, outputs, scalars, self.activation, attributes))
        return result


class FunctionListener(TorchFunctionMode):
    """Hears at the function what no operator shows as it is.

    A dropout, since a CPU build of torch has no operator for one; a grouped matmul, since its operator refuses
    widths that its kernel's alignment rules out, which are nothing to a count; and a choice by value (which
    experts were hit, which tokens hit one, how many rows each takes), since fake tensors have no values: the first
    expert is hit, by every token, so that a loop over experts runs one of them, as one is what is counted. Of a mask
    that came from outside the layer every entry is seen; a mask that is an index keeps every entry; a number that is
    asked for outside the layers is zero.

    In a model that Transformers does not build, torch's own score kernel too: it runs as the matmuls and the softmax
    that it stands for, since which operator a device has for it says nothing of what it was given.
    """

    def __init__(self, recorder: Recorder, unfolds_scores: bool = False) -> None:
        super().__init__()
        self._recorder = recorder
        self._unfolds_scores = unfolds_scores

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: object,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        kwargs = kwargs or {}
        if func is grouped_mm and args[1].dim() == 3:
            return self._grouped_matmul(*args, **kwargs)
        if func is F.scaled_dot_product_attention and self._unfolds_scores:
            return self._attention(*args, **kwargs)
        if func in _ASKS and self._recorder.layer is None and not _is_known(args[0]):
            return _NOTHING.get(args[0].dtype, 0)
        if func is torch.Tensor.__format__ and args[0].dim() == 0:
            # The number of an expert, in its module's name.
            return format(0, *args[1:])
        if func in _FINDS and not kwargs.get("as_tuple"):
            from_outside = args[0].dim() == 1 and self._recorder.came_from_outside(args[0])
            return self._every_entry(args[0]) if from_outside else self._first_entry(args[0])
        if func is torch.Tensor.__getitem__ and isinstance(args[1], tuple) and any(map(_masks_one_dimension, args[1])):
            args = (args[0], tuple(slice(None) if _masks_one_dimension(index) else index for index in args[1]))
        if func in _SPLITS and any(isinstance(argument, _Groups) for argument in (*args, *kwargs.values())):
            return self._all_in_the_first(args, kwargs)
        if func is torch.where and len(args) == 1:
            return self._every_column(args[0])
        if func in _REPEATS and self._recorder.layer is not None and args[0].is_floating_point():
            repeated = func(*args, **kwargs)
            self._recorder.repeats(repeated, args[0])
            return repeated
        return self._dropout(args, kwargs) if func in _DROPOUTS else func(*args, **kwargs)

    def _grouped_matmul(
        self, rows: torch.Tensor, weights: torch.Tensor, offs: torch.Tensor, **_: object
    ) -> torch.Tensor:
        """Return rows (rows, in) by one weight (in, out) for each group of them: (rows, out)."""
        with pause(self._recorder):
            made = rows.new_empty((*rows.shape[:-1], weights.shape[-1]))
        self._recorder.hear("aten._grouped_mm", [rows, weights, offs], [made], {})
        return made

    def _attention(
        self,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        attn_mask: torch.Tensor | None = None,
        dropout_p: float = 0.0,
        is_causal: bool = False,
        scale: float | None = None,
        enable_gqa: bool = False,
    ) -> torch.Tensor:
        """Return what torch's score kernel returns; a causal one reaches as far as one without a mask."""
        if enable_gqa:
            key, value = (held.repeat_interleave(query.shape[-3] // held.shape[-3], -3) for held in (key, value))
        scores = query @ key.transpose(-2, -1)
        if attn_mask is not None:
            scores = scores + attn_mask
        weights = self._dropout((scores.softmax(-1), dropout_p, True), {})
        return weights @ value

    def _first_entry(self, mask: torch.Tensor) -> torch.Tensor:
        """Return one position, the first, as `nonzero` does: (1, dimensions)."""
        with pause(self._recorder):
            made = torch.tensor([[0] * mask.dim()])
        self._recorder.hear("nonzero", [mask], [made], {})
        return made

    def _every_entry(self, mask: torch.Tensor) -> torch.Tensor:
        """Return every position of a mask that came from outside the layer, as `nonzero` does: (entries, 1)."""
        with pause(self._recorder):
            made = torch.arange(mask.shape[0]).unsqueeze(-1)
        self._recorder.hear("nonzero", [mask], [made], {})
        return made

    def _all_in_the_first(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[torch.Tensor, ...]:
        """Split rows by the sizes of groups, all of them into the first."""
        groups = next(argument for argument in (*args, *kwargs.values()) if isinstance(argument, _Groups))
        rows: torch.Tensor = args[0]
        return torch.split(rows, [rows.shape[0], *(0 for _ in groups[1:])])

    def _every_column(self, mask: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Return a position in each column of a mask, as `where` does: a tensor for each dimension."""
        with pause(self._recorder):
            made = tuple(torch.zeros(mask.shape[-1], dtype=torch.long) for _ in range(mask.dim()))
        self._recorder.hear("nonzero", [mask], made, {})
        return made

    def _dropout(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> torch.Tensor:
        probability = args[1] if len(args) > 1 else kwargs.get("p", 0.5)
        training = args[2] if len(args) > 2 else kwargs.get("training", kwargs.get("train", True))
        taken: torch.Tensor = args[0] if args else kwargs["input"]
        if not (training and probability > 0):
            return taken
        with pause(self._recorder):
            made = torch.empty_like(taken)
        self._recorder.hear(DROPOUT, [taken], [made], {"p": probability})
        return made


def _masks_one_dimension(index: object) -> bool:
    """Tell whether an index keeps entries of one dimension by truth; of a fake tensor all are kept."""
    return isinstance(index, torch.Tensor) and index.dtype is torch.bool and index.dim() == 1


def _is_known(tensor: torch.Tensor) -> bool:
    """Tell whether a fake tensor's values are known: it was made of constants."""
    return getattr(tensor, "constant", None) is not None


@contextmanager
def listing_groups() -> Iterator[None]:
    """Let a fake tensor of unknown group sizes be listed: how many there are, for a split of rows that follows."""
    own = FakeTensor.tolist

    def listed(sizes: FakeTensor) -> Any:
        return own(sizes) if _is_known(sizes) else _Groups(sizes.shape[0])

    with patch.object(FakeTensor, "tolist", listed):
        yield


@contextmanager
def pause(recorder: Recorder) -> Iterator[None]:
    """Hear no operator meanwhile."""
    recorder.paused += 1
    try:
        yield
    finally:
        recorder.paused -= 1


def tensors_of(argument: object) -> Iterator[torch.Tensor]:
    """Yield the tensors of an argument: itself, or those of a list or tuple."""
    if isinstance(argument, torch.Tensor):
        yield argument
    elif isinstance(argument, list | tuple):
        for item in argument:
            yield from tensors_of(item)


@functools.cache
def _writes(func: OpOverload) -> tuple[tuple[int, str], ...]:
    return tuple(
        (position, argument.name)
        for position, argument in enumerate(schema_of(func).arguments)
        if argument.alias_info is not None and argument.alias_info.is_write
    )


def _written_arguments(func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[torch.Tensor]:
    written = [args[i] if i < len(args) else kwargs.get(name) for i, name in _writes(func)]
    return [tensor for tensor in written if isinstance(tensor, torch.Tensor)]
