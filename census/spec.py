"""The ModelSpec: what a cost model reads of a language model, as checked data.

A field nobody stated is None here and absent in the mapping: absent is not zero. What does not hold together
is refused, never repaired: `ModelSpec.from_dict(spec).to_dict() == spec`.
"""

from __future__ import annotations

import dataclasses
import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from census import strict_yaml
from census.errors import ModelSpecError
from census.kind_spec import KindSpec, OutsideSpec
from census.op_counts import OpCounts
from census.spec_rules import (
    check_kinds,
    check_model,
    check_scalars,
    check_stack,
    read,
    read_list,
    read_mapping,
    refuse,
)

__all__ = [
    "ABSENT",
    "FieldDifference",
    "KindSpec",
    "LayerGroup",
    "ModelSpec",
    "OpCounts",
    "OutsideSpec",
    "VisionSpec",
    "diff_specs",
    "fold_layers",
    "readable_spec",
]


@dataclass(frozen=True)
class LayerGroup:
    """Consecutive layers of one kind.

    Attributes:
        kind: the kind, as the family's profile names it.
        count: how many layers.
        mtp: whether they are multi-token-prediction layers, which come after the model's own.

    Raises:
        ModelSpecError: there is no kind, or the count is no positive whole number.
    """

    kind: str
    count: int
    mtp: bool = False

    def __post_init__(self) -> None:
        check_scalars(self)

    @classmethod
    def from_dict(cls, group: Mapping[str, Any], where: str = "layers") -> LayerGroup:
        """Return the group a mapping states: `{kind: decoder, count: 32}`, with `mtp: true` or without `mtp`.

        Raises:
            ModelSpecError: it states something else.
        """
        return _read_group(group, f"{where}: ")

    def to_dict(self) -> dict[str, Any]:
        """Return the group as a mapping; `mtp` is absent where it does not hold."""
        return {"kind": self.kind, "count": self.count, **({"mtp": True} if self.mtp else {})}


@dataclass(frozen=True)
class VisionSpec:
    """The vision tower of a multimodal model. Every size is in the tower's own units.

    Attributes:
        hidden_size: width of the tower's residual stream.
        num_hidden_layers: layers of the tower.
        num_attention_heads: heads of a layer.
        name: the tower's name.
        intermediate_size: width of the feed-forward.
        out_hidden_size: width of what the tower hands to the language model.
        patch_size: side of a patch, in pixels.
        spatial_merge_size: side of the square of patches merged into one token.
        num_position_embeddings: learned positions.
        max_position_embeddings: the most patches the tower takes.
        ops: the op vector of each of its kinds, as profile `vision` names them.
        layers: the tower's stack.
        kinds: what one layer of each kind states of itself.

    Raises:
        ModelSpecError: a field is no positive number, or the stack does not sum to the layers.
    """

    hidden_size: int
    num_hidden_layers: int
    num_attention_heads: int
    name: str | None = None
    intermediate_size: int | None = None
    out_hidden_size: int | None = None
    patch_size: int | None = None
    spatial_merge_size: int | None = None
    num_position_embeddings: int | None = None
    max_position_embeddings: int | None = None
    ops: Mapping[str, OpCounts] | None = None
    layers: tuple[LayerGroup, ...] | None = None
    kinds: Mapping[str, KindSpec] | None = None

    def __post_init__(self) -> None:
        check_scalars(self)
        check_kinds(self)
        check_stack(self.layers, self.num_hidden_layers)

    @classmethod
    def from_dict(cls, vision: Mapping[str, Any], where: str = "vision") -> VisionSpec:
        """Return the tower a mapping states.

        Raises:
            ModelSpecError: a field is unknown, missing or contradicts another.
        """
        return read(cls, vision, f"{where}: ", _VISION_PARTS)

    def to_dict(self) -> dict[str, Any]:
        """Return the tower as a mapping, without what nobody stated."""
        return _stated(self)


