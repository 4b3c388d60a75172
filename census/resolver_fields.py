"""What fields of published configs mean: spec fields by their aliases, and what a model type fixes itself.

Tables alone. A spec field is what the first of its aliases states; a type's own row goes before its fields,
since the class reads no field that the row contradicts. Each row was read in Transformers 5.24, in the type's
`models/<type>/modeling_<type>.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

ALIASES: Mapping[str, tuple[str, ...]] = {
    "hidden_size": ("hidden_size", "n_embd", "n_embed", "d_model"),
    "num_hidden_layers": ("num_hidden_layers", "n_layer", "n_layers", "num_layers"),
    "num_attention_heads": ("num_attention_heads", "n_head", "n_heads", "num_heads"),
    "vocab_size": ("vocab_size",),
    "tie_word_embeddings": ("tie_word_embeddings", "tie_embedding"),
    "max_position_embeddings": ("max_position_embeddings", "n_positions", "max_seq_len"),
    "num_key_value_heads": ("num_key_value_heads", "num_kv_heads", "n_head_kv", "n_kv_heads"),
    "head_dim": ("head_dim", "attention_head_dim", "hidden_size_per_head"),
    "qkv_bias": ("qkv_bias", "attention_bias", "use_bias"),
    "o_bias": ("o_bias", "attention_out_bias", "attention_bias", "use_bias"),
    "qk_norm": ("use_qk_norm", "qk_norm"),
    "attn_output_gate": ("attn_output_gate",),
    "q_lora_rank": ("q_lora_rank",),
    "kv_lora_rank": ("kv_lora_rank",),
    "qk_nope_head_dim": ("qk_nope_head_dim",),
    "qk_rope_head_dim": ("qk_rope_head_dim",),
    "v_head_dim": ("v_head_dim",),
    "linear_num_key_heads": ("linear_num_key_heads",),
    "linear_key_head_dim": ("linear_key_head_dim",),
    "linear_num_value_heads": ("linear_num_value_heads",),
    "linear_value_head_dim": ("linear_value_head_dim",),
    "linear_conv_kernel_dim": ("linear_conv_kernel_dim",),
    # Llama 4 states two widths: `intermediate_size_mlp` is a dense layer's, `intermediate_size` an expert's.
    "intermediate_size": (
        "intermediate_size_mlp",
        "intermediate_size",
        "n_inner",
        "ffn_dim",
        "ffn_hidden_size",
    ),
    "mlp_bias": ("mlp_bias", "use_bias"),
    "num_experts": ("num_experts", "n_routed_experts", "num_local_experts", "moe_num_experts"),
    "num_experts_per_tok": ("num_experts_per_tok", "moe_topk", "moe_k", "top_k_experts"),
    # A config that states experts and no width of theirs means them by its one width.
    "moe_intermediate_size": ("moe_intermediate_size", "expert_ffn_hidden_size", "intermediate_size"),
    "num_shared_experts": ("n_shared_experts", "num_shared_experts", "moe_num_shared_experts"),
    "shared_expert_intermediate_size": (
        "shared_expert_intermediate_size",
        "moe_shared_expert_intermediate_size",
        "shared_intermediate_size",
        "share_expert_dim",
    ),
    "mtp_depth": ("num_nextn_predict_layers", "num_mtp_layers", "num_mtp_modules", "mtp_num_hidden_layers"),
    "layer_types": ("layer_types",),
}
"""Spec field -> the config fields that state it; the first one that is there and not null does."""

VISION_ALIASES: Mapping[str, tuple[str, ...]] = {
    # Qwen2-VL's tower calls its own width `embed_dim` and what it hands on `hidden_size`.
    "hidden_size": ("embed_dim", "hidden_size", "width", "vt_hidden_size"),
    "num_hidden_layers": ("num_hidden_layers", "depth", "layers", "vt_num_hidden_layers"),
    "num_attention_heads": ("num_attention_heads", "num_heads", "heads", "vt_num_attention_heads"),
    "name": ("model_type",),
    "intermediate_size": ("intermediate_size", "vt_intermediate_size"),
    "out_hidden_size": ("out_hidden_size", "vision_output_dim"),
    "patch_size": ("patch_size",),
    "spatial_merge_size": ("spatial_merge_size", "merge_kernel_size"),
    "num_position_embeddings": ("num_position_embeddings",),
    "max_position_embeddings": ("max_position_embeddings",),
}
"""The same for a vision tower's config."""

