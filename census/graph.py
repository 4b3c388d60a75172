"""A layer's kernels, norms and residual stream, found in its data flow.

- A *norm* divides a value by a root of its own mean square or variance, or by its length.
- An event is *transparent* where what it returns is what it took, moved, cast, scaled, normed, dropped out,
  or summed. The residual stream runs from the layer's input to its output through transparent events alone.
- Where a model keeps several residual streams side by side (hyper-connections, alternating updates), a layer
  also *recombines* them: it weighs streams by coefficients it computed, sums over streams, multiplies them by a
  matrix of coefficients, and writes a branch's output onto each with a coefficient. Where it attends over the
  states of earlier layers with a learned query, it recombines those. Such events are transparent for what is
  weighed; the coefficients are no part of it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property

from census.attention_operators import EagerAttention, eager_attentions, lightning_attentions
from census.dataflow import MOVES, SCALES, SUMS, DataFlow, Projection, Source
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
        heard = (
            e
            for e in self.run.events
            if (e.op == ATTENTION and not self._attends_in_depth(e)) or e.op.startswith(RECURRENCE)
        )
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
        *_, last = self._unscaling(value)
        return last

    def _unscaling(self, value: int) -> Iterator[int]:
        yield value
        while (event := self.producer.get(value)) is not None and value not in self.norms:
            fluid = (self.recombined[event],) if event in self.recombined else self.fluid_content(event)
            if len(fluid) != 1 or (event.op not in MOVES | SCALES and event not in self.recombined):
                break
            [value] = fluid
            yield value

    @cached_property
    def recombined(self) -> dict[Event, int]:
        """For every event that recombines residual streams, the value it passes on."""
        side_by_side = self._streams_side_by_side()
        reached, found = {self.run.input}, {}
        in_depth: set[int] = set()
        for event in self.run.events:
            if in_depth.intersection(event.inputs) and event.op in MOVES | SCALES:
                in_depth.update(event.outputs)
            if (mixed := self._mixed_in(event, in_depth)) is not None:
                found[event] = mixed
                reached.update(event.outputs)
            elif reached.intersection(self._plainly_passes(event)):
                reached.update(event.outputs)
            elif self._attends_in_depth(event):
                found[event] = event.inputs[2]
                reached.update(event.outputs)
                in_depth.update(event.outputs)
            elif side_by_side and (weighed := self._weighed(event, reached)) is not None:
                found[event] = weighed
                reached.update(event.outputs)
            elif side_by_side and (written := self._written_onto_streams(event)) is not None:
                found[event] = written
        return found

    def _mixed_in(self, event: Event, in_depth: set[int]) -> int | None:
        """Return what was attended to in depth, where an event sums it and what came with it from an earlier pass."""
        fluid = self.fluid(event)
        attended = [value for value in fluid if value in in_depth]
        return attended[0] if event.op in SUMS and len(fluid) == 2 and len(attended) == 1 else None

    def _attends_in_depth(self, event: Event) -> bool:
        """Tell whether a score kernel's queries are weights alone: it attends over states, not over tokens."""
        return event.op == ATTENTION and self.source(event.inputs[0]) is Source.WEIGHT

    def _streams_side_by_side(self) -> bool:
        if len(self.shape(self.run.input)) > 3 or any(map(self._attends_in_depth, self.run.events)):
            return True
        back = self.walk_back(
            [self.run.output],
            lambda value: value == self.run.input or self._written_onto_streams(self.producer[value]) is not None,
            self._plainly_passes,
        )
        return any(
            value != self.run.input and self._written_onto_streams(self.producer[value]) is not None for value in back
        )

    def _weighed(self, event: Event, reached: set[int]) -> int | None:
        """Return the streams that an event weighs by coefficients, sums over or multiplies by a matrix of them."""
        streams = [value for value in self.fluid(event) if value in reached]
        if event.op in ("aten.mul", "aten.mul_") and len(self.fluid(event)) == 2 and len(streams) == 1:
            return streams[0]
        if event.op in ("aten.sum", "aten.mean") and len(streams) == 1:
            return streams[0] if self.shape(event.outputs[0])[-1:] == self.shape(streams[0])[-1:] else None
        if event.outputs[0] in self.mixing_matmuls and len(streams) == 1:
            return streams[0]
        return None

    def _written_onto_streams(self, event: Event) -> int | None:
        """Return the value of which an event makes one for each stream, by a coefficient for each."""
        fluid = self.fluid(event)
        if event.op not in ("aten.mul", "aten.mul_") or len(fluid) != 2:
            return None
        narrow = [value for value in fluid if self.shape(value)[-1] == 1]
        wide = [value for value in fluid if self.shape(value)[-1] > 1]
        larger = math.prod(self.shape(event.outputs[0])) > max(math.prod(self.shape(value)) for value in fluid)
        return wide[0] if larger and len(narrow) == len(wide) == 1 else None

    @cached_property
    def connections(self) -> tuple[Projection, ...]:
        """The projections that make the coefficients by which residual streams are recombined."""
        reached = set(self.walk_back(self.coefficients, lambda value: value in self.stream))
        return tuple(projection for value, projection in self.projections.items() if value in reached)

    @cached_property
    def depth_attended(self) -> frozenset[int]:
        """The values that attention over the states of earlier layers returns."""
        return frozenset(value for event in self.recombined if event.op == ATTENTION for value in event.outputs)

    @cached_property
    def coefficients(self) -> frozenset[int]:
        """The values by which residual streams are recombined."""
        return frozenset(
            value
            for event, passed in self.recombined.items()
            if event.op != ATTENTION
            for value in self.fluid(event)
            if value != passed
        )

    def weighed_content(self, event: Event) -> tuple[int, ...]:
        """Return what an event's output is made of, coefficients of streams apart."""
        return (self.recombined[event],) if event in self.recombined else event.inputs

    def passes(self, event: Event) -> tuple[int, ...]:
        """Return the values that a transparent event passes on, none where the event is not transparent."""
        return (self.recombined[event],) if event in self.recombined else self._plainly_passes(event)

    def _plainly_passes(self, event: Event) -> tuple[int, ...]:
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
        """The residual stream: the values on a transparent way from where it starts to the layer's output."""
        reached = {self.start}
        for event in self.run.events:
            if reached.intersection(self.passes(event)):
                reached.update(event.outputs)
        stream = self.toward_output & reached
        return stream | self._side_stream(stream)

    def _side_stream(self, stream: frozenset[int]) -> frozenset[int]:
        """Return the sums of the stream and what a kernel's output was made into, that are no way to the output.

        Such a sum is what another mixer of the layer takes: a block that feeds the next, beside the stream.
        """
        side: set[int] = set()
        for event in self.run.events:
            on = stream | side
            if event.op in ("aten.add", "aten.add_") and event.outputs[0] not in on and on.intersection(event.inputs):
                added = [value for value in event.inputs if value not in on]
                if self.kernel_values.intersection(self.walk_back(added, lambda value: value in on)):  # noqa: B023
                    side.update(event.outputs)
        return frozenset(side)

    @cached_property
    def start(self) -> int:
        """Where the residual stream starts: the layer's input.

        A layer that attends over the states of earlier layers may hand its input on to them instead; then the
        stream starts anew, at the earlier of the two values that the layer's output is the sum of.
        """
        if self.run.input in self.toward_output or not any(map(self._attends_in_depth, self.run.events)):
            return self.run.input
        value = self.run.output
        while (event := self.producer.get(value)) is not None and (passed := self.passes(event)):
            if len(passed) > 1:
                return min(passed)
            [value] = passed
        return self.run.input

    def on_stream(self, value: int) -> bool:
        """Tell whether a value is the residual stream's, moved, cast, scaled or recombined as it may be."""
        return any(
            step in self.stream or step == self.run.input or self.producer.get(step) in self.recombined
            for step in self._unscaling(value)
        )

    def comes_off_stream(self, value: int) -> bool:
        """Tell whether a value is the residual stream's, normed as often as it may be."""
        while not self.on_stream(value):
            norm = self.norms.get(self.unscaled(value))
            if norm is None:
                return False
            value = norm.input
        return True

    def nearest_projections(self, values: Iterable[int]) -> tuple[Projection, ...]:
        """Return the projections that a layer's values were last made by, in the order they ran.

        A walk back ends at a projection, at the residual stream, and at what a kernel returned.
        """

        def stop(value: int) -> bool:
            return value in self.projections or value in self.stream or value in self.kernel_values

        walk = self.walk_back(values, stop, self.content)
        return self.in_order(self.projections[value] for value in walk if value in self.projections)

    def in_order(self, projections: Iterable[Projection]) -> tuple[Projection, ...]:
        """Return projections, each once, in the order they ran."""
        unique = {id(p.event): p for p in projections}
        return tuple(sorted(unique.values(), key=lambda p: self.order[id(p.event)]))

    def ancestors(self, events: Iterable[Event]) -> tuple[Projection, ...]:
        """Return every projection that events' inputs were made by, near or far."""
        inputs = (value for event in events for value in event.inputs)
        reached = set(self.walk_back(inputs, lambda value: value in self.stream))
        return self.in_order(p for value, p in self.projections.items() if value in reached)

    def leaves_stream(self, value: int) -> int | None:
        """Return where a value leaves the residual stream, normed or not; None where it does not come straight off.

        A value may be mixed of several tokens' on its way, as a time shift does, where all leave at the same place.
        """
        places: set[int | None] = set()
        pending = [value]
        for part in pending:
            entry = self.unscaled(part)
            norm = self.norms.get(entry)
            event = self.producer.get(entry)
            if self.on_stream(part) or (norm is not None and self.comes_off_stream(norm.input)):
                places.add(entry)
            elif event is not None and event.op in SUMS | MOVES and len(self.fluid_content(event)) > 1:
                pending += [taken for taken in self.fluid_content(event) if taken not in pending]
            else:
                places.add(None)
        return places.pop() if len(places) == 1 else None
