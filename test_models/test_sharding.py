"""A suite in parts: each test is in one part, and what shares its work stays together."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from test_models.sharding import part_of, unit_of

ROOT = Path(__file__).parents[1]
SUITE = """
import pytest

@pytest.mark.parametrize("name", [pytest.param(n, marks=pytest.mark.xdist_group(f"model{n}")) for n in range(7)])
@pytest.mark.parametrize("check", ["golden", "audit", "parameters"])
def test_of_a_model(name, check):
    pass

def test_of_no_model():
    pass
"""


def run(folder, *options):
    """Run a suite in an interpreter of its own; return its exit code, the tests that passed, and what it printed."""
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-p", "test_models.sharding", "-rA", *options]
    environment = {"PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, env=environment)
    return done.returncode, re.findall(r"^PASSED (\S+)", done.stdout, re.MULTILINE), done.stdout + done.stderr


def test_two_interpreters_run_every_test_once_between_them(tmp_path):
    (tmp_path / "test_suite.py").write_text(SUITE, encoding="utf-8")
    code, whole, _ = run(tmp_path)
    assert (code, len(whole)) == (0, 22)
    one, two = (run(tmp_path, "--splits", "2", "--group", group) for group in "12")
    assert (one[0], two[0]) == (0, 0)
    assert sorted(one[1] + two[1]) == sorted(whole)
    models = [{re.search(r"\d+|of_no_model", test).group() for test in part[1]} for part in (one, two)]
    assert not models[0] & models[1], "a model's tests are in two parts"
    # Seven models of three tests each, and the test of none with the fewer models.
    assert sorted((len(one[1]), len(two[1]))) == [10, 12]


@pytest.mark.parametrize("group", ["0", "3", "-1"])
def test_a_part_that_is_none_is_refused_with_the_commands_to_type(tmp_path, group):
    code, _, said = run(tmp_path, "--splits", "2", "--group", group)
    assert code == pytest.ExitCode.USAGE_ERROR
    assert f"expected a part from 1 to 2, found {group}; start one run for each" in said


@pytest.mark.parametrize("splits", [1, 2, 3, 7])
def test_the_parts_of_this_suite_are_the_suite_and_no_case_is_in_two(request, splits):
    items = request.session.items
    parts = [part_of(items, splits, group) for group in range(1, splits + 1)]
    assert sorted(item.nodeid for part in parts for item in part) == sorted(item.nodeid for item in items)
    units = [unit for part in parts for unit in {unit_of(item) for item in part}]
    assert len(units) == len(set(units))


def test_the_tests_of_a_type_are_a_unit(request):
    given = ((item, getattr(item, "callspec", None)) for item in request.session.items)
    of_cases = [(item, spec.params["case"]) for item, spec in given if spec and "case" in spec.params]
    if not of_cases:
        pytest.skip("this run has no test of a case")
    assert all(unit_of(item) == case.model_type for item, case in of_cases)
