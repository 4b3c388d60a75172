"""The op vector: how often one layer runs each of ten ops."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from census.spec_rules import check_at_least, read, refuse

# ruff: noqa: N815  the op names are those that planners' formulas use


@dataclass(frozen=True)
class OpCounts(Mapping[str, int]):
    """One op vector: how often a layer runs each op. Also a mapping from op to count, in this order.

    Attributes:
        attMM: attention projections, by role.
        attBMM: batched matmuls of score attention.
        ffMM: feed-forward projections of one `hidden x width`; of one expert where routed.
        softmax: score softmaxes.
        dropout: dropouts that act in training, outside the score kernel.
        normOp: the layer's own norms.
        gather: tensor-parallel gathers.
        headCast: casts of the score tensor.
        ffAct: activation functions of the feed-forward; of one expert where routed.
        linrec: state updates of linear attention.

    Raises:
        ModelSpecError: a count is no whole number, or is negative.
    """

    attMM: int
    attBMM: int
    ffMM: int
    softmax: int
    dropout: int
    normOp: int
    gather: int
    headCast: int
    ffAct: int
    linrec: int

    def __post_init__(self) -> None:
        for op, count in self.items():
            check_at_least(0, op, count)

    def __getitem__(self, op: str) -> int:
        if op not in OPS:
            raise KeyError(op)
        count: int = getattr(self, op)
        return count

    def __iter__(self) -> Iterator[str]:
        return iter(OPS)

    def __len__(self) -> int:
        return len(OPS)

    @classmethod
    def from_dict(cls, ops: Mapping[str, object], where: str = "ops") -> OpCounts:
        """Return the vector a mapping states; it names every op and nothing else.

        Raises:
            ModelSpecError: an op is missing or unknown, or a count is none.
        """
        return read(cls, ops, f"{where}: ")

    def to_dict(self) -> dict[str, int]:
        """Return the counts by op."""
        return dict(self)

    @classmethod
    def from_vector(cls, counts: Sequence[int]) -> OpCounts:
        """Return the vector of ten counts in the order of the ops.

        Raises:
            ModelSpecError: they are not ten, or one is no count.
        """
        if len(counts) != len(OPS):
            refuse("ops", f"the {len(OPS)} counts of {' '.join(OPS)}", len(counts), "state each of them")
        return cls(*counts)

    def to_vector(self) -> tuple[int, ...]:
        """Return the counts in the order of the ops."""
        return tuple(self.values())


OPS = tuple(field.name for field in dataclasses.fields(OpCounts))
"""The ten ops, in the order of a vector."""
