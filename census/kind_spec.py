"""What one layer of a kind states: its own dimensions, and what stands beside them."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from census.spec_rules import check_at_least, check_scalars, check_text, read, read_list, read_mapping, refuse


@dataclass(frozen=True)
class KindSpec:
    """One layer of a kind. Widths are in elements; what a layer of the kind does not have is absent.

    The dimensions and flags mean what the model's fields of the same name mean; a model's field is the first kind's
    that states one, so kinds may differ from it. Beside them:

    Attributes:
        mixers: what mixes its tokens: an attention's reach, a recurrence's name, `short_convolution`; of layers of the
            kind that differ in their reach, all of them.
        branch_norms: how many norms each residual branch has, in the order of the branches' sums; they add up to
            `layer_norms`. Attention and feed-forward that one input feeds are one branch.
        sliding_window: how many tokens back an attention reaches, itself included, as Transformers' mask has it.
        attention_chunk_size: the tokens of a chunk, outside of which an attention does not reach.
        no_rope: the attention's keys are not moved by their positions, as those of other layers are.
        is_kv_shared_layer: keys and values are those that another layer projected.
        index_n_heads, index_head_dim, index_topk: the heads of a sparse attention's indexer, their width, and how many
            entries it keeps for a query.
        attn_gate_per_head: the attention's output is scaled by one projected number a head.
        linear_state_size: the elements of a recurrence's state, a sequence.
        linear_flops_per_token: the FLOPs of the matmuls by which a token updates and reads it.
        conv_dim, conv_kernel_dim: the channels that short convolutions run over, and their width in tokens.
        conv_flops_per_token: the FLOPs of these convolutions for a token: 2 for each element of their weights.
        moe_latent_size: the width that experts work in, where it is not the stream's.
        zero_expert_num: experts a router also chooses among, which compute nothing.
        residual_streams: how many residual streams run side by side (`hc_mult`, `altup_num_inputs`).
        residual_low_rank: the rank of a linear branch beside the others (`laurel_rank`).
        hidden_size_per_layer_input: the width of an input that the layer has of its own, by token.
        layers_with: for a field that not every layer of the kind has, the places in the stack of those that have it.
        projections: for each part, the weights of its matmuls in the order they run, each (in, out) or
            (in, out, held, run): how many such matrices the layer holds for it, 0 for one that ran before, and how
            many of them a token runs through. Two numbers alone are one matrix, held and run.
        other_parameters: for each part, the elements of the parameters that no projection multiplies.
        variants: layers of the kind whose parameters are others, by their places in the stack.
        tied_parameters: for each part, the elements that layers of the kind use and an earlier layer holds, all layers
            together.
        idle_parameters: the elements that layers of the kind hold and no forward uses, all layers together.

    Raises:
        ModelSpecError: a field is not of its type.
    """

    hidden_size: int
    num_attention_heads: int | None = None
    num_key_value_heads: int | None = None
    head_dim: int | None = None
    qkv_bias: bool | None = None
    o_bias: bool | None = None
    qk_norm: bool | None = None
    attn_output_gate: bool | None = None
    q_lora_rank: int | None = None
    kv_lora_rank: int | None = None
    qk_nope_head_dim: int | None = None
    qk_rope_head_dim: int | None = None
    v_head_dim: int | None = None
    linear_num_key_heads: int | None = None
    linear_key_head_dim: int | None = None
    linear_num_value_heads: int | None = None
    linear_value_head_dim: int | None = None
    linear_conv_kernel_dim: int | None = None
    intermediate_size: int | None = None
    mlp_bias: bool | None = None
    num_experts: int | None = None
    num_experts_per_tok: int | None = None
    moe_intermediate_size: int | None = None
    num_shared_experts: int | None = None
    shared_expert_intermediate_size: int | None = None
    shared_expert_gate: bool | None = None
    layer_norms: int | None = None
    norm_bias: bool | None = None
    mixers: tuple[str, ...] | None = None
    branch_norms: tuple[int, ...] | None = None
    sliding_window: int | None = None
    attention_chunk_size: int | None = None
    no_rope: bool | None = None
    is_kv_shared_layer: bool | None = None
    index_n_heads: int | None = None
    index_head_dim: int | None = None
    index_topk: int | None = None
    attn_gate_per_head: bool | None = None
    linear_state_size: int | None = None
    linear_flops_per_token: int | None = None
    conv_dim: int | None = None
    conv_kernel_dim: int | None = None
    conv_flops_per_token: int | None = None
    moe_latent_size: int | None = None
    zero_expert_num: int | None = None
    residual_streams: int | None = None
    residual_low_rank: int | None = None
    hidden_size_per_layer_input: int | None = None
    layers_with: Mapping[str, tuple[int, ...]] | None = None
    projections: Mapping[str, tuple[tuple[int, ...], ...]] | None = None
    other_parameters: Mapping[str, int] | None = None
    variants: tuple[WeightVariant, ...] | None = None
    tied_parameters: Mapping[str, int] | None = None
    idle_parameters: int | None = None

    def __post_init__(self) -> None:
        check_scalars(self)
        for place, mixer in enumerate(self.mixers or ()):
            check_text(f"mixers[{place}]", mixer)
        for place, norms in enumerate(self.branch_norms or ()):
            check_at_least(0, f"branch_norms[{place}]", norms)
        if self.branch_norms is not None and self.layer_norms not in (None, sum(self.branch_norms)):
            refuse(
                "branch_norms",
                f"numbers that sum to layer_norms = {self.layer_norms}",
                self.branch_norms,
                "correct either",
            )
        for field, places in (self.layers_with or {}).items():
            if getattr(self, str(field), None) is None:
                refuse(
                    f"layers_with.{field}", "a field that the kind states", field, "state its value, or leave it out"
                )
            _check_places(f"layers_with.{field}", places)
        check_weights(self.projections, self.other_parameters)
        for part, elements in (self.tied_parameters or {}).items():
            check_at_least(1, f"tied_parameters.{part}", elements)

    @classmethod
    def from_dict(cls, kind: Mapping[str, Any], where: str = "kind") -> KindSpec:
        """Return the kind that a mapping states.

        Raises:
            ModelSpecError: a field is unknown, missing or not of its type.
        """
        return read(cls, kind, f"{where}.", _PARTS)

    def to_dict(self) -> dict[str, Any]:
        """Return the kind as plain data, fields in their order, without what nobody stated."""
        stated = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        return {name: _plain(value) for name, value in stated.items() if value is not None}


@dataclass(frozen=True)
class WeightVariant:
    """Layers of a kind whose parameters are others than the first layer's.

    Attributes:
        layers: their places in the stack.
        projections, other_parameters: as of a kind, in place of the kind's.

    Raises:
        ModelSpecError: a place or a number is not of its type.
    """

    layers: tuple[int, ...]
    projections: Mapping[str, tuple[tuple[int, ...], ...]] | None = None
    other_parameters: Mapping[str, int] | None = None

    def __post_init__(self) -> None:
        _check_places("layers", self.layers)
        check_weights(self.projections, self.other_parameters)


@dataclass(frozen=True)
class OutsideSpec:
    """The parameters outside the layers.

    Attributes:
        tables: the (rows, width) of every table that is looked up: of tokens, positions, token types.
        projections: under `head` the head's weight, (in, out) where it has one of its own, (in, out, 0, 1) where it
            is a table's; under `other` those of other matmuls.
        other_parameters: for `head`, `norm` and `other`, the elements of what no projection multiplies.
        idle_parameters: the elements that no forward uses.

    Raises:
        ModelSpecError: a number is not of its type.
    """

    tables: tuple[tuple[int, ...], ...] | None = None
    projections: Mapping[str, tuple[tuple[int, ...], ...]] | None = None
    other_parameters: Mapping[str, int] | None = None
    idle_parameters: int | None = None

    def __post_init__(self) -> None:
        check_scalars(self)
        for place, table in enumerate(self.tables or ()):
            if len(table) != 2:
                refuse(f"tables[{place}]", "[rows, width]", list(table), "state it so")
            for number in table:
                check_at_least(1, f"tables[{place}]", number)
        check_weights(self.projections, self.other_parameters)

    @classmethod
    def from_dict(cls, outside: Mapping[str, Any], where: str = "outside") -> OutsideSpec:
        """Return what a mapping states.

        Raises:
            ModelSpecError: a field is unknown or not of its type.
        """
        return read(cls, outside, f"{where}.", _WEIGHT_PARTS)

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain data, without what nobody stated."""
        stated = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        return {name: _plain(value) for name, value in stated.items() if value is not None}


