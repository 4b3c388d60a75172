"""What no count may depend on, and what each config field may change, over variants of thirteen families."""

import json
from collections import Counter

import pytest
from hypothesis import given, note
from hypothesis import strategies as st

from census import ModelSpec, measure
from census.spec import diff_specs
from test_models.families import FAMILIES
from test_models.older_releases import missing

families = pytest.mark.parametrize("family", FAMILIES.values(), ids=str)


def changed(before, after, kinds=False):
    """Return the spec fields in which two censuses differ, with their values after; those of kinds, or all others.

    Parameters apart: every width is in some weight.
    """
    found = {difference.path: difference.found for difference in diff_specs(before.spec, after.spec)}
    return {
        path: value
        for path, value in found.items()
        if path.startswith("kinds.") == kinds and not PARAMETERS.intersection(path.split("."))
    }


PARAMETERS = {"projections", "other_parameters", "tied_parameters", "idle_parameters", "outside"}
DERIVED = {
    "conv_dim", "conv_kernel_dim", "conv_flops_per_token",
    "linear_state_size", "linear_flops_per_token", "sliding_window",
}  # fmt: skip
"""What a kind states beside the model's fields, of which a changed field may change some."""


@families
@given(seq_length=st.integers(2, 700), batch=st.integers(1, 5))
def test_nothing_depends_on_the_sequence_length_or_the_batch(family, seq_length, batch):
    assert diff_specs(family.base.spec, family.measure(seq_length=seq_length, batch=batch).spec) == []


@families
@given(data=st.data())
def test_counts_do_not_depend_on_widths_heads_vocabulary_or_experts(family, data):
    config = family.config
    kv_heads = data.draw(st.sampled_from([1, 2, 3]), "KV heads")
    repeats = data.draw(st.sampled_from([1, 2, 4]), "queries a KV head")
    head = data.draw(st.sampled_from([8, 24, 64]), "head width")
    sizes = {
        "num_attention_heads": kv_heads * repeats,
        "num_key_value_heads": kv_heads * repeats if "kv_lora_rank" in config else kv_heads,
        "head_dim": head,
        "hidden_size": kv_heads * repeats * head,
        "vocab_size": data.draw(st.integers(300, 3000), "vocabulary"),
        "intermediate_size": data.draw(st.integers(1, 60), "width") * 8,
        "moe_intermediate_size": data.draw(st.integers(1, 20), "expert width") * 8,
        "num_experts": 2 ** data.draw(st.integers(1, 6), "experts"),
    }
    sizes["num_local_experts"] = sizes["n_routed_experts"] = sizes["num_experts"]
    sizes["n_embd"], sizes["n_head"] = sizes["hidden_size"], sizes["num_attention_heads"]
    changes = {field: size for field, size in sizes.items() if field in config}
    if "head_dim" not in config and "hidden_size" in changes:
        # Without a field for it, the head's width is the quotient, and rotation needs it even.
        changes["hidden_size"] = kv_heads * repeats * head
    note(f"{family.model_type}: {changes}")
    census = family.measure(**changes)
    assert census.spec["ops"] == family.base.spec["ops"]


def _even(low, high):
    return st.integers(low, high).map(lambda number: 2 * number)


def _same(*fields):
    return lambda value: dict.fromkeys(fields, value)


