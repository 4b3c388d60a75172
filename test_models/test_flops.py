"""The FLOPs that a spec states are those of the operators that the model's own forward runs, to the unit.

Of a narrow copy of every kind: the forward runs every layer, on real tensors, with eager attention and experts.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import FrameType
from typing import Any

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from census.costs import cache_bytes, flops
from test_models import real_run
from test_models.case_table import census_of, in_group
from test_models.differences import OTHER_FLOPS, row_of
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


def counted(model: torch.nn.Module, seq_length: int) -> int:
    """Return the FLOPs of the matmuls of a forward over one sequence, recurrences apart."""
    inputs = {
        field: value[: len(value) // real_run.BATCH] if isinstance(value, torch.Tensor) else value
        for field, value in real_run.inputs(model, seq_length).items()
    }
    counter = FlopCounter()
    with torch.no_grad(), counter, _resting_in_recurrences(counter):
        model.eval()(**inputs)
    return sum(flops for operator, flops in counter.flops.items() if operator != "convolution")


def _streams(spec: Mapping[str, Any]) -> int:
    return max(kind["residual_streams"] for kind in spec["kinds"].values()) ** 2 * spec["hidden_size"]


MORE = {
    # Llama4TextExperts runs every expert on every token, those not chosen on zeros.
    **dict.fromkeys(("llama4", "llama4_text"), lambda spec, stated, tokens: _every_expert(spec, stated)),
    # NllbMoeExperts makes a one-hot of a mask that is one already: a row for each expert, of the first two alone.
    "nllb-moe": lambda spec, stated, tokens: _every_expert(spec, stated),
    # The head of hyper-connections weighs the streams by a raw matrix outside the layers.
    **dict.fromkeys(("hy_v4", "hy_v4_vl"), lambda spec, stated, tokens: 2 * tokens * _streams(spec)),
    # Gemma3nTextAltUp.predict multiplies the streams by computed coefficients, once a layer.
    "gemma3n_text": lambda spec, stated, tokens: 2 * tokens * spec["num_hidden_layers"] * _streams(spec),
    # XLNetRelativeAttention multiplies queries with keys of 2 T positions, beside those of T tokens.
    "xlnet": lambda spec, stated, tokens: stated["scores"],
    # BigBirdModel pools the first token alone, by a projection of its width.
    "big_bird": lambda spec, stated, tokens: 2 * spec["hidden_size"] ** 2,
    # ZayaAttention projects half of the values once more, of the one token before the first.
    "zaya": lambda spec, stated, tokens: (
        2 * spec["num_hidden_layers"] * math.prod(spec["kinds"]["decoder"]["projections"]["attention"][2])
    ),
    # MiniMaxLightningAttention goes by blocks of 256 tokens: what a recurrence runs, and the scores within a block.
    "minimax": lambda spec, stated, tokens: (
        stated["recurrence"]
        + sum(
            4 * tokens**2 * group["count"] * kind["linear_num_value_heads"] * kind["linear_value_head_dim"]
            for group in spec["layers"]
            if "linear_state_size" in (kind := spec["kinds"][group["kind"]])
        )
    ),
}
"""Types whose forward runs more than the spec states: how many FLOPs, and which code runs them."""


def _every_expert(spec: Mapping[str, Any], stated: Mapping[str, int]) -> int:
    return stated.get("routed", 0) * (spec.get("num_experts", 1) // spec.get("num_experts_per_tok", 1) - 1)


@pytest.mark.pinned
@pytest.mark.parametrize("name", [pytest.param(name, marks=in_group(name)) for name in copied_cases()])
def test_the_flops_of_the_spec_are_those_of_the_forward(name):
    case, spec = copied_cases()[name], ran(name).spec
    tokens = sequence_for(spec)
    stated = flops(spec, tokens)
    model = real_run.build(narrow(case))
    matmuls = counted(model, tokens)
    expected = stated["total"] - stated.get("convolution", 0) - stated.get("recurrence", 0)
    if model.get_output_embeddings() is None:
        expected -= stated.get("head", 0)
    more = row_of(MORE, case)
    expected += more(spec, stated, tokens) if more else 0
    assert (matmuls == expected) == case.keys.isdisjoint(OTHER_FLOPS), f"{matmuls} counted, {expected} stated: {stated}"


@contextmanager
def _resting_in_recurrences(counter: FlopCounter) -> Iterator[None]:
    """Let the counter rest while a function that computes a recurrence runs, whatever calls it."""

    def heard(frame: FrameType, event: str, _: object) -> None:
        if frame.f_code.co_name in _RECURRENCES and event in ("call", "return"):
            counter.resting += 1 if event == "call" else -1

    before = sys.getprofile()
    sys.setprofile(heard)
    try:
        yield
    finally:
        sys.setprofile(before)


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
    rows = torch.empty(6, 16, dtype=torch.bfloat16, device="meta")
    weights = torch.empty(3, 16, 32, dtype=torch.bfloat16, device="meta")
    ends = torch.empty(3, dtype=torch.int32, device="meta")
    with FlopCounterMode(display=False) as torchs, FlopCounter() as counter:
        torch._grouped_mm(rows, weights, offs=ends)
    assert counter.flops == {"aten::_grouped_mm": 2 * 6 * 16 * 32}
    assert torchs.get_total_flops() == 0, "torch counts grouped matmuls now: say so in docs/findings.md"


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


@pytest.mark.pinned
def test_every_type_whose_flops_differ_is_copied():
    assert {*MORE, *OTHER_FLOPS} <= frozenset().union(*(case.keys for case in copied_cases().values()))
