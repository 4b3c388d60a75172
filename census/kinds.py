"""From layers to kinds: which kind of a family each layer is, and what every kind states."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from census.build import BuiltStack
from census.config import text_config
from census.counts import Fact, Stated, op_facts
from census.details import detail_facts
from census.dims import dim_facts
from census.errors import KindError, UnknownPartError
from census.events import Recording
from census.grouping import parameter_shapes
from census.op_counts import OpCounts
from census.op_profile import OpProfile
from census.parts import LayerParts
from census.shapes import LayerShape, difference, flavours, mixers_of
from census.weights import PartWeights, layer_weights


@dataclass(frozen=True)
class KindCensus:
    """What one layer runs and how wide it is.

    Attributes:
        ops: the op vector.
        dims: the spec fields it states: widths, numbers and flags.
        details: what it states beside them, by the fields of a `KindSpec`.
        evidence: for every op and field, the module, operator or parameter that stated it.
        shape: how the layer is built.
        mixers: what mixes its tokens: an attention's flavour, a recurrence's name, `short_convolution`.
        positions: whether its score kernels' keys are moved by their positions, None where it has no such kernel.
        weights: the parameters of each of its parts.
    """

    ops: OpCounts
    dims: Mapping[str, Stated]
    details: Mapping[str, Stated]
    evidence: Mapping[str, str]
    shape: LayerShape
    mixers: tuple[str, ...]
    positions: bool | None
    weights: Mapping[str, PartWeights]


def read_layer(built: BuiltStack, recording: Recording, index: int, run: int) -> KindCensus:
    """Read one execution. Pure: what was heard goes in, counts and dims come out."""
    empty = [name for name, tensor in built.layers[index].named_parameters() if tensor.numel() == 0]
    if empty:
        # A matmul with it leaves nothing to hear, and would be counted as none.
        raise UnknownPartError(
            f"{built.paths[index]}.{empty[0]}: expected a parameter with elements, found one without any; "
            f"correct the width in the config that makes it so"
        )
    parts = LayerParts(recording, recording.runs[run])
    attention, ffn = flavours(parts)
    ops, dims, details = op_facts(parts), dim_facts(parts), detail_facts(parts)
    if "index_n_heads" in details and "index_topk" not in details:
        stated = getattr(text_config(built.config), "index_topk", None)
        if type(stated) is int:
            details["index_topk"] = Fact(stated, "config: index_topk; every one of so few tokens is kept")
    held = {name: tensor.numel() for name, tensor in built.layers[index].named_parameters(remove_duplicate=False)}
    chosen = dims["num_experts_per_tok"].value if "num_experts_per_tok" in dims else 0
    assert isinstance(chosen, int), "experts are counted"
    return KindCensus(
        OpCounts.from_dict({op: fact.value for op, fact in ops.items()}, where=built.paths[index]),
        {field: fact.value for field, fact in dims.items()},
        {field: fact.value for field, fact in details.items()},
        {field: fact.evidence for field, fact in {**details, **dims, **ops}.items()},
        LayerShape(attention, ffn, parameter_shapes(built.layers[index])),
        mixers_of(parts),
        parts.positions,
        layer_weights(parts, held, recording.tokens or parts.tokens, chosen),
    )


def read_runs(built: BuiltStack, recording: Recording) -> dict[int, KindCensus]:
    """Read every run once, as the layer that it is one of; those built the same need no reading of their own."""
    return {run: read_layer(built, recording, ran.index, run) for run, ran in enumerate(recording.runs)}


def attention_in(read: Mapping[int, KindCensus], run: int) -> str:
    """Return a layer's attention flavour in its stack, where one without positions is told apart from others."""
    attention = read[run].shape.attention
    some_have_them = any(kind.positions for kind in read.values())
    return "full_nope" if attention == "full" and some_have_them and read[run].positions is False else attention


def kinds_of_the_fitting(
    profiles: Sequence[OpProfile],
    decided: bool,
    built: BuiltStack,
    recording: Recording,
    read: Mapping[int, KindCensus],
    attention: Sequence[str],
) -> tuple[OpProfile, tuple[str, ...], dict[str, KindCensus]]:
    """Return the profile that names a model's kinds, the kind of every layer, and the census of every kind.

    Args:
        built: the model.
        recording: what was heard of it.
        read: what each run was read as.
        attention: the attention flavour of every layer of the stack.
        profiles: those that may, the likeliest first. One that states what was measured goes before one that only fits.
        decided: whether the first is taken wherever it fits.

    Raises:
        KindError: none fits; why the first does not.
    """
    fitting: list[tuple[OpProfile, tuple[str, ...], dict[str, KindCensus]]] = []
    failures: list[KindError] = []
    for profile in profiles:
        try:
            stack = tuple(
                profile.kind_for(flavour, read[run].shape.ffn, read[run].ops["normOp"]).name
                for flavour, (_, run) in zip(attention, recording.executions, strict=True)
            )
            fitting.append((profile, stack, _kinds(profile, built, recording, stack, read)))
        except KindError as error:
            failures.append(error)
            continue
        if decided and profile is profiles[0]:
            break
    if not fitting:
        raise failures[0]
    return next((fit for fit in fitting if _agrees(*fit)), fitting[0])


