"""The pytest plugin: a `census` fixture that holds a model against its golden, `--update-golden`, and a summary.

Every project that has census installed loads it, so nothing of census or torch is imported before a test asks for
the fixture or the session has something to say. What a test says travels as the report's properties: from a worker to
its controller, and into a JUnit report.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import pytest

if TYPE_CHECKING:
    from transformers import PretrainedConfig

    from census.golden_check import Pin
    from census.op_profile import OpProfile
    from census.own_model import OwnModel

_MODEL, _FAMILY, _GOLDEN = "census.model", "census.family", "census.golden"
_FIELD, _CHANGE, _REFUSED = "census.field", "census.changed", "census.refused"
_SLOWEST = 5


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add `--update-golden` and the setting `golden_specs`."""
    parser.getgroup("census").addoption(
        "--update-golden",
        nargs="?",
        const="yes",
        help="write the goldens whose content changed; under CI only as --update-golden=force",
    )
    parser.addini("golden_specs", "the folder of census' goldens, below rootdir", default="golden_specs")


def pytest_configure(config: pytest.Config) -> None:
    """Refuse an update of goldens under CI unless it is forced."""
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


def golden_root_of(config: pytest.Config) -> Path:
    """Return the folder of a project's goldens: the setting `golden_specs`, below rootdir."""
    return config.rootpath / str(config.getini("golden_specs"))


class CensusFixture:
    """What the `census` fixture gives a test."""

    def __init__(self, request: pytest.FixtureRequest) -> None:
        self._config = request.config
        self._node = request.node

    def check_golden(
        self, model: PretrainedConfig | OwnModel, name: str, profile: str | os.PathLike[str] | OpProfile | None = None
    ) -> None:
        """Fail the test unless a golden pins what is measured of a model; under `--update-golden` write it.

        Args:
            model: a Transformers config, of a class of one's own too where the auto classes know it, or a
                `census.OwnModel` of a module that one builds oneself.
            name: the model's name, and that of its golden, `<golden_specs>/<model_type>/<name>.yaml`.
            profile: the op profile that names its kinds: a file, below rootdir, or a family that census knows; chosen
                by the model if left out.
        """
        __tracebackhide__ = True
        from census.errors import CensusError, ConfigError, GoldenError
        from census.golden_check import Pin
        from census.measurement import measure

        self._say(_MODEL, name)
        try:
            if not hasattr(model, "model_type"):
                raise ConfigError(
                    f"{name}: model: expected a Transformers config or a census.OwnModel, found "
                    f"a {type(model).__name__}; pass OwnModel(build=lambda: ..., model_type=, embedding=, head=)"
                )
            if Path(name).name != name:
                raise GoldenError(f"name: expected the name of a file, found {name!r}; leave folders out of it")
            if isinstance(profile, (str, os.PathLike)) and (self._config.rootpath / profile).is_file():
                profile = self._config.rootpath / profile
            arch: Any = os.fspath(profile) if isinstance(profile, os.PathLike) else profile
            census = measure(model, arch, name)
            pin = Pin.of(golden_root_of(self._config), model.model_type, name, census)
        except CensusError as refusal:
            self._say(_REFUSED, str(refusal))
            _fail(refusal)
        self._check(pin)

    def check_pin(self, pin: Pin) -> None:
        """Do as `check_golden` does with a model that has been measured."""
        __tracebackhide__ = True
        self._say(_MODEL, pin.measured.case)
        self._check(pin)

    def _check(self, pin: Pin) -> None:
        __tracebackhide__ = True
        from census.errors import CensusError, GoldenDiffersError

        self._say(_FAMILY, str(pin.measured.spec["arch"]))
        self._say(_GOLDEN, str(pin.path))
        try:
            if self._config.getoption("--update-golden"):
                for change in pin.update():
                    self._say(_CHANGE, change)
            else:
                name = pin.measured.case
                pin.require(name if name in self._node.name else self._node.originalname)
        except GoldenDiffersError as failure:
            for difference in failure.differences:
                self._say(_FIELD, str(difference))
            _fail(failure)
        except CensusError as failure:
            _fail(failure)

    def _say(self, name: str, value: str) -> None:
        self._node.user_properties.append((name, value))


