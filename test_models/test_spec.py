"""A spec holds what it says, to the field; what does not hold together is refused by name."""

import copy

import pytest
from hypothesis import given
from hypothesis import strategies as st

from census.errors import CensusError, ModelSpecError
from census.op_counts import OPS
from census.spec import LayerGroup, ModelSpec, OpCounts, VisionSpec, diff_specs, fold_layers

FULL = dict(zip(OPS, (4, 2, 3, 1, 0, 2, 4, 1, 1, 0), strict=True))
LINEAR = dict(zip(OPS, (4, 0, 3, 0, 0, 2, 4, 0, 1, 1), strict=True))
NEEDED = {"name": "m", "hidden_size": 64, "num_hidden_layers": 4, "num_attention_heads": 8, "vocab_size": 100}
LATENT = {"kv_lora_rank": 32, "qk_nope_head_dim": 16, "qk_rope_head_dim": 8, "v_head_dim": 16}
SPEC = {
    **NEEDED,
    "arch": "qwen3_5",
    "num_key_value_heads": 2,
    "qk_norm": True,
    "num_experts": 16,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 32,
    "num_shared_experts": 0,
    "ops": {"full_attention": FULL, "linear_attention": LINEAR},
    "layers": [
        {"kind": "linear_attention", "count": 3},
        {"kind": "full_attention", "count": 1},
        {"kind": "full_attention", "count": 1, "mtp": True},
    ],
    "vision": {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "patch_size": 14},
}


def changed(**fields):
    return {**copy.deepcopy(SPEC), **fields}


def without(*fields):
    return {field: value for field, value in SPEC.items() if field not in fields}


def groups(*stack):
    return [{"kind": kind, "count": count, **({"mtp": True} if mtp else {})} for kind, count, *mtp in stack]


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        (
            changed(num_kv_heads=2),
            "f.yaml: num_kv_heads: expected a field of ModelSpec, found an unknown one; write num",
        ),
        (changed(zzz=2), "f.yaml: zzz: expected a field of ModelSpec, found an unknown one; leave it out"),
        (without("vocab_size"), "f.yaml: vocab_size: expected a value, found nothing; state it"),
        (changed(head_dim=None), "f.yaml: head_dim: expected a value, found null; leave the field out"),
        (changed(hidden_size=True), "hidden_size: expected a whole number of at least 1, found True"),
        (changed(hidden_size=64.0), "hidden_size: expected a whole number of at least 1, found 64.0"),
        (changed(hidden_size="64"), "hidden_size: expected a whole number of at least 1, found '64'"),
        (changed(vocab_size=0), "vocab_size: expected a whole number of at least 1, found 0"),
        (
            changed(num_shared_experts=-1),
            "num_shared_experts: expected a whole number of at least 0, found -1",
        ),
        (changed(qk_norm=1), "qk_norm: expected true or false, found 1"),
        (changed(name=""), "name: expected text, found ''"),
        (changed(ffn_dim_multiplier=0), "ffn_dim_multiplier: expected a positive number, found 0"),
        (changed(ffn_dim_multiplier=True), "ffn_dim_multiplier: expected a positive number, found True"),
        (
            changed(num_key_value_heads=3),
            "num_attention_heads: expected a multiple of num_key_value_heads = 3, found 8",
        ),
        (
            changed(**{**LATENT, "head_dim": 24}),
            "head_dim: expected v_head_dim = 16, as latent attention has it, found 24",
        ),
        (
            changed(kv_lora_rank=32),
            "qk_nope_head_dim: expected a width, since kv_lora_rank states latent attention",
        ),
        (
            without("moe_intermediate_size"),
            "moe_intermediate_size: expected the width of the 16 experts, found nothing",
        ),
        (
            without("num_experts"),
            "num_experts: expected the experts of which 2 run for a token, found nothing",
        ),
        (changed(num_experts_per_tok=17), "num_experts_per_tok: expected at most num_experts = 16, found 17"),
        (
            changed(shared_expert_intermediate_size=8),
            "shared_expert_intermediate_size: expected nothing, as num_shared",
        ),
        (
            changed(first_k_dense_replace=5),
            "first_k_dense_replace: expected at most num_hidden_layers = 4, found 5",
        ),
        (
            changed(layer_types=["full"]),
            "layer_types: expected num_hidden_layers = 4 entries, found 1 entries",
        ),
        (changed(layer_types=[1, 2, 3, 4]), "layer_types[0]: expected text, found 1"),
        (changed(layer_types="full"), "f.yaml: layer_types: expected a list, found str"),
        (changed(mtp_depth=2), "mtp_depth: expected the 1 MTP layers that layers states, found 2"),
        (changed(ops={}), "ops: expected the vector of at least one kind, found none"),
        (changed(ops=[1]), "f.yaml: ops: expected a mapping, found list"),
        (changed(ops={"full_attention": 4}), "f.yaml: ops.full_attention: expected a mapping, found int"),
        (
            changed(ops={"full_attention": FULL}),
            "layers[0].kind: expected one of the kinds of ops (full_attention), found",
        ),
        (changed(layers={}), "f.yaml: layers: expected a list, found dict"),
        (changed(layers=[]), "layers: expected groups that sum to num_hidden_layers = 4, found 0"),
        (
            changed(layers=groups(("full_attention", 3))),
            "layers: expected groups that sum to num_hidden_layers = 4, found 3",
        ),
        (
            changed(layers=groups(("full_attention", 1, True), ("full_attention", 4))),
            "layers[1]: expected no layer of the model after its MTP layers, found full_attention",
        ),
        (
            changed(layers=groups(("full_attention", 0))),
            "f.yaml: layers[0].count: expected a whole number of at least 1",
        ),
        (
            changed(layers=[{"kind": "full_attention"}]),
            "f.yaml: layers[0].count: expected a value, found nothing",
        ),
        (
            changed(layers=[{"kind": "full_attention", "count": 4, "mtp": False}]),
            "f.yaml: layers[0].mtp: expected true or nothing, found false",
        ),
        (
            changed(vision={"hidden_size": 32}),
            "f.yaml: vision.num_hidden_layers: expected a value, found nothing",
        ),
        (
            changed(vision={**SPEC["vision"], "layers": groups(("encoder", 3))}),
            "f.yaml: vision.layers: expected groups that sum to num_hidden_layers = 2, found 3",
        ),
        ([], "f.yaml: expected a mapping, found list; state its fields by name"),
    ],
    ids=lambda part: part.replace("f.yaml: ", "") if isinstance(part, str) else "",
)
def test_a_spec_that_does_not_hold_together_is_refused_by_field(spec, message):
    with pytest.raises(ModelSpecError) as caught:
        ModelSpec.from_dict(spec, where="f.yaml")
    assert message in str(caught.value)
    assert str(caught.value).startswith("f.yaml: ")


