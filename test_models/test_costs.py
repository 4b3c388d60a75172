"""Costs of a spec that does not say what they are computed from are refused, never counted as none."""

import copy
from pathlib import Path

import pytest

from census import ModelSpecError
from census.costs import cache_bytes, flops, parameters
from census.golden import golden_path, read_golden
from test_models.families import FAMILIES

ROOT = Path(__file__).parents[1]


@pytest.fixture
def spec():
    return copy.deepcopy(dict(FAMILIES["qwen2_moe"].base.spec))


@pytest.mark.parametrize("cost", [parameters, lambda spec: flops(spec, 8), lambda spec: cache_bytes(spec, 8)])
@pytest.mark.parametrize("field", ["ops", "layers", "kinds", "outside"])
def test_a_spec_without_what_a_cost_is_computed_from_is_refused(spec, cost, field):
    del spec[field]
    with pytest.raises(
        ModelSpecError, match=rf"expected a spec that says what its layers hold, found none of .*{field}"
    ):
        cost(spec)


def test_a_kind_that_states_no_weights_is_refused_and_named(spec):
    del spec["kinds"]["moe"]["projections"]
    with pytest.raises(ModelSpecError, match=r"found none of kinds\.moe\.projections"):
        parameters(spec)


def test_a_kind_whose_ops_need_a_width_it_does_not_state_is_refused_and_named(spec):
    del spec["kinds"]["dense"]["head_dim"]
    with pytest.raises(ModelSpecError, match=r"kinds\.dense\.head_dim: expected a number, since ops\.dense runs"):
        flops(spec, 8)


def test_biases_that_are_not_as_many_for_each_expert_are_refused(spec):
    spec["kinds"]["moe"]["other_parameters"]["routed"] = 7
    with pytest.raises(ModelSpecError, match=r"as many elements for each of 8 experts, found 7"):
        parameters(spec)


@pytest.mark.parametrize("length", [0, -1, True, 1.5])
def test_a_length_that_is_no_number_of_tokens_is_refused(spec, length):
    with pytest.raises(ModelSpecError, match="seq_length: expected a positive whole number"):
        flops(spec, length)
    with pytest.raises(ModelSpecError, match="seq_length: expected a positive whole number"):
        cache_bytes(spec, length)


def test_experts_in_modules_of_their_own_hold_as_many_matrices_as_there_are():
    """NLLB-MoE: fc1 and fc2 of one expert hold as much as each other, and are not each other's siblings."""
    from test_models.case_table import census_of

    stated = census_of("nllb-moe-encoder-decoder").spec["kinds"]["decoder_moe"]
    assert stated["projections"]["routed"] == [[64, 128, 4, 2], [128, 64, 4, 2]]
    assert stated["other_parameters"]["routed"] == 4 * (128 + 64)


def test_experts_that_a_looped_layer_takes_from_an_earlier_one_are_left_out_of_the_active_parameters_once():
    golden = read_golden(golden_path(ROOT / "golden_specs", "inkling2_loop", "inkling2_loop-language"))
    stated = parameters(golden.spec)
    # 8 of 128 experts run for a token; everything else does.
    assert stated["active"] == stated["total"] - stated["routed"] * 120 // 128
