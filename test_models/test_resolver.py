"""The reading of a config by its field names, against what the models' publishers and Transformers state.

Flags that no field states are expected as the type's modeling file builds them.
"""

import subprocess
import sys

import pytest

from census import resolve_model_spec
from test_models.resolver_configs import (
    DEEPSEEK_V3,
    GEMMA_3_TEXT,
    GLM_45_AIR,
    GPT2,
    GPT_OSS,
    LLAMA,
    LLAMA_4_TEXT,
    MAVERICK_TEXT,
    MIXTRAL,
    MOE,
    QWEN2_MOE,
    QWEN3_NEXT,
    QWEN3_VL,
    resolve,
)


def excerpt(spec, expected):
    """Return what a spec states of the expected fields; one it leaves out is None."""
    return {field: spec.get(field) for field in expected}


PUBLISHED = {
    "llama": (LLAMA, "default", {
        "num_key_value_heads": 8, "head_dim": 128, "intermediate_size": 14336, "qkv_bias": False, "o_bias": False,
        "mlp_bias": False, "qk_norm": False, "norm_bias": False, "layer_norms": 2, "attn_output_gate": False,
        "num_experts": None, "max_position_embeddings": 131072,
        "layers": [{"kind": "decoder", "count": 32}],
    }),
    "mixtral": (MIXTRAL, "mixtral", {
        "num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 14336, "intermediate_size": 14336,
        "num_shared_experts": None, "shared_expert_gate": None, "qkv_bias": False, "mlp_bias": False,
        "first_k_dense_replace": None,
    }),
    "deepseek_v3": (DEEPSEEK_V3, "deepseek", {
        "head_dim": 128, "num_key_value_heads": 128, "q_lora_rank": 1536, "kv_lora_rank": 512,
        "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128, "intermediate_size": 18432,
        "num_experts": 256, "moe_intermediate_size": 2048, "num_shared_experts": 1,
        "shared_expert_intermediate_size": 2048, "shared_expert_gate": False, "qk_norm": False,
        "first_k_dense_replace": 3, "mtp_depth": 1,
        "layers": [{"kind": "dense", "count": 3}, {"kind": "moe", "count": 58}],
    }),
    "qwen3_next": (QWEN3_NEXT, "qwen3_5", {
        "attn_output_gate": True, "qk_norm": True, "shared_expert_gate": True, "num_shared_experts": 1,
        "linear_num_key_heads": 16, "linear_num_value_heads": 32, "linear_conv_kernel_dim": 4,
        "intermediate_size": 512, "first_k_dense_replace": None,
        "layers": [{"kind": "linear_attention", "count": 3}, {"kind": "full_attention", "count": 1}] * 12,
    }),
    "qwen2_moe": (QWEN2_MOE, "default", {
        "qkv_bias": True, "o_bias": False, "num_shared_experts": 8, "shared_expert_intermediate_size": 20480,
        "shared_expert_gate": True, "intermediate_size": 20480, "moe_intermediate_size": 2560,
    }),
    "gpt_oss": (GPT_OSS, "default", {
        "qkv_bias": True, "o_bias": True, "mlp_bias": True, "intermediate_size": 2880,
        "moe_intermediate_size": 2880, "num_experts": 32, "num_experts_per_tok": 4,
        "layers": [{"kind": "decoder", "count": 24}],
    }),
    "glm_4.5_air": (GLM_45_AIR, "moe", {
        "qkv_bias": True, "o_bias": False, "qk_norm": False, "first_k_dense_replace": 1,
        "intermediate_size": 10944, "num_shared_experts": 1,
        "layers": [{"kind": "dense", "count": 1}, {"kind": "moe", "count": 45}],
    }),
    "llama_4_scout": ({"model_type": "llama4", "text_config": LLAMA_4_TEXT}, "moe", {
        "qk_norm": True, "intermediate_size": 8192, "moe_intermediate_size": 8192, "num_shared_experts": 1,
        "shared_expert_intermediate_size": 8192, "shared_expert_gate": False,
        "layers": [{"kind": "moe", "count": 48}],
    }),
    "llama_4_maverick": ({"model_type": "llama4", "text_config": MAVERICK_TEXT}, "moe", {
        "qk_norm": False, "intermediate_size": 16384, "moe_intermediate_size": 8192, "num_experts": 128,
        "first_k_dense_replace": None,
        "layers": [{"kind": "dense", "count": 1}, {"kind": "moe", "count": 1}] * 24,
    }),
    "gpt2": (GPT2, "gpt2", {
        "hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12, "num_key_value_heads": 12,
        "head_dim": 64, "intermediate_size": 3072, "max_position_embeddings": 1024, "qkv_bias": True,
        "o_bias": True, "mlp_bias": True, "norm_bias": True, "layer_norms": 2,
    }),
    "gemma_3": (GEMMA_3_TEXT, "gemma", {
        "layer_norms": 4, "qk_norm": True, "head_dim": 256, "num_key_value_heads": 1, "tie_word_embeddings": True,
    }),
}  # fmt: skip
"""Model -> an excerpt of its config.json, its family, and what it states; None for what it must not state."""