def _fail(error: Exception) -> NoReturn:
    __tracebackhide__ = True
    pytest.fail(str(error), pytrace=False)


@pytest.fixture
def census(request: pytest.FixtureRequest) -> CensusFixture:
    """Hold models against their goldens: `census.check_golden(config, name="our-7b", profile="ours.yaml")`."""
    return CensusFixture(request)


@pytest.hookimpl(tryfirst=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Fail a session in which two tests have one golden: the last that ran would decide what it pins."""
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if session.exitstatus == pytest.ExitCode.OK and reporter is not None and _twice(_reports(reporter)):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print what was measured, what changed, what was refused and what took longest; on GitHub, annotations too."""
    reports = _reports(terminalreporter)
    if not reports:
        return
    terminalreporter.section("census")
    for line in _summary(reports):
        terminalreporter.line(line)
    if os.environ.get("GITHUB_ACTIONS") == "true":
        from census.github import shown_errors

        # A line of each test before the second of any: GitHub shows few.
        failed = zip_longest(*(_annotations(report) for report in reports if report.failed))
        for line in shown_errors([error for errors in failed for error in errors if error is not None]):
            terminalreporter.line(line)


def _reports(terminalreporter: pytest.TerminalReporter) -> list[pytest.TestReport]:
    """Return the reports of the tests that checked a golden."""
    return [
        report
        for reports in terminalreporter.stats.values()
        for report in reports
        if getattr(report, "when", None) == "call" and _said(report, _MODEL)
    ]


def _said(report: pytest.TestReport, wanted: str) -> list[str]:
    return [str(value) for name, value in report.user_properties if name == wanted]


def _twice(reports: Sequence[pytest.TestReport]) -> dict[str, list[str]]:
    """Return the goldens of several tests, with the tests."""
    tests: dict[str, list[str]] = {}
    for report in reports:
        for path in _said(report, _GOLDEN):
            tests.setdefault(path, []).append(report.nodeid)
    return {path: sorted(nodes) for path, nodes in tests.items() if len(nodes) > 1}


def _summary(reports: Sequence[pytest.TestReport]) -> list[str]:
    cases = sum(len(_said(report, _MODEL)) for report in reports)
    families = {family for report in reports for family in _said(report, _FAMILY)}
    changes = sorted(
        f"{', '.join(_said(report, _MODEL))}: {change}" for report in reports for change in _said(report, _CHANGE)
    )
    written = [change for report in reports for change in _said(report, _CHANGE) if change != "new"]
    fields = Counter(change.split(":")[0] for change in written)
    refusals = [refusal for report in reports for refusal in _said(report, _REFUSED)]
    changed = sum(bool(_said(report, _CHANGE)) for report in reports)
    slowest = sorted(reports, key=lambda report: -report.duration)[:_SLOWEST]
    return [
        f"{cases} cases of {len(families)} families, {changed} goldens written, {len(refusals)} refused",
        *changes,
        *(f"{field} in {count} goldens" for field, count in sorted(fields.items())),
        *(f"refused: {' '.join(refusal.split())}" for refusal in refusals),
        *(
            f"ERROR: {path}: expected one test, found {' and '.join(tests)}; give each model a name of its own"
            for path, tests in _twice(reports).items()
        ),
        f"slowest: {', '.join(f'{_said(report, _MODEL)[0]} {report.duration:.1f} s' for report in slowest)}",
    ]


def _annotations(report: pytest.TestReport) -> list[str]:
    """Return an error for each line that differs, causes first; one on the test where no field is at fault."""
    from census.github import annotation
    from census.golden_check import golden_line

    [model, *_], goldens, fields = (_said(report, name) for name in (_MODEL, _GOLDEN, _FIELD))
    if goldens and fields:
        path = Path(goldens[-1])
        lines: dict[int, list[str]] = {}
        for field in fields:
            lines.setdefault(golden_line(path, field.split(": ")[0]), []).append(field)
        return [annotation("error", path, line, f"{model}: {'; '.join(said)}") for line, said in lines.items()]
    file, line, _ = report.location
    return [annotation("error", file, (line or 0) + 1, report.longreprtext)]
