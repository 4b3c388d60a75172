"""An audit finds what a profile states wrongly, and finds nothing in the shipped ones."""

from pathlib import Path

import pytest

from census import audit_rows, known_archs, load_op_profile, measure
from census.audit import unmeasured_kinds
from census.golden import golden_path, read_golden
from test_models.case_table import MEASURED, census_of
from test_models.families import FAMILIES

OLD_MIXTRAL = Path(__file__).parents[1] / "docs" / "mixtral_old.yaml"


def differing(profile, census):
    return {(row.kind, row.op): (row.stated, row.measured) for row in audit_rows(profile, "m", census.kinds)
            if not row.agrees}  # fmt: skip


def test_a_shipped_profile_agrees_with_every_case_of_its_family(case):
    assert differing(load_op_profile(case.arch), census_of(case.name)) == {}


def test_mixtrals_old_profile_states_three_norms_and_one_softmax_too_many():
    profile = load_op_profile(OLD_MIXTRAL)
    census = measure(FAMILIES["mixtral"].new_config(), profile)
    assert differing(profile, census) == {("decoder", "normOp"): (5, 2), ("decoder", "softmax"): (2, 1)}


def test_an_audit_row_carries_the_evidence():
    census = FAMILIES["mixtral"].measure()
    evidence = {row.op: row.evidence for row in audit_rows(load_op_profile("mixtral"), "m", census.kinds)}
    assert evidence["normOp"] == "input_layernorm; post_attention_layernorm"
    assert evidence["softmax"] == "self_attn: score kernel"


def test_kinds_that_no_model_exercised_are_named():
    assert unmeasured_kinds(load_op_profile("deepseek"), {"dense"}) == ["moe"]


UNMEASURED = {
    "cm": "no published model of the family is built by Transformers",
    "pangualpha": "no model of the family is built by Transformers",
    "vision": "towers are held against it in test_towers.py",
}


@pytest.mark.parametrize("arch", [arch for arch in known_archs() if arch not in UNMEASURED])
def test_every_kind_of_a_measured_family_has_a_case(arch, golden_root):
    cases = [case for case in MEASURED.values() if case.arch == arch]
    specs = [read_golden(golden_path(golden_root, case.model_type, case.name)).spec for case in cases]
    kinds = {group["kind"] for spec in specs for group in spec["layers"]}
    assert unmeasured_kinds(load_op_profile(arch), kinds) == []


def test_a_family_is_called_unmeasured_only_while_no_case_measures_it():
    assert not {case.arch for case in MEASURED.values()} & set(UNMEASURED)