@pytest.mark.parametrize("model", PUBLISHED)
def test_a_published_config_is_read_as_its_publisher_means_it(model):
    config, arch, expected = PUBLISHED[model]
    assert excerpt(resolve(config, arch), expected) == expected


@pytest.mark.parametrize("model", PUBLISHED)
def test_a_transformers_config_reads_as_its_config_json_does(model):
    from transformers import CONFIG_MAPPING

    config, arch, expected = PUBLISHED[model]
    fields = {name: value for name, value in config.items() if name != "model_type"}
    assert excerpt(resolve(CONFIG_MAPPING[config["model_type"]](**fields), arch), expected) == expected


def renamed(base, old, new):
    return {new if name == old else name: value for name, value in base.items()}


@pytest.mark.parametrize(
    ("field", "alias", "base"),
    [
        ("hidden_size", "n_embd", LLAMA),
        ("hidden_size", "n_embed", LLAMA),
        ("hidden_size", "d_model", LLAMA),
        ("num_hidden_layers", "n_layer", LLAMA),
        ("num_hidden_layers", "n_layers", LLAMA),
        ("num_hidden_layers", "num_layers", LLAMA),
        ("num_attention_heads", "n_head", LLAMA),
        ("num_attention_heads", "n_heads", LLAMA),
        ("num_attention_heads", "num_heads", LLAMA),
        ("num_key_value_heads", "num_kv_heads", LLAMA),
        ("num_key_value_heads", "n_head_kv", LLAMA),
        ("num_key_value_heads", "n_kv_heads", LLAMA),
        ("max_position_embeddings", "n_positions", LLAMA),
        ("max_position_embeddings", "max_seq_len", LLAMA),
        ("tie_word_embeddings", "tie_embedding", LLAMA),
        ("intermediate_size", "n_inner", LLAMA),
        ("intermediate_size", "ffn_dim", LLAMA),
        ("intermediate_size", "ffn_hidden_size", LLAMA),
        ("num_experts", "n_routed_experts", MOE),
        ("num_experts", "num_local_experts", MOE),
        ("num_experts", "moe_num_experts", MOE),
        ("num_experts_per_tok", "moe_topk", MOE),
        ("num_experts_per_tok", "moe_k", MOE),
        ("num_experts_per_tok", "top_k_experts", MOE),
        ("moe_intermediate_size", "expert_ffn_hidden_size", MOE),
    ],
)
def test_a_field_is_found_under_its_alias(field, alias, base):
    assert resolve(renamed(base, field, alias)) == resolve(base)


@pytest.mark.parametrize(
    ("alias", "value", "field", "expected"),
    [
        ("attention_head_dim", 64, "head_dim", 64),
        ("hidden_size_per_head", 64, "head_dim", 64),
        ("n_shared_experts", 2, "num_shared_experts", 2),
        ("num_shared_experts", 2, "num_shared_experts", 2),
        ("moe_num_shared_experts", 2, "num_shared_experts", 2),
        ("num_nextn_predict_layers", 1, "mtp_depth", 1),
        ("num_nextn_predict_layers", 0, "mtp_depth", None),
        ("num_mtp_layers", 1, "mtp_depth", 1),
        ("num_mtp_modules", 3, "mtp_depth", 3),
        ("mtp_num_hidden_layers", 1, "mtp_depth", 1),
    ],
)
def test_what_a_config_may_state_is_found_under_its_alias(alias, value, field, expected):
    assert resolve({**MOE, alias: value}).get(field) == expected


