"""The case table: published models and model types as data, one entry each, read from `cases/*.yaml`."""

from __future__ import annotations

import copy
import functools
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from census import strict_yaml
from census.config import text_config
from census.coverage import ModelType
from census.errors import CensusError
from census.golden import golden_path, read_golden
from census.op_counts import OPS, OpCounts

if TYPE_CHECKING:
    from transformers import PretrainedConfig

    from census import ModelCensus

FOLDER = Path(__file__).parent / "cases"

COUNTED = ("parameters", "parameters + persistent buffers", "state dict")


class CaseError(CensusError):
    """An entry of the case table is broken."""


@dataclass(frozen=True)
class Parameters:
    """A published parameter total: what it counts, and what it counts that Transformers does not build."""

    published: int
    source: str
    counted: str
    terms: tuple[Mapping[str, Any], ...] = ()


@dataclass(frozen=True)
class Case:
    """One model, as facts of its config with their source: a published one, or a small one of a type.

    Attributes:
        name, group: its key, and the file it stands in.
        model_type, config: the Transformers config, by its fields.
        source: where the facts are from; of a type, where its layers were read.
        arch: the family, absent where census cannot state the type.
        model: the published model's name, absent for a type's small config.
        parameters: the published parameter total.
        resolver_differs: why the resolver reads a field of it otherwise, by field.
        kinds: what a person read in the modeling file: by a name, layers of the config with their flavours and vector.
        language_model: the type whose layers a multimodal type's language model has, where it is another.
        refused: part of the reason why census cannot state it.
    """

    name: str
    group: str
    model_type: str
    config: Mapping[str, Any]
    source: str
    arch: str = ""
    model: str = ""
    parameters: Parameters | None = None
    resolver_differs: Mapping[str, str] = field(default_factory=dict)
    kinds: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    language_model: str = ""
    refused: str = ""

    def __str__(self) -> str:
        return self.name

    def new_config(self) -> PretrainedConfig:
        """Return the case's Transformers config, made afresh."""
        from transformers import CONFIG_MAPPING

        config: PretrainedConfig = CONFIG_MAPPING[self.model_type](**copy.deepcopy(dict(self.config)))
        return config

    @functools.cached_property
    def keys(self) -> frozenset[str]:
        """What a table may know the case by: its name, its model type, the type of its language model."""
        return frozenset({self.name, self.model_type, text_config(self.config_object).model_type})

    @functools.cached_property
    def config_object(self) -> PretrainedConfig:
        """The case's config; shared, so not to be changed."""
        return self.new_config()


def load_cases(folder: Path = FOLDER) -> dict[str, Case]:
    """Return every case by name, sorted by name."""
    cases: dict[str, Case] = {}
    for path in sorted(folder.glob("*.yaml")):
        entries = strict_yaml.load(path.read_text(encoding="utf-8"), where=str(path), error=CaseError)
        assert isinstance(entries, dict), f"{path}: expected a mapping of cases"
        for name, entry in entries.items():
            if name in cases:
                raise CaseError(f"{path}: expected a new name, found {name} again; name each case once")
            cases[name] = _case(name, path.stem, entry)
    return dict(sorted(cases.items()))


def _case(name: str, group: str, entry: dict[str, Any]) -> Case:
    parameters = entry.pop("parameters", None)
    try:
        if parameters is not None:
            parameters = Parameters(**{**parameters, "terms": tuple(parameters.get("terms", ()))})
        case = Case(name=name, group=group, parameters=parameters, **entry)
    except TypeError as error:
        raise CaseError(f"{name}: expected the fields of a case, found others ({error})") from error
    if parameters is not None and parameters.counted not in COUNTED:
        raise CaseError(f"{name}: parameters.counted: expected one of {COUNTED}, found {parameters.counted}")
    return case


CASES = load_cases()
MEASURED = {name: case for name, case in CASES.items() if not case.refused}
PUBLISHED = {name: case for name, case in CASES.items() if case.model}


def in_group(name: str) -> pytest.MarkDecorator:
    """Return the mark of a test of a case: those of one model type run in one worker.

    It imports the type's file once, measures each case once, and runs on fake tensors once what they have in common.
    """
    # A fault may be planted in the model of a small family, which is named as its type.
    return pytest.mark.xdist_group(CASES[name].model_type if name in CASES else name)


@functools.cache
def census_of(name: str) -> ModelCensus:
    """Return a case's census, measured once a process."""
    from census import measure

    case = CASES[name]
    return measure(case.config_object, case.arch, case.name)


def unlike(read: Sequence[int], measured: OpCounts) -> dict[str, tuple[int, int]]:
    """Return the ops of which a vector that was read states another count than was measured: read, measured."""
    pairs = zip(OPS, zip(read, measured.to_vector(), strict=True), strict=True)
    return {op: pair for op, pair in pairs if pair[0] != pair[1]}


def coverage(golden_root: Path) -> dict[str, ModelType]:
    """Return what the cases and their goldens say of each model type: what `census/model_types.yaml` holds."""
    maps = _maps()
    return {
        name: _coverage_of(name, maps.get(name, ("text",)), golden_root)
        for name in sorted({case.model_type for case in CASES.values()})
    }


def _maps() -> dict[str, tuple[str, ...]]:
    from transformers.models.auto import modeling_auto

    named = {
        "causal-lm": modeling_auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES,
        "image-text-to-text": modeling_auto.MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES,
        "seq2seq-lm": modeling_auto.MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES,
    }
    return {
        kind: tuple(name for name, held in named.items() if kind in held) for held in named.values() for kind in held
    }


def _coverage_of(name: str, maps: tuple[str, ...], golden_root: Path) -> ModelType:
    cases = [case for case in CASES.values() if case.model_type == name]
    measured = [case for case in cases if not case.refused]
    families = Counter(case.arch for case in measured)
    specs = [read_golden(golden_path(golden_root, name, case.name)).spec for case in measured]
    mixers = {mixer for spec in specs for kind in spec["kinds"].values() for mixer in kind.get("mixers", ())}
    return ModelType(
        name,
        maps,
        tuple(sorted(families, key=lambda arch: (-families[arch], arch))),
        tuple(sorted(mixers)),
        len(measured),
        "" if measured else cases[0].refused,
    )