CHANGES = [
    ("llama", "vocab_size", st.integers(513, 4000), _same("vocab_size")),
    ("llama", "intermediate_size", st.integers(161, 400), _same("intermediate_size")),
    ("llama", "num_key_value_heads", st.sampled_from([1, 4]), _same("num_key_value_heads")),
    ("llama", "head_dim", _even(10, 40), _same("head_dim")),
    ("llama", "max_position_embeddings", st.integers(128, 1023), _same("max_position_embeddings")),
    ("llama", "tie_word_embeddings", st.just(True), _same("tie_word_embeddings")),
    ("llama", "attention_bias", st.just(True), _same("qkv_bias", "o_bias")),
    ("llama", "mlp_bias", st.just(True), _same("mlp_bias")),
    ("llama", "rms_norm_eps", st.floats(1e-7, 1e-4), lambda _: {}),
    ("llama", "attention_dropout", st.floats(0.01, 0.5), lambda _: {}),
    ("gpt2", "n_inner", st.integers(300, 400), _same("intermediate_size")),
    ("gpt2", "resid_pdrop", st.just(0.0), lambda _: {"ops.decoder.dropout": 0}),
    ("gpt2", "attn_pdrop", st.just(0.0), lambda _: {}),
    ("mixtral", "num_local_experts", st.integers(5, 20), _same("num_experts")),
    ("mixtral", "num_experts_per_tok", st.sampled_from([1, 3, 4]), _same("num_experts_per_tok")),
    ("mixtral", "intermediate_size", st.integers(97, 300), _same("moe_intermediate_size", "intermediate_size")),
    ("gpt_oss", "sliding_window", st.integers(2, 100), lambda _: {}),
    ("qwen2_moe", "shared_expert_intermediate_size", st.sampled_from([32, 64, 128]),
     lambda width: {"shared_expert_intermediate_size": width, "num_shared_experts": width // 32}),
    ("qwen2_moe", "shared_expert_intermediate_size", st.sampled_from([40, 50, 100]),
     lambda width: {"shared_expert_intermediate_size": width, "num_shared_experts": 1}),
    ("qwen3_moe", "num_experts_per_tok", st.sampled_from([1, 3, 8]), _same("num_experts_per_tok")),
    ("qwen3_moe", "intermediate_size", st.integers(161, 400), _same("intermediate_size")),
    ("glm4_moe", "use_qk_norm", st.just(True), _same("qk_norm")),
    ("glm4_moe", "n_shared_experts", st.sampled_from([2, 3]),
     lambda n: {"num_shared_experts": n, "shared_expert_intermediate_size": 32 * n}),
    ("deepseek_v3", "kv_lora_rank", st.integers(17, 60), _same("kv_lora_rank")),
    ("deepseek_v3", "q_lora_rank", st.integers(25, 60), _same("q_lora_rank")),
    ("deepseek_v3", "q_lora_rank", st.none(), lambda _: {"q_lora_rank": "absent"}),
    ("deepseek_v3", "qk_nope_head_dim", st.integers(17, 60), _same("qk_nope_head_dim")),
    ("deepseek_v3", "qk_rope_head_dim", _even(5, 30), _same("qk_rope_head_dim")),
    ("deepseek_v3", "v_head_dim", st.integers(21, 60), _same("v_head_dim", "head_dim")),
    ("deepseek_v3", "num_key_value_heads", st.sampled_from([1, 2]), lambda _: {}),
    ("deepseek_v3", "moe_intermediate_size", st.integers(33, 80),
     _same("moe_intermediate_size", "shared_expert_intermediate_size")),
    ("qwen3_next", "linear_num_key_heads", st.sampled_from([1, 4]), _same("linear_num_key_heads")),
    ("qwen3_next", "linear_num_value_heads", st.sampled_from([2, 6, 8]), _same("linear_num_value_heads")),
    ("qwen3_next", "linear_key_head_dim", st.integers(9, 40), _same("linear_key_head_dim")),
    ("qwen3_next", "linear_value_head_dim", st.integers(17, 40), _same("linear_value_head_dim")),
    ("qwen3_next", "linear_conv_kernel_dim", st.integers(2, 9).filter(lambda n: n != 4),
     _same("linear_conv_kernel_dim")),
]  # fmt: skip


@pytest.mark.parametrize(
    ("model_type", "field", "values", "expected"),
    CHANGES,
    ids=[f"{row[0]}-{row[1]}-{number}" for number, row in enumerate(CHANGES)],
)
@given(data=st.data())
def test_a_changed_field_changes_the_spec_field_of_its_meaning_and_no_other(model_type, field, values, expected, data):
    family = FAMILIES[model_type]
    value = data.draw(values, field)
    after = family.measure(**{field: value})
    assert changed(family.base, after) == expected(value)
    of_kinds = {path.split(".")[-1]: found for path, found in changed(family.base, after, kinds=True).items()}
    assert {field: found for field, found in of_kinds.items() if field not in DERIVED}.items() <= expected(
        value
    ).items()


@pytest.mark.parametrize("model_type", ["llama", "mixtral", "gpt2", "olmo2"])
@given(depth=st.integers(3, 40))
def test_depth_changes_the_stack_alone(model_type, depth):
    family = FAMILIES[model_type]
    field = "n_layer" if model_type == "gpt2" else "num_hidden_layers"
    assert changed(family.base, family.measure(**{field: depth})) == {
        "num_hidden_layers": depth,
        "layers[0].count": depth,
    }


@pytest.mark.parametrize("model_type", ["deepseek_v3", "glm4_moe"])
@given(data=st.data())
def test_first_k_dense_replace_gives_the_stack_it_states(model_type, data):
    depth = data.draw(st.integers(2, 8), "depth")
    leading = data.draw(st.integers(0, depth), "leading")
    census = FAMILIES[model_type].measure(num_hidden_layers=depth, first_k_dense_replace=leading)
    assert census.stack == ("dense",) * leading + ("moe",) * (depth - leading)
    assert census.spec.get("first_k_dense_replace") == (leading if 0 < leading < depth else None)


@given(
    dense=st.sets(st.integers(0, 5)),
    step=st.integers(1, 4),
    model=st.sampled_from(["qwen2_moe", "qwen3_moe"]),
)
def test_mlp_only_layers_and_decoder_sparse_step_give_the_stack_they_state(dense, step, model):
    census = FAMILIES[model].measure(num_hidden_layers=6, mlp_only_layers=sorted(dense), decoder_sparse_step=step)
    expected = ["dense" if layer in dense or (layer + 1) % step else "moe" for layer in range(6)]
    assert list(census.stack) == expected


@pytest.mark.parametrize("model_type", ["qwen3_next", "qwen3_5_text"])
@given(types=st.lists(st.sampled_from(["linear_attention", "full_attention"]), min_size=1, max_size=8))
def test_the_stack_follows_any_order_of_layer_types(model_type, types):
    types.append("full_attention")
    census = FAMILIES[model_type].measure(num_hidden_layers=len(types), layer_types=types)
    assert list(census.stack) == types


@pytest.mark.parametrize("model_type", ["gemma3_text", "gpt_oss"])
@given(types=st.lists(st.sampled_from(["sliding_attention", "full_attention"]), min_size=1, max_size=8))
def test_a_layer_slides_where_its_type_says_so_and_nowhere_else(model_type, types):
    from census import census_kind

    config = FAMILIES[model_type].new_config(num_hidden_layers=len(types), layer_types=types)
    flavours = [census_kind(config, layer).shape.attention for layer in range(len(types))]
    assert [f"{flavour}_attention" for flavour in flavours] == types


@given(step=st.integers(1, 5), depth=st.integers(1, 8))
def test_an_interleaving_step_gives_the_stack_it_states(step, depth):
    census = FAMILIES["llama4_text"].measure(num_hidden_layers=depth, interleave_moe_layer_step=step)
    assert list(census.stack) == ["moe" if (layer + 1) % step == 0 else "dense" for layer in range(depth)]


PARALLEL_FIELDS = (
    "num_attention_heads", "num_key_value_heads", "intermediate_size", "intermediate_size_mlp",
    "moe_intermediate_size", "shared_expert_intermediate_size", "linear_num_key_heads", "linear_num_value_heads",
    "n_head",
)  # fmt: skip


@families
def test_counts_stay_when_heads_and_widths_are_divided_by_a_tensor_parallel_degree(family):
    divided = {field: family.config[field] // 2 for field in PARALLEL_FIELDS if field in family.config}
    if "head_dim" not in family.config and "kv_lora_rank" not in family.config and "n_head" not in family.config:
        divided["head_dim"] = family.config["hidden_size"] // family.config["num_attention_heads"]
    whole, part = family.base, family.measure(**divided)
    assert part.spec["ops"] == whole.spec["ops"]
    assert part.spec["num_attention_heads"] * 2 == whole.spec["num_attention_heads"]


@families
def test_a_spec_survives_yaml(family):
    spec = family.base.spec
    assert ModelSpec.from_yaml(ModelSpec.from_dict(spec).to_yaml()).to_dict() == spec


def test_two_runs_in_either_order_are_equal():
    names = sorted(name for name in FAMILIES if not missing(name))
    forth = {name: FAMILIES[name].measure().spec for name in names}
    back = {name: FAMILIES[name].measure().spec for name in reversed(names)}
    assert forth == back


def test_the_invariants_hold_over_at_least_eight_families():
    archs = Counter(family.arch for family in FAMILIES.values())
    assert len(FAMILIES) >= 8, archs


def test_measuring_leaves_the_config_as_it_was():
    for family in (family for name, family in FAMILIES.items() if not missing(name)):
        config = family.new_config()
        before = json.dumps(config.to_dict(), sort_keys=True, default=str)
        attributes = {name: repr(value) for name, value in vars(config).items()}
        measure(config, family.arch, str(family))
        assert json.dumps(config.to_dict(), sort_keys=True, default=str) == before
        assert {name: repr(value) for name, value in vars(config).items()} == attributes
