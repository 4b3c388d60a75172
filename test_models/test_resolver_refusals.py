"""What a config's field names do not say is refused, by a message that names the aliases looked for."""

import pytest

from census import ConfigError, KindError, ModelSpecError
from test_models.resolver_configs import GEMMA_3_TEXT, GPT_OSS, LLAMA, MOE, QWEN3_NEXT, resolve


def without(config, *fields):
    return {name: value for name, value in config.items() if name not in fields}


REFUSED = {
    "no type": (without(LLAMA, "model_type"), r"config: expected model_type, found none; pass a config\.json"),
    "no width": (
        without(LLAMA, "hidden_size"),
        r"llama: hidden_size: expected a positive number under one of hidden_size, n_embd, n_embed, d_model, "
        r"found none of them; pass overrides=\{'hidden_size': \.\.\.\}",
    ),
    "no text tower": (
        {"model_type": "any", "vision_config": {"hidden_size": 64}}, r"any: hidden_size: .* found none of them"
    ),
    "no feed-forward width": (without(LLAMA, "intermediate_size"), r"intermediate_size: expected .* n_inner"),
    "no top-k": (without(MOE, "num_experts_per_tok"), r"num_experts_per_tok: expected .* moe_topk, moe_k"),
    "heads of zero": ({**LLAMA, "num_attention_heads": 0}, r"num_attention_heads: .* found 0"),
    "heads that do not divide": (
        {**LLAMA, "hidden_size": 4100},
        r"head_dim: expected .* attention_head_dim, .*since 32 heads do not divide hidden_size",
    ),
    "text for a number": ({**LLAMA, "hidden_size": "4096"}, r"hidden_size: expected a whole number, found '4096'"),
    "true for a number": ({**LLAMA, "hidden_size": True}, r"hidden_size: expected a whole number, found True"),
    "layer types of another length": (
        {**GPT_OSS, "num_hidden_layers": 23},
        r"layer_types: expected one entry for each of num_hidden_layers = 23, found 24 entries; correct either",
    ),
    "an unknown layer type": (
        {**LLAMA, "num_hidden_layers": 2, "layer_types": ["full_attention", "mamba"]},
        r"layer_types\[1\]: expected one of full_attention, .*, found 'mamba'; measure this model",
    ),
    "an unknown pattern": (
        {**LLAMA, "hybrid_override_pattern": "M-*-"},
        r"layer_types: expected the kind of each layer, since hybrid_override_pattern states more kinds than one",
    ),
    "linear attention nobody places": (
        without(QWEN3_NEXT, "full_attention_interval"), r"layer_types: .* since linear_num_value_heads states"
    ),
    "a step of zero": ({**MOE, "decoder_sparse_step": 0}, r"decoder_sparse_step: expected a step .*, found 0"),
    "routing that is not read": (
        # ERNIE 4.5's rule: layers from one index to another, every so many.
        {**MOE, "moe_layer_start_index": 1, "moe_layer_interval": 1},
        r"moe_layer_start_index: expected a field that census reads .*, found 1; state one of mlp_layer_types, ",
    ),
    "layers that are no indices": ({**MOE, "moe_layers_enum": "3,x"}, r"moe_layers_enum: expected indices of layers"),
    "layers that are no list": ({**MOE, "mlp_only_layers": 3}, r"mlp_only_layers: expected a list, found 3"),
}  # fmt: skip


@pytest.mark.parametrize("config", REFUSED)
def test_what_the_fields_do_not_say_is_refused(config):
    fields, message = REFUSED[config]
    with pytest.raises(ConfigError, match=message):
        resolve(fields)


def test_a_family_without_a_kind_for_the_layers_is_refused():
    with pytest.raises(KindError, match=r"family deepseek: .* linear"):
        resolve(QWEN3_NEXT, "deepseek")


def test_an_override_that_is_no_spec_field_is_refused():
    with pytest.raises(ModelSpecError, match=r"llama, by its fields: n_layer: expected a field of ModelSpec"):
        resolve(LLAMA, n_layer=3)


def test_facts_that_contradict_each_other_are_refused():
    with pytest.raises(ModelSpecError, match="num_attention_heads: expected a multiple of num_key_value_heads = 5"):
        resolve({**LLAMA, "num_key_value_heads": 5})


def test_a_head_of_width_zero_is_refused():
    with pytest.raises(ModelSpecError, match="head_dim: expected a whole number of at least 1, found 0"):
        resolve({**LLAMA, "head_dim": 0})


def test_a_window_nobody_places_is_refused_where_the_family_tells_windows_apart(tmp_path):
    ops = ", ".join(f"{op}: {count}" for op, count in resolve(LLAMA)["ops"]["decoder"].items())
    kinds = f"full: {{ops: {{{ops}}}}}, window: {{attention: sliding, ops: {{{ops}}}}}"
    profile = tmp_path / "windows.yaml"
    profile.write_text(f"kinds: {{{kinds}}}\ndefault: full\n")
    with pytest.raises(ConfigError, match=r"layer_types: expected which layers have the sliding_window, .* windows"):
        resolve(GEMMA_3_TEXT, str(profile))
