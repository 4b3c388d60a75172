"""A layer's block parts, read off its data flow: mixers, feed-forwards, norms, dropouts, branches.

Every residual branch ends in a sum onto the residual stream. What is summed are its terms; a term with a
score kernel or a recurrence among what it was made of is a token mixer's, any other a feed-forward's. Every
projection of the layer must have a place in one of them: one without is an error that names it, so that
nothing is left uncounted in silence.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cached_property

from census.attention_operators import repeats
from census.blocks import FeedForward, Kernel, Mixer
from census.dataflow import Projection, Source
from census.errors import UnknownPartError
from census.events import DROPOUT, Event, LayerRun, Recording
from census.feed_forwards import CHOICES, NONLINEAR, FeedForwards, Term, unknown
from census.graph import LayerGraph, Norm

_TOKEN_MIXING = frozenset({"aten.convolution", "aten.cumsum", "aten.cumprod", "aten.logcumsumexp", "aten.roll"})
"""Operators that carry something from one token to another."""


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

    def _unknown(self, module: str, expected: str, found: str, *then: str) -> UnknownPartError:
        return unknown(self.run, module, expected, found, *then)

    @cached_property
    def hidden_size(self) -> int:
        """The width of the residual stream, of one of them where a layer keeps several side by side."""
        written = [value for event, value in self.graph.recombined.items() if value not in self.graph.stream]
        return self.graph.shape(written[-1] if written else self.run.input)[-1]

    @cached_property
    def streams(self) -> int:
        """How many residual streams the layer keeps side by side."""
        return math.prod(self.graph.shape(self.run.input)) // (self.tokens * self.hidden_size)

    @cached_property
    def tokens(self) -> int:
        """How many tokens the layer is given: batch times sequence."""
        shape = self.graph.shape(self.run.input)
        if len(shape) < 4:
            return math.prod(shape[:-1])
        [*_, root] = (term.root for branch in self._branches for term in branch)
        return math.prod(self.graph.shape(root)) // self.hidden_size

    @cached_property
    def _branches(self) -> tuple[tuple[Term, ...], ...]:
        """For every sum onto the residual stream, its terms: what it adds that no earlier sum has added."""
        found: list[tuple[Term, ...]] = []
        added: set[int] = set()
        if self.graph.start != self.run.input:
            found.append((self._term(self.graph.start),))
        for event in self.run.events:
            if event.op in ("aten.add", "aten.add_") and event.outputs[0] in self.graph.stream:
                roots = [root for root in self._roots(event.outputs[0]) if root not in added]
                added.update(roots)
                if roots:
                    found.append(self._merged([self._term(root) for root in roots]))
        return tuple(found)

    def _merged(self, terms: list[Term]) -> tuple[Term, ...]:
        """Return terms, those that share a kernel as one: its output, and a convolution of it, say."""
        merged: list[Term] = []
        for term in terms:
            kernels = self._kernels_of(term)
            same = next((one for one in merged if set(kernels) & set(self._kernels_of(one))), None)
            if same is None:
                merged.append(term)
            else:
                merged[merged.index(same)] = Term(same.root, same.closure | term.closure)
        return tuple(merged)

    def _roots(self, value: int) -> list[int]:
        """Return the values, the stream's start apart, that a value is the transparent sum of."""
        seen: set[int] = set()
        roots, pending = [], [value]
        for part in pending:
            event = self.graph.producer.get(part)
            ends = event is None or part in self.graph.projections or part == self.graph.start
            passed = () if event is None or ends else self.graph.passes(event)
            if not passed and part != self.graph.start:
                roots.append(part)
            pending.extend(source for source in passed if source not in seen)
            seen.update(passed)
        return roots

    def _term(self, root: int) -> Term:
        graph = self.graph
        walk = graph.walk_back([root], lambda value: value in graph.stream and value != root, graph.weighed_content)
        return Term(root, frozenset(walk))

    def _projections_of(self, term: Term) -> tuple[Projection, ...]:
        return self.graph.in_order(p for value, p in self.graph.projections.items() if value in term.closure)

    def _entries(self, projections: tuple[Projection, ...]) -> frozenset[int]:
        """Return the values, normed or not, at which projections leave the residual stream."""
        entries = (self.graph.leaves_stream(projection.data) for projection in projections)
        return frozenset(entry for entry in entries if entry is not None)

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

    def _mixes(self, term: Term) -> bool:
        return bool(self._kernels_of(term)) or self._convolves(term)

    def _convolves(self, term: Term) -> bool:
        """Tell whether a term without a kernel mixes tokens by short convolutions between projections alone."""
        if self._kernels_of(term):
            return False
        between = self._between_tokens(term)
        first = self.graph.nearest_projections(v for event in between for v in event.inputs[:1])
        return bool(first) and all(
            event.op == "aten.convolution" and self.graph.source(event.inputs[1]) is Source.WEIGHT for event in between
        )

    def _between_tokens(self, term: Term) -> list[Event]:
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

    def _kernels_of(self, term: Term) -> tuple[Event, ...]:
        return tuple(kernel for kernel in self.graph.kernels if term.closure.intersection(kernel.outputs))

    def _mixer(self, term: Term) -> Mixer:
        graph = self.graph
        projections = self._projections_of(term)
        kernels = tuple(self._kernel(event) for event in self._kernels_of(term))
        roles = self.graph.in_order(p for kernel in kernels for role in kernel.roles for p in role)
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
        near, far = self._after(projections, mixing, after)
        before = graph.ancestors(mixing)
        rest = [p for p in projections if p not in (*near, *far, *roles)]
        latents = tuple(p for p in rest if p in before and self._feeds(p, roles))
        controls = tuple(p for p in rest if p in before and p not in latents)
        self._refuse_chained(kernels, after)
        chained = None
        if far:
            inner = tuple(p for p in rest if p not in before and self._feeds(p, far))
            chained = self._reader.dense(graph.in_order((*far, *inner)), term.root)
        return Mixer(
            kernels=kernels,
            outputs=near,
            latents=latents,
            gates=tuple(p for p in rest if p not in before and (chained is None or p not in chained.held)),
            controls=controls,
            convolutions=convolutions,
            starts=frozenset(p.data for p in projections if self._entries((p,))),
            chained=chained,
        )

    def _after(
        self, projections: tuple[Projection, ...], mixing: Sequence[Event], after: set[int]
    ) -> tuple[tuple[Projection, ...], tuple[Projection, ...]]:
        """Return the projections of a mixer's output, and those of a feed-forward that takes what they return.

        Projections that follow each other with nothing nonlinear between are all of the output.
        """
        graph = self.graph
        outputs = tuple(p for p in projections if p.data in after)
        made = [value for event in mixing for value in event.outputs]
        direct = set(graph.walk_on(made, lambda value: value in graph.stream or value in graph.projections))
        near = tuple(p for p in outputs if p.data in direct)
        for event in self.run.events:
            if event.op in NONLINEAR and after.intersection(event.inputs):
                if direct.intersection(event.inputs) - {p.output for p in near}:
                    raise self._unknown(event.module, "projections alone from a kernel to its branch's end", event.op)
                return near, tuple(p for p in outputs if p not in near)
        return outputs, ()

    def _refuse_chained(self, kernels: tuple[Kernel, ...], after: set[int]) -> None:
        """Refuse a mixer one of whose kernels takes another's output."""
        for kernel in kernels:
            if after.intersection(value for value in kernel.taken if value is not None):
                raise self._unknown(
                    kernel.event.module, "kernels side by side on a branch", "one that takes another's output"
                )

    def _kernel(self, event: Event) -> Kernel:
        heads = event.attributes.get("heads")
        if heads is None:
            heads = tuple(self._heads(value) for value in event.inputs[:3])
        values = iter(event.inputs)
        taken = tuple(None if head is None else next(values) for head in heads)  # type: ignore[attr-defined]
        roles = tuple(() if value is None else self.graph.nearest_projections([value]) for value in taken)
        return Kernel(event, taken, heads, roles)  # type: ignore[arg-type]

    def _heads(self, value: int) -> tuple[int, int]:
        """Return heads and width of a score kernel's operand, shaped (batch, heads, sequence, width).

        Keys and values that a layer repeats itself for the queries' heads have as many as before.
        """
        shape = self.graph.shape(value)
        return shape[1] // repeats(self.graph, value), shape[-1]

    def _feeds(self, projection: Projection, later: tuple[Projection, ...]) -> bool:
        return projection in self.graph.ancestors(p.event for p in later)

    @cached_property
    def feed_forwards(self) -> tuple[FeedForward, ...]:
        """The feed-forwards: one for each residual branch that has terms without a kernel, and those behind a mixer."""
        found = [FeedForward(mixer.chained) for mixer in self.mixers if mixer.chained is not None]
        for branch in self._branches:
            terms = [term for term in branch if self._feeds_forward(term)]
            for term in terms:
                self._refuse_token_mixing(term)
            if terms:
                found.append(self._reader.branch(terms))
        return tuple(found)

    @cached_property
    def feed_forward(self) -> FeedForward | None:
        """The layer's feed-forward, all branches together, None where it has none."""
        return self._reader.together(self.feed_forwards)

    @cached_property
    def _reader(self) -> FeedForwards:
        return FeedForwards(self.graph, self.hidden_size, self.tokens)

    def _feeds_forward(self, term: Term) -> bool:
        others = self._mixes(term) or self._conditioned(term) or self._low_rank(term)
        return bool(self._projections_of(term)) and not others

    def _low_rank(self, term: Term) -> bool:
        """Tell whether a term is the stream itself, through a narrower width and back with nothing between."""
        projections = self._projections_of(term)
        if len(projections) != 2 or self._mixes(term) or self._reader.activations(projections[-1]):
            return False
        down, up = projections
        narrow = down.out_features == up.in_features < self.hidden_size == down.in_features == up.out_features
        return narrow and self.graph.nearest_projections([up.data]) == (down,)

    @cached_property
    def low_rank_residuals(self) -> tuple[Projection, ...]:
        """The projections of branches that are a low-rank map of the stream, with nothing nonlinear in them."""
        terms = [term for branch in self._branches for term in branch if self._low_rank(term)]
        for term in terms:
            self._refuse_token_mixing(term)
        return self.graph.in_order(p for term in terms for p in self._projections_of(term))

    def _conditioned(self, term: Term) -> bool:
        """Tell whether a term without a kernel multiplies its one inner value by one from outside the layer."""
        return not self._mixes(term) and len(self._projections_of(term)) == 2 and self._takes_from_outside(term)

    def _takes_from_outside(self, term: Term) -> bool:
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
        return self.graph.in_order(p for term in terms for p in self._projections_of(term))

    def _refuse_token_mixing(self, term: Term) -> None:
        """Refuse a term without a kernel in which something still carries one token to another.

        A router may: it counts the tokens before one, for an expert's capacity.
        """
        choices = [event for event in self.run.events if event.op in CHOICES]
        routers = set(self.graph.ancestors(choices))
        for event in self._between_tokens(term):
            if choices and set(self.graph.nearest_projections(event.inputs)) <= routers:
                continue
            raise self._unknown(
                event.module,
                "a score kernel or a recurrence that census knows where tokens are mixed",
                event.op,
                "if it is a recurrence, register its function in census/recurrences.py; else report the model",
            )

    def require_every_projection(self) -> None:
        """Refuse the layer if one of its projections has no place in a part.

        A sparse attention's indexer has one, though none in the op vector: what it projects chooses keys, by
        a top-k, and reaches no residual branch. So has a per-layer input.

        Raises:
            UnknownPartError: names the projection.
        """
        parts: tuple[Mixer | FeedForward, ...] = (*self.mixers, *self.feed_forwards)
        placed = {p for part in parts for p in part.projections}
        placed.update(self.per_layer_inputs, self.low_rank_residuals, self.graph.connections)
        rest = self.graph.in_order(p for p in self.graph.projections.values() if p not in placed)
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
        starts += [frozenset(p.data for p in mixer.chained.projections[:1]) for mixer in self.mixers if mixer.chained]
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
            if not self._of_the_embedding(norm)
            and not self._belongs_to_low_rank(norm)
            and (
                norm.output in graph.toward_output
                or (graph.on_stream(norm.input) and not self._routes_alone(norm))
                or self._norms_again(norm)
                or self._feeds_chained(norm)
            )
        )

    def _of_the_embedding(self, norm: Norm) -> bool:
        """Tell whether a norm is the stream's own from where it enters: no branch takes what it returns as it is."""
        graph = self.graph
        if graph.unscaled(norm.input) != self.run.input:
            return False
        if norm.output not in graph.stream and any(
            graph.unscaled(other.input) == norm.output for other in graph.norms.values()
        ):
            # A branch norms what it takes twice.
            return False
        return all(graph.leaves_stream(p.data) != norm.output for p in graph.projections.values())

    def _norms_again(self, norm: Norm) -> bool:
        """Tell whether a norm takes what a branch takes and another has normed; one before an indexer is its own."""
        graph = self.graph
        if graph.on_stream(norm.input) or not graph.comes_off_stream(norm.input):
            return False
        taking = {p for mixer in self.mixers for p in mixer.projections if p not in mixer.controls}
        taking |= {p for feed_forward in self.feed_forwards for p in feed_forward.projections}
        reached = graph.walk_on([norm.output], lambda value: value in graph.projections or value in graph.stream)
        return any(graph.projections.get(value) in taking - self._routing for value in reached)

    @cached_property
    def _routing(self) -> frozenset[Projection]:
        """The projections that are a router's or a connection's own."""
        return frozenset({*self.graph.connections, *(p for ff in self.feed_forwards for p in ff.router)})

    def _feeds_chained(self, norm: Norm) -> bool:
        """Tell whether a norm is at the input of a feed-forward that takes a mixer's output."""
        graph = self.graph
        chained = {p for mixer in self.mixers if mixer.chained for p in mixer.chained.projections}
        reached = graph.walk_on([norm.output], lambda value: value in graph.projections or value in graph.stream)
        return not chained.isdisjoint(graph.projections[value] for value in reached if value in graph.projections)

    def _belongs_to_low_rank(self, norm: Norm) -> bool:
        """Tell whether a norm takes what a low-rank map of the stream returns: it is the map's own."""
        return not set(self.graph.nearest_projections([norm.input])).isdisjoint(self.low_rank_residuals)

    def _routes_alone(self, norm: Norm) -> bool:
        """Tell whether a norm is a router's or a connection's own: all that its output is projected by is theirs."""
        graph = self.graph
        ends = {*graph.projections, *graph.stream, *graph.coefficients, *graph.depth_attended}
        reached = graph.walk_on([norm.output], lambda value: value in ends)
        fed = {graph.projections[value] for value in reached if value in graph.projections}
        return fed <= self._routing and (bool(fed) or bool(graph.recombined))

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
    def norms_of_branches(self) -> tuple[tuple[Norm, ...], ...]:
        """The layer's own norms by residual branch: a branch has those at its ends, and those after its sum.

        Attention and feed-forward in parallel are one branch where one input feeds both, as they are one region.
        Norms of the stream itself follow the sums, or, where one stands before all of them, precede the branches.
        """
        graph = self.graph
        halves = (([t for t in b if self._mixes(t)], [t for t in b if not self._mixes(t)]) for b in self._branches)
        branches = [half for branch in halves for half in branch if half]
        closures = [frozenset().union(*(term.closure for term in branch)) for branch in branches]
        ends = [max(self._place(term.root) for term in branch) for branch in branches]
        of_stream = [n for n in self.norms if graph.on_stream(n.input) and n.output in graph.toward_output]
        leading = any(self._place(norm.output) < min(ends) for norm in of_stream)
        found: list[list[Norm]] = [[] for _ in branches]
        for norm in self.norms:
            if norm in of_stream:
                passed = sum(end < self._place(norm.output) for end in ends)
                place = min(passed, len(ends) - 1) if leading else max(passed - 1, 0)
            else:
                taken = [place for place, closure in enumerate(closures) if norm.output in closure]
                summed = set(self._roots(norm.input))
                place = (taken or [place for place, c in enumerate(closures) if not summed.isdisjoint(c)])[0]
            found[place].append(norm)
        entries = [self._entries(tuple(p for t in branch for p in self._projections_of(t))) for branch in branches]
        # Where one input feeds two branches (a parallel layer), they are one; what projects nothing is none.
        dropped = [
            place for place, entry in enumerate(entries) if not found[place] and (not entry or entry in entries[:place])
        ]
        return tuple(tuple(norms) for place, norms in enumerate(found) if place not in dropped)

    def _place(self, value: int) -> int:
        """Return when a value was made, in the order of events; -1 for what the layer was given."""
        event = self.graph.producer.get(value)
        return -1 if event is None else self.graph.order[id(event)]

    @cached_property
    def index_choice(self) -> tuple[Event, int] | None:
        """The choice of a sparse attention's entries: the top-k, and the queries whose scores it takes.

        It scores tokens against each other, which a router's choice does not.
        """
        graph = self.graph
        for event in self.run.events:
            if event.op == "aten.topk":
                made_of = graph.walk_back(event.inputs[:1], lambda value: value in graph.stream)
                scores = [value for value in made_of if value in graph.mixing_matmuls]
                if scores:
                    return event, graph.mixing_matmuls[scores[-1]][0]
        return None

    @cached_property
    def positions(self) -> bool | None:
        """Whether score kernels' keys are moved by their positions: made of a table from outside the layer too.

        Keys, since queries may be scaled by their position where nothing is rotated. None without a score kernel of
        the stream's own keys.
        """
        graph = self.graph
        keys = [
            kernel.taken[1]
            for mixer in self.mixers
            for kernel in mixer.kernels
            if kernel.scores and not any(graph.source(key.data) is Source.EXTERNAL for key in kernel.roles[1])
        ]
        made_of = graph.walk_back(
            [key for key in keys if key is not None],
            lambda value: value in graph.projections or value in graph.stream,
        )
        return any(graph.source(value) is Source.EXTERNAL for value in made_of) if keys else None

    @cached_property
    def dropouts(self) -> tuple[Event, ...]:
        """The dropouts with p > 0 that run outside a score kernel."""
        own = {event for attention in self.graph.eager_attentions for event in attention.dropouts}
        return tuple(event for event in self.run.events if event.op == DROPOUT and event not in own)
