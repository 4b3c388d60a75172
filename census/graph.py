"""A layer's kernels, norms and residual stream, found in its data flow.

- A *norm* divides a value by a root of its own mean square or variance, or by its length.
- An event is *transparent* where what it returns is what it took, moved, cast, scaled, normed, dropped out,
  or summed. The residual stream runs from the layer's input to its output through transparent events alone.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

from census.attention_operators import EagerAttention, eager_attentions, lightning_attentions
from census.dataflow import MOVES, SCALES, SUMS, DataFlow, Projection
from census.events import ATTENTION, DROPOUT, RECURRENCE, Event

_NORM_OPERATORS = frozenset(
    {"aten.native_layer_norm", "aten.native_group_norm", "aten._fused_rms_norm", "aten.rms_norm"}
)
_ROOTS = frozenset({"aten.rsqrt", "aten.sqrt"})
_LENGTHS = frozenset({"aten.linalg_vector_norm", "aten.norm"})
_STATISTICS = frozenset({"aten.mean", "aten.sum", "aten.var", "aten.var_mean", "aten.std"})


@dataclass(frozen=True, slots=True, eq=False)
class Norm:
    """One norm call: the value it takes, the value it returns, and the module it ran in."""

    input: int
    output: int
    module: str
    event: Event


class LayerGraph(DataFlow):
    """One layer execution's data flow, with its kernels, its norms and its residual stream."""

    @cached_property
    def eager_attentions(self) -> tuple[EagerAttention, ...]:
        """The score kernels that the layer computes by its own matmuls and softmax."""
        return eager_attentions(self)

    @cached_property
    def kernels(self) -> tuple[Event, ...]:
        """The score kernels and recurrences."""
        heard = (e for e in self.run.events if e.op == ATTENTION or e.op.startswith(RECURRENCE))
        return (*heard, *(attention.event for attention in self.eager_attentions), *lightning_attentions(self))

    @cached_property
    def kernel_values(self) -> frozenset[int]:
        """The values that score kernels and recurrences return."""
        return frozenset(value for kernel in self.kernels for value in kernel.outputs)

    @cached_property
    def norms(self) -> dict[int, Norm]:
        """Every norm, by the value it returns (before its own weight)."""
        found: dict[int, Norm] = {}
        for event in self.run.events:
            norm = self._norm(event)
            if norm is not None and norm.output not in found:
                found[norm.output] = norm
        return found

    def _norm(self, event: Event) -> Norm | None:
        if event.op in _NORM_OPERATORS:
            return Norm(event.inputs[0], event.outputs[0], event.module, event)
        measured = self._divided(event)
        if measured is None:
            return None
        for value in self.walk_on(event.outputs, lambda value: not self._scalar_of(value, event)):
            for consumer in self.consumers(value) if self._scalar_of(value, event) else ():
                if consumer.op in ("aten.mul", "aten.div") and measured in map(self._origin, consumer.inputs):
                    return Norm(measured, consumer.outputs[0], event.module, consumer)
        return None

    def _divided(self, event: Event) -> int | None:
        """Return the value whose length, or root of a mean square or variance, an event computes."""
        if event.op in _LENGTHS:
            return self._origin(event.inputs[0])
        root = event.op in _ROOTS or (event.op == "aten.pow" and -0.5 in event.scalars)
        return self._measured(event.inputs[0]) if root else None

    def _scalar_of(self, value: int, event: Event) -> bool:
        """Tell whether a value is what an event returned, moved, scaled or bounded."""
        while value not in event.outputs:
            made = self.producer[value]
            fluid = self.fluid(made)
            if len(fluid) != 1 or made.op not in MOVES | SCALES:
                return False
            [value] = fluid
        return True

    def _measured(self, value: int) -> int | None:
        """Return the value whose mean square or variance a value is, None where it is neither."""
        statistic = False
        while (event := self.producer.get(value)) is not None:
            fluid = set(self.fluid(event))
            if len(fluid) != 1:
                break
            statistic = statistic or event.op in _STATISTICS
            squares = event.op == "aten.pow" or (event.op == "aten.mul" and len(event.inputs) == 2)
            [value] = fluid
            if statistic and (squares or event.op in ("aten.var", "aten.var_mean", "aten.std")):
                return self._origin(value)
        return None

    def _origin(self, value: int) -> int:
        """Return the value that another is a cast, a shift by its own mean, or a move of."""
        while (event := self.producer.get(value)) is not None:
            if event.op == "aten.sub" and len(event.inputs) == 2:
                value = event.inputs[0]
            elif event.op in MOVES and len(self.fluid(event)) == 1:
                [value] = self.fluid(event)
            else:
                break
        return value

    def unscaled(self, value: int) -> int:
        """Return the value that another is a move, a cast or a scaling of, a norm's own output at the furthest."""
        while (event := self.producer.get(value)) is not None and value not in self.norms:
            fluid = self.fluid_content(event)
            if len(fluid) != 1 or event.op not in MOVES | SCALES:
                break
            [value] = fluid
        return value

    def passes(self, event: Event) -> tuple[int, ...]:
        """Return the values that a transparent event passes on, none where the event is not transparent."""
        for output in event.outputs:
            if output in self.norms:
                return (self.norms[output].input,)
        fluid = self.fluid_content(event)
        if event.op in SUMS or event.op in MOVES or event.op == DROPOUT:
            return fluid
        return fluid if event.op in SCALES and len(fluid) == 1 else ()

    @cached_property
    def toward_output(self) -> frozenset[int]:
        """The values from which transparent events alone lead to the layer's output."""
        reached = {self.run.output}
        for event in reversed(self.run.events):
            if reached.intersection(event.outputs):
                reached.update(self.passes(event))
        return frozenset(reached)

    @cached_property
    def stream(self) -> frozenset[int]:
        """The residual stream: the values on a transparent way from the layer's input to its output."""
        reached = {self.run.input}
        for event in self.run.events:
            if reached.intersection(self.passes(event)):
                reached.update(event.outputs)
        return self.toward_output & reached

    def on_stream(self, value: int) -> bool:
        """Tell whether a value is the residual stream's, moved, cast or scaled as it may be."""
        return value in self.stream or self.unscaled(value) in self.stream

    def nearest_projections(self, values: Iterable[int]) -> tuple[Projection, ...]:
        """Return the projections that a layer's values were last made by, in the order they ran.

        A walk back ends at a projection, at the residual stream, and at what a kernel returned.
        """

        def stop(value: int) -> bool:
            return value in self.projections or value in self.stream or value in self.kernel_values

        walk = self.walk_back(values, stop, self.content)
        found = [self.projections[value] for value in walk if value in self.projections]
        return tuple(sorted(found, key=lambda projection: self.order[id(projection.event)]))
