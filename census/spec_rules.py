"""What holds in every spec: how a mapping is read into one, and what is refused instead of repaired."""

from __future__ import annotations

import dataclasses
import difflib
import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

from census.bounds import MAX_SPEC_NUMBER, quoted
from census.errors import ModelSpecError

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

    from census.spec import LayerGroup, ModelSpec, VisionSpec

_Read = TypeVar("_Read", bound="DataclassInstance")

MAY_BE_ZERO = frozenset({"num_shared_experts", "first_k_dense_replace", "layer_norms", "mtp_depth"})
"""Numbers of which zero says "looked, and there is none". A width, a head or a layer is never zero."""

_LATENT_HEADS = ("qk_nope_head_dim", "v_head_dim")
"""What a latent attention always has; one without positions has no `qk_rope_head_dim`."""


def read(
    cls: type[_Read],
    data: object,
    prefix: str,
    parts: Mapping[str, Callable[[object, str], object]] | None = None,
) -> _Read:
    """Return the instance of a dataclass that a mapping states.

    Args:
        cls: the class; a field without a default is needed.
        data: what should be the mapping.
        prefix: what stands before a field's name in a message: `spec: ` or `spec: ops.decoder.`.
        parts: for fields that are not scalars, a reader that takes the value and the field's path.

    Raises:
        ModelSpecError: a field is unknown, missing, null, or refused by the class.
    """
    stated = _stated(cls, data, prefix)
    for field, part in (parts or {}).items():
        if field in stated:
            stated[field] = part(stated[field], f"{prefix}{field}")
    try:
        return cls(**stated)
    except ModelSpecError as error:
        raise ModelSpecError(f"{prefix}{error}") from None


def _stated(cls: type[DataclassInstance], data: object, prefix: str) -> dict[str, Any]:
    mapping = read_mapping(data, prefix.rstrip(".: "))
    known = {field.name: field.default is dataclasses.MISSING for field in dataclasses.fields(cls)}
    for field, value in mapping.items():
        if field not in known:
            near = difflib.get_close_matches(str(field), known, 1)
            advice = f"write {near[0]} if that is meant" if near else "leave it out"
            refuse(f"{prefix}{field}", f"a field of {cls.__name__}", "an unknown one", advice)
        if value is None:
            refuse(f"{prefix}{field}", "a value", "null", "leave the field out where nothing is known")
    for field, needed in known.items():
        if needed and field not in mapping:
            refuse(f"{prefix}{field}", "a value", "nothing", "state it")
    return dict(mapping)


def read_mapping(data: object, path: str) -> Mapping[str, Any]:
    """Return what is a mapping, refusing what is none."""
    if not isinstance(data, Mapping):
        refuse(path, "a mapping", type(data).__name__, "state its fields by name")
    return data


def read_list(data: object, path: str) -> Sequence[Any]:
    """Return what is a list, refusing what is none."""
    if not isinstance(data, list | tuple):
        refuse(path, "a list", type(data).__name__, "state its entries in order")
    return data


def refuse(path: str, expected: str, found: object, advice: str) -> NoReturn:
    """Refuse a spec, in the words of every message of census."""
    raise ModelSpecError(f"{path}: expected {expected}, found {found}; {advice}")


def check_scalars(spec: DataclassInstance) -> None:
    """Refuse a scalar field that is not of its annotated type. Containers have rules of their own."""
    checks = {"str": check_text, "bool": check_flag, "int": check_number, "float": _check_multiplier}
    for field in dataclasses.fields(spec):
        value = getattr(spec, field.name)
        base, _, absent = str(field.type).partition(" | ")
        if base in checks and not (absent and value is None):
            checks[base](field.name, value)


def check_text(path: str, value: object) -> None:
    """Refuse what is no text or says nothing."""
    if not isinstance(value, str) or not value:
        refuse(path, "text", repr(value), "state a name")


def check_flag(path: str, value: object) -> None:
    """Refuse what is neither true nor false."""
    if type(value) is not bool:
        refuse(path, "true or false", repr(value), "state one of them, or leave the field out")


def check_number(path: str, value: object) -> None:
    """Refuse what is no whole number, or too small for its field."""
    check_at_least(0 if path in MAY_BE_ZERO else 1, path, value)


def check_at_least(least: int, path: str, value: object) -> None:
    """Refuse what is no whole number, a bool and a fraction included, or is less than the least."""
    if type(value) is not int or value < least:
        refuse(path, f"a whole number of at least {least}", quoted(repr(value)), "state the count as it is")
    if value > MAX_SPEC_NUMBER:
        refuse(path, f"a whole number of at most {MAX_SPEC_NUMBER}", quoted(str(value)), "state the count as it is")


def _check_multiplier(path: str, value: object) -> None:
    if type(value) not in (int, float) or not math.isfinite(value) or value <= 0:  # type: ignore[arg-type, operator]
        refuse(path, "a positive number", repr(value), "state the factor")