@pytest.mark.parametrize("alias", ["use_qk_norm", "qk_norm"])
@pytest.mark.parametrize("stated", [True, False])
def test_qk_norm_is_what_a_type_without_a_rule_states(alias, stated):
    assert resolve({**LLAMA, "model_type": "unheard_of", alias: stated})["qk_norm"] is stated


@pytest.mark.parametrize(
    ("field", "flags"),
    [
        ("qkv_bias", {"qkv_bias": True, "o_bias": None, "mlp_bias": None}),
        ("attention_bias", {"qkv_bias": True, "o_bias": True, "mlp_bias": None}),
        ("attention_out_bias", {"qkv_bias": None, "o_bias": True, "mlp_bias": None}),
        ("mlp_bias", {"qkv_bias": None, "o_bias": None, "mlp_bias": True}),
        ("use_bias", {"qkv_bias": True, "o_bias": True, "mlp_bias": True}),
    ],
)
def test_biases_of_a_type_without_a_rule_are_what_its_fields_state(field, flags):
    plain = {name: value for name, value in LLAMA.items() if not name.endswith("_bias")}
    assert excerpt(resolve({**plain, "model_type": "unheard_of", field: True}), flags) == flags


def test_the_name_of_an_epsilon_says_nothing_about_a_norms_bias():
    # Phi-3.5-MoE states rms_norm_eps and builds LayerNorm with a bias.
    assert "norm_bias" not in resolve({**LLAMA, "model_type": "unheard_of"})


def test_qk_norm_of_an_unknown_type_goes_by_the_qwen3_in_its_name():
    unknown = {**LLAMA, "model_type": "unheard_of"}
    assert resolve(unknown, name="My-Qwen3-8B")["qk_norm"] is True
    assert "qk_norm" not in resolve(unknown, name="My-Model")


def test_the_first_alias_that_is_not_null_is_read():
    assert resolve({**MOE, "num_experts": None, "n_routed_experts": None, "num_local_experts": 4})["num_experts"] == 4


@pytest.mark.parametrize(
    ("field", "spec_field", "value"),
    [
        ("num_key_value_heads", "num_key_value_heads", 32),
        ("head_dim", "head_dim", 128),
        ("tie_word_embeddings", "tie_word_embeddings", None),
        ("max_position_embeddings", "max_position_embeddings", None),
        ("num_nextn_predict_layers", "mtp_depth", None),
        ("num_experts", "num_experts", None),
        ("layer_types", "layer_types", None),
        ("vision_config", "vision", None),
    ],
)
def test_null_and_absent_read_the_same(field, spec_field, value):
    without = {name: stated for name, stated in LLAMA.items() if name != field}
    assert resolve({**LLAMA, field: None}) == resolve(without)
    assert resolve(without).get(spec_field) == value


def test_latent_attention_without_a_query_latent_states_none():
    assert "q_lora_rank" not in resolve({**DEEPSEEK_V3, "q_lora_rank": None}, "deepseek")


def test_latent_attention_has_a_key_a_head_whatever_num_key_value_heads_says():
    assert resolve({**DEEPSEEK_V3, "num_key_value_heads": 2}, "deepseek")["num_key_value_heads"] == 128


def test_latent_attention_is_as_wide_as_its_values_whatever_head_dim_says():
    # Transformers maps head_dim of these types to qk_rope_head_dim.
    assert resolve({**DEEPSEEK_V3, "head_dim": 64}, "deepseek")["head_dim"] == 128


def test_multi_query_attention_has_one_kv_head():
    falcon = {"model_type": "falcon", "hidden_size": 4544, "num_attention_heads": 71, "multi_query": True,
              "new_decoder_architecture": False, "num_hidden_layers": 32, "vocab_size": 65024,
              "ffn_hidden_size": 18176}  # fmt: skip
    assert resolve(falcon)["num_key_value_heads"] == 1


@pytest.mark.parametrize(
    "alias",
    [
        "shared_expert_intermediate_size",
        "moe_shared_expert_intermediate_size",
        "shared_intermediate_size",
        "share_expert_dim",
    ],
)
@pytest.mark.parametrize(("width", "count"), [(512, 1), (2048, 4), (768, 1), (100, 1)])
def test_shared_experts_are_counted_by_their_width_where_it_divides(alias, width, count):
    spec = resolve({**MOE, alias: width})
    assert (spec["shared_expert_intermediate_size"], spec["num_shared_experts"]) == (width, count)