@pytest.mark.parametrize(
    ("ops", "message"),
    [
        (dict.fromkeys(OPS[:-1], 1), "ops.decoder.linrec: expected a value, found nothing"),
        (
            {**FULL, "attnMM": 4},
            "ops.decoder.attnMM: expected a field of OpCounts, found an unknown one; write attMM",
        ),
        ({**FULL, "attMM": True}, "ops.decoder.attMM: expected a whole number of at least 0, found True"),
        ({**FULL, "attMM": -1}, "ops.decoder.attMM: expected a whole number of at least 0, found -1"),
        ({**FULL, "attMM": 1.5}, "ops.decoder.attMM: expected a whole number of at least 0, found 1.5"),
        ({**FULL, "attMM": None}, "ops.decoder.attMM: expected a value, found null"),
    ],
)
def test_an_op_vector_names_every_op_and_counts_it(ops, message):
    with pytest.raises(ModelSpecError) as caught:
        ModelSpec.from_dict({**NEEDED, "ops": {"decoder": ops}})
    assert message in str(caught.value)


def test_a_spec_built_in_python_is_refused_as_one_that_was_read():
    with pytest.raises(ModelSpecError, match="num_attention_heads: expected a multiple of num_key_value_heads = 3"):
        ModelSpec(**NEEDED, num_key_value_heads=3)
    with pytest.raises(ModelSpecError, match="count: expected a whole number of at least 1, found 0"):
        LayerGroup("decoder", 0)


def test_a_refused_spec_is_an_error_of_census_and_of_the_value():
    assert issubclass(ModelSpecError, CensusError)
    assert issubclass(ModelSpecError, ValueError)


def test_a_spec_survives_the_mapping_and_yaml_field_by_field():
    spec = ModelSpec.from_dict(SPEC)
    assert spec.to_dict() == SPEC
    assert ModelSpec.from_yaml(spec.to_yaml()) == spec


def test_fields_come_in_one_order_however_they_were_stated():
    shuffled = dict(reversed(SPEC.items()))
    assert list(ModelSpec.from_dict(shuffled).to_dict()) == list(SPEC)


def test_what_nobody_stated_is_absent():
    assert ModelSpec.from_dict(NEEDED).to_dict() == NEEDED


def test_op_vectors_and_layer_groups_are_one_line_each():
    lines = ModelSpec.from_dict(SPEC).to_yaml().splitlines()
    assert "- {kind: linear_attention, count: 3}" in lines
    assert [line for line in lines if line.lstrip().startswith("full_attention: {attMM: 4, ") and line.endswith("}")]


def test_yaml_that_is_no_spec_is_refused_with_its_file():
    for text in ("- 1", "a: {b: 1, b: 2}", "name: m\nhidden_size: 012"):
        with pytest.raises(ModelSpecError, match=r"^spec\.yaml: expected"):
            ModelSpec.from_yaml(text, where="spec.yaml")


