"""Every family's op profile beside what the goldens pin: kind by kind, how many models agree, and which do not."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from census.op_counts import OPS
from census.op_profile import LayerKind, OpProfile, known_archs, load_op_profile
from census.report_model import Page

VISION = "vision"
"""The family of vision towers, which models of other families have."""


@dataclass(frozen=True)
class Difference:
    """An op that a model's layers of a kind run otherwise than the profile states."""

    page: Page
    op: str
    stated: int
    measured: int


@dataclass(frozen=True)
class AuditedKind:
    """A kind of a profile beside the models that have layers of it.

    Attributes:
        kind: the kind, with what the profile states of it.
        pages: the models that have a layer of it.
        differences: the ops that one of them runs otherwise.
    """

    kind: LayerKind
    pages: tuple[Page, ...]
    differences: tuple[Difference, ...]

    def differs(self, op: str) -> bool:
        """Tell whether a model runs an op otherwise than stated."""
        return any(difference.op == op for difference in self.differences)


@dataclass(frozen=True)
class AuditedFamily:
    """A profile beside the models of its family."""

    profile: OpProfile
    kinds: tuple[AuditedKind, ...]
    models: int

    @property
    def in_index(self) -> bool:
        """Whether the index knows the family: not where it has no model, nor where it is that of vision towers."""
        return self.models > 0 and self.profile.arch != VISION

    @property
    def agree(self) -> int:
        """How many ops of kinds with layers are as stated, in every model."""
        return sum(not kind.differs(op) for kind in self.kinds if kind.pages for op in OPS)

    @property
    def measured(self) -> int:
        """How many ops some model of the family runs."""
        return sum(len(OPS) for kind in self.kinds if kind.pages)

    @property
    def unmeasured(self) -> list[str]:
        """The kinds that no model has a layer of."""
        return [kind.kind.name for kind in self.kinds if not kind.pages]

    @property
    def differences(self) -> list[tuple[str, Difference]]:
        """Every difference, with its kind."""
        return [(kind.kind.name, difference) for kind in self.kinds for difference in kind.differences]


def audited_families(pages: Sequence[Page]) -> list[AuditedFamily]:
    """Return every family's profile beside the goldens of its models; `vision` beside those with a vision tower."""
    return [_family(load_op_profile(arch), list(_measured(arch, pages))) for arch in known_archs()]


def _measured(arch: str, pages: Sequence[Page]) -> Iterator[tuple[Page, Mapping[str, Any]]]:
    """Yield the models of a family, each with the op vectors of the kinds that it has layers of."""
    for page in pages:
        tower = page.vision if arch == VISION else page.tower if page.golden.spec["arch"] == arch else None
        if tower is not None:
            yield page, {lane.kind: ops for lane, ops in tower.ops}


def _family(profile: OpProfile, measured: Sequence[tuple[Page, Mapping[str, Any]]]) -> AuditedFamily:
    return AuditedFamily(profile, tuple(_kind(kind, measured) for kind in profile.kinds.values()), len(measured))


def _kind(kind: LayerKind, measured: Sequence[tuple[Page, Mapping[str, Any]]]) -> AuditedKind:
    having = [(page, ops[kind.name]) for page, ops in measured if kind.name in ops]
    differences = tuple(
        Difference(page, op, kind.ops[op], ops[op]) for page, ops in having for op in OPS if ops[op] != kind.ops[op]
    )
    return AuditedKind(kind, tuple(page for page, _ in having), differences)