def test_a_shared_width_of_zero_is_no_shared_expert():
    # MiniMax-M2 publishes shared_intermediate_size 0.
    spec = resolve({**MOE, "shared_intermediate_size": 0})
    assert "num_shared_experts" not in spec
    assert "shared_expert_gate" not in spec


def test_where_every_layer_routes_the_shared_experts_width_is_the_intermediate_size():
    assert resolve({**MOE, "n_shared_experts": 3})["intermediate_size"] == 3 * 512


def test_where_every_layer_routes_and_none_is_shared_the_experts_width_is_the_intermediate_size():
    assert resolve(MOE)["intermediate_size"] == 512


D, M = "dense", "moe"


@pytest.mark.parametrize(
    ("fields", "stack"),
    [
        ({}, [M] * 6),
        ({"num_experts": 0}, [D] * 6),
        ({"moe_layer_freq": 1}, [M] * 6),
        ({"moe_layer_freq": [1] * 6}, [M] * 6),
        ({"decoder_sparse_step": 2}, [D, M, D, M, D, M]),
        ({"decoder_sparse_step": 1, "mlp_only_layers": [0, 3]}, [D, M, M, D, M, M]),
        ({"mlp_only_layers": [5]}, [M, M, M, M, M, D]),
        ({"first_k_dense_replace": 2}, [D, D, M, M, M, M]),
        ({"first_k_dense_replace": 0}, [M] * 6),
        ({"first_k_dense_replace": 6}, [D] * 6),
        ({"interleave_moe_layer_step": 3}, [D, D, M, D, D, M]),
        ({"moe_layers": [1, 3, 5], "interleave_moe_layer_step": 1}, [D, M, D, M, D, M]),
        ({"moe_layers_enum": "3,4,5"}, [D, D, D, M, M, M]),
        ({"mlp_layer_types": ["dense", *["sparse"] * 5], "first_k_dense_replace": 3}, [D, M, M, M, M, M]),
    ],
)
def test_the_layers_that_route_are_those_the_fields_name(fields, stack):
    layers = resolve({**MOE, "num_hidden_layers": 6, **fields}, "moe")["layers"]
    assert [group["kind"] for group in layers for _ in range(group["count"])] == stack


def test_leading_dense_layers_are_stated_only_where_all_others_route():
    def leading(stack):
        return resolve({**MOE, "num_hidden_layers": 4, "mlp_layer_types": stack}, "moe").get("first_k_dense_replace")

    assert leading(["dense", "dense", "sparse", "sparse"]) == 2
    assert leading(["dense", "sparse", "dense", "sparse"]) is None
    assert leading(["sparse"] * 4) is None


def test_layer_types_go_before_an_interval_and_are_followed_in_their_order():
    types = ["full_attention", "full_attention", "linear_attention", "linear_attention"]
    spec = resolve({**QWEN3_NEXT, "num_hidden_layers": 4, "layer_types": types}, "qwen3_5")
    assert spec["layers"] == [{"kind": "full_attention", "count": 2}, {"kind": "linear_attention", "count": 2}]


def test_an_attention_that_granites_published_configs_call_that_alone_is_a_full_one():
    # ibm-granite/granite-4.0-350m, config.json: layer_types of "attention" alone; the layers have no window.
    spec = resolve({**LLAMA, "num_hidden_layers": 2, "layer_types": ["attention", "full_attention"]})
    assert spec["layers"] == [{"kind": "decoder", "count": 2}]


def test_fields_of_linear_attention_are_left_out_where_no_layer_is_linear():
    spec = resolve({**QWEN3_NEXT, "num_hidden_layers": 2, "layer_types": ["full_attention"] * 2}, "qwen3_5")
    assert not [field for field in spec if field.startswith("linear_")]


def test_ops_are_those_of_the_familys_profile():
    # A gated delta rule layer scores nothing and updates a state; the other one is Llama's.
    ops = resolve(QWEN3_NEXT, "qwen3_5")["ops"]
    assert tuple(ops["linear_attention"].values()) == (4, 0, 3, 0, 0, 2, 4, 0, 1, 1)
    assert tuple(ops["full_attention"].values()) == (4, 2, 3, 1, 0, 2, 4, 1, 1, 0)


