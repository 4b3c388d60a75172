"""Every kind of layer on real tensors: what an independent counter hears of it is what census states.

A narrow copy of each type's language model runs on the CPU with eager attention (`narrow`), counted by a counter that
knows nothing of census (`real_run`). Two measurements need no counting rules at all: how far a change of one token
reaches, and how the cost of a layer grows with the sequence.
"""

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pytest

from census import measure
from test_models import real_run
from test_models.case_table import CASES, in_group
from test_models.differences import OWN_REACH
from test_models.narrow import copied_cases, golden_of, kinds_in_order, narrow, runs_as_it_is

# How a release's own code runs: with an older one the goldens' check alone says what is built.
pytestmark = pytest.mark.pinned

LAST = real_run.LENGTH - 1

_HYPER = "norms of hyper-connections are told from the layer's by how they are wired, not by where they stand"
_DEPTH = "attention over the states of earlier layers norms and weighs what is no part of the vector"
_BESIDE = "shared experts run side by side in one batched matmul, as routed ones do"
_BLOCKS = "local attention multiplies blocks of tokens, in shapes that are no scores of all by all"
UNSTATED: dict[str, tuple[tuple[str, ...], str]] = {
    "deepseek_v4": (("normOp",), _HYPER),
    "glm5_next": (("normOp",), _HYPER),
    "hy_v4": (("normOp",), _HYPER),
    "hy_v4_vl": (("normOp",), _HYPER),
    "inkling2_text": (("ffAct", "normOp"), _DEPTH),
    "inkling2_loop": (("ffAct", "ffMM", "normOp"), f"{_DEPTH}; message gates project, too"),
    "inkling_text": (("ffAct", "ffMM"), _BESIDE),
    "led": (("attMM", "attBMM", "softmax"), _BLOCKS),
    "longt5": (("attMM", "attBMM", "softmax", "dropout"), _BLOCKS),
    "minimax": (
        ("attMM", "linrec"),
        "lightning attention runs in the module's own forward, block by block: no function",
    ),
    "rwkv": (("normOp",), "the first layer also norms the embedding, which is not the layer's own norm"),
    "xlnet": (("attBMM",), "queries are multiplied with relative positions, too, in a third matmul of activations"),
    "zamba": (("normOp",), "the shared block's stream is the layer's input beside the embedding, twice as wide"),
    "zamba2": (("ffMM", "normOp"), "as of zamba; and its feed-forward runs beside an adapter"),
    "jetmoe": (("attMM", "ffMM"), "every expert of attention and feed-forward runs a matmul of its own, in a loop"),
    "ergo": (("normOp",), "the shared expert's output is normed before the routed experts' are added, not the stream"),
    "gemma4": (("normOp",), "the norm before the experts takes the stream without a sum of its own after it"),
}
"""By model type, the ops that the independent counter cannot state of it, with the reason."""

NO_REACH: dict[str, str] = {
    "cpmant": "prompt tokens stand before the sequence, so that places shift",
    "led": "the encoder pads the sequence to whole windows",
    "prophetnet": "the predicting streams lie behind the main one in one tensor",
}
"""By model type: why a layer's tensors do not tell how far a change reaches."""

BY_BLOCKS: dict[str, str] = {
    "led": "local attention runs in blocks: linear in the sequence",
    "longt5": "local attention runs in blocks: linear in the sequence",
}
"""By model type: why the cost of its windows does not grow with the square."""

ATTENTION = tuple(f"{flavour}_attention" for flavour in ("full", "sliding", "chunked", "full_shared", "sliding_shared"))


@dataclass(frozen=True)
class Ran:
    """What was measured of a narrow copy, by execution of its layers.

    Attributes:
        kinds: the kind of each, as census names them.
        spec: the narrow copy's spec: the golden where the case runs as it is.
        counts: the ops that the independent counter heard.
        reach: the probed positions, and those from which a change came to the last.
        growth: elements made for each pair of tokens.
    """

    kinds: tuple[str, ...]
    spec: Mapping[str, Any]
    counts: tuple[Mapping[str, int], ...]
    reach: tuple[tuple[tuple[int, ...], frozenset[int] | None], ...]
    growth: tuple[float, ...]


