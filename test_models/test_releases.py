"""The tables of what older Transformers have and build are what the installed one says, and rows are well formed."""

import pytest

from census.errors import CensusError
from census.golden import golden_path, read_golden
from census.spec import ModelSpec
from test_models.case_table import CASES, MEASURED
from test_models.first_releases import first_releases, numbers
from test_models.older_releases import OlderRow, goldens_release, installed, missing, older_row, older_rows


def test_the_installed_transformers_has_the_types_of_its_release_and_lacks_the_later_ones():
    from transformers import CONFIG_MAPPING

    later = {name for name, first in first_releases().items() if numbers(first) > installed()}
    types = {case.model_type for case in CASES.values()}
    assert {name for name in types if name not in CONFIG_MAPPING} == later
    assert {name for name in types if missing(name)} == later


def test_a_row_states_a_difference_or_a_refusal_of_a_case_that_is_measured():
    for case, rows in older_rows().items():
        assert case in MEASURED
        releases = [numbers(row.before) for row in rows]
        assert releases == sorted(set(releases))
        assert all(bool(row.differs) != bool(row.refused) for row in rows)


def test_what_an_older_release_builds_is_a_spec_and_not_the_goldens(golden_root):
    for case, rows in older_rows().items():
        golden = read_golden(golden_path(golden_root, MEASURED[case].model_type, case)).spec
        for row in rows:
            if row.differs:
                built = row.as_built(golden)
                assert built != golden
                assert ModelSpec.from_dict(built).to_dict() == built


def test_the_first_row_that_holds_is_taken():
    rows = older_rows()["moshi-small"]
    assert older_row("moshi-small", (5, 0, 0)) is rows[0]
    assert older_row("moshi-small", numbers(rows[-1].before)) is None
    assert older_row("moshi-small", goldens_release()) is None


def test_a_row_of_a_field_that_the_golden_does_not_have_is_an_error():
    with pytest.raises(KeyError):
        OlderRow("5.1.0", {"kinds.dense.head_dim": "absent"}).as_built({"kinds": {}})


def test_tables_are_read_strictly(tmp_path, monkeypatch):
    from test_models import older_releases

    broken = tmp_path / "rows.yaml"
    broken.write_text("a: 1\na: 2\n", encoding="utf-8")
    monkeypatch.setattr(older_releases, "TABLE", broken)
    with pytest.raises(CensusError):
        older_rows.__wrapped__()
