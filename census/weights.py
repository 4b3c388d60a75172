"""The parameters of one layer by the part that uses them: what multiplies, and what only scales, shifts or decays.

A parameter has the part of the projection that it is the weight or the bias of, of the norm that it scales, else that
of what next takes the value it was used for: a kernel, a projection, a choice. One that reaches none of these acts on
the residual stream.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from census.dataflow import LOOK_UPS, Projection, Source, held_around
from census.errors import UnknownPartError
from census.events import Event
from census.feed_forwards import CHOICES, unknown
from census.parts import LayerParts

LAYER_PARTS = ("attention", "indexer", "norm", "dense", "routed", "shared", "router", "stream")
"""The parts of a layer that hold parameters.

`attention` is every token mixer with what gates and controls it, `indexer` what chooses a sparse attention's entries,
`norm` the layer's own norms, `dense` the feed-forward that every token runs, `routed` the experts, `shared` what every
token runs beside them, `router` what chooses among them, `stream` what acts on the residual stream itself.
"""

Matrix = tuple[int, ...]
"""A projection's weight: (in, out), or (in, out, held, run).

`held` is how many such matrices the layer holds for it, 0 for one that ran before; `run` how many of them a token runs
through. Two numbers alone are one matrix, held and run.
"""


def matrix(in_features: int, out_features: int, held: int, run: int) -> Matrix:
    """Return a projection's weight in its shortest form."""
    return (in_features, out_features) if held == run == 1 else (in_features, out_features, held, run)


@dataclass(frozen=True, slots=True)
class PartWeights:
    """The parameters that one part of a layer uses.

    Attributes:
        projections: its matmuls with a weight, in the order they ran.
        other: the elements of its parameters that no projection multiplies: norms' weights, biases, convolutions.
        names: all its parameters, by their names in the layer.
        multiplied: those of them that projections multiply.
    """

    projections: tuple[Matrix, ...]
    other: int
    names: frozenset[str]
    multiplied: frozenset[str]


def layer_weights(parts: LayerParts, held: Mapping[str, int], tokens: int, chosen: int) -> dict[str, PartWeights]:
    """Return the parameters of a layer's parts, of those that have any.

    Args:
        parts: the layer.
        held: the elements of every parameter of the layer, by its name.
        tokens: how many tokens of all sequences the model was given.
        chosen: how many experts a token runs, where the layer routes.

    Raises:
        UnknownPartError: matmuls and parameters do not agree on how large a weight is, or how often one runs.
    """
    places = _places(parts)
    # Where a model puts prompts of its own before the tokens, the sequence is what its layers take.
    sequence = parts.tokens if parts.tokens % tokens else tokens
    matrices: dict[str, list[Matrix]] = {part: [] for part in LAYER_PARTS}
    names: dict[str, str] = {}
    multiplied: set[str] = set()
    for projection in parts.graph.projections.values():
        # What has no place in a part chooses entries: all else has been refused (`require_every_projection`).
        part = places.get(projection, "indexer")
        weights = {name for weight in projection.weights for name in _with_siblings(parts, projection, weight, held)}
        if _is_looked_up(parts, projection, weights, held):
            # Rows of a table of another size: the table is no matrix that anything is multiplied with.
            weights = set()
        first = not weights <= multiplied
        run = chosen if _is_an_experts(parts, projection) else _rows_a_token(parts, projection, sequence)
        number = _held(parts, projection, weights, held) if first else 0
        matrices[part].append(matrix(projection.in_features, projection.out_features, number, run))
        names |= dict.fromkeys(weights & held.keys(), part)
        multiplied |= weights
    biased = {name: projection for projection in places for name in projection.bias}
    for event, name in _uses(parts):
        if name in names or name not in held:
            continue
        if name in biased:
            projection = biased[name]
            names |= dict.fromkeys(_with_siblings(parts, projection, name, held), places[projection])
        elif _is_chosen(parts, event, name):
            names[name] = "routed"
        else:
            part = _part_of(parts, places, event, name)
            # What no choice looks up is no expert's own: what the experts take, all tokens run.
            names[name] = "shared" if part == "routed" else part
    return {
        part: PartWeights(
            tuple(matrices[part]),
            sum(held[name] for name, place in names.items() if place == part and name not in multiplied),
            frozenset(name for name, place in names.items() if place == part),
            frozenset(name for name, place in names.items() if place == part and name in multiplied),
        )
        for part in LAYER_PARTS
        if matrices[part] or part in names.values()
    }


