"""A census leaves the process as it was, whatever happened."""

import random
import sys
import threading

import pytest
import torch
from transformers.integrations.moe import ExpertsInterface
from transformers.masking_utils import AttentionMaskInterface
from transformers.modeling_utils import AttentionInterface, PreTrainedModel

from census import BuildError, CensusError, measure
from test_models.families import FAMILIES

FAILING = {
    # num_experts_per_tok above num_experts: top-k fails in the forward.
    "in the forward": ("mixtral", {"num_experts_per_tok": 9}),
    # A width that the number of heads does not divide: refused or failing while the model is built.
    "in the build": ("gpt2", {"n_head": 7}),
}


def modeling_functions():
    return {
        (name, attribute): value
        for name, module in list(sys.modules.items())
        if name.startswith("transformers.models.") and ".modeling_" in name
        for attribute, value in vars(module).items()
        if callable(value)
    }


def process_state():
    return {
        "dtype": torch.get_default_dtype(),
        "device": torch.get_default_device(),
        "torch rng": torch.get_rng_state().tolist(),
        "python rng": random.getstate(),
        "grad": torch.is_grad_enabled(),
        "attention": dict(AttentionInterface._global_mapping),
        "masks": dict(AttentionMaskInterface._global_mapping),
        "experts": dict(ExpertsInterface._global_mapping),
        "init": {name: getattr(torch.nn.init, name) for name in dir(torch.nn.init)},
        "init_weights": PreTrainedModel.init_weights,
        "module call": torch.nn.Module.__call__,
        "threads": threading.active_count(),
        "modes": torch.utils._python_dispatch._get_current_dispatch_mode(),
    }


@pytest.mark.parametrize("family", FAMILIES.values(), ids=str)
def test_a_census_leaves_the_process_as_it_was(family):
    family.measure()
    before, functions = process_state(), modeling_functions()
    family.measure()
    assert process_state() == before
    assert modeling_functions() == functions


@pytest.mark.parametrize("failure", FAILING)
def test_a_failing_census_leaves_the_process_as_it_was(failure):
    model_type, changes = FAILING[failure]
    FAMILIES[model_type].measure()
    before, functions = process_state(), modeling_functions()
    with pytest.raises(CensusError):
        FAMILIES[model_type].measure(**changes)
    assert process_state() == before
    assert modeling_functions() == functions


def test_a_model_that_raises_in_a_layer_is_named_and_the_next_census_is_right(monkeypatch):
    from transformers.models.qwen3_next import modeling_qwen3_next

    expected = FAMILIES["qwen3_next"].measure().spec
    with monkeypatch.context() as patch:

        def broken(*args, **kwargs):
            raise RuntimeError("planted")

        patch.setattr(modeling_qwen3_next.Qwen3NextRMSNormGated, "forward", broken)
        before = process_state()
        with pytest.raises(BuildError, match=r"model\.layers\.0\.linear_attn\.norm failed .*planted"):
            FAMILIES["qwen3_next"].measure()
        assert process_state() == before
    assert FAMILIES["qwen3_next"].measure().spec == expected


def test_censuses_in_two_threads_are_each_right():
    expected = {name: FAMILIES[name].measure().spec for name in ("llama", "qwen3_next")}
    found = {}
    threads = [
        threading.Thread(target=lambda name=name: found.update({name: FAMILIES[name].measure().spec}))
        for name in expected
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == expected


def test_a_default_dtype_of_the_callers_changes_nothing_and_stays():
    expected = FAMILIES["llama"].measure().spec
    torch.set_default_dtype(torch.float64)
    try:
        assert FAMILIES["llama"].measure().spec == expected
        assert torch.get_default_dtype() is torch.float64
    finally:
        torch.set_default_dtype(torch.float32)


def test_gradients_off_or_on_changes_nothing():
    expected = FAMILIES["llama"].measure().spec
    with torch.inference_mode():
        assert FAMILIES["llama"].measure().spec == expected


def test_measuring_twice_in_one_process_gives_the_same():
    family = FAMILIES["deepseek_v3"]
    config = family.new_config()
    assert measure(config, family.arch).spec == measure(config, family.arch).spec