def test_an_op_vector_is_a_mapping_in_the_order_of_the_ops():
    counts = OpCounts.from_vector(tuple(FULL.values()))
    assert (counts.attMM, counts["linrec"], counts.to_dict(), counts.to_vector()) == (
        4,
        0,
        FULL,
        tuple(FULL.values()),
    )
    assert OpCounts.from_dict(FULL) == counts
    with pytest.raises(KeyError):
        counts["to_dict"]
    with pytest.raises(ModelSpecError, match=r"expected the 10 counts of attMM attBMM .*, found 9"):
        OpCounts.from_vector(range(9))


def test_consecutive_layers_of_one_kind_are_one_group():
    assert fold_layers(["a", "a", "b", "a"]) == [LayerGroup("a", 2), LayerGroup("b", 1), LayerGroup("a", 1)]


def test_equal_specs_do_not_differ():
    assert diff_specs(SPEC, copy.deepcopy(SPEC)) == []


@pytest.mark.parametrize(
    ("found", "differences"),
    [
        (changed(hidden_size=65), ["hidden_size: 64 -> 65"]),
        (changed(qk_norm=1), ["qk_norm: true -> 1"]),
        (
            changed(ops={**SPEC["ops"], "full_attention": {**FULL, "attMM": 5}}),
            ["ops.full_attention.attMM: 4 -> 5"],
        ),
        (without("arch"), ["arch: qwen3_5 -> absent"]),
        (changed(head_dim=8), ["head_dim: absent -> 8"]),
        (changed(layer_types=[]), ["layer_types: absent -> []"]),
        (
            changed(layers=groups(("linear_attention", 2), ("full_attention", 2))),
            [
                "layers[0].count: 3 -> 2",
                "layers[1].count: 1 -> 2",
                "layers[2].count: 1 -> absent",
                "layers[2].kind: full_attention -> absent",
                "layers[2].mtp: true -> absent",
            ],
        ),
    ],
)
def test_a_difference_is_one_row_a_leaf(found, differences):
    assert [str(difference) for difference in diff_specs(SPEC, found)] == differences


def test_the_rows_of_a_long_stack_come_in_its_order():
    stack = [{"kind": "a", "count": 1} for _ in range(12)]
    paths = [difference.path for difference in diff_specs({}, {"layers": stack})]
    assert paths[::2] == [f"layers[{place}].count" for place in range(12)]


COUNTS = st.integers(1, 10**9)
VECTORS = st.fixed_dictionaries({op: st.integers(0, 9) for op in OPS})
NAMES = st.text(min_size=1, max_size=8)


@st.composite
def specs(draw):
    stack = draw(st.lists(st.tuples(st.sampled_from("abc"), st.integers(1, 9)), min_size=1, max_size=4))
    predicted = draw(st.lists(st.tuples(st.sampled_from("abc"), st.integers(1, 2), st.just(True)), max_size=2))
    depth, shared = sum(count for _, count in stack), draw(st.integers(1, 8))
    needed = {
        "name": draw(NAMES),
        "hidden_size": draw(COUNTS),
        "num_hidden_layers": depth,
        "num_attention_heads": shared * draw(st.integers(1, 8)),
        "vocab_size": draw(COUNTS),
    }
    optional = {
        "arch": NAMES,
        "tie_word_embeddings": st.booleans(),
        "num_key_value_heads": st.just(shared),
        "qkv_bias": st.booleans(),
        "num_shared_experts": st.integers(0, 4),
        "first_k_dense_replace": st.integers(0, depth),
        "layer_norms": st.integers(0, 4),
        "ffn_dim_multiplier": st.floats(0.1, 4),
        "layer_types": st.lists(NAMES, min_size=depth, max_size=depth),
        "ops": st.fixed_dictionaries(dict.fromkeys("abc", VECTORS)),
        "layers": st.just(groups(*stack, *predicted)),
        "vision": st.fixed_dictionaries(
            {"hidden_size": COUNTS, "num_hidden_layers": st.just(3), "num_attention_heads": COUNTS},
            optional={"name": NAMES, "patch_size": COUNTS, "layers": st.just(groups(("encoder", 3)))},
        ),
    }
    return {**needed, **draw(st.fixed_dictionaries({}, optional=optional))}


@given(specs())
def test_every_valid_spec_survives_the_mapping_and_yaml(data):
    spec = ModelSpec.from_dict(data)
    assert spec.to_dict() == data
    assert ModelSpec.from_yaml(spec.to_yaml()).to_dict() == data
    assert diff_specs(data, spec.to_dict()) == []


def test_a_vision_tower_is_read_on_its_own():
    assert VisionSpec.from_dict(SPEC["vision"]).to_dict() == SPEC["vision"]
