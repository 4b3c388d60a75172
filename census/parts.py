"""A layer's block parts, read off its data flow: mixers, feed-forwards, norms, dropouts, branches.

Every residual branch ends in a sum onto the residual stream. What is summed are its terms; a term with a
score kernel or a recurrence among what it was made of is a token mixer's, any other a feed-forward's. Every
projection of the layer must have a place in one of them: one without is an error that names it, so that
nothing is left uncounted in silence.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

from census.blocks import FeedForward, Kernel, Mixer, Mlp
from census.dataflow import Projection, Source
from census.errors import UnknownPartError
from census.events import DROPOUT, Event, LayerRun, Recording
from census.graph import LayerGraph, Norm

_NONLINEAR = frozenset(
    f"aten.{name}"
    for name in (
        "silu gelu relu sigmoid tanh softplus elu leaky_relu hardswish hardsigmoid hardtanh mish log_sigmoid "
        "glu erf relu6 celu selu prelu rrelu threshold silu_ relu_ sigmoid_ tanh_"
    ).split()
)
_CHOICES = frozenset({"aten.topk", "aten.max", "aten.argmax"})
"""Operators by which a router chooses experts."""
_TOKEN_MIXING = frozenset({"aten.convolution", "aten.cumsum", "aten.cumprod", "aten.logcumsumexp", "aten.roll"})
"""Operators that carry something from one token to another."""


@dataclass(frozen=True, slots=True)
class _Term:
    root: int
    closure: frozenset[int]


class LayerParts:
    """The block parts of one layer execution.

    Raises:
        UnknownPartError: when a part is read that no rule recognises.
    """

    def __init__(self, recording: Recording, run: LayerRun) -> None:
        self.run = run
        self.graph = LayerGraph(recording, run)
        if not self.graph.stream:
            raise self._unknown(
                "", "a residual stream from the layer's input to its output", "no sum or norm that carries it"
            )

    def _unknown(
        self,
        module: str,
        expected: str,
        found: str,
        then: str = "teach census this part (census/parts.py), or report the model",
    ) -> UnknownPartError:
        where = f"{self.run.path}.{module}" if module else self.run.path
        return UnknownPartError(f"{where}: expected {expected}, found {found}; {then}")

    @cached_property
    def hidden_size(self) -> int:
        """The width of the residual stream."""
        return self.graph.shape(self.run.input)[-1]

    @cached_property
    def _branches(self) -> tuple[tuple[_Term, ...], ...]:
        """For every sum onto the residual stream, its terms: what it adds that no earlier sum has added."""
        found = []
        added: set[int] = set()
        for event in self.run.events:
            if event.op in ("aten.add", "aten.add_") and event.outputs[0] in self.graph.stream:
                roots = [root for root in self._roots(event.outputs[0]) if root not in added]
                added.update(roots)
                if roots:
                    found.append(tuple(self._term(root) for root in roots))
        return tuple(found)

    def _roots(self, value: int) -> list[int]:
        """Return the values, the layer's input apart, that a value is the transparent sum of."""
        seen: set[int] = set()
        roots, pending = [], [value]
        for part in pending:
            event = self.graph.producer.get(part)
            passed = self.graph.passes(event) if event is not None and part not in self.graph.projections else ()
            if not passed and part != self.run.input:
                roots.append(part)
            pending.extend(source for source in passed if source not in seen)
            seen.update(passed)
        return roots

    def _term(self, root: int) -> _Term:
        return _Term(root, frozenset(self.graph.walk_back([root], lambda value: value in self.graph.stream)))

    def _projections_of(self, term: _Term) -> tuple[Projection, ...]:
        return self._in_order(p for value, p in self.graph.projections.items() if value in term.closure)

    def _in_order(self, projections: Iterable[Projection]) -> tuple[Projection, ...]:
        unique = {id(p.event): p for p in projections}
        return tuple(sorted(unique.values(), key=lambda p: self.graph.order[id(p.event)]))

    def _entries(self, projections: tuple[Projection, ...]) -> frozenset[int]:
        """Return the values, normed or not, at which projections leave the residual stream."""
        found = set()
        for projection in projections:
            entry = self.graph.unscaled(projection.data)
            norm = self.graph.norms.get(entry)
            if entry in self.graph.stream or (norm is not None and self.graph.on_stream(norm.input)):
                found.add(entry)
        return frozenset(found)

    @cached_property
    def mixers(self) -> tuple[Mixer, ...]:
        """The token mixers, in the order of their branches."""
        terms = [term for branch in self._branches for term in branch if self._mixes(term)]
        mixers = tuple(self._mixer(term) for term in terms)
        unread = [kernel for kernel in self.graph.kernels if not any(kernel in m.events for m in mixers)]
        if unread:
            raise self._unknown(
                unread[0].module,
                "a kernel's output on a residual branch",
                f"{unread[0].op} that reaches none",
            )
        return mixers

    def _mixes(self, term: _Term) -> bool:
        return bool(self._kernels_of(term)) or self._convolves(term)

    def _convolves(self, term: _Term) -> bool:
        """Tell whether a term without a kernel mixes tokens by short convolutions between projections alone."""
        if self._kernels_of(term):
            return False
        between = self._between_tokens(term)
        first = self.graph.nearest_projections(v for event in between for v in event.inputs[:1])
        return bool(first) and all(
            event.op == "aten.convolution" and self.graph.source(event.inputs[1]) is Source.WEIGHT for event in between
        )

    def _between_tokens(self, term: _Term) -> list[Event]:
        """Return the events of a term that carry something from one token to another."""
        graph = self.graph
        reached = set(graph.walk_back([term.root], lambda value: value in graph.stream, graph.content))
        return [
            event
            for event in self.run.events
            if (event.op in _TOKEN_MIXING or event.outputs[0] in graph.mixing_matmuls)
            and graph.fluid(event)
            and not reached.isdisjoint(event.outputs)
        ]

    def _kernels_of(self, term: _Term) -> tuple[Event, ...]:
        return tuple(kernel for kernel in self.graph.kernels if term.closure.intersection(kernel.outputs))

    def _mixer(self, term: _Term) -> Mixer:
        graph = self.graph
        projections = self._projections_of(term)
        kernels = tuple(self._kernel(event) for event in self._kernels_of(term))
        roles = self._in_order(p for kernel in kernels for role in kernel.roles for p in role)
        convolutions = tuple(
            e for e in self.run.events if e.op == "aten.convolution" and term.closure.intersection(e.outputs)
        )
        mixing = [kernel.event for kernel in kernels] or convolutions
        after = set(
            graph.walk_on(
                (value for event in mixing for value in event.outputs),
                lambda value: value in graph.stream,
            )
        )
        outputs = tuple(p for p in projections if p.data in after)
        before = self._ancestors(mixing)
        rest = [p for p in projections if p not in outputs and p not in roles]
        latents = tuple(p for p in rest if p in before and self._feeds(p, roles))
        controls = tuple(p for p in rest if p in before and p not in latents)
        self._refuse_mixed_mixer(kernels, after)
        return Mixer(
            kernels=kernels,
            outputs=outputs,
            latents=latents,
            gates=tuple(p for p in rest if p not in before),
            controls=controls,
            convolutions=convolutions,
            starts=frozenset(p.data for p in projections if self._entries((p,))),
        )

    def _refuse_mixed_mixer(self, kernels: tuple[Kernel, ...], after: set[int]) -> None:
        """Refuse a mixer that holds more than kernels side by side and what projects into and out of them."""
        for kernel in kernels:
            if after.intersection(value for value in kernel.taken if value is not None):
                raise self._unknown(
                    kernel.event.module, "kernels side by side on a branch", "one that takes another's output"
                )
        for event in self.run.events:
            if event.op in _NONLINEAR and after.intersection(event.inputs):
                raise self._unknown(event.module, "projections alone from a kernel to its branch's end", event.op)

    def _kernel(self, event: Event) -> Kernel:
        heads = event.attributes.get("heads")
        if heads is None:
            heads = tuple(self._heads(value) for value in event.inputs[:3])
        values = iter(event.inputs)
        taken = tuple(None if head is None else next(values) for head in heads)  # type: ignore[attr-defined]
        roles = tuple(() if value is None else self.graph.nearest_projections([value]) for value in taken)
        return Kernel(event, taken, heads, roles)  # type: ignore[arg-type]

    def _heads(self, value: int) -> tuple[int, int]:
        """Return heads and width of a score kernel's operand, shaped (batch, heads, sequence, width)."""
        shape = self.graph.shape(value)
        return shape[1], shape[-1]

    def _ancestors(self, events: Iterable[Event]) -> tuple[Projection, ...]:
        """Return every projection that events' inputs were made by, near or far."""
        graph = self.graph
        reached = set(
            graph.walk_back(
                (value for event in events for value in event.inputs),
                lambda value: value in graph.stream,
            )
        )
        return self._in_order(p for value, p in graph.projections.items() if value in reached)

    def _feeds(self, projection: Projection, later: tuple[Projection, ...]) -> bool:
        return projection in self._ancestors(p.event for p in later)

    @cached_property
    def feed_forwards(self) -> tuple[FeedForward, ...]:
        """The feed-forwards, one for each residual branch that has terms without a kernel."""
        found = []
        for branch in self._branches:
            terms = [term for term in branch if self._feeds_forward(term)]
            if terms:
                found.append(self._feed_forward(terms))
        return tuple(found)

    def _feeds_forward(self, term: _Term) -> bool:
        return bool(self._projections_of(term)) and not self._mixes(term) and not self._conditioned(term)

    def _conditioned(self, term: _Term) -> bool:
        """Tell whether a term without a kernel multiplies its one inner value by one from outside the layer."""
        return not self._mixes(term) and len(self._projections_of(term)) == 2 and self._takes_from_outside(term)

    def _takes_from_outside(self, term: _Term) -> bool:
        graph = self.graph
        return any(
            event.op == "aten.mul" and Source.EXTERNAL in map(graph.source, event.inputs)
            for event in self.run.events
            if term.closure.intersection(event.outputs) and graph.fluid(event)
        )

    @cached_property
    def per_layer_inputs(self) -> tuple[Projection, ...]:
        """The projections of branches that a value from outside the layer is multiplied into."""
        terms = [term for branch in self._branches for term in branch if self._conditioned(term)]
        for term in terms:
            self._refuse_token_mixing(term)
        return self._in_order(p for term in terms for p in self._projections_of(term))

    def _refuse_token_mixing(self, term: _Term) -> None:
        """Refuse a term without a kernel in which something still carries one token to another."""
        for event in self._between_tokens(term):
            raise self._unknown(
                event.module,
                "a score kernel or a recurrence that census knows where tokens are mixed",
                event.op,
                "if it is a recurrence, register its function in census/recurrences.py; else report the model",
            )

    def _feed_forward(self, terms: list[_Term]) -> FeedForward:
        for term in terms:
            self._refuse_token_mixing(term)
        routed_terms = [term for term in terms if self._experts_of(term)]
        others = [term for term in terms if term not in routed_terms]
        if len(routed_terms) > 1 or len(others) > 1:
            modules = ", ".join(self._projections_of(term)[-1].event.module for term in terms)
            raise self._unknown("", "at most one routed and one other feed-forward on a branch", modules)
        if not routed_terms:
            return FeedForward(self._mlp(self._projections_of(others[0]), self.hidden_size), None, (), None, None, None)
        [term] = routed_terms
        experts = self._experts_of(term)
        choice, router = self._choice(term, experts)
        latents = self._latents(term, experts, router)
        shared, gate = self._shared(others[0]) if others else (None, None)
        width = experts[0].in_features if latents else self.hidden_size
        return FeedForward(None, self._mlp(experts, width), router, choice, shared, gate, latents)

    def _latents(
        self, term: _Term, experts: tuple[Projection, ...], router: tuple[Projection, ...]
    ) -> tuple[Projection, ...]:
        """Return the projections into and out of the width the experts work in, refusing any other."""
        rest = tuple(p for p in self._projections_of(term) if p not in experts and p not in router)
        narrow = experts[0].in_features
        shapes = [(p.in_features, p.out_features) for p in rest]
        if rest and shapes != [(self.hidden_size, narrow), (narrow, self.hidden_size)]:
            raise self._unknown(rest[0].event.module, "experts and a router in a routed feed-forward", f"{rest[0]}")
        return rest

    def _experts_of(self, term: _Term) -> tuple[Projection, ...]:
        return tuple(p for p in self._projections_of(term) if p.groups > 1)

    def _choice(self, term: _Term, experts: tuple[Projection, ...]) -> tuple[Event, tuple[Projection, ...]]:
        """Return the last choice among what a routed output is made of, and the projections behind it."""
        choices = [
            event for event in self.run.events if event.op in _CHOICES and term.closure.intersection(event.outputs)
        ]
        if not choices:
            raise self._unknown(
                experts[0].event.module,
                f"a choice among the {experts[0].groups} experts",
                f"none of {', '.join(sorted(_CHOICES))} among what their output is made of",
            )
        return choices[-1], tuple(p for p in self._ancestors(choices[-1:]) if p not in experts)

    def _shared(self, term: _Term) -> tuple[Mlp, Projection | None]:
        projections = self._projections_of(term)
        gates = [p for p in projections if p.out_features == 1]
        mlp = self._mlp(tuple(p for p in projections if p not in gates), self.hidden_size)
        return mlp, gates[0] if gates else None

    def _mlp(self, projections: tuple[Projection, ...], width: int) -> Mlp:
        """Return the feed-forward of projections up from and down to a width."""
        last = projections[-1]
        first = self.graph.nearest_projections([last.data])
        if not first or last.out_features != width or {*first, last} != set(projections):
            found = ", ".join(str(p) for p in projections)
            raise self._unknown(last.event.module, "projections up from and down to the stream", found)
        return Mlp(projections, self._activations_between(last), last.in_features)

    def _activations_between(self, last: Projection) -> tuple[str, ...]:
        """Return the activations that run between the first projections and the last one."""
        graph = self.graph
        between = set(
            graph.walk_back(
                [last.data],
                lambda value: value in graph.projections or value in graph.stream,
                graph.content,
            )
        )
        modules = [f"{a.module} ({a.name})" for a in self.run.activations if a.output in between]
        operators = [
            f"{event.module or self.run.path} ({event.op})"
            for event in self.run.events
            if event.activation is None and event.op in _NONLINEAR and between.intersection(event.outputs)
        ]
        return tuple(modules + operators)

    def require_every_projection(self) -> None:
        """Refuse the layer if one of its projections has no place in a part.

        A sparse attention's indexer has one, though none in the op vector: what it projects chooses keys, by
        a top-k, and reaches no residual branch. So has a per-layer input.

        Raises:
            UnknownPartError: names the projection.
        """
        parts: tuple[Mixer | FeedForward, ...] = (*self.mixers, *self.feed_forwards)
        placed = {p for part in parts for p in part.projections}
        placed.update(self.per_layer_inputs)
        rest = self._in_order(p for p in self.graph.projections.values() if p not in placed)
        choices = [event.inputs[0] for event in self.run.events if event.op == "aten.topk"]
        choosing = set(self.graph.walk_back(choices, lambda value: value in self.graph.stream))
        for projection in rest:
            if projection.output not in choosing:
                raise self._unknown(
                    projection.event.module,
                    "a place for every projection of the layer",
                    f"{projection} without",
                )

    @cached_property
    def regions(self) -> int:
        """How many tensor-parallel regions the layer has.

        A branch is one; token mixers and feed-forwards that leave the stream at the same value are one.
        """
        starts: list[frozenset[int]] = []
        for branch in self._branches:
            mixers = frozenset().union(*(self._entries(self._projections_of(t)) for t in branch if self._mixes(t)))
            others = frozenset().union(
                *(self._entries(self._projections_of(t)) for t in branch if self._feeds_forward(t))
            )
            starts += [start for start in (mixers, others) if start]
        regions: list[frozenset[int]] = []
        for start in starts:
            if not any(start & region for region in regions):
                regions.append(start)
        return len(regions)

    @cached_property
    def norms(self) -> tuple[Norm, ...]:
        """The layer's own norms: those that take the residual stream, or whose output is summed onto it."""
        graph = self.graph
        return tuple(
            norm
            for norm in graph.norms.values()
            if norm.output in graph.toward_output or (graph.on_stream(norm.input) and not self._routes_alone(norm))
        )

    def _routes_alone(self, norm: Norm) -> bool:
        """Tell whether all that a norm's output is projected by is a router, whose own the norm then is."""
        graph = self.graph
        routers = {p for feed_forward in self.feed_forwards for p in feed_forward.router}
        reached = graph.walk_on([norm.output], lambda value: value in graph.projections or value in graph.stream)
        fed = {graph.projections[value] for value in reached if value in graph.projections}
        return bool(fed) and fed <= routers

    def norm_biases(self, norm: Norm) -> tuple[str, ...]:
        """Return the parameters a norm adds to what it returns."""
        graph = self.graph
        if norm.event.op == "aten.native_layer_norm":
            shifts = [value for value in norm.event.inputs[2:] if graph.source(value) is Source.WEIGHT]
        else:
            shifts = [
                shift
                for value in graph.walk_on([norm.output], lambda value: graph.unscaled(value) != norm.output)
                if graph.unscaled(value) == norm.output and graph.producer[value].op in ("aten.add", "aten.add_")
                for shift in graph.producer[value].inputs
                if graph.source(shift) is Source.WEIGHT
            ]
        return tuple(name for shift in shifts for name in graph.weights(shift))

    def head_norms(self, kernel: Kernel) -> tuple[Norm, ...]:
        """Return the norms between a kernel's query and key projections and the kernel."""
        graph = self.graph
        reached = set(
            graph.walk_back(
                [value for value in kernel.taken[:2] if value is not None],
                lambda value: value in graph.projections or value in graph.stream,
            )
        )
        return tuple(norm for norm in graph.norms.values() if norm.output in reached)

    @cached_property
    def dropouts(self) -> tuple[Event, ...]:
        """The dropouts with p > 0 that run outside a score kernel."""
        own = {event for attention in self.graph.eager_attentions for event in attention.dropouts}
        return tuple(event for event in self.run.events if event.op == DROPOUT and event not in own)
