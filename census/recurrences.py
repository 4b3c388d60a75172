"""The table of recurrences: which functions compute one, what they take and what they return.

A recurrence updates a state token by token: the gated delta rule, a selective scan, and so on. Transformers
computes each in a plain function of a modeling file, so the function itself is matched by the name it is defined
under, whatever wraps it and wherever it is held. While a census runs, the function is stood in for by its entry here:
one event, and outputs of the right shape.

A new recurrence is one `@recurrence(...)` function.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch

from census.events import Shape

ShapeRule = Callable[..., object]
Heads = Callable[[Shape], tuple[int, int]]
"""From a role's shape to (heads, width of a head)."""
AllHeads = tuple[tuple[int, int] | None, tuple[int, int] | None, tuple[int, int] | None]
"""(heads, width of a head) of what plays queries, keys and values; None for what is not taken."""
OfState = Callable[[int, int, int], int]
"""From (heads of the values, width of a key, width of a value) to a number of one sequence's state."""


def _last_two(shape: Shape) -> tuple[int, int]:
    return shape[-2], shape[-1]


def _outer_products(heads: int, key_width: int, value_width: int) -> int:
    """A sum of outer products of keys and values: a matrix a head."""
    return heads * key_width * value_width


def _written_and_read(heads: int, key_width: int, value_width: int) -> int:
    """Adding an outer product to the state, and multiplying it with a query: 2 FLOPs an element each."""
    return 4 * heads * key_width * value_width


def _delta_rule_updates(heads: int, key_width: int, value_width: int) -> int:
    """As above, and reading what the state holds for the key before (Yang et al. 2024, DeltaNet, section 2.2)."""
    return 6 * heads * key_width * value_width


@dataclass(frozen=True)
class Recurrence:
    """One entry of the table.

    Attributes:
        name: what it computes, as the field calls it.
        roles: the arguments that play queries, keys and values, in this order; None for one it does not take.
        heads: how the shape of a role states its heads and their width, for queries, keys and values.
        state: how many elements the state of one sequence has.
        flops: the FLOPs of the matmuls by which one token updates and reads the state, decays and gates apart.
        outputs: from the function's own arguments to what it returns, computing nothing.
    """

    name: str
    roles: tuple[str | None, str | None, str | None]
    heads: tuple[Heads, Heads, Heads]
    state: OfState
    flops: OfState
    outputs: ShapeRule

    def of_state(self, heads: AllHeads) -> dict[str, int]:
        """Return the state's elements and the FLOPs of a token, of heads and widths of queries, keys and values."""
        _, keys, values = heads
        assert values is not None, "every recurrence takes values"
        widths = (values[0], 1 if keys is None else keys[1], values[1])
        return {"state": self.state(*widths), "flops": self.flops(*widths)}


RECURRENT_MODULES = frozenset(
    {
        # Lightning attention goes block by block in the module's own forward; when run, its operators tell.
        "MiniMaxLightningAttention",
    }
)
"""Classes of modules that compute a recurrence with no function of their own for it."""

_TABLE: dict[str, Recurrence] = {}


def recurrence(
    name: str,
    functions: tuple[str, ...],
    roles: tuple[str | None, str | None, str | None],
    heads: tuple[Heads, Heads, Heads] = (_last_two, _last_two, _last_two),
    state: OfState = _outer_products,
    flops: OfState = _written_and_read,
) -> Callable[[ShapeRule], ShapeRule]:
    """Register the decorated shape rule for the functions of these names.

    Args:
        name: what is computed, e.g. `gated_delta_rule`.
        functions: `__name__` of every function or method of a modeling file that computes it.
        roles: the arguments that play queries, keys and values; None for one it does not take.
        heads: how their shapes state heads and widths; if left out, by their last two dimensions.
        state: how many elements the state of one sequence has; if left out, a matrix of key by value width a head.
        flops: the FLOPs of a token's update and reading; if left out, those of adding an outer product and reading it.

    Raises:
        ValueError: a function is registered already.
    """

    def register(outputs: ShapeRule) -> ShapeRule:
        for function in functions:
            if function in _TABLE:
                raise ValueError(f"recurrence {name}: {function} already computes {_TABLE[function].name}")
            _TABLE[function] = Recurrence(name, roles, heads, state, flops, outputs)
        return outputs

    return register


def recurrences() -> Mapping[str, Recurrence]:
    """Return the table: function name to entry."""
    return _TABLE