def _agrees(profile: OpProfile, _: Sequence[str], kinds: Mapping[str, KindCensus]) -> bool:
    return all(profile.kinds[name].ops == kind.ops for name, kind in kinds.items())


def _kinds(
    profile: OpProfile,
    built: BuiltStack,
    recording: Recording,
    stack: Sequence[str],
    read: Mapping[int, KindCensus],
) -> dict[str, KindCensus]:
    """Return the census of every kind the stack has, refusing a kind whose layers are not built the same."""
    found: dict[str, tuple[int, KindCensus]] = {}
    compared: set[tuple[str, int]] = set()
    for (index, run), kind in zip(recording.executions, stack, strict=True):
        if kind not in found:
            found[kind] = (index, read[run])
        elif (kind, run) not in compared:
            first, census = found[kind]
            text = difference(census.shape, read[run].shape, profile.kinds[kind].optional) or _priced_differently(
                census, read[run]
            )
            if text is not None:
                raise KindError(
                    f"family {profile.arch}: kind '{kind}' would price two differently built layers as one: "
                    f"{built.paths[first]} and {built.paths[index]} differ in {text}; "
                    f"pass --arch with a family that tells them apart, or a profile of your own"
                )
            found[kind] = (first, _with_flags_of(census, read[run]))
        compared.add((kind, run))
    return {kind: census for kind, (_, census) in found.items()}


def beside(
    profile: OpProfile,
    built: BuiltStack,
    recording: Recording,
    stack: Sequence[str],
    read: Mapping[int, KindCensus],
) -> dict[str, dict[str, tuple[Fact, list[int]]]]:
    """Return what each kind states beside its dimensions, each with the places in the stack of the layers that do."""
    some_move = any(kind.positions for kind in read.values())
    found: dict[str, dict[str, tuple[Fact, list[int]]]] = {kind: {} for kind in dict.fromkeys(stack)}
    for place, ((index, run), kind) in enumerate(zip(recording.executions, stack, strict=True)):
        facts = {field: Fact(value, read[run].evidence[field]) for field, value in read[run].details.items()}
        if some_move and read[run].positions is False:
            facts["no_rope"] = Fact(True, f"{built.paths[index]}: keys as they were projected")
        for field, fact in facts.items():
            first, places = found[kind].setdefault(field, (fact, []))
            if first.value != fact.value:
                raise KindError(
                    f"family {profile.arch}: kind '{kind}' would price two different layers as one: "
                    f"{built.paths[index]} has {field} {fact.value}, layer {places[0]} of the stack {first.value}; "
                    f"pass --arch with a family that tells them apart, or a profile of your own"
                )
            places.append(place)
    return found


def kind_spec(
    kind: KindCensus,
    mixers: Sequence[str],
    layers: int,
    beside: Mapping[str, tuple[Fact, list[int]]],
    weights: Mapping[str, Any],
) -> dict[str, Any]:
    """Return what one layer of a kind states, and which of its layers state what not all of them do."""
    some = {field: places for field, (_, places) in beside.items() if len(places) < layers}
    return {
        **kind.dims,
        **({"mixers": list(mixers)} if mixers else {}),
        **{field: fact.value for field, (fact, _) in beside.items()},
        **({"layers_with": some} if some else {}),
        **weights,
    }


def with_details(kind: KindCensus, beside: Mapping[str, tuple[Fact, list[int]]]) -> KindCensus:
    """Return a kind's census with what any of its layers states."""
    facts = {field: fact for field, (fact, _) in beside.items()}
    return dataclasses.replace(
        kind,
        details={field: fact.value for field, fact in facts.items()},
        evidence={**{field: fact.evidence for field, fact in facts.items()}, **kind.evidence},
    )


def _priced_differently(one: KindCensus, other: KindCensus) -> str | None:
    """Return the counts and widths in which two layers of the same parameters differ, None where they do not."""
    mine, theirs = ({**kind.ops, **kind.dims} for kind in (one, other))
    fields = [
        field
        for field in {**mine, **theirs}
        if mine.get(field) != theirs.get(field) and not isinstance(mine.get(field, theirs.get(field)), bool)
    ]
    lines = (f"{field} ({mine.get(field, 'absent')} against {theirs.get(field, 'absent')})" for field in fields)
    return ", ".join(lines) or None


def _with_flags_of(one: KindCensus, other: KindCensus) -> KindCensus:
    """Return a kind's census with the flags that another layer of the kind has and its first has not."""
    gained = {field for field, value in other.dims.items() if value is True and one.dims.get(field) is not True}
    return dataclasses.replace(
        one,
        dims={**one.dims, **dict.fromkeys(gained, True)},
        evidence={**one.evidence, **{field: other.evidence[field] for field in gained}},
    )
