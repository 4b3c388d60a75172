"""The suite's own options, its parametrization over the case table, and its summary."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path

# A worker of the suite has one core to itself; torch would start a thread for each core of the machine.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("HF_HUB_OFFLINE", "1")

import pytest
from hypothesis import HealthCheck, settings

from census.coverage import TABLE, table_text
from census.errors import GoldenError
from census.golden import golden_path, new_golden, read_golden, write_atomically, write_golden
from census.spec import diff_specs
from test_models.case_table import MEASURED, PUBLISHED, Case, census_of, coverage
from test_models.routes import routes_of

settings.register_profile(
    "ci", max_examples=8, derandomize=True, deadline=None, suppress_health_check=list(HealthCheck)
)
settings.register_profile("deep", max_examples=300, deadline=None, suppress_health_check=list(HealthCheck))
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))

_CHANGE = "golden"


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("census")
    group.addoption(
        "--update-golden",
        nargs="?",
        const="yes",
        help="write the goldens whose content changed; under CI only as --update-golden=force",
    )
    parser.addini("golden_specs", "the folder of the goldens", default="golden_specs")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "case(name): the model a test measures")
    update = config.getoption("--update-golden")
    if update not in (None, "yes", "force"):
        raise pytest.UsageError(
            f"--update-golden: expected nothing or force after it, found {update!r}; put paths before the option"
        )
    if update == "yes" and os.environ.get("CI", "").lower() not in ("", "0", "false"):
        raise pytest.UsageError(
            "--update-golden: expected to run on a developer's machine, found CI set; "
            "run it where a person reviews the change, or pass --update-golden=force"
        )


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Parametrize over the case table; tests of one case run in one worker, which measures it once."""
    for fixture, table in (("case", MEASURED), ("published", PUBLISHED)):
        if fixture in metafunc.fixturenames:
            metafunc.parametrize(
                fixture,
                [pytest.param(case, id=name, marks=pytest.mark.xdist_group(name)) for name, case in table.items()],
            )


@pytest.fixture(scope="session")
def golden_root(pytestconfig: pytest.Config) -> Path:
    return pytestconfig.rootpath / str(pytestconfig.getini("golden_specs"))


@pytest.fixture
def check_golden(pytestconfig: pytest.Config, golden_root: Path, record_property):  # type: ignore[no-untyped-def]
    """Return a check of a case against its golden; under --update-golden it writes what changed."""

    def check(case: Case) -> None:
        __tracebackhide__ = True
        census = census_of(case.name)
        path = golden_path(golden_root, case.model_type, case.name)
        update = pytestconfig.getoption("--update-golden")
        if not path.exists() and not update:
            pytest.fail(
                f"{case}: expected a golden at {path}, found none; review the model, then run "
                f"pytest --update-golden -k {case}",
                pytrace=False,
            )
        try:
            pinned = read_golden(path).pinned if path.exists() else None
        except GoldenError:
            if not update:
                raise
            pinned = None
        measured = new_golden(case.name, case.model_type, census.spec, routes_of(case))
        differences = [] if pinned is None else diff_specs(pinned, measured.pinned)
        if pinned is not None and not differences:
            return
        if update:
            write_golden(path, measured)
            for difference in differences or [None]:
                record_property(_CHANGE, f"{case}: {difference}" if difference else f"{case}: new")
            return
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

    return check


def _evidence(census, path: str) -> str:  # type: ignore[no-untyped-def]
    parts = path.split(".")
    if parts[0] == "ops" and len(parts) == 3 and parts[1] in census.kinds:
        return str(census.kinds[parts[1]].evidence.get(parts[2], "the family's profile"))
    return str(census.evidence.get(path, "the stack as it ran"))


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """After an update of the project's goldens, write the table of model types anew: once, where no worker runs."""
    root = session.config.rootpath / str(session.config.getini("golden_specs"))
    own = root == session.config.rootpath / "golden_specs" and not hasattr(session.config, "workerinput")
    if own and exitstatus == 0 and session.config.getoption("--update-golden"):
        write_atomically(TABLE, table_text(coverage(root)))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    changes = [
        str(value)
        for reports in terminalreporter.stats.values()
        for report in reports
        for name, value in getattr(report, "user_properties", ())
        if name == _CHANGE and report.when == "call"
    ]
    if not changes:
        return
    terminalreporter.section("goldens written")
    for change in sorted(changes):
        terminalreporter.line(change)
    fields = Counter(change.split(": ", 1)[1].split(":")[0] for change in changes)
    for field, count in sorted(fields.items()):
        terminalreporter.line(f"{field} in {count} goldens")
