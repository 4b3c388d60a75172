"""A drift to read: as a table, as Markdown, as JSON."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator

from census.drift import STATES, CaseDrift, Change, Drift
from census.table import markdown


def drift_text(found: Drift, form: str) -> str:
    """Return a drift as a `table`, `markdown` or `json`."""
    if form == "json":
        return json.dumps(_data(found), indent=2)
    return "\n".join(_markdown(found) if form == "markdown" else _table(found))


def _heading(found: Drift) -> str:
    one, other = found.sides
    return f"{found.package} {one.label} -> {other.label}"


def _totals(found: Drift) -> str:
    return ", ".join(f"{len(found.of(state))} {state}" for state in STATES)


def _table(found: Drift) -> Iterator[str]:
    yield f"{_heading(found)}: {_totals(found)}"
    for state in STATES[:-1]:
        for case in found.of(state):
            since = f", first in {case.first}" if case.first else ""
            yield f"\n{case.case} ({case.model_type}): {state}{since}"
            yield from (f"  {label}: {reason}" for label, reason in case.reasons.items())
            for change in case.changes:
                yield f"  {_said(change)}"
                yield from (f"    {line}" for line in _sources(found, change))
    if found.of("equal"):
        yield f"\nequal: {', '.join(case.case for case in found.of('equal'))}"


def _said(change: Change) -> str:
    since = f", first in {change.first}" if change.first else ""
    return f"{change.field}: {_value(change.values[0])} -> {_value(change.values[1])}{since}"


def _sources(found: Drift, change: Change) -> Iterator[str]:
    for side, evidence, places in zip(found.sides, change.evidence, change.places, strict=True):
        yield "; ".join([f"{side.label}: {evidence}", *places])


def _markdown(found: Drift) -> Iterator[str]:
    one, other = found.sides
    yield f"# {_heading(found)}\n\n{_totals(found)}."
    changed = [(case, change) for case in found.of("changed") for change in case.changes]
    if changed:
        header = ("case", "field", one.label, other.label, "first in", f"evidence in {one.label}", other.label)
        rows = [
            (
                case.case,
                f"`{change.field}`",
                *map(_value, change.values),
                change.first,
                *("; ".join([text, *places]) for text, places in zip(change.evidence, change.places, strict=True)),
            )
            for case, change in changed
        ]
        yield "\n".join(["\n## Changed\n", *markdown([header, *rows])])
    for state in STATES[1:-1]:
        rows = [(case.case, case.first, _reasons(case)) for case in found.of(state)]
        if rows:
            yield "\n".join([f"\n## {state.capitalize()}\n", *markdown([("case", "first in", "reason"), *rows])])


def _reasons(case: CaseDrift) -> str:
    return "; ".join(f"{label}: {reason}" for label, reason in case.reasons.items())


def _value(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _data(found: Drift) -> dict[str, object]:
    one, other = found.sides
    return {
        "package": found.package,
        "from": {"release": one.label, **one.versions},
        "to": {"release": other.label, **other.versions},
        "cases": [dataclasses.asdict(case) for case in found.cases],
    }
