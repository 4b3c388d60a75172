"""Two of a model, a golden, a spec and a profile beside each other: the fields, kinds and ops in which they differ."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from census import strict_yaml
from census.bounds import MAX_CONFIG_BYTES, MAX_YAML_BYTES, is_file, read_text
from census.config_file import json_data
from census.costs import pinned_costs
from census.errors import ComparisonError
from census.golden import read_golden
from census.op_profile import OpProfile, known_archs, load_op_profile
from census.spec import ABSENT, FieldDifference, ModelSpec, diff_specs
from census.table import columns, markdown

if TYPE_CHECKING:
    from transformers import PretrainedConfig

COMPARED = (
    "a model, a golden or a spec is compared with another of them by all its fields, a profile with a profile by its "
    "kinds, a profile with any other by the ops of its kinds"
)
"""What can be compared with what."""


@dataclass(frozen=True)
class Compared:
    """One of the two things that are compared; what it is not, is None.

    Attributes:
        source: as the user named it.
        config: a model that has not been measured yet.
        spec: a spec, a golden's or a file's own.
        profile: an op profile.
    """

    source: str
    config: PretrainedConfig | None = None
    spec: Mapping[str, Any] | None = None
    profile: OpProfile | None = None


def read_compared(source: str) -> Compared:
    """Return what a source names: a file by what it holds, else a family that is no model type, else a model.

    Raises:
        ComparisonError: it is a file that holds none of the things that are compared.
        CensusError: it says what it is and is broken.
    """
    if is_file(source):
        return _of_file(source)
    if source in known_archs() and not os.path.exists(source):
        from transformers import CONFIG_MAPPING

        if source not in CONFIG_MAPPING:
            return Compared(source, profile=load_op_profile(source))
    return _model(source)


def _model(source: str) -> Compared:
    from census.config import load_config

    return Compared(source, config=load_config(source))


def _of_file(source: str) -> Compared:
    path = Path(source)
    data = _data(path) if path.suffix in (".json", ".yaml", ".yml") else None
    if isinstance(data, Mapping):
        if isinstance(data.get("model"), Mapping):
            # A train.yaml's model section.
            data = data["model"].get("config_overrides", data)
            if not isinstance(data, Mapping):
                data = {}
        for marks, read in _FILES:
            if marks <= data.keys():
                return read(source, data)
    raise ComparisonError(
        f"{source}: expected a config.json, a golden, a spec or an op profile, found a file of none of their forms; "
        f"{COMPARED}"
    )


def _data(path: Path) -> Any:
    most = MAX_CONFIG_BYTES if path.suffix == ".json" else MAX_YAML_BYTES
    text = read_text(path, most, ComparisonError, "a file", "pass another file")
    if path.suffix != ".json":
        return strict_yaml.load(text, str(path), ComparisonError)
    try:
        return json_data(text)
    except (RecursionError, ValueError) as error:
        raise ComparisonError(f"{path}: expected JSON, found {error}; correct the file") from error


_FILES: tuple[tuple[set[str], Callable[[str, Mapping[str, Any]], Compared]], ...] = (
    ({"case", "spec"}, lambda source, _: Compared(source, spec=read_golden(Path(source)).spec)),
    ({"kinds", "default"}, lambda source, _: Compared(source, profile=load_op_profile(source))),
    ({"model_type"}, lambda source, _: _model(source)),
    (
        {"num_hidden_layers", "vocab_size"},
        lambda source, data: Compared(source, spec=ModelSpec.from_dict(data, where=source).to_dict()),
    ),
)
"""The keys that tell what a file holds, in this order, and how it is read."""


def compare(one: Compared, other: Compared) -> dict[str, list[FieldDifference]]:
    """Return the differences of two things, section by section of what is compared of them.

    A model beside a golden, a spec or a profile is measured under the same family, so that its kinds have the same
    names. The name of a model is no difference.

    Raises:
        ComparisonError: they cannot be compared.
        BuildError, UnknownPartError, KindError: a model could not be measured.
    """
    if one.profile and other.profile:
        return {"kinds": _split(diff_specs(_plain(one.profile), _plain(other.profile)), "default", "kinds"),
                "ops": _split(diff_specs(_plain(one.profile), _plain(other.profile)), "ops")}  # fmt: skip
    if one.profile or other.profile:
        return {"ops": diff_specs(_ops(one, other), _ops(other, one))}
    found = diff_specs(_fields(one, other), _fields(other, one))
    beside = ("kinds", "ops", "vision", "costs")
    return {
        "fields": [difference for difference in found if _head(difference) not in beside],
        **{part: _split(found, part) for part in beside},
    }


def _split(found: Sequence[FieldDifference], *heads: str) -> list[FieldDifference]:
    return [difference for difference in found if _head(difference) in heads]


def _head(difference: FieldDifference) -> str:
    return difference.path.partition(".")[0].partition("[")[0]


def _plain(profile: OpProfile) -> dict[str, Any]:
    """Return a profile as plain data, its ops beside its kinds."""
    stated = {
        name: {
            "attention": kind.attention or "full",
            "ffn": kind.ffn or "any",
            **({"norms": kind.norms} if kind.norms is not None else {}),
            **({"optional": list(kind.optional)} if kind.optional else {}),
        }
        for name, kind in profile.kinds.items()
    }
    ops = {name: kind.ops.to_dict() for name, kind in profile.kinds.items()}
    return {"default": profile.default, "kinds": stated, "ops": ops}


def _ops(side: Compared, other: Compared) -> dict[str, Any]:
    """Return the ops of the kinds of one side, of a profile and a model those alone that the model has."""
    if side.profile is not None:
        has = _kinds_of(_spec(other, side))
        return {"ops": {name: kind.ops.to_dict() for name, kind in side.profile.kinds.items() if name in has}}
    spec = _spec(side, other)
    return {"ops": {name: spec["ops"][name] for name in _kinds_of(spec) if name in spec["ops"]}}


def _kinds_of(spec: Mapping[str, Any]) -> list[str]:
    return list(dict.fromkeys(group["kind"] for group in spec.get("layers", ())) or spec.get("ops", ()))


def _fields(side: Compared, other: Compared) -> dict[str, Any]:
    """Return a spec's fields, its stack and weights as texts and without the model's name, and what they cost.

    Costs are stated of two specs that both say what they are computed from.
    """
    spec = dict(_spec(side, other))
    if "outside" in spec and "outside" in _spec(other, side):
        spec["costs"] = pinned_costs(spec)
    if "kinds" in spec:
        spec["kinds"] = {name: _with_weights_as_text(kind) for name, kind in spec["kinds"].items()}
    if "outside" in spec:
        spec["outside"] = _with_weights_as_text(spec["outside"])
    groups = spec.pop("layers", None)
    spec.pop("name")
    if groups is not None:
        spec["layers"] = " + ".join(f"{group['count']} {group['kind']}" + " mtp" * ("mtp" in group) for group in groups)
    return spec


def _with_weights_as_text(stated: Mapping[str, Any]) -> dict[str, Any]:
    """Return a kind, or what is outside the layers, with the matrices of each part as one text."""

    def text(matrices: Sequence[Sequence[int]]) -> str:
        return ", ".join(" x ".join(map(str, matrix)) for matrix in matrices)

    written = dict(stated)
    if "projections" in stated:
        written["projections"] = {part: text(matrices) for part, matrices in stated["projections"].items()}
    if "tables" in stated:
        written["tables"] = text(stated["tables"])
    if "variants" in stated:
        written["variants"] = [_with_weights_as_text(variant) for variant in stated["variants"]]
    return written


def _spec(side: Compared, other: Compared) -> Mapping[str, Any]:
    """Return one side's spec, measured under the family of the other where it is a model."""
    if side.spec is not None:
        if other.profile is not None and "ops" not in side.spec:
            raise ComparisonError(f"{side.source}: expected a spec with ops beside a profile, found none; {COMPARED}")
        return side.spec
    assert side.config is not None, "a side is a profile, a spec or a model"
    from census.measurement import measure

    arch = other.profile or (other.spec or {}).get("arch")
    if isinstance(arch, str) and arch not in known_archs():
        raise ComparisonError(
            f"{other.source}: arch: expected a family that census knows, to measure {side.source} under, "
            f"found {arch!r}; pass a spec of another family"
        )
    return measure(side.config, arch).spec


def comparison_text(one: str, other: str, found: Mapping[str, Sequence[FieldDifference]], form: str) -> str:
    """Return differences as a `table`, `json` or `markdown`; nothing where there are none and it is no document."""
    rows = [(d.path, _said(d.expected), _said(d.found)) for section in found.values() for d in section]
    if form == "json":
        data = {
            section: [{"path": d.path, "a": _value(d.expected), "b": _value(d.found)} for d in differences]
            for section, differences in found.items()
        }
        return json.dumps({"a": one, "b": other, "differences": data}, indent=2)
    if not rows:
        return ""
    if form == "markdown":
        return "\n".join(markdown([("field", one, other), *rows]))
    return "\n".join(columns([("field", one, other), *rows]))


def _value(value: object) -> object:
    return None if value == ABSENT else value


def _said(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
