"""An op profile beside measurement: kind by kind, op by op, stated, measured, evidence; layers it has no kind for."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from census.errors import AuditError, CensusError, KindError
from census.kinds import KindCensus, attention_in, read_runs
from census.measurement import forward, measure
from census.op_counts import OpCounts
from census.op_profile import OpProfile, load_op_profile

if TYPE_CHECKING:
    from transformers import PretrainedConfig


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


@dataclass(frozen=True)
class UnfitLayers:
    """Layers of one source that a profile has no kind for, or several.

    Attributes:
        source: the model that was measured.
        layers: their paths.
        attention, ffn: their flavours.
        ops: what one of them runs.
    """

    source: str
    layers: tuple[str, ...]
    attention: str
    ffn: str
    ops: OpCounts


@dataclass(frozen=True)
class Audit:
    """One profile beside the sources that were held against it.

    Attributes:
        profile: the profile.
        rows: every op of every kind that a source has, source by source.
        unfit: the layers that no kind fits.
        failures: for a source that could not be measured, why.
    """

    profile: OpProfile
    rows: tuple[AuditRow, ...] = ()
    unfit: tuple[UnfitLayers, ...] = ()
    failures: tuple[tuple[str, str], ...] = ()

    @property
    def differing(self) -> list[AuditRow]:
        """The rows in which stated and measured differ."""
        return [row for row in self.rows if not row.agrees]

    @property
    def unmeasured(self) -> list[str]:
        """The profile's kinds that no source has a layer of."""
        return unmeasured_kinds(self.profile, {row.kind for row in self.rows})

    def measured_counts(self) -> dict[tuple[str, str], int]:
        """Return what is measured where it is not what is stated, by kind and op.

        Raises:
            AuditError: two sources measure differently what one profile states for both.
        """
        counts: dict[tuple[str, str], AuditRow] = {}
        for row in self.rows:
            first = counts.setdefault((row.kind, row.op), row)
            if first.measured != row.measured:
                raise AuditError(
                    f"{self.profile.source}: {row.kind}.{row.op}: expected one count to write, found {first.measured} "
                    f"in {first.source} and {row.measured} in {row.source}; state kinds that tell their layers apart"
                )
        return {key: row.measured for key, row in counts.items() if not row.agrees}


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


def audit_source(profile: OpProfile, config: PretrainedConfig, source: str) -> Audit:
    """Return a profile beside one model.

    Where it has no kind for a layer, the kinds that it does have are held against the layers that take them.

    Raises:
        BuildError, UnknownPartError: the model could not be measured.
    """
    try:
        return Audit(profile, tuple(audit_rows(profile, source, measure(config, profile, source).kinds)))
    except KindError as error:
        return _in_part(profile, config, source, str(error))


def _in_part(profile: OpProfile, config: PretrainedConfig, source: str, reason: str) -> Audit:
    built, recording = forward(config)
    read = read_runs(built, recording)
    kinds: dict[str, KindCensus] = {}
    unfit: dict[tuple[str, str], list[tuple[str, KindCensus]]] = {}
    for index, run in recording.executions:
        layer, attention = read[run], attention_in(read, run)
        try:
            kind = profile.kind_for(attention, layer.shape.ffn, layer.ops["normOp"])
        except KindError:
            unfit.setdefault((attention, layer.shape.ffn), []).append((built.paths[index], layer))
        else:
            kinds.setdefault(kind.name, layer)
    without = tuple(
        UnfitLayers(source, tuple(dict.fromkeys(path for path, _ in layers)), attention, ffn, layers[0][1].ops)
        for (attention, ffn), layers in unfit.items()
    )
    return Audit(profile, tuple(audit_rows(profile, source, kinds)), without, ((source, reason),))


def audit_sources(
    sources: Mapping[str, Callable[[], PretrainedConfig]],
    files: Sequence[str],
    failed: Callable[[str, CensusError], None],
) -> list[Audit]:
    """Return the audits of sources, one a profile; a source that fails does not keep the others from being audited.

    Args:
        sources: by the name of each, what makes its config.
        files: the profiles' files or families' names; each source's inferred family if there are none.
        failed: takes what could not be measured, and why.
    """
    audits = []
    for name, load in sources.items():
        profile = None
        try:
            config = load()
            profile = profile_for(config, files, name)
            audit = audit_source(profile, config, name)
            if audit.failures:
                failed(name, KindError(audit.failures[0][1]))
        except CensusError as error:
            failed(name, error)
            if profile is None:
                continue
            audit = Audit(profile, failures=((name, str(error)),))
        audits.append(audit)
    return _merged(audits)


def profile_for(config: PretrainedConfig, files: Sequence[str], name: str) -> OpProfile:
    """Return the profile that a model is held against, of one or several.

    Of several it is the one with the name of the family that is inferred for the model, else the only one that has
    kinds for all of its layers.

    Args:
        config: a Transformers config.
        files: the profiles' files or families' names; the inferred family's own profile if there are none.
        name: the model's name.

    Raises:
        AuditError: none or several of the profiles could be meant.
        ProfileError: a file states no profile.
    """
    if len(files) == 1:
        return load_op_profile(files[0])
    try:
        inferred = measure(config, None, name).spec["arch"]
    except KindError:
        if not files:
            raise
        inferred = ""
    if not files:
        return load_op_profile(inferred)
    profiles = [load_op_profile(file) for file in files]
    named = [profile for profile in profiles if profile.arch == inferred]
    fitting = named or [profile for profile in profiles if _fits(profile, config, name)]
    if len(fitting) != 1:
        found = ", ".join(profile.source for profile in fitting) or "none"
        raise AuditError(
            f"{name}: expected one profile of the folder to have kinds for its layers, found {found}; pass its file"
        )
    return fitting[0]


def _fits(profile: OpProfile, config: PretrainedConfig, name: str) -> bool:
    try:
        measure(config, profile, name)
    except KindError:
        return False
    except CensusError as error:
        raise AuditError(f"{name}: expected a model that can be measured, found {error}") from error
    return True


def _merged(audits: Sequence[Audit]) -> list[Audit]:
    """Return audits, those of one profile as one."""
    by_profile: dict[str, list[Audit]] = {}
    for audit in audits:
        by_profile.setdefault(audit.profile.source, []).append(audit)
    return [
        Audit(
            of_one[0].profile,
            tuple(row for audit in of_one for row in audit.rows),
            tuple(unfit for audit in of_one for unfit in audit.unfit),
            tuple(failure for audit in of_one for failure in audit.failures),
        )
        for of_one in by_profile.values()
    ]
