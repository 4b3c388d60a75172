"""The FLOPs of a forward by the operators that run: a counter that shares no code with census.

A multiply-add is 2 FLOPs. Torch's own counter knows no grouped matmul, so a model that runs its experts by one is
undercounted by it without a word; here an operator that multiplies and has no formula is an error.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode


def _matmul(left: torch.Tensor, right: torch.Tensor, *_: object) -> int:
    return 2 * left.shape[-1] * math.prod((*left.shape[:-1], right.shape[-1]))


def _added(_: torch.Tensor, left: torch.Tensor, right: torch.Tensor, *__: object) -> int:
    return _matmul(left, right)


_FORMULAS: dict[str, Callable[..., int]] = {
    "aten::mm": _matmul,
    "aten::bmm": _matmul,
    "aten::_grouped_mm": _matmul,
    "aten::addmm": _added,
    "aten::baddbmm": _added,
}
_UNKNOWN = frozenset(
    f"aten::{name}"
    for name in "matmul linear einsum dot vdot mv addmv addbmm bilinear tensordot _scaled_mm scaled_grouped_mm".split()
)
"""Operators that multiply and have no formula here: they are composed of others, so none should arrive."""


class FlopCounter(TorchDispatchMode):
    """Counts while it is entered and not resting, by operator."""

    def __init__(self) -> None:
        super().__init__()
        self.flops: Counter[str] = Counter()
        self.resting = 0

    def __torch_dispatch__(
        self, func: Any, types: object, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        name = func._schema.name
        result = func(*args, **(kwargs or {}))
        if self.resting:
            return result
        if name in _FORMULAS:
            self.flops[name] += _FORMULAS[name](*args)
        elif name == "aten::convolution":
            weight = args[1]
            self.flops["convolution"] += 2 * math.prod(result.shape) * math.prod(weight.shape[1:])
        elif name in _UNKNOWN or "attention" in name:
            raise AssertionError(f"{name}: the counter has no formula for it")
        return result
