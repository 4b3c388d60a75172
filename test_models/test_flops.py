"""The FLOPs that a spec states are those of the operators that the model's own forward runs, to the unit.

Of a narrow copy of every kind: the forward runs every layer, on the meta device, with eager attention.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Mapping
from contextlib import ExitStack
from typing import Any
from unittest.mock import patch

import pytest
import torch

from census.build import build
from census.costs import cache_bytes, flops
from test_models.case_table import CASES, Case, census_of
from test_models.flop_counter import FlopCounter
from test_models.narrow import copied_cases, narrow
from test_models.test_real_run import ran

LONGEST = 32
"""Tokens of a counted forward: where a window is shorter, its length, since eager attention computes all scores."""

_RECURRENCES = (
    "torch_chunk_gated_delta_rule", "torch_recurrent_gated_delta_rule", "chunk_gated_delta_rule",
    "fused_recurrent_gated_delta_rule", "chunk_kimi_delta_attention", "recurrent_kimi_delta_attention",
    "mamba2_chunk_scan", "mamba_selective_scan", "_rnn_scan", "rwkv_linear_attention",
    "wrap_chunkwise_pad_zeros", "wrap_chunkwise_arbitrary_sequence_length", "mlstm_chunkwise_native_autograd",
)  # fmt: skip
"""Functions that compute a recurrence: how many matmuls they run is their own choice of blocks."""


def sequence_for(spec: Mapping[str, Any]) -> int:
    """Return how many tokens a forward is counted with: within every bound that the kinds state."""
    bounds = ("sliding_window", "attention_chunk_size", "index_topk")
    stated = [kind[bound] for kind in spec["kinds"].values() for bound in bounds if bound in kind]
    return min([LONGEST, *stated])


def counted(case: Case, seq_length: int) -> tuple[int, bool]:
    """Return the FLOPs of the matmuls of a case's forward, recurrences apart, and whether it ran a head."""
    built = build(narrow(case))
    model = built.model
    model.set_attn_implementation("eager")  # type: ignore[operator]
    for module in model.modules():
        config = getattr(module, "config", None)
        if hasattr(config, "_experts_implementation"):
            config._experts_implementation = "batched_mm"
    model.eval()
    counter = FlopCounter()
    with ExitStack() as stack:
        _pause_in_recurrences(model, counter, stack)
        stack.enter_context(torch.device("meta"))
        stack.enter_context(torch.no_grad())
        stack.enter_context(counter)
        tokens = torch.ones((built.codebooks, seq_length), dtype=torch.long)
        model(input_ids=tokens, use_cache=False, **_further(built.config, model, tokens))
    matmuls = sum(flops for operator, flops in counter.flops.items() if operator != "convolution")
    return matmuls, model.get_output_embeddings() is not None  # type: ignore[operator]


