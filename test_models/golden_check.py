"""The check of a case against its golden: measured against pinned, and what a failure says."""

from __future__ import annotations

from pathlib import Path

import pytest

from census import ModelCensus
from census.errors import GoldenError
from census.golden import Golden, golden_path, new_golden, read_golden, write_golden
from census.spec import diff_specs
from test_models.case_table import Case
from test_models.routes import routes_of


def require_golden(case: Case, census: ModelCensus, golden_root: Path) -> None:
    """Fail unless the case's golden pins what was measured; the failure names every field that differs."""
    __tracebackhide__ = True
    path = golden_path(golden_root, case.model_type, case.name)
    if not path.exists():
        pytest.fail(
            f"{case}: expected a golden at {path}, found none; review the model, then run "
            f"pytest --update-golden -k {case}",
            pytrace=False,
        )
    differences = diff_specs(read_golden(path).pinned, _measured(case, census).pinned)
    if differences:
        lines = [f"  {d}  [{_evidence(census, d.path)}]" for d in differences]
        pytest.fail(
            "\n".join(
                [
                    f"{case}: {len(differences)} fields differ from {path}: expected -> measured [evidence]",
                    *lines,
                    f"find out who is right in the model's source; then pytest --update-golden -k {case}",
                ]
            ),
            pytrace=False,
        )


def update_golden(case: Case, census: ModelCensus, golden_root: Path) -> list[str]:
    """Write the case's golden where its content changed; return a line for each change."""
    path = golden_path(golden_root, case.model_type, case.name)
    try:
        pinned = read_golden(path).pinned if path.exists() else None
    except GoldenError:
        pinned = None
    measured = _measured(case, census)
    differences = [] if pinned is None else diff_specs(pinned, measured.pinned)
    if pinned is not None and not differences:
        return []
    write_golden(path, measured)
    return [f"{case}: {difference}" for difference in differences] or [f"{case}: new"]


def _measured(case: Case, census: ModelCensus) -> Golden:
    return new_golden(case.name, case.model_type, census.spec, routes_of(case))


def _evidence(census: ModelCensus, path: str) -> str:
    parts = path.split(".")
    if parts[0] == "ops" and len(parts) == 3 and parts[1] in census.kinds:
        return str(census.kinds[parts[1]].evidence.get(parts[2], "the family's profile"))
    return str(census.evidence.get(path, "the stack as it ran"))