def check_stack(layers: Sequence[LayerGroup] | None, num_hidden_layers: int) -> None:
    """Refuse a stack whose own layers do not sum to the model's, or stand behind its MTP layers."""
    if layers is None:
        return
    first_mtp = next((place for place, group in enumerate(layers) if group.mtp), len(layers))
    for place, group in enumerate(layers[first_mtp:], first_mtp):
        if not group.mtp:
            refuse(
                f"layers[{place}]",
                "no layer of the model after its MTP layers",
                group.kind,
                "put MTP groups last",
            )
    own = sum(group.count for group in layers[:first_mtp])
    if own != num_hidden_layers:
        refuse("layers", f"groups that sum to num_hidden_layers = {num_hidden_layers}", own, "correct either")


def check_model(spec: ModelSpec) -> None:
    """Refuse a model's spec whose fields contradict each other."""
    check_stack(spec.layers, spec.num_hidden_layers)
    check_kinds(spec)
    _check_attention(spec)
    _check_experts(spec)
    _check_depths(spec)


def check_kinds(spec: ModelSpec | VisionSpec) -> None:
    """Refuse a stack or kinds of which no op vector is stated, and places in the stack that there are none of."""
    _check_kind_specs(spec)
    if spec.ops is None:
        return
    if not spec.ops:
        refuse("ops", "the vector of at least one kind", "none", "state one, or leave the field out")
    for kind in spec.ops:
        check_text("ops", kind)
    for place, group in enumerate(spec.layers or ()):
        if group.kind not in spec.ops:
            kinds = ", ".join(spec.ops)
            refuse(
                f"layers[{place}].kind",
                f"one of the kinds of ops ({kinds})",
                group.kind,
                "state its op vector",
            )


def _check_kind_specs(spec: ModelSpec | VisionSpec) -> None:
    for name, kind in (spec.kinds or {}).items():
        if spec.ops is not None and name not in spec.ops:
            refuse(f"kinds.{name}", f"one of the kinds of ops ({', '.join(spec.ops)})", name, "state its op vector")
        for field, places in (kind.layers_with or {}).items():
            if places[-1] >= spec.num_hidden_layers:
                last = spec.num_hidden_layers - 1
                refuse(f"kinds.{name}.layers_with.{field}", f"places up to {last}", places[-1], "correct either")


def _check_attention(spec: ModelSpec) -> None:
    heads, shared = spec.num_attention_heads, spec.num_key_value_heads
    if shared is not None and heads % shared:
        refuse("num_attention_heads", f"a multiple of num_key_value_heads = {shared}", heads, "correct either")
    if spec.kv_lora_rank is None:
        return
    for field in _LATENT_HEADS:
        if getattr(spec, field) is None:
            refuse(field, "a width, since kv_lora_rank states latent attention", "nothing", "state it")
    if spec.head_dim not in (None, spec.v_head_dim):
        refuse(
            "head_dim",
            f"v_head_dim = {spec.v_head_dim}, as latent attention has it",
            spec.head_dim,
            "correct either",
        )


def _check_experts(spec: ModelSpec) -> None:
    experts, chosen = spec.num_experts, spec.num_experts_per_tok
    if experts is not None and spec.moe_intermediate_size is None:
        refuse("moe_intermediate_size", f"the width of the {experts} experts", "nothing", "state it")
    if chosen is not None and experts is None:
        refuse("num_experts", f"the experts of which {chosen} run for a token", "nothing", "state it")
    if chosen is not None and experts is not None and chosen > experts:
        refuse("num_experts_per_tok", f"at most num_experts = {experts}", chosen, "correct either")
    if spec.num_shared_experts == 0 and spec.shared_expert_intermediate_size is not None:
        width = spec.shared_expert_intermediate_size
        refuse("shared_expert_intermediate_size", "nothing, as num_shared_experts is 0", width, "correct either")


def _check_depths(spec: ModelSpec) -> None:
    depth, dense = spec.num_hidden_layers, spec.first_k_dense_replace
    if dense is not None and dense > depth:
        refuse("first_k_dense_replace", f"at most num_hidden_layers = {depth}", dense, "correct either")
    if spec.layer_types is not None:
        for place, name in enumerate(spec.layer_types):
            check_text(f"layer_types[{place}]", name)
        if len(spec.layer_types) != depth:
            found = f"{len(spec.layer_types)} entries"
            refuse("layer_types", f"num_hidden_layers = {depth} entries", found, "correct either")
    predicted = sum(group.count for group in spec.layers or () if group.mtp)
    if predicted and spec.mtp_depth not in (None, predicted):
        refuse("mtp_depth", f"the {predicted} MTP layers that layers states", spec.mtp_depth, "correct either")