def check_weights(
    projections: Mapping[str, tuple[tuple[int, ...], ...]] | None, other_parameters: Mapping[str, int] | None
) -> None:
    """Refuse weights that are no matrices of positive widths, or parameters that are no number."""
    for part, matrices in (projections or {}).items():
        for place, matrix in enumerate(matrices):
            if len(matrix) not in (2, 4):
                refuse(f"projections.{part}[{place}]", "[in, out] or [in, out, held, run]", list(matrix), "state it so")
            for least, number in zip((1, 1, 0, 1), matrix, strict=False):
                check_at_least(least, f"projections.{part}[{place}]", number)
    for part, elements in (other_parameters or {}).items():
        check_at_least(1, f"other_parameters.{part}", elements)


def _check_places(path: str, places: tuple[int, ...]) -> None:
    for place in places:
        check_at_least(0, path, place)
    if not places or list(places) != sorted(set(places)):
        refuse(path, "places in the stack, each once, in order", list(places), "sort them")


def _plain(value: Any) -> Any:
    if isinstance(value, WeightVariant):
        fields = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
        return {name: _plain(part) for name, part in fields.items() if part is not None}
    if isinstance(value, Mapping):
        return {name: _plain(part) for name, part in value.items()}
    return [_plain(part) for part in value] if isinstance(value, tuple) else value


def _read_entries(data: object, path: str) -> tuple[Any, ...]:
    return tuple(read_list(data, path))


def _read_places(data: object, path: str) -> dict[str, tuple[Any, ...]]:
    return {field: _read_entries(places, f"{path}.{field}") for field, places in read_mapping(data, path).items()}


def _read_matrices(data: object, path: str) -> tuple[tuple[Any, ...], ...]:
    return tuple(_read_entries(matrix, f"{path}[{place}]") for place, matrix in enumerate(read_list(data, path)))


def _read_projections(data: object, path: str) -> dict[str, tuple[tuple[Any, ...], ...]]:
    return {part: _read_matrices(found, f"{path}.{part}") for part, found in read_mapping(data, path).items()}


def _read_variants(data: object, path: str) -> tuple[WeightVariant, ...]:
    return tuple(
        read(WeightVariant, variant, f"{path}[{place}].", {**_WEIGHT_PARTS, "layers": _read_entries})
        for place, variant in enumerate(read_list(data, path))
    )


def _read_elements(data: object, path: str) -> Mapping[str, Any]:
    return dict(read_mapping(data, path))


_WEIGHT_PARTS = {
    "tables": _read_matrices,
    "projections": _read_projections,
    "other_parameters": _read_elements,
}
_PARTS = {
    **_WEIGHT_PARTS,
    "mixers": _read_entries,
    "branch_norms": _read_entries,
    "layers_with": _read_places,
    "variants": _read_variants,
    "tied_parameters": _read_elements,
}
