"""The schemas say what census's own readers say: of every file there is, and of files with one thing wrong."""

import copy
import json
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from census import ModelSpec, strict_yaml
from census.cli import main
from census.errors import CensusError
from census.golden import read_golden
from census.op_profile import parse_op_profile
from census.schema import FOLDER, schemas

ROOT = Path(__file__).parents[1]
VALIDATORS = {name: Draft202012Validator(schema) for name, schema in schemas().items()}
GOLDENS = sorted((ROOT / "golden_specs").rglob("*.yaml"))
PROFILES = sorted((ROOT / "census" / "profiles").glob("*.yaml"))


def data(path):
    return yaml.load(path.read_text(encoding="utf-8"), yaml.CSafeLoader)


@pytest.mark.parametrize("name", VALIDATORS)
def test_the_file_is_what_the_classes_say_and_what_the_command_prints(name, capsys):
    """A change of a class changes the file: census schema NAME > census/schemas/NAME.json."""
    assert main(["schema", name]) == 0
    assert (FOLDER / f"{name}.json").read_text(encoding="utf-8") == capsys.readouterr().out
    Draft202012Validator.check_schema(schemas()[name])


def test_every_golden_and_every_profile_is_valid():
    assert GOLDENS and PROFILES
    for name, paths in (("golden", GOLDENS), ("profile", PROFILES)):
        for path in paths:
            assert [error.message for error in VALIDATORS[name].iter_errors(data(path))] == [], path


def test_what_show_prints_as_json_is_valid(capsys):
    assert main(["show", "mixtral", "--format", "json"]) == 0
    VALIDATORS["spec"].validate(json.loads(capsys.readouterr().out))


def read_spec(document, _):
    ModelSpec.from_dict(document)


def read_profile(document, _):
    parse_op_profile(strict_yaml.dump(document), "mine", "mine.yaml")


def read_golden_file(document, folder):
    path = folder / "golden.yaml"
    path.write_text(strict_yaml.dump(document))
    read_golden(path)


READERS = {"spec": read_spec, "profile": read_profile, "golden": read_golden_file}
RICHEST = max(GOLDENS, key=lambda path: len(set(path.read_text(encoding="utf-8").split())))
DOCUMENTS = {
    "spec": data(RICHEST)["spec"],
    "golden": data(RICHEST),
    "profile": {
        "kinds": {
            "full": {**data(ROOT / "census/profiles/mixtral.yaml")["kinds"]["decoder"], "attention": "full", "norms": 2,
                     "optional": ["relative_attention_bias"]},
        },
        "default": "full",
    },
}  # fmt: skip


def refused(name, document, folder):
    """Return whether the schema, and whether census's reader, refuses a document."""
    try:
        READERS[name](document, folder)
    except CensusError:
        return not VALIDATORS[name].is_valid(document), True
    return not VALIDATORS[name].is_valid(document), False


OPS = {"spec": ("ops",), "golden": ("spec", "ops"), "profile": ("kinds", "full", "ops")}
BROKEN = {
    "a missing op": lambda ops: ops.pop("attMM"),
    "an unknown op": lambda ops: ops.update(attNN=1),
    "a negative count": lambda ops: ops.update(attMM=-1),
    "a bool for a count": lambda ops: ops.update(attMM=True),
    "text for a count": lambda ops: ops.update(attMM="4"),
    "a fraction": lambda ops: ops.update(attMM=1.5),
    "null": lambda ops: ops.update(attMM=None),
}


@pytest.mark.parametrize("name", READERS)
@pytest.mark.parametrize("fault", BROKEN)
def test_a_fault_is_refused_by_both(name, fault, tmp_path):
    document = copy.deepcopy(DOCUMENTS[name])
    found = document
    for key in OPS[name]:
        found = found[key]
    BROKEN[fault](found if "attMM" in found else next(iter(found.values())))
    assert refused(name, document, tmp_path) == (True, True)


@pytest.mark.parametrize("name", READERS)
def test_what_is_whole_is_refused_by_neither(name, tmp_path):
    assert refused(name, DOCUMENTS[name], tmp_path) == (False, False)


@pytest.mark.parametrize("norms", [True, None, 2.5, "2"])
def test_a_kinds_norms_are_a_count_to_both(norms, tmp_path):
    document = copy.deepcopy(DOCUMENTS["profile"])
    kind = document["kinds"]["full"]
    kind["ops"]["normOp"] = 1
    kind["norms"] = norms
    assert refused("profile", document, tmp_path) == (True, True)


def places(value, path=()):
    yield path
    if isinstance(value, dict | list):
        for key in value if isinstance(value, dict) else range(len(value)):
            yield from places(value[key], (*path, key))


# What replaces a value: mostly wrong in its type, sometimes right.
WRONG = st.sampled_from([None, True, -1, 0, 1.5, "", "text", [], {}, [-1], {"x": -1}, {"x": None}])


@pytest.mark.parametrize("name", READERS)
@given(drawn=st.data())
def test_what_the_schema_refuses_the_reader_refuses(name, drawn, tmp_path_factory):
    document = copy.deepcopy(DOCUMENTS[name])
    *above, last = drawn.draw(st.sampled_from([path for path in places(document) if path]))
    found = document
    for key in above:
        found = found[key]
    found[last] = drawn.draw(WRONG)
    by_schema, by_reader = refused(name, document, tmp_path_factory.getbasetemp())
    # The other way does not hold: a reader knows rules between fields, too.
    assert by_reader or not by_schema