TEXT_TOWERS = ("text_config", "language_config", "llm_config", "thinker_config")
"""Where a multimodal config holds its language model's."""

VISION_TOWERS = ("vision_config", "vit_config", "vision_tower_config")
"""Where a multimodal config holds its vision tower's."""

ATTENTION_FLAVOURS: Mapping[str, str] = {
    "full_attention": "full",
    # What it was called before; Transformers reads it so (configuration_utils.py, _LEGACY_LAYER_TYPE_REMAP).
    "attention": "full",
    "linear_attention": "linear",
    "sliding_attention": "sliding",
    "chunked_attention": "chunked",
}
"""An entry of `layer_types` -> the attention flavour."""

FFN_FLAVOURS: Mapping[str, str] = {"dense": "dense", "sparse": "moe", "moe": "moe"}
"""An entry of `mlp_layer_types` -> the feed-forward flavour."""


@dataclass(frozen=True)
class TypeRule:
    """What all layers of some model types have in common, whatever their configs say.

    Attributes:
        types: the model types.
        why: where it shows.
        facts: spec field -> value. `shared_expert_gate` holds where a shared expert runs.
        inner_multiple: a dense width in units of `hidden_size`, for configs that leave it out.
    """

    types: tuple[str, ...]
    why: str
    facts: Mapping[str, int | bool] = field(default_factory=dict)
    inner_multiple: int | None = None


_RMS = {"norm_bias": False, "layer_norms": 2, "attn_output_gate": False}
"""A decoder layer of two norms without bias, with no gate on its attention."""

_NO_BIAS = {"qkv_bias": False, "o_bias": False, "mlp_bias": False}

