"""The second opinion: a ModelSpec read from a config's field names alone.

No model is built and no modeling file is imported. What a field means is a table (`census.resolver_fields`);
what is measured (`census.measurement`) is compared with this reading, field by field.

    config -> text tower -> fields under their aliases -> stack -> ModelSpec
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from census.op_profile import LayerKind, OpProfile, infer_arch, load_op_profile
from census.resolver_fields import QK_NORM_NAMES, VISION_ALIASES
from census.resolver_reading import ConfigFields, first_stated
from census.resolver_stack import layer_flavours
from census.spec import ModelSpec, fold_layers

if TYPE_CHECKING:
    from transformers import PretrainedConfig

_NEEDED = ("hidden_size", "num_hidden_layers", "num_attention_heads", "vocab_size")

_AS_STATED = (
    "tie_word_embeddings",
    "max_position_embeddings",
    "qkv_bias",
    "o_bias",
    "attn_output_gate",
    "mlp_bias",
)
"""Fields that are what the config, or the type's rule, states of them, if anything."""

_LATENT = ("q_lora_rank", "kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim")

_LINEAR = (
    "linear_num_key_heads",
    "linear_key_head_dim",
    "linear_num_value_heads",
    "linear_value_head_dim",
    "linear_conv_kernel_dim",
)

_WINDOWS = ("sliding_window", "attention_chunk_size")
_VISION_NEEDED = ("hidden_size", "num_hidden_layers", "num_attention_heads")

_Facts = dict[str, object]


