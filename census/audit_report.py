"""An audit as text: for reading, for scripts, for a pull request, for a test report, for a workflow's annotations."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any
from xml.etree import ElementTree

from census.audit import Audit, AuditRow, UnfitLayers
from census.github import annotation, shown, shown_errors
from census.profile_lines import ProfileLines
from census.table import columns, markdown

_HEADER = ("model", "kind", "op", "stated", "measured", "", "evidence")


def audit_text(audits: Sequence[Audit], form: str) -> str:
    """Return audits in one of the `FORMATS`; nothing for a table or annotations where there is nothing to say."""
    return FORMATS[form](audits)


def _cells(row: AuditRow) -> tuple[str, ...]:
    said = "" if row.agrees else "DIFFERS"
    return (row.source, row.kind, row.op, str(row.stated), str(row.measured), said, row.evidence)


def _beside(audits: Sequence[Audit]) -> Iterator[str]:
    """Yield a line for what no row says: kinds without a layer, layers without a kind."""
    for audit in audits:
        for kind in audit.unmeasured:
            yield f"{audit.profile.arch}.{kind}: no source has a layer of this kind"
        for unfit in audit.unfit:
            yield f"{unfit.source}: {_unfit(unfit)}: {audit.profile.arch} has no one kind for it"


def _unfit(unfit: UnfitLayers) -> str:
    first, *rest = unfit.layers
    where = f"{first} to {rest[-1]} ({len(unfit.layers)} layers)" if rest else first
    vector = " ".join(map(str, unfit.ops.to_vector()))
    return f"{where}: attention {unfit.attention}, feed-forward {unfit.ffn}, runs {vector}"


def _table(audits: Sequence[Audit]) -> str:
    rows = [_cells(row) for audit in audits for row in audit.rows]
    return "\n".join([*(columns([_HEADER, *rows]) if rows else ()), *_beside(audits)])


def _markdown(audits: Sequence[Audit]) -> str:
    rows = [_cells(row) for audit in audits for row in audit.rows]
    table = markdown([_HEADER, *rows]) if rows else []
    beside = [f"- {line}" for line in _beside(audits)]
    return "\n".join([*table, *([""] if table and beside else ()), *beside])


def _json(audits: Sequence[Audit]) -> str:
    return json.dumps([_data(audit) for audit in audits], indent=2)


def _data(audit: Audit) -> dict[str, Any]:
    return {
        "profile": audit.profile.source,
        "rows": [{**vars(row), "agrees": row.agrees} for row in audit.rows],
        "unmeasured_kinds": audit.unmeasured,
        "unfit_layers": [
            {
                "source": unfit.source,
                "layers": list(unfit.layers),
                "attention": unfit.attention,
                "ffn": unfit.ffn,
                "ops": unfit.ops.to_dict(),
            }
            for unfit in audit.unfit
        ],
        "failures": [{"source": source, "reason": " ".join(reason.split())} for source, reason in audit.failures],
    }


def _junit(audits: Sequence[Audit]) -> str:
    """Return a JUnit report: a suite a profile, a case an op; a kind without a layer is skipped, a failure an error."""
    root = ElementTree.Element("testsuites", name="census audit")
    for audit in audits:
        suite = ElementTree.SubElement(root, "testsuite", name=audit.profile.source)
        for row in audit.rows:
            case = _case(suite, f"{row.source}.{row.kind}", row.op)
            if not row.agrees:
                message = f"stated {row.stated}, measured {row.measured}"
                ElementTree.SubElement(case, "failure", message=message).text = row.evidence
        for kind in audit.unmeasured:
            message = "no source has a layer of this kind"
            ElementTree.SubElement(_case(suite, audit.profile.arch, kind), "skipped", message=message)
        for source, reason in audit.failures:
            ElementTree.SubElement(_case(suite, source, "measured"), "error", message=" ".join(reason.split()))
        for outcome, tag in (("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
            suite.set(outcome, str(sum(case.find(tag) is not None for case in suite)))
        suite.set("tests", str(len(suite)))
    ElementTree.indent(root)
    return ElementTree.tostring(root, encoding="unicode", xml_declaration=True)


def _case(suite: ElementTree.Element, classname: str, name: str) -> ElementTree.Element:
    return ElementTree.SubElement(suite, "testcase", classname=classname, name=name)


def _github(audits: Sequence[Audit]) -> str:
    """Return annotations on the profiles' lines, as many as GitHub shows, and a line that counts the others."""
    errors = [error for audit in audits for error in _annotated(audit)]
    notices = [
        annotation(
            "notice",
            audit.profile.source,
            ProfileLines.of(audit.profile.source).kinds[kind],
            f"no source has a {kind} layer",
        )
        for audit in audits
        for kind in audit.unmeasured
    ]
    return "\n".join([*shown_errors(errors), *shown(notices)])


def _annotated(audit: Audit) -> Iterator[str]:
    lines = ProfileLines.of(audit.profile.source)
    for row in audit.differing:
        said = f"{row.kind}.{row.op}: stated {row.stated}, {row.source} runs {row.measured}: {row.evidence}"
        yield annotation("error", audit.profile.source, lines.ops[row.kind][row.op], said)
    for unfit in audit.unfit:
        yield annotation("error", audit.profile.source, lines.first, f"no one kind for {unfit.source} {_unfit(unfit)}")
    for source, reason in audit.failures:
        if source not in {unfit.source for unfit in audit.unfit}:
            yield annotation("error", audit.profile.source, lines.first, f"{source}: {reason}")


FORMATS: dict[str, Callable[[Sequence[Audit]], str]] = {
    "table": _table,
    "json": _json,
    "markdown": _markdown,
    "junit": _junit,
    "github": _github,
}
"""The forms of an audit, by the names that the command has for them."""