@dataclass(frozen=True)
class ModelSpec:
    """A model's dimensions, flags, op counts and layer stack, in ND's units. Widths are in elements.

    The first five fields are needed, all others are None where nobody stated them. With latent attention
    `head_dim` is the value head's width. `ops` names the vector of every kind, `layers` the stack in order,
    `kinds` what one layer of each kind that the model has states of itself, `outside` the parameters outside the
    layers, `vision` the tower of a multimodal model.

    Raises:
        ModelSpecError: a field is not of its type, or fields contradict each other.
    """

    name: str
    hidden_size: int
    num_hidden_layers: int
    num_attention_heads: int
    vocab_size: int
    arch: str | None = None
    tie_word_embeddings: bool | None = None
    max_position_embeddings: int | None = None
    num_key_value_heads: int | None = None
    head_dim: int | None = None
    qkv_bias: bool | None = None
    o_bias: bool | None = None
    qk_norm: bool | None = None
    attn_output_gate: bool | None = None
    q_lora_rank: int | None = None
    kv_lora_rank: int | None = None
    qk_nope_head_dim: int | None = None
    qk_rope_head_dim: int | None = None
    v_head_dim: int | None = None
    linear_num_key_heads: int | None = None
    linear_key_head_dim: int | None = None
    linear_num_value_heads: int | None = None
    linear_value_head_dim: int | None = None
    linear_conv_kernel_dim: int | None = None
    intermediate_size: int | None = None
    mlp_bias: bool | None = None
    num_experts: int | None = None
    num_experts_per_tok: int | None = None
    moe_intermediate_size: int | None = None
    num_shared_experts: int | None = None
    shared_expert_intermediate_size: int | None = None
    shared_expert_gate: bool | None = None
    first_k_dense_replace: int | None = None
    layer_norms: int | None = None
    norm_bias: bool | None = None
    mtp_depth: int | None = None
    multiple_of: int | None = None
    ffn_dim_multiplier: float | None = None
    layer_types: tuple[str, ...] | None = None
    ops: Mapping[str, OpCounts] | None = None
    layers: tuple[LayerGroup, ...] | None = None
    kinds: Mapping[str, KindSpec] | None = None
    outside: OutsideSpec | None = None
    vision: VisionSpec | None = None

    def __post_init__(self) -> None:
        check_scalars(self)
        check_model(self)

    @classmethod
    def from_dict(cls, spec: Mapping[str, Any], where: str = "spec") -> ModelSpec:
        """Return the spec a mapping states.

        Args:
            spec: the mapping; it stays as it is.
            where: where it came from, for the messages.

        Raises:
            ModelSpecError: a field is unknown, missing, null, not of its type, or contradicts another.
        """
        return read(cls, spec, f"{where}: ", _MODEL_PARTS)

    def to_dict(self) -> dict[str, Any]:
        """Return the spec as plain data, fields in their order, without what nobody stated."""
        return _stated(self)

    @classmethod
    def from_yaml(cls, text: str, where: str = "spec") -> ModelSpec:
        """Return the spec that a YAML document states.

        Raises:
            ModelSpecError: the text is no strict YAML, or no spec.
        """
        return read(cls, strict_yaml.load(text, where, ModelSpecError), f"{where}: ", _MODEL_PARTS)

    def to_yaml(self) -> str:
        """Return the spec as YAML, each op vector, kind and group of layers on one line."""
        return strict_yaml.dump(readable_spec(self.to_dict()))


def _read_group(data: object, prefix: str) -> LayerGroup:
    return read(LayerGroup, data, prefix, {"mtp": _read_mtp})


def _read_mtp(data: object, path: str) -> object:
    if data is False:
        refuse(path, "true or nothing", "false", "leave it out for the model's own layers")
    return data


def _read_layers(data: object, path: str) -> tuple[LayerGroup, ...]:
    return tuple(_read_group(group, f"{path}[{place}].") for place, group in enumerate(read_list(data, path)))


def _read_names(data: object, path: str) -> tuple[str, ...]:
    return tuple(read_list(data, path))


def _read_ops(data: object, path: str) -> dict[str, OpCounts]:
    return {kind: read(OpCounts, ops, f"{path}.{kind}.") for kind, ops in read_mapping(data, path).items()}


