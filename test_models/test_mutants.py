"""The suite is red for every planted fault, and says which field it is: `pytest -m mutants` prints the score."""

import functools
from contextlib import ExitStack
from pathlib import Path
from unittest.mock import patch

import pytest

from census import CensusError, measure
from census.counts import op_facts
from test_models import (
    case_table,
    test_audit,
    test_goldens,
    test_published_totals,
    test_reference_vectors,
    test_refusals,
    test_types,
    test_whole_layers,
)
from test_models.case_table import in_group
from test_models.families import FAMILIES
from test_models.golden_check import pin_of
from test_models.mutants import DATA, ENGINE, EQUIVALENT, LAYERS, MUTANTS, Mutant
from test_models.planting import Edit, planted

pytestmark = pytest.mark.mutants

CHECKS = {
    "golden": lambda case, root: pin_of(case, fresh(case), root).require(case.name),
    "golden's names": test_goldens.test_a_golden_names_the_case_and_the_type_it_was_measured_of,
    "no orphans": lambda _, root: test_goldens.test_every_golden_has_a_case(root),
    "audit": lambda case, _: test_audit.test_a_shipped_profile_agrees_with_every_case_of_its_family(case),
    "published": lambda case, _: test_published_totals.test_the_built_parameters_are_the_published_ones(case),
    "vector": lambda case, _: test_reference_vectors.test_every_kind_of_a_case_runs_the_vector_its_source_shows(case),
    "types": lambda case, _: test_types.test_every_kind_of_a_type_runs_what_its_source_shows(case),
    "every type": lambda *_: test_types.test_every_type_that_transformers_maps_has_an_entry(),
    "every parameter": lambda case, _: test_whole_layers.test_every_parameter_of_a_layer_is_in_what_ran(case),
    "every layer": lambda case, _: test_whole_layers.test_a_layer_that_runs_itself_states_what_its_representative_does(
        case
    ),
    "one kind": lambda *_: test_refusals.test_one_kind_for_two_layer_shapes_names_both_layers(),
}
"""The suite's own checks, as they stand in it; each takes a case and the folder of the goldens."""


def fresh(case):
    return measure(case.new_config(), case.arch, case.name)


@functools.cache
def red_unmutated(check, name):
    """Return what a check says of a case with nothing planted, asked once a process."""
    return failure_of(Mutant("", name, (), (), check), Path(), ())


def failure_of(mutant, folder, edits):
    """Return what a mutant's check says with some edits planted, None where it passes."""
    try:
        with ExitStack() as stack:
            tables = stack.enter_context(planted(edits, folder))
            measured = {name: case for name, case in tables.cases.items() if not case.refused}
            for module in (test_audit, test_reference_vectors, test_types):
                stack.enter_context(patch.object(module, "census_of", lambda name: fresh(tables.cases[name])))
            stack.enter_context(patch.object(test_types, "CASES", tables.cases))
            stack.enter_context(patch.object(test_goldens, "MEASURED", measured))
            CHECKS[mutant.check](tables.cases.get(mutant.case) or FAMILIES[mutant.case], tables.golden_root)
    except (AssertionError, CensusError, pytest.fail.Exception) as failure:
        return f"{type(failure).__name__}: {failure}"
    return None


def of_one_case(mutants):
    return [pytest.param(mutant, id=mutant.name, marks=in_group(mutant.case)) for mutant in mutants]


@pytest.mark.parametrize("mutant", of_one_case(MUTANTS))
def test_a_planted_fault_turns_its_check_red_which_names_the_field(mutant, tmp_path, record_property):
    record_property("mutant", mutant.name)
    cached = case_table.census_of.cache_info()
    before = red_unmutated(mutant.check, mutant.case)
    assert before is None, f"red before anything was planted: {before}"
    found = failure_of(mutant, tmp_path / "planted", mutant.edits)
    after = failure_of(mutant, tmp_path / "after", ())
    assert found is not None, (
        f"SURVIVED: {mutant}: its check ({mutant.check}) passes; expected it to name {mutant.names}"
    )
    unnamed = [text for text in mutant.names if text not in found]
    assert not unnamed, f"SURVIVED: {mutant}: expected the failure to name {unnamed}, found {found}"
    assert after is None, f"left behind: {after}"
    assert case_table.census_of.cache_info() == cached, "a mutant was measured into the cache of the suite"


@pytest.mark.parametrize("equal", of_one_case(EQUIVALENT))
def test_code_that_runs_the_same_counts_is_measured_the_same(equal, tmp_path):
    assert failure_of(equal, tmp_path, equal.edits) is None


def test_the_set_is_as_large_as_it_is_said_to_be_and_names_each_mutant_once():
    names = [mutant.name for mutant in (*MUTANTS, *EQUIVALENT)]
    assert len(names) == len(set(names))
    assert min(len(LAYERS), len(DATA), len(ENGINE)) >= 30
    assert all(mutant.names for mutant in MUTANTS)


def plant_and_raise(edit, folder):
    with planted([edit], folder):
        assert op_facts.__code__ is not OP_FACTS
        raise KeyError("raised")


OP_FACTS = op_facts.__code__


def test_an_edit_of_a_text_that_is_not_there_is_no_mutant(tmp_path):
    with pytest.raises(ValueError, match="expected 1 of 'no such text', found 0"):
        plant_and_raise(Edit("census.counts:op_facts", "no such text", ""), tmp_path)
    assert op_facts.__code__ is OP_FACTS


def test_a_fault_is_undone_where_its_check_raises(tmp_path):
    with pytest.raises(KeyError, match="raised"):
        plant_and_raise(Edit("census.counts:op_facts", "_listed(recurrences)", "_listed(())"), tmp_path)
    assert op_facts.__code__ is OP_FACTS