def test_the_family_is_inferred_from_name_and_type():
    assert resolve_model_spec(DEEPSEEK_V3)["arch"] == "deepseek"
    assert resolve_model_spec(QWEN3_NEXT)["arch"] == "qwen3_5"


def test_a_composite_config_is_described_by_its_language_model():
    spec = resolve(QWEN3_VL, "qwen")
    expected = {"name": "qwen3_vl", "hidden_size": 2048, "num_hidden_layers": 28, "qk_norm": True}
    assert excerpt(spec, expected) == expected


@pytest.mark.parametrize("tower", ["text_config", "language_config", "llm_config"])
def test_a_language_model_is_found_under_each_name_of_a_text_tower(tower):
    assert resolve({"model_type": "any", tower: LLAMA})["hidden_size"] == 4096


def test_a_text_tower_is_found_inside_another():
    assert resolve({"model_type": "any", "thinker_config": {"text_config": LLAMA}})["hidden_size"] == 4096


@pytest.mark.parametrize(("whole", "text", "tied"), [(True, None, True), (None, True, True), (False, True, False)])
def test_a_composite_ties_its_embeddings_before_its_text_config_does(whole, text, tied):
    config = {"model_type": "any", "tie_word_embeddings": whole, "text_config": {**LLAMA, "tie_word_embeddings": text}}
    assert resolve(config)["tie_word_embeddings"] is tied


def test_the_vision_tower_is_read_under_its_own_names():
    assert resolve(QWEN3_VL, "qwen")["vision"] == {
        "hidden_size": 1024,
        "num_hidden_layers": 24,
        "num_attention_heads": 16,
        "name": "qwen3_vl",
        "intermediate_size": 4096,
        "out_hidden_size": 2048,
        "patch_size": 16,
        "spatial_merge_size": 2,
        "num_position_embeddings": 2304,
        "layers": [{"kind": "encoder", "count": 24}],
    }


def test_a_square_stated_by_both_sides_is_read_as_its_side():
    # Kimi-K2.5's tower states merge_kernel_size [2, 2].
    tower = {"vt_hidden_size": 1152, "vt_num_hidden_layers": 27, "vt_num_attention_heads": 16,
             "vt_intermediate_size": 4304, "patch_size": 14, "merge_kernel_size": [2, 2]}  # fmt: skip
    vision = resolve({**LLAMA, "vision_config": tower})["vision"]
    assert (vision["spatial_merge_size"], vision["num_hidden_layers"]) == (2, 27)


def test_a_vision_tower_whose_fields_do_not_describe_it_is_left_out():
    assert "vision" not in resolve({**LLAMA, "vision_config": {"model_type": "convolutional", "hidden_size": 64}})


def test_overrides_win_and_what_follows_from_them_follows():
    spec = resolve(LLAMA, name="mine", num_hidden_layers=2, num_attention_heads=16, qk_norm=True)
    expected = {"name": "mine", "head_dim": 256, "qk_norm": True, "layers": [{"kind": "decoder", "count": 2}]}
    assert excerpt(spec, expected) == expected


def test_an_override_of_null_is_none():
    assert resolve(LLAMA, hidden_size=None) == resolve(LLAMA)


def test_overrides_state_what_a_config_lacks():
    assert resolve({"model_type": "llama"}, **{name: LLAMA[name] for name in (
        "hidden_size", "intermediate_size", "num_attention_heads", "num_hidden_layers", "vocab_size"
    )})["head_dim"] == 128  # fmt: skip


def test_a_config_stays_as_it_was():
    from transformers import CONFIG_MAPPING

    config = CONFIG_MAPPING["llama"](**{name: value for name, value in LLAMA.items() if name != "model_type"})
    before = config.to_dict()
    resolve(config, hidden_size=8192)
    assert config.to_dict() == before


def test_reading_imports_neither_torch_nor_transformers():
    program = (
        f"import sys; from census import resolve_model_spec; resolve_model_spec({DEEPSEEK_V3!r}); "
        "print([name for name in ('torch', 'transformers') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
