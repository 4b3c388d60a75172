"""Where what really runs is not what a spec states, by a case's name or a type of its own, with the reason."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

from test_models.case_table import Case

_Row = TypeVar("_Row")


def row_of(table: Mapping[str, _Row], case: Case) -> _Row | None:
    """Return what a table says of a case, None where it says nothing."""
    return next((row for key, row in table.items() if key in case.keys), None)


NO_CACHE = {
    "granite4_vision": "the language model alone returns no cache",
    "openai-gpt": "the model keeps no cache",
    "recurrent_gemma": "states are kept on the layers themselves",
    "xlnet": "the model keeps hidden states, not keys and values",
    "hrm_text": "a narrow copy makes more passes than its config says to the cache",
    "switch_transformers": "the encoder refuses a cache, and the model hands it one",
    "xlstm-7b": "a narrow copy writes the state of a block into one of another shape",
}
"""Types whose forward leaves no cache to count, with the reason."""

OTHER_CACHE = {
    "inkling2_loop_text": "the tails of short convolutions are cached for attention's inputs, too",
    "qwen4_exp_text": "per-layer embeddings cache a convolution's tail and token numbers",
    "cpmant": "32 prompt tokens of the model's own are cached, too",
    "deepseek_v4": "compressed entries and the windows before them are cached in buffers of their own",
    "glm5_next": "an indexer's pooled keys are cached beside the unpooled ones of its last block",
    "inkling2_text": "the tails of short convolutions are cached for attention's inputs, too",
    "inkling_text": "the tails of short convolutions are cached for attention's inputs, too",
}
"""Types and cases whose cache holds more or less than a spec states, with the reason."""

OTHER_FLOPS = {
    "cpmant": "32 prompt tokens of the model's own stand before the sequence",
    "prophetnet": "the decoder's predicting streams attend to the main one: three streams, each its own scores",
    "t5gemma2": "one kernel attends to the decoder's and the encoder's tokens together",
    "deepseek_v4": "attention also takes compressed entries, one for several tokens",
    "inkling2_text": "attention over the states of earlier layers is not stated",
    "inkling2_loop_text": "attention over the states of earlier layers is not stated",
    "led": "local attention runs in blocks twice its window",
    "longt5": "local attention runs in blocks, of which the last is padded",
    "glm5_next": "streams are mixed by matmuls with computed coefficients, and an indexer scores pooled blocks",
    "qwen4_exp_text": "rows of a table of n-grams are projected, which a census takes for weights",
}
"""Types whose forward runs other matmuls than the spec states, with the reason; the projections are vouched for by the
parameters alone."""

OWN_REACH: dict[str, tuple[int, str]] = {
    "t5gemma": (
        17,
        "the encoder's windows look both ways and take in the token at their very distance, beside its own",
    ),
    "t5gemma2": (8, "the encoder's windows look both ways, half of the window to each side"),
    "gpt_neo": (16, "local layers mask by a buffer of their own, which has no values in a census: it says full"),
}
"""By model type: tokens that some layer reaches back, itself included, other than census states; and why.

Each is what the type's modeling file, or Transformers' mask function that it calls, makes of a window of 16.
"""
