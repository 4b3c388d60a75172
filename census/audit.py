"""An op profile beside measurement: kind by kind, op by op, stated, measured, evidence."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from census.kinds import KindCensus
from census.op_profile import OpProfile


@dataclass(frozen=True)
class AuditRow:
    """One op of one kind: what the profile states of it and what one source's layers run.

    Attributes:
        source: the model that was measured.
        kind: the kind of layer.
        op: the op.
        stated: the profile's count.
        measured: the census's count.
        evidence: what stated the measured count.
    """

    source: str
    kind: str
    op: str
    stated: int
    measured: int
    evidence: str

    @property
    def agrees(self) -> bool:
        """Whether the profile states what is measured."""
        return self.stated == self.measured


def audit_rows(profile: OpProfile, source: str, kinds: Mapping[str, KindCensus]) -> list[AuditRow]:
    """Return a row for every op of every kind of the profile that the source's model has."""
    return [
        AuditRow(source, name, op, stated, kinds[name].ops[op], kinds[name].evidence[op])
        for name, kind in profile.kinds.items()
        if name in kinds
        for op, stated in kind.ops.items()
    ]


def unmeasured_kinds(profile: OpProfile, kinds: set[str]) -> list[str]:
    """Return the profile's kinds that no source has a layer of."""
    return [name for name in profile.kinds if name not in kinds]
