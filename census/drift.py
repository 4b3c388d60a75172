"""What a release of Transformers or torch changes: every case measured with two releases, field by field.

The two sides run in processes of their own, one after the other; nothing here imports torch.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from census.compare import Compared, compare
from census.drift_environments import Environment, environment, releases_between
from census.errors import DriftError
from census.spec import ABSENT

STATES = ("changed", "new", "gone", "failed", "equal")
"""What can be said of a case: both releases measure it and differ, the first or the second lacks its model type, one
could not measure it, or both measure the same."""

_FEW = 16
"""So many cases are explained at once: that costs less than a second process of either side."""

Cases = Mapping[str, Mapping[str, Any]]
"""Cases by name: `model_type`, `config` and `arch` of each."""


@dataclass(frozen=True)
class Side:
    """What the cases measured as with one release.

    Attributes:
        label: the release, or the folder it was taken from.
        versions: of Transformers and torch, as the measuring process had them.
        results: by case, what `census.drift_run` says of it.
    """

    label: str
    versions: Mapping[str, str]
    results: Mapping[str, Mapping[str, Any]]


@dataclass(frozen=True)
class Change:
    """One field in which a case differs between two releases.

    Attributes:
        field: its path in the spec; where a whole part is stated by one side alone, the part's.
        values: what the two sides state, `absent` where one does not.
        evidence: what stated it on either side.
        places: the modules that the evidence names on either side, with their code: `module (file:line name)`.
        first: the release in which it first appears, where that was looked for.
    """

    field: str
    values: tuple[object, object]
    evidence: tuple[str, str] = ("", "")
    places: tuple[tuple[str, ...], tuple[str, ...]] = ((), ())
    first: str = ""


@dataclass(frozen=True)
class CaseDrift:
    """What is said of one case.

    Attributes:
        case: its name.
        model_type: its model type.
        state: one of `STATES`.
        changes: the fields that differ.
        reasons: by the release, why it could not be measured or has no such model type.
        first: the release in which a case that is new, gone or failed first differs, where that was looked for.
    """

    case: str
    model_type: str
    state: str
    changes: tuple[Change, ...] = ()
    reasons: Mapping[str, str] = field(default_factory=dict)
    first: str = ""


@dataclass(frozen=True)
class Drift:
    """Two releases of a package beside each other.

    Attributes:
        package: the package.
        sides: the two releases.
        cases: what is said of each case that one of them knows.
    """

    package: str
    sides: tuple[Side, Side]
    cases: tuple[CaseDrift, ...]

    def of(self, state: str) -> list[CaseDrift]:
        """Return the cases of one state."""
        return [case for case in self.cases if case.state == state]


def drift(package: str, one: str, other: str, cases: Cases, tell: Callable[[str], None], search: bool = False) -> Drift:
    """Measure cases with two releases of a package and say what differs.

    Args:
        package: `transformers` or `torch`.
        one: the earlier release: a version, or a folder that holds the package.
        other: the later one.
        cases: what is measured.
        tell: is told what is being done, a line at a time.
        search: find the release in which each change first appears.

    Raises:
        DriftError: a release is missing, or does not run the census at all.
    """
    releases = _releases(package, one, other) if search else []

    def measured(release: str, names: Sequence[str], explain: bool = False) -> Side:
        made = environment(package, release)
        tell(f"{package} {release}: measuring {len(names)} cases")
        return measure_side(made, {name: cases[name] for name in names}, explain)

    names = list(cases)
    few = len(names) <= _FEW
    sides = measured(one, names, few), measured(other, names, few)
    found = [said for name in names if (said := compare_case(name, cases[name]["model_type"], *sides)) is not None]
    changed = [case.case for case in found if case.state == "changed"]
    if changed:
        explained = sides if few else (measured(one, changed, True), measured(other, changed, True))
        found = [_with_evidence(case, explained) if case.state == "changed" else case for case in found]
    if search:
        pending = {case.case: _differing(case) for case in found if case.state != "equal"}
        first = _first_releases(sides[0], releases, pending, cases, measured)
        found = [_with_first(case, first) for case in found]
    return Drift(package, sides, tuple(found))


def measure_side(made: Environment, cases: Cases, explain: bool = False) -> Side:
    """Measure cases in an environment.

    Raises:
        DriftError: the process ended before it had measured every case.
    """
    asked = [json.dumps({"case": name, **case, "explain": explain}) for name, case in cases.items()]
    done = made.run("census.drift_run", "".join(f"{line}\n" for line in asked))
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    if done.returncode or len(lines) != len(asked) + 1:
        reached = list(cases)[max(len(lines) - 1, 0) :][:1]
        why = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
        raise DriftError(
            f"{made.label}: expected {len(asked)} cases to be measured, found the process ended at "
            f"{reached[0] if reached else 'its end'} ({why}); run {made.python} -P -m census.drift_run to see it"
        )
    versions, *results = lines
    return Side(made.label, versions, {result["case"]: result for result in results})


def compare_case(case: str, model_type: str, one: Side, other: Side) -> CaseDrift | None:
    """Return what is said of one case, None where neither release knows its model type."""
    results = one.results[case], other.results[case]
    labelled = list(zip((one.label, other.label), results, strict=True))
    failed = {label: result["failed"] for label, result in labelled if "failed" in result}
    absent = {label: result["absent"] for label, result in labelled if "absent" in result}
    if failed:
        return CaseDrift(case, model_type, "failed", reasons=failed | absent)
    if len(absent) == 2:
        return None
    if absent:
        return CaseDrift(case, model_type, "new" if one.label in absent else "gone", reasons=absent)
    changes = tuple(_changes(results[0]["spec"], results[1]["spec"]))
    return CaseDrift(case, model_type, "changed" if changes else "equal", changes)


def _changes(one: Mapping[str, Any], other: Mapping[str, Any]) -> Iterator[Change]:
    """Yield what differs, a part that one side alone states as one change. What it comes to in costs follows of it."""
    found = compare(Compared("", spec=one), Compared("", spec=other))
    seen: set[str] = set()
    for section, differences in found.items():
        for difference in differences if section != "costs" else ():
            values = difference.expected, difference.found
            path = difference.path
            if ABSENT in values:
                lacking = one if values[0] == ABSENT else other
                path = _missing_part(lacking, path)
                if path != difference.path:
                    values = (ABSENT, "stated") if lacking is one else ("stated", ABSENT)
            if path not in seen:
                seen.add(path)
                yield Change(path, values)


def _missing_part(spec: Mapping[str, Any], path: str) -> str:
    """Return the shortest start of a path that a spec does not state."""
    held: Any = spec
    words = path.split(".")
    for number, word in enumerate(words):
        held = held.get(word.partition("[")[0]) if isinstance(held, Mapping) else None
        if held is None:
            return ".".join(words[: number + 1])
    return path


def _with_evidence(case: CaseDrift, sides: tuple[Side, Side]) -> CaseDrift:
    results = [side.results[case.case] for side in sides]

    def explained(change: Change) -> Change:
        (one, some), (other, more) = (
            _explanation(result, change.field, value) for result, value in zip(results, change.values, strict=True)
        )
        return replace(change, evidence=(one, other), places=(some, more))

    return replace(case, changes=tuple(map(explained, case.changes)))


def _explanation(result: Mapping[str, Any], path: str, value: object) -> tuple[str, tuple[str, ...]]:
    """Return what stated a field on one side, or why it states none, and the places."""
    if value == ABSENT:
        return result["left_out"].get(f"{path}_config", "not stated"), ()
    told = {one["field"]: one for one in result["explanations"]}
    start = path
    while start and start not in told:
        below = [name for name in told if re.match(re.escape(start) + r"[.\[]", name)]
        start = below[0] if below else re.sub(r"(^|[.\[])[^.\[]*$", "", start)
    if not start:
        return "no explanation", ()
    places = tuple(f"{place['module']} ({place['code']})" for place in told[start]["places"])
    return told[start]["evidence"], places


def _releases(package: str, one: str, other: str) -> list[str]:
    for label in (one, other):
        if not re.fullmatch(r"\d+(\.\d+)*", label):
            raise DriftError(f"--bisect: expected two versions of {package}, found {label!r}; leave --bisect out")
    return releases_between(package, one, other)


def _differing(case: CaseDrift) -> frozenset[str]:
    """Return the fields that differ; of a case that is not measured on both sides, the state alone."""
    return frozenset(change.field for change in case.changes) or frozenset({case.state})


def _first_releases(
    one: Side,
    releases: Sequence[str],
    pending: Mapping[str, frozenset[str]],
    cases: Cases,
    measured: Callable[[str, Sequence[str]], Side],
) -> dict[tuple[str, str], str]:
    """Return by case and field the first release that differs from the first one, by halves.

    As every search by halves it takes what differs once for differing until the end.
    """
    if not pending:
        return {}
    if len(releases) <= 2:
        return {(case, path): releases[-1] for case, paths in pending.items() for path in paths}
    half = len(releases) // 2
    side = measured(releases[half], list(pending))
    early: dict[str, frozenset[str]] = {}
    late: dict[str, frozenset[str]] = {}
    for case, paths in pending.items():
        said = compare_case(case, cases[case]["model_type"], one, side)
        same_state = said is None or _state(side.results[case]) == _state(one.results[case])
        differing = paths & _differing(said) if said is not None and said.changes else frozenset()
        if not same_state:
            differing = paths
        for half_of, some in ((early, differing), (late, paths - differing)):
            if some:
                half_of[case] = some
    return {
        **_first_releases(one, releases[: half + 1], early, cases, measured),
        **_first_releases(one, releases[half:], late, cases, measured),
    }


def _state(result: Mapping[str, Any]) -> str:
    return next(state for state in ("spec", "absent", "failed") if state in result)


def _with_first(case: CaseDrift, first: Mapping[tuple[str, str], str]) -> CaseDrift:
    changes = tuple(replace(change, first=first[case.case, change.field]) for change in case.changes)
    return replace(case, changes=changes, first=first.get((case.case, case.state), ""))
