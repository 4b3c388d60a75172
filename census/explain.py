"""What stated each number of a spec: its evidence, the modules and functions that ran, their shapes, their source."""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from census.errors import FieldError
from census.kinds import KindCensus
from census.measurement import Measurement, ModelCensus, measurement_of
from census.op_profile import load_op_profile
from census.profile_lines import ProfileLines
from census.ran_modules import Place, RanStack
from census.table import columns
from census.towers import TowerReading, field_of_config

if TYPE_CHECKING:
    from transformers import PretrainedConfig

_NO_NUMBERS = ("name", "arch")
"""Fields of a spec that nothing measured states."""


@dataclass(frozen=True)
class Explanation:
    """What stated one field of a spec.

    Attributes:
        field: its path in the spec.
        value: what the spec states.
        evidence: what the census read it from, paths relative to a layer.
        places: the modules that the evidence names, or the one that holds them.
    """

    field: str
    value: object
    evidence: str
    places: tuple[Place, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain data."""
        return {
            "field": self.field,
            "value": self.value,
            "evidence": self.evidence,
            "places": [place.to_dict() for place in self.places],
        }


def explain(
    config: PretrainedConfig, arch: str | None = None, name: str | None = None, field: str | None = None
) -> list[Explanation]:
    """Return what stated every field of a config's spec, or of one field.

    Args:
        config: a Transformers config.
        arch: the family whose profile names the kinds; inferred if left out.
        name: the model's name in the spec.
        field: a path in the spec (`qk_norm`, `kinds.moe.num_experts_per_tok`, `vision.hidden_size`), the start of one
            (`kinds.moe`), or one without its first word where that is `ops` or `kinds` (`moe.attMM`).

    Raises:
        FieldError: the spec has no such field.
        BuildError, UnknownPartError, KindError: as of `measurement_of`.
    """
    measured = measurement_of(config, arch, name)
    found = explanations(measured)
    return found if field is None else _chosen(found, field, measured.census.left_out)


def explanations(measured: Measurement) -> list[Explanation]:
    """Return what stated every field of the spec of what was measured."""
    census = measured.census
    ran = RanStack(measured.built, measured.recording, census.stack)
    return [
        *_of_model(census, ran),
        *_of_kinds(census.spec, census.kinds, ran, "", census.spec["arch"]),
        *(_of_tower(measured.tower, census.spec["vision"]) if measured.tower else ()),
    ]


def explanations_text(found: Sequence[Explanation]) -> str:
    """Return explanations for reading: a field with its value, its evidence, and a line for each module that ran."""
    lines: list[str] = []
    for one in found:
        lines += [f"{one.field}: {json.dumps(one.value)}", f"  {one.evidence}"]
        lines += columns([(place.module, place.shapes, place.code) for place in one.places])
    return "\n".join(lines)


def _chosen(found: Sequence[Explanation], field: str, left_out: Mapping[str, str]) -> list[Explanation]:
    for path in (field, f"ops.{field}", f"kinds.{field}"):
        under = (f"{path}.", f"{path}[")
        chosen = [one for one in found if one.field == path or one.field.startswith(under)]
        if chosen:
            return chosen
    names = [one.field for one in found]
    short = [name.partition(".")[2] for name in names if name.startswith(("ops.", "kinds."))]
    near = difflib.get_close_matches(field, [*names, *short], 4, 0.5)
    tower = left_out.get("vision_config") if field.startswith("vision") else None
    raise FieldError(
        f"{field}: expected a field that this model's spec has, found none of that name"
        + (f" (its vision tower is left out: {tower})" if tower else "")
        + (f"; did you mean {', '.join(near)}?" if near else "; leave it out to see every field")
    )


def _of_model(census: ModelCensus, ran: RanStack) -> Iterator[Explanation]:
    """Yield the model's own fields: those that a kind stated by the kind's evidence, the others by what holds them."""
    for field, value in census.spec.items():
        if field in census.evidence:
            evidence = census.evidence[field]
            stating = [name for name, kind in census.kinds.items() if evidence in kind.evidence.values()]
            places = ran.places(stating[0], evidence) if stating else _outside(field, evidence, ran)
            yield Explanation(field, value, evidence, places)
        elif field == "layers":
            yield from _layers(value, census.kinds, ran, "")
        elif field not in (*_NO_NUMBERS, "ops", "kinds", "vision"):
            yield Explanation(field, value, "the modules and parameters outside the layers", (ran.holding(""),))


def _outside(field: str, evidence: str, ran: RanStack) -> tuple[Place, ...]:
    """Return what stated a number that no kind states."""
    if evidence.startswith("config: "):
        return (ran.of_config(evidence),)
    if field == "first_k_dense_replace":
        return tuple(dict.fromkeys(ran.layer(ran.stack.index(kind)) for kind in dict.fromkeys(ran.stack)))
    # The layers' lists and the embedding stand in the module that runs them; a head beside it, in what holds both.
    return (ran.holding("" if field == "tie_word_embeddings" else ran.built.list_of(0).rpartition(".")[0]),)


def _layers(
    groups: Sequence[Mapping[str, Any]], kinds: Mapping[str, KindCensus], ran: RanStack, prefix: str
) -> Iterator[Explanation]:
    """Yield the groups of the stack: which layers they are, and by which flavours they took their kind."""
    start = 0
    for number, group in enumerate(groups):
        shape, end = kinds[group["kind"]].shape, start + group["count"]
        paths = [ran.layer(place).module for place in (start, end - 1)]
        where = paths[0] if start + 1 == end else f"{paths[0]} to {paths[1]}"
        evidence = f"{where}: attention {shape.attention}, feed-forward {shape.ffn}: kind {group['kind']}"
        yield Explanation(f"{prefix}layers[{number}].count", group["count"], evidence, (ran.layer(start),))
        start = end


def _of_kinds(
    spec: Mapping[str, Any], kinds: Mapping[str, KindCensus], ran: RanStack, prefix: str, arch: str
) -> Iterator[Explanation]:
    """Yield every op and every field of every kind."""
    for kind, ops in spec["ops"].items():
        for op, count in ops.items():
            if kind in kinds:
                evidence = kinds[kind].evidence[op]
                places = ran.places(kind, evidence)
            else:
                profile = load_op_profile(arch)
                lines = ProfileLines.of(profile.source)
                evidence = "the model has no layer of this kind: its profile's own count"
                places = (Place(f"profile {arch}", "", f"{profile.source}:{lines.of_op(kind, op)}"),)
            yield Explanation(f"{prefix}ops.{kind}.{op}", count, evidence, places)
    for kind, stated in spec["kinds"].items():
        some: Mapping[str, list[int]] = stated.get("layers_with", {})
        for field, value in stated.items():
            if field == "layers_with":
                continue
            if field in ("projections", "other_parameters"):
                yield from _of_weights(f"{prefix}kinds.{kind}.{field}", value, kind, kinds[kind], ran)
                continue
            evidence = _kind_evidence(kinds[kind], field)
            yield Explanation(
                f"{prefix}kinds.{kind}.{field}", value, evidence, ran.places(kind, evidence, some.get(field, ()))
            )
        for field, layers in some.items():
            evidence = _kind_evidence(kinds[kind], field)
            yield Explanation(
                f"{prefix}kinds.{kind}.layers_with.{field}", layers, evidence, ran.places(kind, evidence, layers)
            )


def _of_weights(
    path: str, value: Mapping[str, object], name: str, kind: KindCensus, ran: RanStack
) -> Iterator[Explanation]:
    """Yield what a kind's layers hold, a part at a time, by the parameters of the first of them."""
    for part, stated in value.items():
        used = kind.weights[part]
        names = used.multiplied if path.endswith(".projections") else used.names - used.multiplied
        evidence = "; ".join(_alike(names))
        yield Explanation(f"{path}.{part}", stated, evidence, ran.places(name, evidence))


def _alike(names: Iterable[str]) -> Iterator[str]:
    """Yield names in order, of those that differ in an entry's number alone (experts in modules of their own) one."""
    groups: dict[str, list[str]] = {}
    for name in sorted(names):
        groups.setdefault(re.sub(r"(?<=[._])\d+", "", name), []).append(name)
    for first, *others in groups.values():
        yield f"{first} and {len(others)} alike" if others else first


def _kind_evidence(kind: KindCensus, field: str) -> str:
    if field == "mixers":
        ran = [kind.evidence[op] for op in ("softmax", "linrec") if kind.ops[op]]
        return "; ".join(ran) or kind.evidence.get("conv_dim", "no kernel runs")
    return kind.evidence.get(field, "the parameters and modules of the kind's layers")


def _of_tower(read: TowerReading, vision: Mapping[str, Any]) -> Iterator[Explanation]:
    """Yield the fields of a multimodal model's vision tower."""
    ran, first = RanStack(read.built, read.recording, read.stack), read.stack[0]
    for field, value in vision.items():
        path, evidence = f"vision.{field}", read.kinds[first].evidence.get(field)
        if evidence is not None:
            yield Explanation(path, value, evidence, ran.places(first, evidence))
        elif field == "num_hidden_layers":
            evidence = f"{read.built.paths[0]} to {read.built.paths[-1]}: {len(read.stack)} layers"
            yield Explanation(path, value, evidence, (ran.holding(read.built.list_of(0).rpartition(".")[0]),))
        elif field == "layers":
            yield from _layers(value, read.kinds, ran, "vision.")
        elif field not in (*_NO_NUMBERS, "ops", "kinds"):
            evidence = f"config: {field_of_config(read.built.config, field)}"
            yield Explanation(path, value, evidence, (ran.of_config(evidence),))
    yield from _of_kinds(vision, read.kinds, ran, "vision.", "vision")