def _places(parts: LayerParts) -> dict[Projection, str]:
    placed: dict[Projection, str] = {}
    choosing = parts.graph.ancestors([parts.index_choice[0]]) if parts.index_choice is not None else ()
    for mixer in parts.mixers:
        placed |= dict.fromkeys(mixer.projections, "attention")
        placed |= {projection: "indexer" for projection in mixer.controls if projection in choosing}
    feed_forward = parts.feed_forward
    if feed_forward is not None:
        dense, routed = feed_forward.dense, feed_forward.routed
        taken = parts.graph.walk_back(
            [p.data for p in routed.projections] if routed else (), parts.graph.stream.__contains__, parts.graph.content
        )
        feeding = {parts.graph.projections[value] for value in taken if value in parts.graph.projections}
        # A gated norm's are behind the router's own, and behind what the experts take.
        behind = {p for q in feed_forward.router for p in parts.graph.ancestors([q.event])}
        for part, projections in (
            ("dense", dense.held if dense else ()),
            ("router", feed_forward.router),
            ("routed", (*routed.projections, *routed.adapters, *routed.links) if routed else ()),
            ("shared", (*(p for mlp in feed_forward.shared for p in mlp.held), *feed_forward.latents)),
            # What gates the experts' input or output, every token runs, whatever it chose.
            ("shared", (*(p for p in feed_forward.router if p in feeding & behind), *routed.gates) if routed else ()),
        ):
            placed |= dict.fromkeys(projections, part)
    stream = (*parts.per_layer_inputs, *parts.low_rank_residuals, *parts.graph.connections)
    return placed | dict.fromkeys(stream, "stream")


def _is_an_experts(parts: LayerParts, projection: Projection) -> bool:
    feed_forward = parts.feed_forward
    routed = feed_forward.routed if feed_forward is not None else None
    return routed is not None and projection in routed.projections


def _with_siblings(parts: LayerParts, projection: Projection, name: str, held: Mapping[str, int]) -> list[str]:
    """Return a parameter with those of the other experts, where each expert is a module and one of them ran.

    Their names differ in one number alone, the expert's.
    """
    if projection.groups > 1 or not _is_an_experts(parts, projection):
        return [name]
    assert parts.feed_forward is not None, "an expert is a feed-forward's"
    for number in re.finditer(r"\d+", name):
        before, after = name[: number.start()], name[number.end() :]
        same = re.compile(rf"{re.escape(before)}\d+{re.escape(after)}")
        siblings = [other for other in held if same.fullmatch(other)]
        if len(siblings) == parts.feed_forward.experts:
            return siblings
    raise _refused(parts, projection, f"one {name} for each of {parts.feed_forward.experts} experts", "others")


def _is_looked_up(parts: LayerParts, projection: Projection, weights: set[str], held: Mapping[str, int]) -> bool:
    """Tell whether what a projection multiplies with are rows of its parameters, more or fewer than these hold."""
    graph = parts.graph
    if sum(held.get(name, 0) for name in weights) % (projection.in_features * projection.out_features) == 0:
        return False
    matrices = [value for value in projection.event.inputs if graph.source(value) is Source.WEIGHT]
    made_of = graph.walk_back(matrices, lambda value: value not in graph.producer)
    return any(graph.producer[value].op in LOOK_UPS for value in made_of if value in graph.producer)


def _held(parts: LayerParts, projection: Projection, weights: set[str], held: Mapping[str, int]) -> int:
    """Return how many matrices like a projection's weight the parameters that it is made of hold."""
    elements = projection.in_features * projection.out_features
    stored = sum(held.get(name, 0) for name in weights)
    number, rest = divmod(stored, elements)
    if rest or (number > 1 and not _is_an_experts(parts, projection) and number != projection.groups):
        raise _refused(parts, projection, f"a weight of {projection.groups} x {elements} elements", f"{stored} held")
    return number


def _rows_a_token(parts: LayerParts, projection: Projection, tokens: int) -> int:
    rows, rest = divmod(projection.rows, tokens)
    if rest:
        raise _refused(parts, projection, f"rows for each of {tokens} tokens", f"{projection.rows} rows")
    return rows