@recurrence(
    "gated_delta_rule",
    functions=(
        "torch_chunk_gated_delta_rule",
        "torch_recurrent_gated_delta_rule",
        "chunk_gated_delta_rule",
        "fused_recurrent_gated_delta_rule",
    ),
    roles=("query", "key", "value"),
    flops=_delta_rule_updates,
)
@recurrence(
    "kimi_delta_attention",
    functions=("chunk_kimi_delta_attention", "recurrent_kimi_delta_attention"),
    roles=("query", "key", "value"),
    flops=_delta_rule_updates,
)
def _delta_rule(query: torch.Tensor, value: torch.Tensor, **_: object) -> tuple[torch.Tensor, None]:
    """Queries, keys and values are (batch, sequence, heads, width); the output is shaped as the values."""
    return torch.empty_like(value, dtype=query.dtype), None


@recurrence("mamba2_ssd", functions=("mamba2_chunk_scan",), roles=("C", "B", "hidden_states"))
def _mamba2(
    hidden_states: torch.Tensor, return_final_states: bool = False, **_: object
) -> torch.Tensor | tuple[torch.Tensor, None]:
    """Values are (batch, sequence, heads, width), B and C (batch, sequence, groups, state size).

    In the duality of Mamba-2 (Dao and Gu 2024, section 4) C plays the queries, B the keys, x the values.
    """
    output = torch.empty_like(hidden_states)
    return (output, None) if return_final_states else output


@recurrence(
    "mamba_selective_scan",
    functions=("mamba_selective_scan",),
    roles=("C", "B", "hidden_states"),
    heads=(
        lambda shape: (1, shape[1]),
        lambda shape: (1, shape[1]),
        lambda shape: (shape[1], 1),
    ),
)
def _mamba(
    hidden_states: torch.Tensor, return_last_state: bool = False, **_: object
) -> torch.Tensor | tuple[torch.Tensor, None]:
    """Values are (batch, inner width, sequence), B and C (batch, state size, sequence): a head a channel."""
    output = torch.empty_like(hidden_states)
    return (output, None) if return_last_state else output


def _channels(shape: Shape) -> tuple[int, int]:
    return shape[-1], 1


@recurrence(
    "rg_lru",
    functions=("_rnn_scan",),
    roles=(None, None, "hidden_states"),
    heads=(_channels,) * 3,
    # Diagonal: a decayed sum, read as it is.
    flops=lambda heads, key_width, value_width: 2 * heads,
)
def _rg_lru(hidden_states: torch.Tensor, **_: object) -> tuple[torch.Tensor, None]:
    """Values are (batch, sequence, width): the recurrence is diagonal, a head a channel; gates are no roles."""
    return torch.empty_like(hidden_states), None


@recurrence(
    "rwkv_wkv",
    functions=("rwkv_linear_attention",),
    roles=(None, "key", "value"),
    heads=(_channels,) * 3,
    state=lambda heads, key_width, value_width: 3 * heads,
)
def _rwkv(value: torch.Tensor, **_: object) -> tuple[torch.Tensor, None]:
    """Keys and values are (batch, sequence, width), a head a channel; the receptance is a gate outside.

    The state is a weighted sum, the sum of its weights and their greatest exponent, a channel each.
    """
    return torch.empty_like(value), None


def _heads_first(shape: Shape) -> tuple[int, int]:
    return shape[1], shape[-1]


@recurrence(
    "mlstm",
    functions=(
        "wrap_chunkwise_pad_zeros",
        "wrap_chunkwise_arbitrary_sequence_length",
        "mlstm_chunkwise_native_autograd",
    ),
    roles=("query", "key", "value"),
    heads=(_heads_first,) * 3,
    state=lambda heads, key_width, value_width: heads * (key_width * value_width + key_width + 1),
    flops=lambda heads, key_width, value_width: 4 * heads * (key_width * value_width + key_width),
)
def _mlstm(
    value: torch.Tensor, return_last_states: bool = False, **_: object
) -> torch.Tensor | tuple[torch.Tensor, None]:
    """Queries, keys and values are (batch, heads, sequence, width); the output is shaped as the values.

    The state is a matrix, a normalizer as wide as a key and a stabilizer a head (Beck et al. 2024, section 2.3).
    """
    output = torch.empty_like(value)
    return (output, None) if return_last_states else output
