"""A new op profile, measured of a model: a kind for every way in which its layers are built."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from census import strict_yaml
from census.errors import AuditError, KindError
from census.kinds import KindCensus, attention_in, kinds_of_the_fitting, read_runs
from census.measurement import forward
from census.op_profile import parse_op_profile
from census.shapes import LayerShape, difference

if TYPE_CHECKING:
    from transformers import PretrainedConfig

_ATTENTIONS = {"linear": "linear_attention", "full": "full_attention", "none": "no_attention"}
"""How shipped profiles call kinds of one attention; any other is `<flavour>_attention`."""


@dataclass
class _Layers:
    """The layers that take one kind: their flavours and norms, their paths, and how each of them is built."""

    attention: str
    ffn: str
    paths: list[str]
    built: list[KindCensus]

    @property
    def norms(self) -> int:
        return self.built[0].ops["normOp"]


def draft_profile(config: PretrainedConfig, source: str) -> str:
    """Return a whole profile of a model as YAML, to be reviewed: its kinds by flavour, with the counts measured.

    Raises:
        AuditError: layers of one flavour differ in more than a profile can say.
        BuildError, UnknownPartError: the model could not be measured.
    """
    built, recording = forward(config)
    read = read_runs(built, recording)
    attention = [attention_in(read, run) for _, run in recording.executions]
    found: dict[tuple[str, str, int], _Layers] = {}
    for flavour, (index, run) in zip(attention, recording.executions, strict=True):
        layer = read[run]
        layers = found.setdefault(
            (flavour, layer.shape.ffn, layer.ops["normOp"]), _Layers(flavour, layer.shape.ffn, [], [])
        )
        layers.paths.append(built.paths[index])
        layers.built.append(layer)
    text = _text(list(found.values()), source)
    profile = parse_op_profile(text, "draft", f"draft of {source}")
    try:
        kinds_of_the_fitting([profile], True, built, recording, read, attention)
    except KindError as error:
        raise AuditError(
            f"{source}: expected layers that a profile can tell apart by their flavours, found others ({error})"
        ) from error
    return text


def _text(found: list[_Layers], source: str) -> str:
    names = _names(found)
    lines = [f"# Drafted of {source} by census audit --draft: measured, to be reviewed.", "kinds:"]
    flavours = Counter((layers.attention, layers.ffn) for layers in found)
    for name, layers in zip(names, found, strict=True):
        first, last = layers.paths[0], layers.paths[-1]
        where = first if first == last else f"{first} to {last}, {len(layers.paths)} executions"
        lines += [f"  # {where}", f"  {name}:", f"    attention: {layers.attention}", f"    ffn: {layers.ffn}"]
        if flavours[layers.attention, layers.ffn] > 1:
            lines.append(f"    norms: {layers.norms}")
        optional = _optional([layer.shape for layer in layers.built])
        if optional:
            lines.append(f"    optional: [{', '.join(optional)}]")
        lines.append("    " + strict_yaml.dump({"ops": strict_yaml.Flow(layers.built[0].ops.to_dict())}).rstrip())
    most = max(range(len(found)), key=lambda number: len(found[number].paths))
    return "\n".join([*lines, f"default: {names[most]}"])


def _names(found: list[_Layers]) -> list[str]:
    """Return a name for each kind, by what tells it from the others."""
    attentions, ffns = {layers.attention for layers in found}, {layers.ffn for layers in found}
    names = [
        "decoder"
        if len(attentions) == len(ffns) == 1
        else layers.ffn
        if len(attentions) == 1
        else _ATTENTIONS.get(layers.attention, f"{layers.attention}_attention")
        if len(ffns) == 1
        else f"{layers.attention}_{layers.ffn}"
        for layers in found
    ]
    return [
        name if names.count(name) == 1 else f"{name}_{layers.norms}_norms"
        for name, layers in zip(names, found, strict=True)
    ]


def _optional(shapes: list[LayerShape]) -> list[str]:
    """Return the names of modules that some layers of a kind hold and others do not, or hold in other shapes.

    Where a count or a width depends on one of them, the profile will be refused for that.
    """
    optional: list[str] = []
    for shape in dict.fromkeys(shapes):
        while difference(shapes[0], shape, tuple(optional)) is not None:
            name = _alone(shapes[0], shape, optional)
            if name is None:
                break
            optional.append(name)
    return optional


def _alone(one: LayerShape, other: LayerShape, optional: list[str]) -> str | None:
    """Return the outermost name, not yet known, that one of two layers has on a path and the other has not.

    Where both have all of them, that of the innermost module whose parameters differ in shape.
    """
    for mine, theirs in ((one, other), (other, one)):
        held = {path for path, _ in theirs.params}
        prefixes = {tuple(path.split(".")[:end]) for path in held for end in range(1, path.count(".") + 2)}
        for path, _ in mine.params:
            parts = path.split(".")
            if path not in held and set(parts).isdisjoint(optional):
                end = next(end for end in range(1, len(parts) + 1) if tuple(parts[:end]) not in prefixes)
                # An entry of a list is told by the list's name: its number stands in other lists too.
                return next((part for part in reversed(parts[:end]) if not part.isdigit()), None)
    shapes = dict(other.params)
    for path, shape in one.params:
        parts = path.split(".")
        if shapes.get(path) != shape and set(parts).isdisjoint(optional):
            return parts[-2:][0]
    return None
