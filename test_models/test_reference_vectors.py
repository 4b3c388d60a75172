"""Op vectors written by hand from the models' source, against the census.

Order: attMM attBMM ffMM softmax dropout normOp gather headCast ffAct linrec.
"""

import pytest

from census import census_kind
from census.spec import OpCounts
from test_models.case_table import PUBLISHED, census_of, in_group, unlike
from test_models.families import FAMILIES

DECODER = (4, 2, 3, 1, 0, 2, 4, 1, 1, 0)
SANDWICH = (4, 2, 3, 1, 0, 4, 4, 1, 1, 0)
GATED_DELTA = (4, 0, 3, 0, 0, 2, 4, 0, 1, 1)
GPT2 = (4, 2, 2, 1, 2, 2, 4, 1, 1, 0)

ONE_KIND = {
    # q, k, v, o; QK^T and AV; gate, up, down with one activation; a norm before each of two branches.
    DECODER: (
        "llama", "mistral", "qwen2", "qwen3", "phi3", "smollm3", "granite", "deepseek_v2", "deepseek_v3",
        "glm4_moe_lite", "mixtral", "qwen2_moe", "qwen3_moe", "olmoe", "gpt_oss", "llama4", "llama4_text",
        "glm4_moe", "minimax_m2", "kimi_k25",
        # Norms each branch's output instead of its input: still two.
        "olmo2",
    ),
    # Norms both ends of both branches.
    SANDWICH: ("gemma2", "gemma3", "gemma3_text", "glm4"),
    # In training two dropouts run on the branches; the one on attention probabilities is the kernel's own.
    GPT2: ("gpt2",),
}  # fmt: skip
BY_TYPE = {
    **{model_type: {"any": vector} for vector, types in ONE_KIND.items() for model_type in types},
    **{
        model_type: {"linear_attention": GATED_DELTA, "full_attention": DECODER}
        for model_type in ("qwen3_next", "qwen3_5", "qwen3_5_text", "qwen3_5_moe", "olmo_hybrid")
    },
}


@pytest.mark.parametrize(
    "model",
    [
        pytest.param(case, id=name, marks=in_group(name))
        for name, case in PUBLISHED.items()
        if case.model_type in BY_TYPE
    ],
)
def test_every_kind_of_a_case_runs_the_vector_its_source_shows(model):
    expected = BY_TYPE[model.model_type]
    for kind, census in census_of(model.name).kinds.items():
        differing = unlike(expected.get(kind, expected.get("any")), census.ops)
        assert not differing, f"{kind}: read, measured: {differing}: {census.evidence}"


def test_the_vector_is_known_for_every_type_of_the_four_groups():
    groups = {"dense", "moe", "mla", "gated_delta"}
    assert {case.model_type for case in PUBLISHED.values() if case.group in groups} <= set(BY_TYPE)


def test_a_delta_rule_layer_runs_no_softmax_and_one_recurrence():
    census = census_kind(FAMILIES["qwen3_next"].new_config(), 0)
    assert (census.ops["softmax"], census.ops["linrec"]) == (0, 1)


def test_gpt2_counts_its_published_dropouts_on_a_cpu_build():
    # resid_pdrop = embd_pdrop = attn_pdrop = 0.1: after c_proj of the attention and of the MLP.
    census = census_kind(FAMILIES["gpt2"].new_config(), 0)
    assert census.ops["dropout"] == 2
    assert census.evidence["dropout"] == "attn.resid_dropout: p=0.1; mlp.dropout: p=0.1"


def test_qwen3_next_states_its_output_gate_and_its_kinds():
    spec = census_of("qwen3-next-80b-a3b").spec
    assert spec["attn_output_gate"] is True
    assert OpCounts.from_dict(spec["ops"]["linear_attention"]).to_vector() == GATED_DELTA
    assert OpCounts.from_dict(spec["ops"]["full_attention"]).to_vector() == DECODER


def test_deepseek_v3_states_its_latents_and_its_stack():
    spec = census_of("deepseek-v3").spec
    # config.json of deepseek-ai/DeepSeek-V3; head_dim is the value head's width.
    expected = {
        "first_k_dense_replace": 3, "head_dim": 128, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64,
        "v_head_dim": 128, "kv_lora_rank": 512, "q_lora_rank": 1536, "num_key_value_heads": 128,
        "layers": [{"kind": "dense", "count": 3}, {"kind": "moe", "count": 58}],
    }  # fmt: skip
    assert {field: spec[field] for field in expected} == expected