DIFFERS = {
    "llama4": "routed",
    "llama4_text": "routed",
    "hy_v4": "streams",
    "hy_v4_vl": "streams",
}
_TERMS = {
    # Llama4TextExperts runs every expert on every token, those not chosen on zeros.
    "routed": lambda spec, flops, tokens: (
        flops.get("routed", 0) * (spec.get("num_experts", 1) // spec.get("num_experts_per_tok", 1) - 1)
    ),
    # HyperConnectionHead weighs the streams by a raw matrix, (streams x streams * hidden_size), outside the layers.
    "streams": lambda spec, flops, tokens: (
        2 * tokens * max(kind["residual_streams"] for kind in spec["kinds"].values()) ** 2 * spec["hidden_size"]
    ),
}
"""Types whose forward runs more than the spec states, and by how much, with the reason."""

NOT_COUNTED = {
    # The forward asks for values, which a model without weights does not have.
    "dbrx": "nonzero",
    "glm5_next": "nonzero",
    "longcat_flash": "nonzero",
    "nllb-moe": "nonzero",
    "qwen4_exp": "nonzero",
    "qwen4_exp_text": "nonzero",
    "step3p7": "nonzero",
    "switch_transformers": "nonzero",
    "jetmoe": "no data",
    "gemma3n": "Expected parameter loc",
    "gemma3n_text": "Expected parameter loc",
    # The forward makes tensors on a device of its own choice.
    "xlnet": "not on the expected device",
    # Eager attention expects a mask that Transformers leaves out for whole sequences.
    "mpt": "'NoneType' object has no attribute 'to'",
}
"""Types whose forward cannot be counted on the meta device, with what it fails with."""

OTHERWISE = {
    "cpmant": "32 prompt tokens of the model's own stand before the sequence",
    "prophetnet": "the decoder's predicting streams attend to the main one: three streams, each its own scores",
    "t5gemma2": "one kernel attends to the decoder's and the encoder's tokens together",
    "deepseek_v4": "attention also takes compressed entries, one for several tokens",
    "inkling2": "attention over the states of earlier layers is not stated",
    "inkling2_text": "attention over the states of earlier layers is not stated",
    "inkling2_loop": "attention over the states of earlier layers is not stated",
    "inkling2_loop_text": "attention over the states of earlier layers is not stated",
    "led": "local attention runs in blocks twice its window",
    "longt5": "local attention runs in blocks, of which the last is padded",
    "zaya": "a part of the values is projected of the token before the first, too",
    "big_bird": "a pooler runs on the first token alone",
    "minimax": "lightning attention runs in blocks of 256 tokens, quadratic within one",
    "xlstm": "the chunks of the mLSTM run by matmuls of their own",
}
"""Types whose forward runs other matmuls than the spec states, with the reason; the projections are vouched for by the
parameters alone."""


@pytest.mark.parametrize("name", [pytest.param(name, marks=pytest.mark.xdist_group(name)) for name in copied_cases()])
def test_the_flops_of_the_spec_are_those_of_the_forward(name):
    model_type, spec = CASES[name].model_type, ran(name).spec
    tokens = sequence_for(spec)
    if model_type in NOT_COUNTED:
        with pytest.raises(Exception, match=NOT_COUNTED[model_type]):
            counted(copied_cases()[name], tokens)
        return
    stated = flops(spec, tokens)
    matmuls, with_head = counted(copied_cases()[name], tokens)
    expected = stated["total"] - stated.get("convolution", 0) - stated.get("recurrence", 0)
    expected -= 0 if with_head else stated.get("head", 0)
    if model_type in DIFFERS:
        expected += _TERMS[DIFFERS[model_type]](spec, stated, tokens)
    assert (matmuls == expected) == (model_type not in OTHERWISE), f"{matmuls} counted, {expected} stated: {stated}"


def _further(config: Any, model: torch.nn.Module, tokens: torch.Tensor) -> dict[str, torch.Tensor]:
    further = {"decoder_input_ids": tokens} if config.is_encoder_decoder else {}
    if config.model_type == "udop":
        further["bbox"] = torch.zeros((*tokens.shape, 4))
    if config.model_type == "mllama_text_model":
        further["cross_attention_states"] = torch.empty((*tokens.shape, config.hidden_size))
    return further


def _pause_in_recurrences(model: torch.nn.Module, counter: FlopCounter, stack: ExitStack) -> None:
    """Let the counter rest while a recurrence runs, wherever its function is held."""

    def resting(function: Any) -> Any:
        @functools.wraps(function)
        def called(*args: Any, **kwargs: Any) -> Any:
            counter.resting += 1
            try:
                return function(*args, **kwargs)
            finally:
                counter.resting -= 1

        return called

    for owner in {sys.modules[type(module).__module__] for module in model.modules()}:
        for name in _RECURRENCES:
            if callable(getattr(owner, name, None)):
                stack.enter_context(patch.object(owner, name, resting(getattr(owner, name))))
    for module in model.modules():
        for name in {*vars(module), *_RECURRENCES}:
            held = getattr(module, name, None)
            if callable(held) and getattr(held, "__name__", "") in _RECURRENCES:
                setattr(module, name, resting(held))


def test_the_counter_counts_a_layer_as_it_is_counted_by_hand():
    """One expert of a grouped matmul, a linear layer and a batched matmul, on real tensors."""
    with FlopCounter() as counter:
        torch.nn.functional.linear(torch.ones(5, 8), torch.ones(16, 8))
        torch.bmm(torch.ones(2, 5, 8), torch.ones(2, 8, 5))
        torch.addmm(torch.ones(16), torch.ones(5, 8), torch.ones(8, 16))
    assert counter.flops == {
        "aten::mm": 2 * 5 * 8 * 16,
        "aten::bmm": 2 * 2 * 5 * 8 * 5,
        "aten::addmm": 2 * 5 * 8 * 16,
    }


def test_a_grouped_matmul_counts_each_row_once():
    rows, weights, ends = torch.ones(6, 16), torch.ones(3, 16, 32), torch.tensor([2, 4, 6], dtype=torch.int32)
    with torch.device("meta"), FlopCounter() as counter:
        torch._grouped_mm(*(tensor.to("meta", torch.bfloat16) for tensor in (rows, weights)), offs=ends.to("meta"))
    assert counter.flops == {"aten::_grouped_mm": 2 * 6 * 16 * 32}


def test_an_operator_without_a_formula_is_an_error():
    with FlopCounter(), pytest.raises(AssertionError, match="aten::dot: the counter has no formula"):
        torch.dot(torch.ones(3), torch.ones(3))


def test_a_window_bounds_the_scores_and_the_cache_and_no_window_does_not():
    """Gemma 3 report, section 2: five of six layers see 1024 tokens."""
    spec = census_of("gemma-3-27b").spec
    once, twice = flops(spec, 8192), flops(spec, 16384)
    assert twice["window_scores"] == 2 * once["window_scores"]
    assert twice["scores"] == 4 * once["scores"]
    assert twice["dense"] == 2 * once["dense"]
    short, long = cache_bytes(spec, 8192), cache_bytes(spec, 16384)
    assert short["window_keys_values"] == long["window_keys_values"]
    assert long["keys_values"] == 2 * short["keys_values"]


def test_deepseek_v3_runs_more_than_its_active_weights_alone():
    """At 4,096 tokens 37 G active weights alone are 303 TFLOP: a counter blind to grouped matmuls says 216."""
    assert flops(census_of("deepseek-v3").spec, 4096)["total"] > 303 * 10**12