TYPE_RULES: tuple[TypeRule, ...] = (
    TypeRule(
        ("llama", "smollm3", "granite"),
        "the class reads attention_bias and mlp_bias; nothing stands between projections and kernel",
        {**_RMS, "qk_norm": False},
    ),
    TypeRule(
        ("mistral", "ministral", "mixtral", "phi3"),
        "every projection is built with bias=False; experts are raw weights",
        {**_RMS, **_NO_BIAS, "qk_norm": False},
    ),
    TypeRule(
        ("qwen2", "qwen2_5_vl_text", "qwen2_vl_text"),
        "q_proj, k_proj, v_proj have bias=True, o_proj has none; no field says so",
        {**_RMS, "qkv_bias": True, "o_bias": False, "mlp_bias": False, "qk_norm": False},
    ),
    TypeRule(
        ("qwen2_moe",),
        "qkv_bias is read for q, k, v alone; shared_expert_gate is a projection to one number",
        {**_RMS, "o_bias": False, "mlp_bias": False, "qk_norm": False, "shared_expert_gate": True},
    ),
    TypeRule(
        ("qwen3", "qwen3_moe", "qwen3_vl_text", "qwen3_vl_moe_text"),
        "q_norm and k_norm on every head; MLPs and experts without bias",
        {**_RMS, "mlp_bias": False, "qk_norm": True},
    ),
    TypeRule(
        ("qwen3_next", "qwen3_5_text", "qwen3_5_moe_text"),
        "q_proj is twice as wide as the queries; q_norm and k_norm; shared_expert_gate beside the experts",
        {**_RMS, "mlp_bias": False, "qk_norm": True, "attn_output_gate": True, "shared_expert_gate": True},
    ),
    TypeRule(
        ("gemma2",),
        "norms before and after each branch; the MLP has no bias",
        {**_RMS, "layer_norms": 4, "mlp_bias": False, "qk_norm": False},
    ),
    TypeRule(
        ("gemma3_text",),
        "norms before and after each branch, q_norm and k_norm; the MLP has no bias",
        {**_RMS, "layer_norms": 4, "mlp_bias": False, "qk_norm": True},
    ),
    TypeRule(
        ("olmo2", "olmo3", "olmoe", "olmo_hybrid"),
        "q_norm and k_norm over all heads at once; two norms a layer, wherever they stand",
        {**_RMS, "mlp_bias": False, "qk_norm": True},
    ),
    TypeRule(
        ("glm",),
        "attention_bias is read for q, k, v alone; gate_up_proj and down_proj have none",
        {**_RMS, "o_bias": False, "mlp_bias": False, "qk_norm": False},
    ),
    TypeRule(
        ("glm4",),
        "attention_bias is read for q, k, v alone; norms before and after each branch",
        {**_RMS, "layer_norms": 4, "o_bias": False, "mlp_bias": False, "qk_norm": False},
    ),
    TypeRule(
        ("glm4_moe",),
        "attention_bias is read for q, k, v alone; q_norm and k_norm by use_qk_norm; shared experts ungated",
        {**_RMS, "o_bias": False, "mlp_bias": False, "shared_expert_gate": False},
    ),
    TypeRule(
        ("gpt2",),
        "Conv1D and LayerNorm carry a bias; n_inner null is four times the hidden size",
        {
            "qkv_bias": True,
            "o_bias": True,
            "mlp_bias": True,
            "norm_bias": True,
            "qk_norm": False,
            "attn_output_gate": False,
            "layer_norms": 2,
        },
        inner_multiple=4,
    ),
    TypeRule(
        ("starcoder2",),
        "use_bias is read for every projection; LayerNorm carries a bias",
        {**_RMS, "norm_bias": True, "qk_norm": False},
    ),
    TypeRule(
        ("phimoe",),
        "LayerNorm carries a bias, though the config states rms_norm_eps; experts are raw weights",
        {**_RMS, "norm_bias": True, "mlp_bias": False, "qk_norm": False},
    ),
    TypeRule(
        ("gpt_oss",),
        "the experts hold gate_up_proj_bias and down_proj_bias",
        {**_RMS, "mlp_bias": True, "qk_norm": False},
    ),
    TypeRule(
        ("llama4_text",),
        "one shared expert of an expert's width beside them, ungated; qk_norm by use_qk_norm",
        {**_RMS, "mlp_bias": False, "num_shared_experts": 1, "shared_expert_gate": False},
    ),
    TypeRule(
        ("minimax_m2",),
        "q_norm and k_norm over all heads at once, whatever use_qk_norm says; bias=False throughout",
        {**_RMS, **_NO_BIAS, "qk_norm": True},
    ),
    TypeRule(
        ("deepseek_v3", "kimi_k2", "glm4_moe_lite"),
        "norms stand on the latents, none on heads; shared experts are ungated MLPs without bias",
        {**_RMS, "mlp_bias": False, "qk_norm": False, "shared_expert_gate": False},
    ),
    TypeRule(
        ("deepseek_v2",),
        "as DeepSeek-V3, with mlp_bias read for dense and shared MLPs",
        {**_RMS, "qk_norm": False, "shared_expert_gate": False},
    ),
    TypeRule(
        ("step3p5", "step3p7"),
        "q_norm and k_norm; g_proj gates by one number a head, which is no gate as wide as the queries",
        {**_RMS, "qk_norm": True, "shared_expert_gate": False},
    ),
)

RULE_OF: Mapping[str, TypeRule] = {name: rule for rule in TYPE_RULES for name in rule.types}
"""Model type -> its row."""

QK_NORM_NAMES = ("qwen3",)
"""Names that promise norms on queries and keys where neither a field nor a row says anything."""
