"""What is measured is what the goldens pin, and each golden has its case."""

import pytest

from census.golden import golden_path, read_golden
from test_models.case_table import MEASURED
from test_models.older_releases import not_as_pinned
from test_models.routes import routes_of


def test_a_case_is_what_its_golden_pins(case, check_golden):
    check_golden(case)


def test_every_golden_has_a_case(golden_root):
    expected = {golden_path(golden_root, case.model_type, name) for name, case in MEASURED.items()}
    orphans = sorted(str(path) for path in set(golden_root.rglob("*")) - expected if path.is_file())
    assert not orphans, f"goldens without a case: {', '.join(orphans)}; delete them, or add their cases"


def test_a_golden_names_the_case_and_the_type_it_was_measured_of(case, golden_root):
    golden = read_golden(golden_path(golden_root, case.model_type, case.name))
    assert (golden.case, golden.model_type, golden.spec["name"]) == (case.name, case.model_type, case.name)


@pytest.mark.xdist_group("grouped")
def test_tests_of_a_group_run_in_one_worker(request):
    if not hasattr(request.config, "workerinput"):
        pytest.skip("no workers: the suite runs in one process")
    assert request.node.nodeid.endswith("@grouped"), "pytest and pytest-xdist no longer agree on a group's mark"


def test_three_routes_or_more_vouch_for_95_goldens_of_100():
    routes = [len(routes_of(case)) for case in MEASURED.values() if not not_as_pinned(case)]
    assert sum(number >= 3 for number in routes) >= 0.95 * len(routes)
