"""The suite's own options, its parametrization over the case table, and its summary."""

from __future__ import annotations

import gc
import os
from pathlib import Path

# A worker of the suite has one core to itself; torch would start a thread for each core of the machine.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
# What the command prints is compared as a pipe gets it; a workflow that forces colours would change it.
os.environ.pop("FORCE_COLOR", None)

import pytest
from hypothesis import HealthCheck, settings

from census.coverage import TABLE, table_text
from census.golden import write_atomically
from census.pytest_plugin import CensusFixture, golden_root_of
from test_models.case_table import MEASURED, PUBLISHED, Case, census_of, coverage, in_group
from test_models.golden_check import pin_of, require_refusal
from test_models.network import closed_network
from test_models.older_releases import is_older, not_as_pinned, older_row, release

pytest_plugins = ["test_models.sharding"]

settings.register_profile(
    "ci", max_examples=8, derandomize=True, deadline=None, suppress_health_check=list(HealthCheck)
)
settings.register_profile("deep", max_examples=300, deadline=None, suppress_health_check=list(HealthCheck))
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))

_MUTANT, _MUTANTS = "mutant", "mutants"


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "case(name): a case that a test measures and is not parametrized by")
    config.addinivalue_line(
        "markers", "pinned: a test of how the pinned Transformers is written, skipped with an older one"
    )
    config.addinivalue_line(
        "markers", f"{_MUTANTS}: a fault planted in a model, a table or the engine, which a check finds"
    )
    config.addinivalue_line("markers", "network: a test that opens sockets, as a browser on this machine does")
    if config.getoption("--update-golden") and is_older():
        raise pytest.UsageError(
            "--update-golden: expected the Transformers that the goldens were measured with, found an older one; "
            "install with -c constraints.txt"
        )


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Parametrize over the case table; tests of one case run in one worker, which measures it once."""
    for fixture, table in (("case", MEASURED), ("published", PUBLISHED)):
        if fixture in metafunc.fixturenames:
            metafunc.parametrize(
                fixture,
                [pytest.param(case, id=name, marks=in_group(name)) for name, case in table.items()],
            )


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """With an older Transformers skip, saying why, what holds for the goldens' alone."""
    if is_older():
        for item in items:
            reason = _skipped_with_an_older_one(item)
            if reason:
                item.add_marker(pytest.mark.skip(reason=reason))


def _skipped_with_an_older_one(item: pytest.Item) -> str:
    """Return why a test does not hold for an older Transformers, nothing where it does."""
    if {"pinned", _MUTANTS} & item.keywords.keys():
        return f"holds for how the pinned Transformers is written, installed is {release()}"
    given = [*item.callspec.params.values()] if isinstance(item, pytest.Function) and hasattr(item, "callspec") else []
    given += [name for marker in item.iter_markers("case") for name in marker.args]
    # The goldens' check holds a case to what the older one builds of it.
    held = "check_golden" in getattr(item, "fixturenames", ())
    return next(filter(None, (not_as_pinned(value, rows_are_held=held) for value in given)), "")


def pytest_collection_finish(session: pytest.Session) -> None:
    """Keep what was imported and collected out of the garbage collector's rounds, and let it make them seldom.

    A whole round looks at each of the modules, tests and measurements that a worker keeps to its end; without this it
    took a sixth of the time of the goldens' check.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(100_000, 10, 10)


@pytest.fixture(autouse=True)
def _no_network(request: pytest.FixtureRequest):  # type: ignore[no-untyped-def]
    """Close the network to every test but those that are marked with it."""
    if "network" in request.keywords:
        yield
        return
    with closed_network():
        yield


@pytest.fixture(scope="session")
def golden_root(pytestconfig: pytest.Config) -> Path:
    return golden_root_of(pytestconfig)


@pytest.fixture
def check_golden(census: CensusFixture, golden_root: Path):  # type: ignore[no-untyped-def]
    """Return a check of a case against its golden; under --update-golden it writes what changed."""

    def check(case: Case) -> None:
        __tracebackhide__ = True
        row = older_row(case.name)
        if row is not None and row.refused:
            require_refusal(case, row)
            return
        census.check_pin(pin_of(case, census_of(case.name), golden_root))

    return check


def pytest_sessionfinish(session: pytest.Session) -> None:
    """After an update of the project's goldens, write the table of model types anew: once, where no worker runs."""
    root = golden_root_of(session.config)
    own = root == session.config.rootpath / "golden_specs" and not hasattr(session.config, "workerinput")
    if own and session.exitstatus == 0 and session.config.getoption("--update-golden"):
        write_atomically(TABLE, table_text(coverage(root)))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print how many of the planted faults a check found by name, and which it did not."""
    planted = _planted(terminalreporter)
    survivors = sorted(name for passed, name in planted if not passed)
    if planted:
        terminalreporter.section("mutants")
        terminalreporter.line(f"mutants: {len(planted) - len(survivors)} of {len(planted)} killed")
    if survivors:
        terminalreporter.line(f"survived: {', '.join(survivors)}")


def _planted(terminalreporter: pytest.TerminalReporter) -> list[tuple[bool, str]]:
    """Return the mutants that were planted, each with whether its test passed."""
    return [
        (report.passed, str(value))
        for reports in terminalreporter.stats.values()
        for report in reports
        for name, value in getattr(report, "user_properties", ())
        if name == _MUTANT and report.when == "call"
    ]
