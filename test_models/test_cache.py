"""What a real forward leaves in Transformers' cache is what the spec says, to the value."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from census.costs import cache_bytes
from test_models import real_run
from test_models.cache_differences import OTHERWISE, WITHOUT
from test_models.case_table import CASES
from test_models.narrow import copied_cases, narrow
from test_models.test_real_run import ran

LENGTH = 21


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


@pytest.mark.parametrize("name", [pytest.param(name, marks=pytest.mark.xdist_group(name)) for name in copied_cases()])
def test_a_forward_leaves_in_the_cache_what_the_spec_says(name):
    model_type = CASES[name].model_type
    if model_type in WITHOUT:
        pytest.skip(f"{model_type}: {WITHOUT[model_type]}")
    model = real_run.build(narrow(copied_cases()[name])).eval()
    inputs = {
        field: value[:1] if isinstance(value, torch.Tensor) else value
        for field, value in real_run.inputs(model, LENGTH).items()
    }
    with torch.no_grad():
        outputs = model(**{**inputs, "use_cache": True})
    names = ("past_key_values", "cache_params", "state")
    cache = next(outputs[field] for field in names if outputs.get(field) is not None)
    held = sum(tensor.numel() for tensor in values_of(cache, set()))
    stated = cache_bytes(ran(name).spec, LENGTH, bytes_per_value=1)
    assert (held == stated["total"]) == OTHERWISE.keys().isdisjoint({name, model_type}), (
        f"{held} values held, stated {stated}"
    )
