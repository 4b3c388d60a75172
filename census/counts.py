"""The op vector of one layer, counted from its block parts, each count with what stated it.

The ten ops and their units are ND's; `docs/op_vector.md` defines them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from census.blocks import FeedForward, Mixer, Mlp
from census.errors import UnknownPartError
from census.parts import LayerParts

Stated = int | tuple[int, ...]
"""A number, a flag, or several numbers in order."""


@dataclass(frozen=True, slots=True)
class Fact:
    """A measured value and its evidence: the module, operator or parameter that stated it."""

    value: Stated
    evidence: str


def op_facts(parts: LayerParts) -> dict[str, Fact]:
    """Return every op of the vector with its count in one layer, in the vector's order.

    Raises:
        UnknownPartError: the layer runs something that no rule counts.
    """
    kernels = [kernel for mixer in parts.mixers for kernel in mixer.kernels]
    scores = [f"{kernel.event.module}: score kernel" for kernel in kernels if kernel.scores]
    recurrences = [f"{kernel.event.module}: {kernel.name}" for kernel in kernels if not kernel.scores]
    parts.require_every_projection()
    feed_forward = parts.feed_forward
    mlp = counted_mlp(feed_forward) if feed_forward else None
    return {
        "attMM": _listed(_attention_projections(parts.mixers)),
        "attBMM": _listed(f"{line}: {which}" for line in scores for which in ("QK^T", "AV")),
        "ffMM": _projection_units(parts, mlp),
        "softmax": _listed(scores),
        "dropout": _listed(f"{event.module}: p={event.attributes['p']}" for event in parts.dropouts),
        "normOp": _listed(norm.module for norm in parts.norms),
        "gather": Fact(2 * parts.regions, f"2 a tensor-parallel region, {parts.regions} regions"),
        "headCast": _listed(scores),
        "ffAct": _listed(mlp.activations if mlp else ()),
        "linrec": _listed(recurrences),
    }


def counted_mlp(feed_forward: FeedForward) -> Mlp:
    """Return the projections the vector counts: one expert's where routed, else the dense one's."""
    mlp = feed_forward.routed or feed_forward.dense
    assert mlp is not None, "a feed-forward is dense or routed"
    return mlp


def _attention_projections(mixers: Iterable[Mixer]) -> list[str]:
    """Return a line for each role of each kernel and for each output projection.

    Kernels whose role is made by the same projections share it. A score kernel has the roles that the layer
    projects itself; a recurrence has all three, one that it does not take being in its own gates.
    """
    roles: dict[tuple[object, ...], str] = {}
    outputs: list[str] = []
    for mixer in mixers:
        for kernel in mixer.kernels:
            for role, projections in zip(("queries", "keys", "values"), kernel.roles, strict=True):
                if projections:
                    roles[role, projections] = f"{role} by {' + '.join(map(str, projections))}"
                elif not kernel.scores:
                    roles[role, kernel] = f"{role}: the gates of {kernel.name}"
        outputs += [f"output by {projection}" for projection in mixer.outputs if mixer.kernels]
    return [*roles.values(), *outputs]


def _projection_units(parts: LayerParts, mlp: Mlp | None) -> Fact:
    if mlp is None:
        return _listed(())
    # Experts that work in a latent width are priced in it.
    taken = mlp.projections[0].in_features
    unit = taken * mlp.width
    weights = sum(projection.in_features * projection.out_features for projection in mlp.projections)
    lines = ", ".join(map(str, mlp.projections))
    if weights % unit:
        raise UnknownPartError(
            f"{parts.run.path}.{mlp.projections[-1].event.module}: expected projections of a whole number of "
            f"{taken} x {mlp.width}, found {weights / unit:.6g} in {lines}; "
            f"census does not state such a feed-forward yet"
        )
    return Fact(weights // unit, f"{lines}, in units of {taken} x {mlp.width}")


def _listed(lines: Iterable[str]) -> Fact:
    found = list(lines)
    return Fact(len(found), "; ".join(found) or "none runs")
