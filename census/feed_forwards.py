"""A layer's feed-forwards, read off its data flow: dense, routed, shared, and what gates and adapts them."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from dataclasses import dataclass

from census.blocks import FeedForward, Mlp
from census.dataflow import Projection, Source
from census.errors import UnknownPartError
from census.events import Event, LayerRun
from census.graph import LayerGraph

NONLINEAR = frozenset(
    f"aten.{name}"
    for name in (
        "silu gelu relu sigmoid tanh softplus elu leaky_relu hardswish hardsigmoid hardtanh mish log_sigmoid "
        "glu erf relu6 celu selu prelu rrelu threshold silu_ relu_ sigmoid_ tanh_"
    ).split()
)
CHOICES = frozenset({"aten.topk", "aten.max", "aten.argmax"})
"""Operators by which a router chooses experts."""
_TABLES = frozenset({"aten.index", "aten.index_select", "aten.embedding"})
"""Operators by which experts are looked up in a table, by token."""


@dataclass(frozen=True, slots=True)
class Term:
    """What a residual branch adds: the value, and all it was made of since it left the stream."""

    root: int
    closure: frozenset[int]


def unknown(
    run: LayerRun,
    module: str,
    expected: str,
    found: str,
    then: str = "teach census this part (census/parts.py), or report the model",
) -> UnknownPartError:
    """Return the error of a part that no rule recognises: where it is, what was expected and found."""
    where = f"{run.path}.{module}" if module else run.path
    return UnknownPartError(f"{where}: expected {expected}, found {found}; {then}")


class FeedForwards:
    """Reads the feed-forwards of one layer execution.

    Args:
        graph: the layer's data flow.
        hidden_size: the width of the residual stream.
        tokens: how many tokens the layer is given.
    """

    def __init__(self, graph: LayerGraph, hidden_size: int, tokens: int) -> None:
        self._graph = graph
        self._hidden_size = hidden_size
        self._tokens = tokens

    def branch(self, terms: list[Term]) -> FeedForward:
        """Return what the terms of one residual branch feed forward.

        Raises:
            UnknownPartError: no rule recognises it.
        """
        grouped = [term for term in terms if self._experts_of(term)]
        # Of several, those whose every matrix every token runs through are shared experts side by side.
        routed = [term for term in grouped if not self._for_every_token(term)] or grouped
        others = [term for term in terms if term not in routed]
        if len(routed) > 1 or (not routed and len(others) > 1):
            modules = ", ".join(self._projections_of(term)[-1].event.module for term in terms)
            raise self._unknown("", "at most one routed and one other feed-forward on a branch", modules)
        if not routed:
            return FeedForward(self.dense(self._projections_of(others[0]), others[0].root))
        [term] = routed
        experts = self._experts_of(term)
        choice = self._choice(term, experts)
        router = self._router(term, experts, choice)
        latents = self._latents(term, experts, router)
        width = experts[0].in_features if latents else self._hidden_size
        mlp = self._between(experts, experts[-1], width)
        gates = self._input_gates(self._rest(term, (*experts, *router, *latents)), mlp.projections)
        left = self._rest(term, (*experts, *router, *latents, *gates))
        if left:
            raise self._unknown(left[0].event.module, "experts and a router in a routed feed-forward", f"{left[0]}")
        elsewhere = (*router, *gates)
        # What the router alone weighs is its zero experts: the stream itself, handed on by as much as it chose them
        # (LongCat Flash since Transformers 5.25).
        shared = tuple(self._shared(other, elsewhere) for other in others if self._beside(other, elsewhere))
        # A router may also choose among experts that compute nothing, for which one weight or another is kept.
        number = min(p.groups for p in mlp.projections)
        if number == 1:
            number = router[0].out_features
        return FeedForward(None, dataclasses.replace(mlp, gates=gates), router, choice, number, shared, latents)

    def together(self, found: tuple[FeedForward, ...]) -> FeedForward | None:
        """Return the one feed-forward that those of a layer's branches make up, None where there are none.

        What every token runs beside a routed one is shared, on whichever branch it is; several dense ones of one
        width are counted together.

        Raises:
            UnknownPartError: several are routed, or dense ones differ in width.
        """
        if len(found) < 2:
            return found[0] if found else None
        routed = [feed_forward for feed_forward in found if feed_forward.routed is not None]
        dense = [feed_forward.dense for feed_forward in found if feed_forward.dense is not None]
        if len(routed) == 1:
            return dataclasses.replace(routed[0], shared=(*routed[0].shared, *dense))
        if routed or len({mlp.width for mlp in dense}) > 1:
            widths = ", ".join(str(mlp.width) for mlp in dense)
            raise self._unknown(
                "", "one routed feed-forward, or dense ones of one width", f"{len(routed)} routed and widths {widths}"
            )
        return FeedForward(
            dataclasses.replace(
                dense[0],
                projections=tuple(p for mlp in dense for p in mlp.projections),
                activations=tuple(a for mlp in dense for a in mlp.activations),
                gates=tuple(p for mlp in dense for p in mlp.gates),
            )
        )

    def dense(self, projections: tuple[Projection, ...], root: int) -> Mlp:
        """Return the feed-forward whose projections make a value.

        Raises:
            UnknownPartError: they are no projections up from and down to the stream.
        """
        links: tuple[Projection, ...] = ()
        top = self._graph.nearest_projections([root])
        fed = [p for p in top if p in projections and self._fed_by(p, projections)]
        gates = tuple(p for p in top if p in projections and p not in fed and p.out_features in (1, self._hidden_size))
        if len(fed) != 1 or len(gates) + 1 != len(top):
            raise self._unrecognised(projections)
        [down] = fed
        while len(first := self._graph.nearest_projections([down.data])) == 1 and not self.activations(down):
            links = (down, *links)
            [down] = first
        inner = tuple(p for p in projections if p not in (*links, *gates))
        adapters = self._adapters(inner, first)
        mains = tuple(p for p in first if p not in adapters)
        upstream = tuple(p for p in inner if p not in (*adapters, *first, down))
        gated = self._input_gates(upstream, mains)
        main = tuple(p for p in inner if p not in (*adapters, *gated))
        mlp = self._between(main, down, self._hidden_size, adapters)
        sparse = self._cuts_activations(down)
        return dataclasses.replace(mlp, gates=(*gated, *gates), adapters=adapters, links=links, sparse=sparse)

    def _between(
        self, projections: tuple[Projection, ...], last: Projection, width: int, apart: tuple[Projection, ...] = ()
    ) -> Mlp:
        """Return the feed-forward of projections up from and down to a width, others set apart."""
        first = [p for p in self._graph.nearest_projections([last.data]) if p not in apart]
        if not first or last.out_features != width or {*first, last} != set(projections):
            raise self._unrecognised(projections)
        return Mlp(projections, self.activations(last), last.in_features)

    def _unrecognised(self, projections: tuple[Projection, ...]) -> UnknownPartError:
        found = ", ".join(map(str, projections))
        return self._unknown(projections[-1].event.module, "projections up from and down to the stream", found)

    def _unknown(self, module: str, expected: str, found: str) -> UnknownPartError:
        return unknown(self._graph.run, module, expected, found)

    def _projections_of(self, term: Term) -> tuple[Projection, ...]:
        return self._graph.in_order(p for value, p in self._graph.projections.items() if value in term.closure)

    def _rest(self, term: Term, placed: tuple[Projection, ...]) -> tuple[Projection, ...]:
        return tuple(p for p in self._projections_of(term) if p not in placed)

    def _experts_of(self, term: Term) -> tuple[Projection, ...]:
        """Return the projections of one expert: with weights side by side, or in a module chosen by its number."""
        projections = self._projections_of(term)
        side_by_side = tuple(p for p in projections if p.groups > 1)
        if side_by_side or not self._found(term):
            return side_by_side
        choices = [event for event in self._graph.run.events if event.op in CHOICES]
        return tuple(p for p in projections if p not in self._graph.ancestors(choices))

    def _found(self, term: Term) -> bool:
        """Tell whether a term's tokens were found by what a router chose."""
        inside = (event for event in self._graph.run.events if term.closure.intersection(event.outputs))
        return any(event.op == "nonzero" and self._graph.fluid(event) for event in inside)

    def _for_every_token(self, term: Term) -> bool:
        return all(not p.selected and p.rows == self._tokens * p.groups for p in self._experts_of(term))

    def _fed_by(self, projection: Projection, others: tuple[Projection, ...]) -> bool:
        return any(p in others for p in self._graph.ancestors([projection.event]))

    def _choice(self, term: Term, experts: tuple[Projection, ...]) -> Event:
        """Return the last choice among what a routed output is made of."""
        graph = self._graph
        inside = [event for event in graph.run.events if term.closure.intersection(event.outputs)]
        choices = [event for event in inside if event.op in CHOICES]
        tables = [
            event
            for event in inside
            if event.op in _TABLES
            and graph.source(event.inputs[0]) is Source.WEIGHT
            and graph.source(event.inputs[-1]) is Source.EXTERNAL
        ]
        if not choices and not tables:
            raise self._unknown(
                experts[0].event.module,
                f"a choice among the {experts[0].groups} experts",
                f"none of {', '.join(sorted(CHOICES))} among what their output is made of",
            )
        return (choices or tables)[-1]

    def _router(self, term: Term, experts: tuple[Projection, ...], choice: Event) -> tuple[Projection, ...]:
        """Return the projections behind the choice, or behind the experts' weights where that is a look-up."""
        behind = tuple(p for p in self._graph.ancestors([choice]) if p not in experts)
        weighing = (p for p in self._rest(term, experts) if p.out_features == experts[-1].groups)
        return behind or tuple(p for p in weighing if p not in self._graph.ancestors([experts[0].event]))

    def _latents(
        self, term: Term, experts: tuple[Projection, ...], router: tuple[Projection, ...]
    ) -> tuple[Projection, ...]:
        """Return the projections into and out of a width of their own that the experts work in."""
        narrow = experts[0].in_features
        rest = self._rest(term, (*experts, *router))
        shapes = {(self._hidden_size, narrow), (narrow, self._hidden_size)}
        return tuple(p for p in rest if narrow != self._hidden_size and (p.in_features, p.out_features) in shapes)

    def _shared(self, term: Term, elsewhere: tuple[Projection, ...]) -> Mlp:
        """Return what every token runs beside the routed experts: one feed-forward, or several side by side."""
        projections = self._beside(term, elsewhere)
        side_by_side = projections[0].groups
        if side_by_side > 1:
            mlp = self._between(projections, projections[-1], self._hidden_size, elsewhere)
            return dataclasses.replace(mlp, width=mlp.width * side_by_side)
        return self.dense(projections, term.root)

    def _beside(self, term: Term, elsewhere: tuple[Projection, ...]) -> tuple[Projection, ...]:
        return tuple(p for p in self._projections_of(term) if p not in elsewhere)

    def _input_gates(self, rest: tuple[Projection, ...], first: tuple[Projection, ...]) -> tuple[Projection, ...]:
        """Return those of the rest that a value straight off the stream was multiplied with before the first ones."""
        graph = self._graph
        before = graph.walk_back(
            (p.data for p in first), lambda value: value in graph.projections or value in graph.stream
        )
        made = [graph.producer[value] for value in before if value in graph.producer]
        scaling = [event for event in made if event.op == "aten.mul" and len(graph.fluid(event)) == 2]
        gates = {
            p
            for event in scaling
            if any(graph.leaves_stream(value) for value in graph.fluid(event))
            for value in graph.fluid(event)
            for top in graph.nearest_projections([value])
            if top in rest
            for p in (top, *graph.ancestors([top.event]))
            if p in rest
        }
        return graph.in_order(gates)

    def _adapters(self, projections: tuple[Projection, ...], first: Iterable[Projection]) -> tuple[Projection, ...]:
        """Return the low-rank pairs among projections that add to what the first ones return."""
        found: list[Projection] = []
        for up in first:
            before = self._graph.nearest_projections([up.data])
            beside = [p for p in first if p is not up and p.out_features == up.out_features]
            if len(before) == 1 and before[0] in projections and beside and up.in_features < self._hidden_size:
                found += [before[0], up]
        return tuple(found)

    def activations(self, last: Projection) -> tuple[str, ...]:
        """Return the activations that run between a projection and those before it."""
        run, between = self._graph.run, self._inner(last)
        modules = [f"{a.module} ({a.name})" for a in run.activations if a.output in between]
        operators = [
            f"{event.module or run.path} ({event.op})"
            for event in run.events
            if event.activation is None
            and event.op in NONLINEAR
            and between.intersection(event.outputs)
            and not self._caps(event)
        ]
        return tuple(modules + operators)

    def _inner(self, last: Projection) -> set[int]:
        """Return the values between a projection and those before it."""
        graph = self._graph

        def stop(value: int) -> bool:
            return value in graph.projections or value in graph.stream

        return set(graph.walk_back([last.data], stop, graph.content))

    def _cuts_activations(self, last: Projection) -> bool:
        """Tell whether what lies above a threshold made of the values' own statistics is all that is kept."""
        graph, between = self._graph, self._inner(last)
        cuts = [event for event in graph.run.events if event.op == "aten.relu" and between.intersection(event.outputs)]
        above = [event for cut in cuts if (event := graph.producer.get(cut.inputs[0])) and event.op == "aten.sub"]
        return any(
            len(event.inputs) == 2 and event.inputs[0] in graph.walk_back(event.inputs[1:], lambda _: False)
            for event in above
        )

    def _caps(self, event: Event) -> bool:
        """Tell whether a tanh bounds a value softly, divided before by the number it is multiplied with after."""
        before = self._graph.producer.get(event.inputs[0])
        if event.op != "aten.tanh" or before is None or before.op != "aten.div":
            return False
        after = [consumer for consumer in self._graph.consumers(event.outputs[0]) if consumer.op == "aten.mul"]
        return any(before.scalars and before.scalars == consumer.scalars for consumer in after)