def _refused(parts: LayerParts, projection: Projection, expected: str, found: str) -> UnknownPartError:
    return unknown(parts.run, projection.event.module, expected, f"{found} ({projection})")


def _uses(parts: LayerParts) -> Iterator[tuple[Event, str]]:
    """Yield every event that takes a weight and something else, with each parameter the weight is made of."""
    graph = parts.graph
    for event in parts.run.events:
        if all(graph.source(value) in (Source.WEIGHT, Source.CONSTANT) for value in event.outputs):
            continue
        for value in event.inputs:
            if graph.source(value) is Source.WEIGHT:
                for name in graph.weights(value):
                    yield event, name


def _is_chosen(parts: LayerParts, event: Event, name: str) -> bool:
    """Tell whether an event takes, beside what experts made, the rows of a parameter that are these experts' own."""
    graph = parts.graph
    behind = graph.walk_back(event.outputs, lambda value: value in graph.projections or value in graph.stream)
    if not any(_is_an_experts(parts, graph.projections[value]) for value in behind if value in graph.projections):
        return False
    taken = [value for value in event.inputs if graph.source(value) is Source.WEIGHT and name in graph.weights(value)]
    made_of = graph.walk_back(taken, lambda value: value not in graph.producer)
    looked_up = [graph.producer[v] for v in made_of if v in graph.producer and graph.producer[v].op in LOOK_UPS]
    indices = [value for look_up in looked_up for value in look_up.inputs[1:]]
    choices = {value for choice in parts.run.events if choice.op in CHOICES for value in choice.outputs}
    return not choices.isdisjoint(graph.walk_back(indices, choices.__contains__))


_KERNEL = "kernel"
_BY_WEIGHT = ("attention", "dense", "routed", "shared", "stream", "norm", "indexer", _KERNEL, "router")
"""Of several parts that take what a parameter was used for, the first here is the one it counts for.

What a projection takes goes before what a kernel is handed beside its roles, such as the entries an indexer chose.
"""


def _part_of(parts: LayerParts, places: Mapping[Projection, str], event: Event, name: str) -> str:
    """Return the part of a parameter that an event uses and that is no projection's weight or bias."""
    graph = parts.graph
    if event.op == "aten.convolution":
        return "attention"
    if graph.depth_attended.intersection(event.outputs):
        return "stream"
    norm = graph.norms.get(graph.unscaled(event.outputs[0]))
    if norm is not None and norm in parts.norms and held_around(norm.module, name):
        return "norm"
    if any(norm.module and norm.module == name.rpartition(".")[0] for norm in parts.norms):
        # One that scales what the norm takes.
        return "norm"
    reached = set(_reached(parts, places, event))
    if reached:
        # What chooses shares what it takes with what is chosen for.
        part = min(reached, key=_BY_WEIGHT.index)
        return "attention" if part == _KERNEL else part
    behind = set(graph.walk_back(event.outputs, lambda value: value in graph.projections or value in graph.stream))
    chosen = {value for choice in parts.run.events if choice.op in CHOICES for value in choice.outputs}
    # What scales the weights of the chosen is the router's; what scales the sum of what they made acts on the stream.
    summed = any(places.get(graph.projections[value]) != "router" for value in behind if value in graph.projections)
    return "router" if parts.feed_forward and not summed and not chosen.isdisjoint(behind) else "stream"


def _reached(parts: LayerParts, places: Mapping[Projection, str], event: Event) -> Iterator[str]:
    """Yield the parts of the projections, kernels and choices that next take what an event returns."""
    graph = parts.graph
    if graph.kernel_values.intersection(event.outputs):
        yield "attention"
        return
    index = parts.index_choice
    choices = {value: choice for choice in parts.run.events if choice.op in CHOICES for value in choice.outputs}
    ends = {*graph.projections, *graph.stream, *graph.kernel_values, *graph.coefficients, *choices}
    for value in graph.walk_on(event.outputs, lambda value: value in ends):
        if value in graph.coefficients:
            yield "stream"
        elif value in graph.projections:
            yield places.get(graph.projections[value], "indexer")
        elif value in graph.kernel_values:
            yield _KERNEL
        elif value in choices:
            yield "indexer" if index is not None and choices[value] is index[0] else "router"
