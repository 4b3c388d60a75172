"""The data flow of one layer execution: what each value was made of, and what was made of it.

Reads a recording; imports no torch. The words:

- a value is *fluid* where it descends from what came in on the residual stream, a *weight* where it is made
  of parameters and buffers alone, *external* where it came from outside the layer (a mask, rotary tables,
  an encoder's states), a *constant* otherwise;
- a *projection* is a matmul of a fluid or external value with a weight;
- a *mixing matmul* is one of two values neither of which is a weight: scores, and what they weigh.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from enum import IntEnum
from functools import cached_property

from census.events import Event, LayerRun, Recording, Shape

MOVES = frozenset(
    f"aten.{name}"
    for name in (
        "view _unsafe_view reshape _reshape_alias t transpose permute expand unsqueeze squeeze slice select "
        "split split_with_sizes unbind chunk clone _to_copy alias detach contiguous repeat lift_fresh "
        "view_as_real view_as_complex cat stack copy_ constant_pad_nd flip roll narrow index index_select"
    ).split()
)
"""Operators that return what they take, moved, cast or copied."""
SUMS = frozenset({"aten.add", "aten.add_", "aten.sub", "aten.sub_"})
SCALES = SUMS | {"aten.mul", "aten.mul_", "aten.div", "aten.div_", "aten.neg", "aten.clamp", "aten.clamp_min"}
LOOK_UPS = frozenset({"aten.index", "aten.index_select", "aten.embedding", "aten.gather"})
"""What reads entries of its first input: entries of a weight are a weight, whoever chose them."""
_ADDS_AT = frozenset({"aten.index_add", "aten.index_add_"})
"""What adds its third input to its first, at places the second chooses."""
_GROUPED = frozenset({"aten._grouped_mm", "transformers.grouped_mm_fallback"})
"""Matmuls of which each group of rows has a weight of its own; a third input says where a group ends."""


class Source(IntEnum):
    """Where a value comes from; of several inputs the greatest."""

    CONSTANT = 0
    WEIGHT = 1
    EXTERNAL = 2
    FLUID = 3


@dataclass(frozen=True, slots=True, eq=False)
class Projection:
    """A matmul with a weight.

    Attributes:
        event: the matmul.
        data: the value it projects.
        weights: the parameters the weight is made of.
        bias: the parameters added to its output, of the module it runs in or of one around that.
        in_features: the width it takes.
        out_features: the width it returns.
        groups: how many such weights lie side by side: the experts of a routed one, else 1.
        rows: the rows it is applied to, over all groups.
        selected: whether it ran with one of its weights alone, chosen by an index.
    """

    event: Event
    data: int
    weights: tuple[str, ...]
    bias: tuple[str, ...]
    in_features: int
    out_features: int
    groups: int
    rows: int
    selected: bool

    @property
    def output(self) -> int:
        """The value it returns."""
        return self.event.outputs[0]

    def __str__(self) -> str:
        grouped = f"{self.groups} x " if self.groups > 1 else ""
        return f"{'+'.join(self.weights)} ({grouped}{self.in_features} -> {self.out_features})"


class DataFlow:
    """The data flow of one layer execution."""

    def __init__(self, recording: Recording, run: LayerRun) -> None:
        self.run = run
        self.values = recording.values
        self.batch = recording.batch
        self.producer: dict[int, Event] = {}
        self._consumers: dict[int, list[Event]] = {}
        self._source: dict[int, Source] = {run.input: Source.FLUID}
        self.order = {id(event): place for place, event in enumerate(run.events)}
        for event in run.events:
            source = max((self.source(value) for value in event.inputs), default=Source.CONSTANT)
            if event.op in LOOK_UPS and self.source(event.inputs[0]) is Source.WEIGHT:
                source = Source.WEIGHT
            for value in event.inputs:
                self._consumers.setdefault(value, []).append(event)
            for value in event.outputs:
                if 0 in self.shape(value):
                    # No rows were given to it: a constant, whatever it would have been made of.
                    self._source[value] = Source.CONSTANT
                    continue
                self.producer[value] = event
                self._source[value] = source

    def shape(self, value: int) -> Shape:
        """Return a value's shape."""
        return self.values[value].shape

    def source(self, value: int) -> Source:
        """Return where a value comes from."""
        known = self._source.get(value)
        if known is not None:
            return known
        return Source.EXTERNAL if self.values[value].weight is None else Source.WEIGHT

    def fluid(self, event: Event) -> tuple[int, ...]:
        """Return the fluid values an event takes."""
        return tuple(value for value in event.inputs if self.source(value) is Source.FLUID)

    def content(self, event: Event) -> tuple[int, ...]:
        """Return what an event's output is made of: all it takes, but no index or offset that chooses of it."""
        if event.op in LOOK_UPS:
            return event.inputs[:1]
        if event.op in _ADDS_AT:
            return event.inputs[:1] + event.inputs[2:]
        return event.inputs[:2] if event.op in _GROUPED else event.inputs

    def consumers(self, value: int) -> tuple[Event, ...]:
        """Return the events that take a value."""
        return tuple(self._consumers.get(value, ()))

    def weights(self, value: int) -> tuple[str, ...]:
        """Return the names of the parameters and buffers a weight value is made of."""
        names = {
            self.values[leaf].weight
            for leaf in self.walk_back([value], lambda _: False, self.content)
            if self.values[leaf].weight is not None
        }
        return tuple(sorted(name for name in names if name is not None))

    def walk_back(
        self,
        values: Iterable[int],
        stop: Callable[[int], bool],
        inputs: Callable[[Event], tuple[int, ...]] = lambda event: event.inputs,
    ) -> Iterator[int]:
        """Yield values and all they were made of, nearest first, not beyond a value where `stop` holds.

        Args:
            values: where the walk starts.
            stop: tells of a value whether the walk ends there.
            inputs: the inputs of an event that the walk follows.
        """
        seen: set[int] = set()
        queue = list(values)
        for value in queue:
            if value in seen:
                continue
            seen.add(value)
            yield value
            event = self.producer.get(value)
            if event is not None and not stop(value):
                queue.extend(inputs(event))

    def walk_on(self, values: Iterable[int], stop: Callable[[int], bool]) -> Iterator[int]:
        """Yield values and all that was made of them, nearest first, not beyond a value where `stop` holds."""
        seen: set[int] = set()
        queue = list(values)
        for value in queue:
            if value in seen:
                continue
            seen.add(value)
            yield value
            if not stop(value):
                made = (output for event in self.consumers(value) for output in event.outputs)
                queue.extend(output for output in made if output in self.producer)

    @cached_property
    def projections(self) -> dict[int, Projection]:
        """Every projection, by the value it returns."""
        found = (self._projection(event) for event in self.run.events)
        return {projection.output: projection for projection in found if projection is not None}

    def _projection(self, event: Event) -> Projection | None:
        operands = _matmul_operands(event)
        if operands is None:
            return None
        left, right, transposed = operands
        sources = self.source(left), self.source(right)
        if min(sources) is not Source.WEIGHT or max(sources) < Source.EXTERNAL:
            return None
        weight, data = (left, right) if sources[0] is Source.WEIGHT else (right, left)
        # A weight on the left maps rows to rows of columns: (out, in) @ (in, columns).
        swapped = transposed != (weight == left)
        *batch, rows, columns = self.shape(weight)
        in_features, out_features = (columns, rows) if swapped else (rows, columns)
        groups = batch[0] if batch else self._held_side_by_side(weight)
        data_shape = self.shape(data)
        beside = [v for v in event.inputs if v not in (left, right) and self.source(v) is Source.WEIGHT]
        bias = beside + self._added_weights(event)
        return Projection(
            event=event,
            data=data,
            weights=self.weights(weight),
            bias=tuple(name for value in bias for name in self.weights(value) if held_around(event.module, name)),
            in_features=in_features,
            out_features=out_features,
            groups=groups,
            rows=math.prod(data_shape) // in_features,
            selected=groups > 1 and not batch,
        )

    def _held_side_by_side(self, weight: int) -> int:
        """Return how many matrices the parameter holds that a matrix was selected of; 1 for the matrix itself."""
        value = weight
        while (event := self.producer.get(value)) is not None:
            if event.op in ("aten.select", "aten.index"):
                return self.shape(event.inputs[0])[0]
            value = event.inputs[0]
        return 1

    def _added_weights(self, event: Event) -> list[int]:
        """Return the weights that are added to what an event returns, before anything else is done to it."""
        for value in self.walk_on(event.outputs, lambda value: self._is_added(value)):
            if self._is_added(value):
                return [v for v in self.producer[value].inputs if self.source(v) is Source.WEIGHT]
            if not all(consumer.op in MOVES | SUMS for consumer in self.consumers(value)):
                return []
        return []

    def _is_added(self, value: int) -> bool:
        event = self.producer[value]
        return (
            event.op in SUMS
            and len(event.inputs) == 2
            and min(self.source(value) for value in event.inputs) is Source.WEIGHT
        )

    def fluid_content(self, event: Event) -> tuple[int, ...]:
        """Return the fluid values of an event's content."""
        return tuple(value for value in self.content(event) if self.source(value) is Source.FLUID)

    @cached_property
    def mixing_matmuls(self) -> dict[int, tuple[int, int]]:
        """The operands of every matmul of two values neither of which is a weight, by the value it returns."""
        found: dict[int, tuple[int, int]] = {}
        for event in self.run.events:
            operands = _matmul_operands(event)
            if operands is None or event.outputs[0] in self.projections:
                continue
            sources = [self.source(operand) for operand in operands[:2]]
            if min(sources) >= Source.EXTERNAL and max(sources) is Source.FLUID:
                found[event.outputs[0]] = operands[:2]
        return found


def held_around(module: str, name: str) -> bool:
    """Tell whether a parameter is held by a module or by one it stands in: a residual scaling's is no matmul's bias."""
    owner, _, _ = name.rpartition(".")
    return not owner or f"{module}.".startswith(f"{owner}.")


def _matmul_operands(event: Event) -> tuple[int, int, bool] | None:
    """Return a matmul's left and right operand, and whether the right one is transposed; None for others."""
    match event.op:
        case "aten.mm" | "aten.bmm" | "aten.matmul" | "aten._grouped_mm" | "transformers.grouped_mm_fallback":
            return event.inputs[0], event.inputs[1], False
        case "aten.addmm" | "aten.baddbmm":
            return event.inputs[1], event.inputs[2], False
        case "aten.linear":
            return event.inputs[0], event.inputs[1], True
        case _:
            return None