def _read_kinds(data: object, path: str) -> dict[str, KindSpec]:
    return {kind: KindSpec.from_dict(stated, f"{path}.{kind}") for kind, stated in read_mapping(data, path).items()}


def _read_outside(data: object, path: str) -> OutsideSpec:
    return OutsideSpec.from_dict(read_mapping(data, path), path)


def _read_vision(data: object, path: str) -> VisionSpec:
    return read(VisionSpec, data, f"{path}.", _VISION_PARTS)


_VISION_PARTS = {"ops": _read_ops, "layers": _read_layers, "kinds": _read_kinds}
_MODEL_PARTS = {
    "layer_types": _read_names,
    "ops": _read_ops,
    "layers": _read_layers,
    "kinds": _read_kinds,
    "outside": _read_outside,
    "vision": _read_vision,
}


def _stated(spec: ModelSpec | VisionSpec) -> dict[str, Any]:
    values = {field.name: getattr(spec, field.name) for field in dataclasses.fields(spec)}
    return {name: _plain(value) for name, value in values.items() if value is not None}


def _plain(value: Any) -> Any:
    if isinstance(value, LayerGroup | KindSpec | OutsideSpec | VisionSpec):
        return value.to_dict()
    if isinstance(value, Mapping):
        return {name: _plain(part) for name, part in value.items()}
    return [_plain(part) for part in value] if isinstance(value, tuple) else value


def readable_spec(spec: Mapping[str, Any]) -> dict[str, Any]:
    """Return a spec's mapping such that each op vector, kind and group of layers is dumped on one line."""
    readable = dict(spec)
    for field in ("ops", "kinds"):
        if field in spec:
            readable[field] = {kind: strict_yaml.Flow(stated) for kind, stated in spec[field].items()}
    if "layers" in spec:
        readable["layers"] = [strict_yaml.Flow(group) for group in spec["layers"]]
    if "outside" in spec:
        readable["outside"] = strict_yaml.Flow(spec["outside"])
    if "vision" in spec:
        readable["vision"] = readable_spec(spec["vision"])
    return readable


def fold_layers(kinds: Sequence[str]) -> list[LayerGroup]:
    """Return a stack, given as the kind of every layer, with consecutive layers of one kind merged."""
    return [LayerGroup(kind, len(list(layers))) for kind, layers in itertools.groupby(kinds)]


ABSENT = "absent"
"""What a difference shows for a field that one of the specs does not state."""


@dataclass(frozen=True)
class FieldDifference:
    """One leaf in which two specs differ.

    Attributes:
        path: the leaf: `ops.decoder.attMM`, `layers[1].count`.
        expected: what the first spec states there, or `absent`.
        found: what the second one states, or `absent`.
    """

    path: str
    expected: object
    found: object

    def __str__(self) -> str:
        return f"{self.path}: {_said(self.expected)} -> {_said(self.found)}"


def diff_specs(expected: Mapping[str, Any], found: Mapping[str, Any]) -> list[FieldDifference]:
    """Return every leaf in which two specs differ, sorted by path, numbers in it by their value.

    Lists are compared index by index. True is not 1: values of different types differ.
    """
    one, other = dict(_leaves(expected, "")), dict(_leaves(found, ""))
    differences = []
    for path in sorted(one.keys() | other.keys(), key=_numbers_by_value):
        mine, theirs = one.get(path, ABSENT), other.get(path, ABSENT)
        if type(mine) is not type(theirs) or mine != theirs:
            differences.append(FieldDifference(path, mine, theirs))
    return differences


def _leaves(value: Any, path: str) -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping) and (value or not path):
        for name, part in value.items():
            yield from _leaves(part, f"{path}.{name}" if path else str(name))
    elif isinstance(value, list) and value:
        for place, part in enumerate(value):
            yield from _leaves(part, f"{path}[{place}]")
    else:
        yield path, value


def _numbers_by_value(path: str) -> list[tuple[str, int]]:
    return [(text, int(number or -1)) for text, number in re.findall(r"(\D+)(\d*)", path)]


def _said(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