def resolve_model_spec(
    config: PretrainedConfig | Mapping[str, Any], overrides: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Return the ModelSpec that a config's field names state.

    A field that nothing states is absent; null counts as absent.

    Args:
        config: a Transformers config, or a mapping as a config.json holds it. Of a composite one the language
            model is described, with the vision tower under `vision`.
        overrides: spec fields that win over the config, `arch` and `name` among them.

    Returns:
        The spec as plain data, as `ModelSpec.from_dict` takes it.

    Raises:
        ConfigError: a needed fact is stated nowhere, or a field does not say how the layers are built.
        KindError: the family has no kind for a layer.
        ModelSpecError: the facts, overrides included, are no spec or contradict each other.
    """
    fields = ConfigFields.of(config, overrides)
    profile = load_op_profile(str(fields.overrides.get("arch") or infer_arch(f"{fields.name} {fields.model_type}")))
    needed = {name: fields.needed(name) for name in _NEEDED}
    _refuse_unknown_reach(fields, profile)
    flavours = layer_flavours(fields, needed["num_hidden_layers"])
    kinds = [profile.kind_for(attention, ffn) for attention, ffn in flavours]
    facts = {
        "name": fields.name,
        **needed,
        **{name: fields.get(name) for name in _AS_STATED},
        **_heads(fields),
        **(_stated(fields, _LINEAR) if any(attention == "linear" for attention, _ in flavours) else {}),
        **_feed_forward(fields, [ffn for _, ffn in flavours]),
        **_norms(fields, kinds),
        "mtp_depth": fields.number("mtp_depth") or None,
        "ops": {kind.name: kind.ops.to_dict() for kind in profile.kinds.values()},
        "layers": [group.to_dict() for group in fold_layers([kind.name for kind in kinds])],
        "vision": _vision(fields),
        **fields.overrides,
        "arch": profile.arch,
    }
    stated = {name: value for name, value in facts.items() if value is not None}
    return ModelSpec.from_dict(stated, where=f"{fields.name}, by its fields").to_dict()


def _stated(fields: ConfigFields, names: Iterable[str]) -> _Facts:
    return {name: fields.number(name) for name in names}


def _refuse_unknown_reach(fields: ConfigFields, profile: OpProfile) -> None:
    """Refuse to guess which layers have a window, where the family has kinds of their own for those."""
    told_apart = any(kind.attention in ("sliding", "chunked") for kind in profile.kinds.values())
    window = next((name for name in _WINDOWS if fields.states(name)), None)
    if told_apart and window is not None and not fields.states("layer_types"):
        raise fields.error(
            "layer_types",
            f"which layers have the {window}, since family {profile.arch} tells them apart",
            "nothing",
            "pass overrides={'layer_types': [...]}",
        )


def _heads(fields: ConfigFields) -> _Facts:
    heads = fields.needed("num_attention_heads")
    if fields.states("kv_lora_rank"):
        # Keys and values are projected up from the latent for every query head.
        latent = _stated(fields, _LATENT)
        return {**latent, "num_key_value_heads": heads, "head_dim": latent["v_head_dim"]}
    head_dim = fields.number("head_dim")
    if head_dim is None:
        head_dim, rest = divmod(fields.needed("hidden_size"), heads)
        if rest:
            fields.needed("head_dim", f", since {heads} heads do not divide hidden_size")
    value_width = fields.number("v_head_dim")
    return {
        "num_key_value_heads": _key_value_heads(fields, heads),
        "head_dim": head_dim,
        "v_head_dim": None if value_width == head_dim else value_width,
    }


def _key_value_heads(fields: ConfigFields, heads: int) -> int:
    # Falcon-7B states 71 KV heads by class default, and one by multi_query.
    if fields.get("multi_query") is True and not fields.get("new_decoder_architecture"):
        return 1
    stated = fields.number("num_key_value_heads")
    return heads if stated is None else stated


def _feed_forward(fields: ConfigFields, ffns: Sequence[str]) -> _Facts:
    """Return the widths of what the stack holds: a field of a feed-forward that no layer has is left out."""
    if "moe" not in ffns:
        return {"intermediate_size": _dense_width(fields)}
    width = fields.needed("moe_intermediate_size")
    shared = _shared_experts(fields, width)
    everywhere = shared.get("shared_expert_intermediate_size", width)
    return {
        "intermediate_size": _dense_width(fields) if "dense" in ffns else everywhere,
        "num_experts": fields.needed("num_experts"),
        "num_experts_per_tok": fields.needed("num_experts_per_tok"),
        "moe_intermediate_size": width,
        **shared,
        "first_k_dense_replace": _leading_dense(ffns),
    }


def _dense_width(fields: ConfigFields) -> int:
    multiple = fields.rule.inner_multiple
    if multiple is not None and not fields.states("intermediate_size"):
        return multiple * fields.needed("hidden_size")
    return fields.needed("intermediate_size")


def _shared_experts(fields: ConfigFields, expert_width: int) -> _Facts:
    """Return how many shared experts run and how wide they are together; nothing where none does."""
    width = fields.number("shared_expert_intermediate_size")
    if width is None:
        width = (fields.number("num_shared_experts") or 0) * expert_width
    if not width:
        return {}
    return {
        "num_shared_experts": 1 if width % expert_width else width // expert_width,
        "shared_expert_intermediate_size": width,
        "shared_expert_gate": fields.get("shared_expert_gate"),
    }


def _leading_dense(ffns: Sequence[str]) -> int | None:
    """Return how many dense layers lead a stack whose other layers all route, None for other stacks."""
    leading = ffns.index("moe")
    return leading if leading and "dense" not in ffns[leading:] else None


def _norms(fields: ConfigFields, kinds: Sequence[LayerKind]) -> _Facts:
    qk_norm = fields.get("qk_norm")
    if qk_norm is None and any(text in f"{fields.name} {fields.model_type}".lower() for text in QK_NORM_NAMES):
        qk_norm = True
    layer_norms = fields.number("layer_norms")
    if layer_norms is None:
        # What the family's profile says of a layer is the best there is for a type without a rule.
        layer_norms = min(kinds, key=lambda kind: kind.attention == "linear").ops["normOp"]
    return {"qk_norm": qk_norm, "norm_bias": fields.get("norm_bias"), "layer_norms": layer_norms}


def _vision(fields: ConfigFields) -> _Facts | None:
    """Return the vision tower, None where there is none or its own fields do not describe it."""
    tower = fields.vision
    stated = {name: _side(first_stated(tower, aliases)) for name, aliases in VISION_ALIASES.items()} if tower else {}
    vision = {name: value for name, value in stated.items() if value not in (None, "")}
    if not all(name in vision for name in _VISION_NEEDED):
        return None
    return {**vision, "layers": [{"kind": "encoder", "count": vision["num_hidden_layers"]}]}


def _side(value: object) -> object:
    """Return the side of a square that a config states by both of its sides."""
    if isinstance(value, list | tuple) and len(value) == 2 and value[0] == value[1]:
        return value[0]
    return value
