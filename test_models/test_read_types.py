"""Op vectors by reading Transformers' modeling files, against the census of a small config of each type."""

import copy
from pathlib import Path

import pytest

from census import CensusError, strict_yaml
from census.measurement import forward, read_layer
from test_models.case_table import CASES

TYPES = strict_yaml.load(
    (Path(__file__).parent / "read_types.yaml").read_text(encoding="utf-8"), where="read_types.yaml", error=CensusError
)


def measured(model_type):
    """Return what each layer of a type's small config runs, by its index."""
    from transformers import CONFIG_MAPPING

    config = CONFIG_MAPPING[model_type](**copy.deepcopy(TYPES[model_type]["config"]))
    built, recording = forward(config, 48)
    first = {run: index for index, run in reversed(recording.executions)}
    read = {run: read_layer(built, recording, first[run], run) for run in range(len(recording.runs))}
    return {index: read[run] for index, run in recording.executions}


@pytest.mark.parametrize("model_type", [name for name, entry in TYPES.items() if "refused" not in entry])
def test_every_kind_of_a_type_runs_what_its_source_shows(model_type):
    layers = measured(model_type)
    for kind, stated in TYPES[model_type]["kinds"].items():
        for index in stated["layers"]:
            layer = layers[index]
            assert list(layer.ops.to_vector()) == stated["vector"], f"{kind}, layer {index}: {dict(layer.evidence)}"
            if "attention" in stated:
                assert (layer.shape.attention, layer.shape.ffn) == (stated["attention"], stated["ffn"]), kind


@pytest.mark.parametrize("model_type", [name for name, entry in TYPES.items() if "refused" in entry])
def test_a_type_that_census_cannot_state_is_refused_for_the_stated_reason(model_type):
    with pytest.raises(CensusError) as refusal:
        measured(model_type)
    assert TYPES[model_type]["refused"] in " ".join(str(refusal.value).split())


UNREAD = frozenset(
    """
    bigbird_pegasus ctrl doge dots3_note gemma3n hrm_text inkling2_loop_text internlm3 jetmoe kolibri1 lara_mini
    longcat_flash mbart minicpm3 minimax_m3_vl_text ministral3 modernbert-decoder moss_transcribe_diarize musicgen
    mvp openai-gpt pegasus prophetnet qwen4_exp_text reformer roberta roc_bert rwkv solar_open vaultgemma xglm
    xlm-roberta xlnet xmod zamba zaya
    """.split()
)
"""Causal-LM types whose modeling files nobody has read for this table yet."""


def test_every_causal_lm_type_has_a_case_was_read_or_is_known_to_be_unread():
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

    known = {case.model_type for case in CASES.values()} | set(TYPES)
    unknown = sorted(set(MODEL_FOR_CAUSAL_LM_MAPPING_NAMES) - known - UNREAD)
    assert not unknown, f"new types: {', '.join(unknown)}; add cases, or entries of read_types.yaml"
    assert not UNREAD & known, "read by now: take them out of UNREAD"
