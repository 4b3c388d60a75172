"""What a real forward leaves in Transformers' cache is what the spec says, to the value."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from census.costs import cache_bytes
from test_models import real_run
from test_models.case_table import in_group
from test_models.differences import NO_CACHE, OTHER_CACHE, row_of
from test_models.narrow import copied_cases, narrow
from test_models.test_real_run import ran

LENGTH = 21


MORE = {
    # RwkvModel keeps the last hidden states of both time shifts of a layer.
    "rwkv": lambda spec: spec["num_hidden_layers"] * 2 * spec["hidden_size"],
    # Of ZayaAttention's two convolutions, one after the other, the first's input alone is kept, and half of a value.
    "zaya": lambda spec: spec["num_hidden_layers"] * _cached_by_zaya(**spec["kinds"]["decoder"]),
}
"""Types that cache more than the spec states, or less: how many values, and which code keeps them."""


def _cached_by_zaya(head_dim, num_key_value_heads, conv_dim, conv_kernel_dim, **_):
    return head_dim * num_key_value_heads // 2 - conv_dim * conv_kernel_dim // 2


def values_of(held: object, seen: set[int], depth: int = 0) -> Iterator[torch.Tensor]:
    """Yield the floating-point tensors that a cache holds, each once, however it is built."""
    if isinstance(held, torch.Tensor):
        if id(held) not in seen and held.is_floating_point():
            seen.add(id(held))
            yield held
    elif isinstance(held, dict | list | tuple):
        for part in held.values() if isinstance(held, dict) else held:
            yield from values_of(part, seen, depth + 1)
    elif hasattr(held, "__dict__") and depth < 6 and "Config" not in type(held).__name__:
        yield from values_of(vars(held), seen, depth + 1)


@pytest.mark.pinned
@pytest.mark.parametrize("name", [pytest.param(name, marks=in_group(name)) for name in copied_cases()])
def test_a_forward_leaves_in_the_cache_what_the_spec_says(name):
    case = copied_cases()[name]
    reason = row_of(NO_CACHE, case)
    if reason is not None:
        pytest.skip(f"{name}: {reason}")
    model = real_run.build(narrow(case)).eval()
    inputs = {
        field: value[: len(value) // real_run.BATCH] if isinstance(value, torch.Tensor) else value
        for field, value in real_run.inputs(model, LENGTH).items()
    }
    with torch.no_grad():
        outputs = model(**{**inputs, "use_cache": True})
    names = ("past_key_values", "cache_params", "state")
    cache = next(outputs[field] for field in names if outputs.get(field) is not None)
    held = sum(tensor.numel() for tensor in values_of(cache, set()))
    stated, more = cache_bytes(ran(name).spec, LENGTH, bytes_per_value=1), row_of(MORE, case)
    expected = stated["total"] + (more(ran(name).spec) if more else 0)
    as_stated = case.keys.isdisjoint(OTHER_CACHE)
    assert (held == expected) == as_stated, f"{held} values held, {expected} expected, stated {stated}"


@pytest.mark.pinned
def test_every_type_whose_cache_differs_is_copied():
    assert {*NO_CACHE, *OTHER_CACHE, *MORE} <= frozenset().union(*(case.keys for case in copied_cases().values()))
