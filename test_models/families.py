"""Small, faithful configs of twelve families: every kind of layer that the family has, narrow and shallow.

The invariants are tested on variants of these. `arch` is the op profile that names their kinds.
"""

from __future__ import annotations

import copy
import functools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from census import ModelCensus, measure

if TYPE_CHECKING:
    from transformers import PretrainedConfig


@dataclass(frozen=True)
class Family:
    """A model type with a small config, and the profile that names its kinds."""

    model_type: str
    arch: str
    config: dict[str, Any]

    def __str__(self) -> str:
        return self.model_type

    def new_config(self, **changes: Any) -> PretrainedConfig:
        from transformers import CONFIG_MAPPING

        config: PretrainedConfig = CONFIG_MAPPING[self.model_type](**copy.deepcopy({**self.config, **changes}))
        return config

    @functools.cached_property
    def base(self) -> ModelCensus:
        """The census of the family's config as it stands."""
        return self.measure()

    def measure(self, seq_length: int = 64, batch: int = 1, **changes: Any) -> ModelCensus:
        return measure(self.new_config(**changes), self.arch, self.model_type, seq_length, batch)


_NARROW = {"hidden_size": 64, "vocab_size": 512, "num_attention_heads": 4, "num_key_value_heads": 2}
_GATED_DELTA = {
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "linear_key_head_dim": 8,
    "linear_value_head_dim": 16,
    "linear_conv_kernel_dim": 4,
    "layer_types": ["linear_attention", "linear_attention", "linear_attention", "full_attention"],
}

FAMILIES = {
    family.model_type: family
    for family in (
        Family("llama", "default", {**_NARROW, "num_hidden_layers": 2, "intermediate_size": 160}),
        Family(
            "gemma3_text",
            "gemma",
            {
                **_NARROW,
                "num_hidden_layers": 3,
                "intermediate_size": 160,
                "head_dim": 32,
                "sliding_window": 16,
                "layer_types": ["sliding_attention", "sliding_attention", "full_attention"],
            },
        ),
        Family("olmo2", "default", {**_NARROW, "num_hidden_layers": 2, "intermediate_size": 160}),
        Family("gpt2", "gpt2", {"n_embd": 64, "n_layer": 2, "n_head": 4, "vocab_size": 512, "n_positions": 2048}),
        Family(
            "mixtral",
            "mixtral",
            {**_NARROW, "num_hidden_layers": 2, "intermediate_size": 96, "num_local_experts": 4},
        ),
        Family(
            "gpt_oss",
            "default",
            {
                **_NARROW,
                "num_hidden_layers": 2,
                "intermediate_size": 96,
                "head_dim": 16,
                "num_local_experts": 4,
                "num_experts_per_tok": 2,
                "sliding_window": 16,
                "layer_types": ["sliding_attention", "full_attention"],
            },
        ),
        Family(
            "qwen2_moe",
            "moe",
            {
                **_NARROW,
                "num_hidden_layers": 4,
                "intermediate_size": 160,
                "moe_intermediate_size": 32,
                "shared_expert_intermediate_size": 96,
                "num_experts": 8,
                "num_experts_per_tok": 2,
                "mlp_only_layers": [1],
            },
        ),
        Family(
            "qwen3_moe",
            "moe",
            {
                **_NARROW,
                "num_hidden_layers": 4,
                "intermediate_size": 160,
                "moe_intermediate_size": 32,
                "num_experts": 8,
                "num_experts_per_tok": 2,
                "decoder_sparse_step": 2,
                "head_dim": 32,
            },
        ),
        Family(
            "llama4_text",
            "moe",
            {
                **_NARROW,
                "num_hidden_layers": 4,
                "intermediate_size": 96,
                "intermediate_size_mlp": 160,
                "num_local_experts": 4,
                "interleave_moe_layer_step": 2,
                "head_dim": 16,
                "attention_chunk_size": 32,
            },
        ),
        Family(
            "glm4_moe",
            "moe",
            {
                **_NARROW,
                "num_hidden_layers": 3,
                "intermediate_size": 160,
                "moe_intermediate_size": 32,
                "n_routed_experts": 8,
                "num_experts_per_tok": 2,
                "n_shared_experts": 1,
                "first_k_dense_replace": 1,
                "head_dim": 32,
            },
        ),
        Family(
            "deepseek_v3",
            "deepseek",
            {
                **_NARROW,
                "num_hidden_layers": 3,
                "num_key_value_heads": 4,
                "intermediate_size": 160,
                "moe_intermediate_size": 32,
                "n_routed_experts": 8,
                "num_experts_per_tok": 2,
                "n_shared_experts": 1,
                "n_group": 1,
                "topk_group": 1,
                "first_k_dense_replace": 1,
                "q_lora_rank": 24,
                "kv_lora_rank": 16,
                "qk_nope_head_dim": 16,
                "qk_rope_head_dim": 8,
                "v_head_dim": 20,
            },
        ),
        Family(
            "qwen3_next",
            "qwen3_5",
            {
                **_NARROW,
                **_GATED_DELTA,
                "num_hidden_layers": 4,
                "intermediate_size": 160,
                "head_dim": 32,
                "moe_intermediate_size": 32,
                "shared_expert_intermediate_size": 48,
                "num_experts": 8,
                "num_experts_per_tok": 2,
            },
        ),
        Family(
            "qwen3_5_text",
            "qwen3_5",
            {**_NARROW, **_GATED_DELTA, "num_hidden_layers": 4, "intermediate_size": 160, "head_dim": 32},
        ),
    )
}
