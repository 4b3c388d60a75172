"""The parameters of what is built add up to what the publisher states, to the unit."""

import pytest
import torch

from test_models.case_table import CASES, Case


def published_model(case: Case) -> torch.nn.Module:
    """Build the class that the model is published as, towers and all, on the meta device and without census."""
    from transformers import AutoModelForCausalLM, AutoModelForImageTextToText
    from transformers.initialization import no_init_weights

    config = case.new_config()
    multimodal = type(config) in AutoModelForImageTextToText._model_mapping
    auto_class = AutoModelForImageTextToText if multimodal else AutoModelForCausalLM
    with torch.device("meta"), no_init_weights():
        model = auto_class.from_config(config, dtype=torch.bfloat16)
    model.tie_weights()
    return model


def totals(model: torch.nn.Module) -> dict[str, int]:
    """Count a model's tensors in each of the three ways that published totals are counted."""
    parameters = sum(parameter.numel() for parameter in model.parameters())
    persistent = sum(
        buffer.numel()
        for module in model.modules()
        for name, buffer in module._buffers.items()
        if buffer is not None and name not in module._non_persistent_buffers_set
    )
    return {
        "parameters": parameters,
        "parameters + persistent buffers": parameters + persistent,
        "state dict": sum(tensor.numel() for tensor in model.state_dict().values()),
    }


def test_the_built_parameters_are_the_published_ones(published):
    if published.parameters is None:
        pytest.skip(f"{published}: no exact total is published")
    stated = published.parameters
    built = totals(published_model(published))[stated.counted]
    terms = {term["what"]: term["numel"] for term in stated.terms}
    assert built + sum(terms.values()) == stated.published, f"{built} built, {terms}, published: {stated.source}"


def test_at_least_32_published_totals_are_exact():
    exact = [case for case in CASES.values() if case.parameters is not None]
    assert len(exact) >= 32
