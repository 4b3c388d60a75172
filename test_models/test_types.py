"""Every type that Transformers builds: what its source shows, against the census; or the reason for refusing it."""

import pytest

from census import CensusError, measure
from census.golden import golden_path, read_golden
from test_models.case_table import CASES, MEASURED, census_of, in_group, unlike

READ = {name: case for name, case in MEASURED.items() if case.kinds}


@pytest.mark.parametrize("read", [pytest.param(case, id=name, marks=in_group(name)) for name, case in READ.items()])
def test_every_kind_of_a_type_runs_what_its_source_shows(read):
    census = census_of(read.name)
    ran = dict(zip(census.order, zip(census.stack, census.attention, strict=True), strict=True))
    for kind, stated in read.kinds.items():
        for layer in stated["layers"]:
            name, attention = ran[layer]
            measured = census.kinds[name]
            differing = unlike(stated["vector"], measured.ops)
            assert not differing, f"{kind}, layer {layer}: read, measured: {differing}: {measured.evidence}"
            if "attention" in stated:
                assert (attention, measured.shape.ffn) == (stated["attention"], stated["ffn"]), f"{kind}, layer {layer}"


@pytest.mark.pinned
@pytest.mark.parametrize("refused", [case for case in CASES.values() if case.refused], ids=str)
def test_a_type_that_census_cannot_state_is_refused_for_the_stated_reason(refused):
    with pytest.raises(CensusError) as refusal:
        measure(refused.new_config(), "default")
    assert refused.refused in " ".join(str(refusal.value).split())


def vectors(golden_root, cases):
    specs = [read_golden(golden_path(golden_root, case.model_type, case.name)).spec for case in cases]
    return {tuple(spec["ops"][group["kind"]].values()) for spec in specs for group in spec["layers"]}


@pytest.mark.parametrize("multimodal", [case for case in MEASURED.values() if case.language_model], ids=str)
def test_a_multimodal_types_language_model_runs_what_its_text_type_does(multimodal, golden_root):
    own = [case for case in MEASURED.values() if case.model_type == multimodal.language_model]
    if own:
        assert vectors(golden_root, [multimodal]) <= vectors(golden_root, own)


@pytest.mark.pinned
def test_every_type_that_transformers_maps_has_an_entry():
    from transformers.models.auto import modeling_auto

    mapped = {
        *modeling_auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES,
        *modeling_auto.MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES,
    }
    missing = sorted(mapped - {case.model_type for case in CASES.values()})
    assert not missing, f"new types: {', '.join(missing)}; for an entry to review: census draft {missing[0]}"
