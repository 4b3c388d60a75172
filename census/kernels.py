"""The score kernel census gives to Transformers, and the mask that goes with it.

Transformers lets a caller register an attention function and a mask function by name. Under a name it does
not take for a flash attention's, the function is handed queries, keys and values as the layer computed them:
KV heads not yet repeated, latent attention's values not padded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol

import torch
from transformers.masking_utils import AttentionMaskInterface
from transformers.modeling_utils import AttentionInterface

from census.releases import query_length, registered
from census.torch_private import storage_of

IMPLEMENTATION = "census"
"""The name under which the kernel and its mask are registered while a census runs."""

_LIBRARY = torch.library.Library("census", "DEF")
_LIBRARY.define("attention(Tensor query, Tensor key, Tensor value, Tensor? mask, Tensor[] biases) -> Tensor")


@torch.library.impl(_LIBRARY, "attention", "CompositeExplicitAutograd")
def _attention(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, mask: torch.Tensor | None, biases: list[torch.Tensor]
) -> torch.Tensor:
    """Return what attention would be shaped as: (batch, heads, sequence, value width)."""
    return query.new_empty((*query.shape[:-1], value.shape[-1]))


class KernelListener(Protocol):
    """Who is told what a score kernel is given beside its tensors."""

    def describe_kernel(self, attributes: dict[str, object]) -> None:
        """Take the attributes of the score kernel that runs next."""


class _Masks:
    """The masks made during one forward, by storage, with the reach each allows."""

    def __init__(self) -> None:
        self._reach: dict[int, tuple[torch.Tensor, str, int]] = {}

    def make(
        self,
        batch_size: int,
        kv_length: int,
        q_length: int | None = None,
        cache_position: torch.Tensor | None = None,
        dtype: torch.dtype = torch.float32,
        device: torch.device | None = None,
        mask_function: Callable[..., object] | None = None,
        local_size: int | None = None,
        **_: object,
    ) -> torch.Tensor:
        """Return an empty mask (batch, 1, queries, keys), noted with the reach it stands for."""
        queries = query_length(q_length, cache_position)
        mask = torch.zeros((batch_size, 1, queries, kv_length), dtype=dtype, device=device)
        if local_size is not None and mask_function is not None:
            flavour = "chunked" if _uses_chunks(mask_function) else "sliding"
            self._reach[storage_of(mask)] = (mask, flavour, local_size)
        return mask

    def reach(self, mask: object) -> tuple[str, int] | None:
        """Return the flavour and size of the window a mask stands for, None where it reaches everything."""
        if not isinstance(mask, torch.Tensor) or storage_of(mask) not in self._reach:
            return None
        _, flavour, size = self._reach[storage_of(mask)]
        return flavour, size


@contextmanager
def attention_interface(listener: KernelListener | None = None) -> Iterator[None]:
    """Register the kernel and its mask with Transformers; unregister them on the way out.

    Args:
        listener: is told of each kernel's window, mask and dropout before it runs.
    """
    masks = _Masks()

    def attend(
        module: torch.nn.Module,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        attention_mask: object,
        dropout: float = 0.0,
        sliding_window: int | None = None,
        **others: object,
    ) -> tuple[torch.Tensor, None]:
        if listener is not None:
            reach = masks.reach(attention_mask)
            if reach is None and sliding_window is not None:
                reach = ("sliding", sliding_window)
            if key.shape[-2] > query.shape[-2]:
                # Beside the tokens themselves it takes entries that stand for all the past, whatever its window.
                reach = None
            flavour, window = reach or ("full", None)
            listener.describe_kernel({"flavour": flavour, "window": window, "dropout": dropout})
        mask = attention_mask if isinstance(attention_mask, torch.Tensor) else None
        # What else is added to the scores (a position's bias, sinks) is taken, so that what projects it has a place.
        biases = [other for other in others.values() if isinstance(other, torch.Tensor)]
        output: torch.Tensor = torch.ops.census.attention(query, key, value, mask, biases)
        return output.transpose(1, 2).contiguous(), None

    with (
        registered(AttentionInterface, IMPLEMENTATION, attend),
        registered(AttentionMaskInterface, IMPLEMENTATION, masks.make),
    ):
        yield


def _uses_chunks(mask_function: Callable[..., object]) -> bool:
    """Tell whether a mask function, or one it is composed of, is Transformers' chunked overlay."""
    if mask_function.__qualname__.startswith("chunked_overlay."):
        return True
    held = [cell.cell_contents for cell in mask_function.__closure__ or ()]
    parts = [part for cell in held for part in (cell if isinstance(cell, tuple | list) else (cell,))]
    return any(_uses_chunks(part) for part in parts if hasattr(part, "__closure__"))
