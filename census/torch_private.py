"""Torch's private names, each used in this place alone; a torch that lacks one is refused as this is imported."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import torch
from torch import nn

from census.errors import ReleaseError

try:
    from torch._ops import OpOverload
    from torch._subclasses import fake_tensor
    from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
    from torch._subclasses.fake_tensor import in_kernel_invocation_manager as in_kernel
    from torch.utils._python_dispatch import TorchDispatchMode
    from torch.utils._python_dispatch import _disable_current_modes as without_modes
except ImportError as missing:
    raise ReleaseError.of("torch", torch.__version__, str(missing)) from missing

__all__ = [
    "FakeTensor",
    "FakeTensorMode",
    "OpOverload",
    "TorchDispatchMode",
    "buffers_of",
    "grouped_mm",
    "in_kernel",
    "known_values",
    "logger_name",
    "parameters_of",
    "same_modules",
    "schema_of",
    "shown_as_fake",
    "storage_of",
    "without_modes",
]  # fmt: skip

_NAMES: tuple[tuple[object, str], ...] = (
    (torch, "_grouped_mm"),
    (torch.Tensor, "_make_subclass"),
    (torch.UntypedStorage, "_cdata"),
    (torch.ops.aten.add.Tensor, "_schema"),
    (nn.Module, "_apply"),
    (nn.Module(), "_parameters"),
    (nn.Module(), "_buffers"),
    (fake_tensor, "CONSTANT_NUMEL_LIMIT"),
)
for _holder, _name in _NAMES:
    if not hasattr(_holder, _name):
        raise ReleaseError.of("torch", torch.__version__, f"no {_name} of {_holder!r}")

grouped_mm: Any = torch._grouped_mm
logger_name = fake_tensor.__name__


def schema_of(func: OpOverload) -> torch.FunctionSchema:
    """Return what an operator takes and returns."""
    return func._schema


def storage_of(tensor: torch.Tensor) -> int:
    """Return a number that tensors of the same memory have in common."""
    return int(tensor.untyped_storage()._cdata)


def parameters_of(module: nn.Module) -> dict[str, nn.Parameter | None]:
    """Return the parameters that a module holds itself, by name; None where it holds none under one."""
    return module._parameters


def buffers_of(module: nn.Module) -> dict[str, torch.Tensor | None]:
    """Return the buffers that a module holds itself, by name; None where it holds none under one."""
    return module._buffers


def shown_as_fake(memory: torch.Tensor, device: torch.device) -> FakeTensor:
    """Return a tensor without memory as a fake tensor on a device."""
    tensor: FakeTensor = torch.Tensor._make_subclass(
        FakeTensor, memory, False, dispatch_device=True, device_for_backend_keys=device
    )
    return tensor


@contextmanager
def same_modules() -> Iterator[None]:
    """Keep modules as they are where a model casts or moves them."""
    with patch.object(nn.Module, "_apply", lambda module, *_, **__: module):
        yield


@contextmanager
def known_values(elements: int) -> Iterator[None]:
    """Let fake tensors remember their values up to so many elements."""
    with patch.object(fake_tensor, "CONSTANT_NUMEL_LIMIT", elements):
        yield
