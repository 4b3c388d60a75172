"""What a kind states beside its dimensions is what the published config, or the modeling file, says."""

import pytest

from test_models.case_table import census_of, in_group
from test_models.families import FAMILIES

# Of a published model's case: a kind, a field, and the value. Where no source is named, the field stands in the
# model's config.json under the same name.
STATED = [
    ("gpt-oss-120b", "decoder", "sliding_window", 128),
    ("gpt-oss-120b", "decoder", "layers_with", {"sliding_window": list(range(0, 36, 2))}),  # layer_types alternate
    ("gemma-2-9b", "decoder", "sliding_window", 4096),
    ("gemma-3-27b", "decoder", "sliding_window", 1024),
    ("gemma-4-e2b-it", "sliding_shared", "is_kv_shared_layer", True),  # num_kv_shared_layers: 20
    ("gemma-4-e2b-it", "sliding_shared", "intermediate_size", 12288),  # use_double_wide_mlp: twice 6144
    ("gemma-4-e2b-it", "full", "head_dim", 512),  # per_layer_config
    ("gemma-4-e2b-it", "full", "hidden_size_per_layer_input", 256),
    ("glm-5.2", "moe", "index_n_heads", 32),
    ("glm-5.2", "moe", "index_head_dim", 128),
    ("glm-5.2", "moe", "index_topk", 2048),
    ("qwen3-next-80b-a3b", "linear_attention", "linear_state_size", 32 * 128 * 128),  # value heads x key x value width
    ("qwen3-next-80b-a3b", "linear_attention", "conv_dim", 16 * 128 + 16 * 128 + 32 * 128),  # queries, keys, values
    ("mamba-1.4b", "mamba", "linear_state_size", 4096 * 16),  # intermediate_size x state_size
    ("korwkv-6b", "decoder", "linear_state_size", 3 * 4096),  # aa, bb and pp of RWKV-4
    ("smollm3-3b", "decoder", "layers_with", {"no_rope": list(range(3, 36, 4))}),  # no_rope_layer_interval: 4
    ("llama-4-scout-17b-16e", "moe", "attention_chunk_size", 8192),
    ("longcat-flash-chat", "decoder", "zero_expert_num", 256),
    ("zaya1-base", "decoder", "zero_expert_num", 1),  # ZayaRouter scores num_experts + 1
    ("nvidia-nemotron-3-super-120b-a12b-fp8", "moe", "moe_latent_size", 1024),
    ("gemma-2-9b", "decoder", "branch_norms", [2, 2]),  # Gemma2DecoderLayer: pre and post of both
    ("gpt-neox-20b", "decoder", "branch_norms", [1, 1]),  # GPTNeoXLayer: use_parallel_residual under two norms
    ("gpt-j-6b", "decoder", "branch_norms", [1]),  # GPTJBlock: ln_1 feeds both
    ("olmo-2-7b", "decoder", "branch_norms", [1, 1]),  # Olmo2DecoderLayer: each after its branch
]


@pytest.mark.parametrize(
    ("case_name", "kind", "field", "value"),
    [pytest.param(*row, id=f"{row[0]}-{row[1]}-{row[2]}", marks=in_group(row[0])) for row in STATED],
)
def test_a_kind_states_what_its_published_config_says(case_name, kind, field, value):
    assert census_of(case_name).spec["kinds"][kind][field] == value


def test_every_layer_of_a_kind_has_what_no_list_of_layers_restricts():
    kind = census_of("qwen3-next-80b-a3b").spec["kinds"]["linear_attention"]
    assert "layers_with" not in kind


@pytest.mark.parametrize("family", FAMILIES.values(), ids=str)
def test_the_norms_of_the_branches_are_the_layers_norms(family):
    for kind in family.base.spec["kinds"].values():
        assert sum(kind["branch_norms"]) == kind["layer_norms"]


def test_a_window_is_stated_with_the_module_whose_mask_has_it():
    assert census_of("gpt-oss-120b").kinds["decoder"].evidence["sliding_window"] == "self_attn: its mask"