@functools.cache
def ran(name: str) -> Ran:
    """Return what a case's narrow copy ran; measured once a process."""
    case = copied_cases()[name]
    config = narrow(case)
    model = real_run.build(config)
    counts = tuple(run.counts() for run in real_run.count(model))
    if runs_as_it_is(case):
        spec, kinds = golden_of(name), tuple(kinds_in_order(golden_of(name)))
    else:
        census = measure(narrow(case), case.arch, name)
        spec, kinds = census.spec, census.stack
    probed = [probes(spec["kinds"][kind]) for kind in kinds]
    calls = real_run.calls(model)
    reach = tuple((positions, call.reach(positions)) for call, positions in zip(calls, probed, strict=True))
    # Half of the positions, as some models count past a token's own; a chunk of the delta rule is 64 tokens.
    positions = max(getattr(config.get_text_config(decoder=True), "max_position_embeddings", None) or 0, 0) or 512
    length = 64 if any(spec["ops"][kind]["linrec"] for kind in kinds) else 32
    growth = real_run.growth(model, min(length, positions // 8))
    return Ran(kinds, spec, counts, reach, tuple(growth))


def reaches(kind: Mapping[str, Any]) -> dict[str, tuple[frozenset[int], frozenset[int]]]:
    """Return, by mixer of a kind, the positions from which a change reaches the last, and some from which not."""
    made = {}
    window, chunk, taps = (kind.get(name) for name in ("sliding_window", "attention_chunk_size", "conv_kernel_dim"))
    for mixer in kind.get("mixers", ()) or ("none",):
        if mixer == "full_attention":
            made[mixer] = ({0}, set())
        elif mixer == "sliding_attention":
            made[mixer] = ({LAST - window + 1}, {LAST - window, 0})
        elif mixer == "chunked_attention":
            made[mixer] = ({LAST // chunk * chunk}, {LAST // chunk * chunk - 1})
        elif mixer == "short_convolution":
            made[mixer] = ({LAST - taps + 1}, {LAST - taps, 0})
        elif mixer in ("full_shared_attention", "sliding_shared_attention", "cross_attention", "none"):
            # Keys and values come from elsewhere, or there are none.
            made[mixer] = (set(), {LAST - 1, LAST - 6, 0})
        else:
            # A recurrence reaches past the convolution before it; a fast decay may hide what is far.
            made[mixer] = ({LAST - 5}, set())
    if len(made) > 1 and "short_convolution" in made:
        # A convolution beside an attention reaches no further than it, and lengthens its window by its own.
        del made["short_convolution"]
        made = {mixer: (reached, missed - {LAST - (window or 0)}) for mixer, (reached, missed) in made.items()}
    if len(made) > 1:
        made.pop("cross_attention", None)
    return {mixer: (frozenset(reached), frozenset(missed)) for mixer, (reached, missed) in made.items()}


def probes(kind: Mapping[str, Any]) -> tuple[int, ...]:
    return tuple(sorted(frozenset().union(*(one | other for one, other in reaches(kind).values()))))


def fits(reached: frozenset[int], expected: tuple[frozenset[int], frozenset[int]]) -> bool:
    return expected[0] <= reached and not expected[1] & reached


copies = pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=in_group(name)) for name in copied_cases()],
)


@copies
def test_a_narrow_copy_has_the_kinds_of_the_golden_with_their_vectors(name):
    spec, golden = ran(name).spec, golden_of(name)
    assert {kind: spec["ops"][kind] for kind in kinds_in_order(spec)} == {
        kind: golden["ops"][kind] for kind in kinds_in_order(golden)
    }


@copies
def test_a_real_run_counts_what_census_states_and_no_op_is_excused_that_agrees(name):
    measured = ran(name)
    unstated, _ = UNSTATED.get(CASES[name].model_type, ((), ""))
    differ = [
        (kind, op, measured.spec["ops"][kind][op], count)
        for kind, counts in zip(measured.kinds, measured.counts, strict=True)
        for op, count in counts.items()
        if count != measured.spec["ops"][kind][op]
    ]
    assert [difference for difference in differ if difference[1] not in unstated] == []
    assert set(unstated) <= {op for _, op, _, _ in differ}, "an op is excused that agrees"


@copies
def test_a_change_of_a_token_reaches_as_far_as_the_mixers_that_census_names(name):
    measured, model_type = ran(name), CASES[name].model_type
    unseen = [kind for kind, (_, reached) in zip(measured.kinds, measured.reach, strict=True) if reached is None]
    assert bool(unseen) == (model_type in NO_REACH)
    for kind in set(measured.kinds) - set(unseen):
        stated = measured.spec["kinds"][kind]
        expected = reaches(stated)
        seen = [reached for own, (_, reached) in zip(measured.kinds, measured.reach, strict=True) if own == kind]
        # What a sparse attention reaches is what its indexer chose.
        if model_type not in OWN_REACH and "index_topk" not in stated:
            for reached in seen:
                assert any(fits(reached, way) for way in expected.values()), (kind, sorted(reached), expected)
            for mixer, way in expected.items():
                assert any(fits(reached, way) for reached in seen), (kind, mixer, [sorted(one) for one in seen])


@copies
def test_cost_grows_with_the_square_of_the_sequence_where_census_names_an_attention_and_nowhere_else(name):
    measured = ran(name)
    square = CASES[name].model_type not in BY_BLOCKS
    for kind, growth in zip(measured.kinds, measured.growth, strict=True):
        mixers = measured.spec["kinds"][kind].get("mixers", ())
        attends = not {*ATTENTION, "cross_attention"}.isdisjoint(mixers)
        # A pair of tokens has one score at least; what routing makes more or less is a fraction of one.
        assert (growth >= 1) == (attends and (square or "full_attention" in mixers)), (kind, mixers, growth)


@pytest.mark.parametrize("model_type", OWN_REACH)
def test_a_reach_that_no_spec_states_is_what_the_source_says(model_type):
    back, _ = OWN_REACH[model_type]
    case = next(case for case in copied_cases().values() if case.model_type == model_type)
    everywhere = range(real_run.LENGTH)
    reached = [call.reach(everywhere) for call in real_run.calls(real_run.build(narrow(case)))]
    assert frozenset(everywhere[-back:]) in reached


def test_every_type_that_is_excused_is_copied():
    copied = {CASES[name].model_type for name in copied_cases()}
    assert {*UNSTATED, *NO_REACH, *OWN_REACH, *BY_BLOCKS} <= copied
