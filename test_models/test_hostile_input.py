"""What is broken or hostile is refused by a typed error, at once, with nothing executed and nothing written."""

import json
import os
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from census import CensusError, ConfigError, bounds, measure, strict_yaml
from census.case_files import cases_here
from census.compare import read_compared
from census.config import load_config
from census.config_file import check_sizes
from census.errors import GoldenError, ModelSpecError
from census.golden import golden_path, read_golden
from census.op_profile import load_op_profile, parse_op_profile
from census.spec import ModelSpec
from test_models.case_table import MEASURED
from test_models.families import FAMILIES
from test_models.older_releases import not_as_pinned

GOLDENS = Path(__file__).parents[1] / "golden_specs"
GOLDEN = (GOLDENS / "llama" / "llama-3.1-8b.yaml").read_text()
PROFILE = (Path(bounds.__file__).parent / "profiles" / "moe.yaml").read_text()
LLAMA = {"model_type": "llama", **FAMILIES["llama"].config}
CONFIGS = [{"model_type": name, **family.config} for name, family in FAMILIES.items()]

DEEP = settings().max_examples > 100
MANY, MOST = (settings(max_examples=times if DEEP else settings().max_examples) for times in (5_000, 50_000))
"""How many changed files are read, and how many changed configs are built and measured."""

READERS = {
    "a config": ("config.json", load_config),
    "a profile": ("mine.yaml", load_op_profile),
    "a golden": ("golden.yaml", lambda path: read_golden(Path(path))),
    "a YAML file to compare": ("spec.yaml", read_compared),
    "a JSON file to compare": ("spec.json", read_compared),
}

SECONDS = 4
"""Far more than a refusal takes, and less than a person waits."""


def refused(read, *arguments):
    """Return the message of the typed error that a call raises in time."""
    start = time.process_time()
    with pytest.raises(CensusError) as caught:
        read(*arguments)
    assert time.process_time() - start < SECONDS
    message = str(caught.value)
    assert len(message) < 3000
    return message


BYTES = {
    "nothing": b"",
    "blanks": b" \n\t",
    "random bytes": bytes(range(256)),
    "UTF-16": '{"model_type": "llama"}'.encode("utf-16"),
    "a byte order mark alone": b"\xef\xbb\xbf",
    "NUL bytes": b"\x00" * 64,
    "a NUL in a text": b'{"model_type": "lla\x00ma"}',
    "a truncated file": b'{"model_type": "llama", "hidden_size": 6',
    "a scalar": b"5",
    "a list": b"[1, 2]",
    "no end of lists": b"[" * 500_000,
    "no end of mappings": b'{"a":' * 100_000,
    "a key twice": b'{"model_type": "llama", "model_type": "gpt2"}',
    "a bomb of aliases": b"a: &a [x, x]\nb: &b [*a, *a]\nc: [*b, *b]\n",
    "a merge key": b"a: &a {b: 1}\nc:\n  <<: *a\n",
    "a tag": b"a: !!python/object/apply:os.system ['touch /nowhere']\n",
    "a tag of numpy": b"!!python/object/new:numpy.ndarray []\n",
    "several documents": b"a: 1\n---\nb: 2\n",
    "a number of many digits": b'{"num_hidden_layers": ' + b"9" * 5000 + b', "vocab_size": 5}',
    "many flat numbers": b"[" + b"1," * 400_000 + b"1]",
    "a long word": b'{"model_type": "' + b"x" * 900_000 + b'"}',
    "a file beyond every bound": b" " * (bounds.MAX_CONFIG_BYTES + 1),
}


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("content", BYTES)
def test_a_file_of_no_form_is_refused(tmp_path, reader, content):
    name, read = READERS[reader]
    (tmp_path / name).write_bytes(BYTES[content])
    refused(read, str(tmp_path / name))
    assert [path.name for path in tmp_path.iterdir()] == [name]


@pytest.mark.parametrize("reader", READERS)
def test_what_is_no_regular_file_is_refused_and_never_waited_for(tmp_path, reader):
    name, read = READERS[reader]
    path = tmp_path / name
    places = []
    os.mkfifo(path)
    places.append(path)
    for other in ("folder", "self", "dangling"):
        (tmp_path / other).mkdir()
        places.append(tmp_path / other / name)
    (tmp_path / "folder" / name).mkdir()
    (tmp_path / "self" / name).symlink_to(name)
    (tmp_path / "dangling" / name).symlink_to("nowhere")
    for place in [
        *places,
        Path("/dev/zero"),
        tmp_path / "x\x00y",
        tmp_path / ("n" * 5000),
        tmp_path / "missing" / name,
    ]:
        refused(read, str(place))


@pytest.mark.parametrize("reader", READERS)
def test_an_unreadable_file_is_refused(tmp_path, monkeypatch, reader):
    name, read = READERS[reader]
    (tmp_path / name).write_text("{}")

    def denied(*_):
        raise PermissionError(13, "Permission denied")

    # Root may read every file, so it is the system call that refuses.
    with monkeypatch.context() as patch:
        patch.setattr(os, "open", denied)
        message = refused(read, str(tmp_path / name))
    assert "found Permission denied" in message


VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.integers(-2, 70)
    | st.sampled_from([-1, 0, 10**9, 10**15, 10**30, 10**60, 2**63])
    | st.floats()
    | st.text(max_size=8),
    lambda part: st.lists(part, max_size=4) | st.dictionaries(st.text(max_size=8), part, max_size=4),
    max_leaves=6,
)


def paths_of(data, path=()):
    """Return the path of every value in nested data."""
    yield path
    items = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ()
    for key, value in items:
        yield from paths_of(value, (*path, key))


def replaced(data, path, value):
    """Return nested data with the value at one path replaced."""
    if not path:
        return value
    copied = dict(data) if isinstance(data, dict) else list(data)
    copied[path[0]] = replaced(data[path[0]], path[1:], value)
    return copied


def changes_of(data):
    return st.tuples(st.sampled_from(list(paths_of(data))), VALUES).map(lambda change: replaced(data, *change))


def loaded(text):
    return strict_yaml.load(text, "text", GoldenError)


def takes_or_refuses(read, *arguments):
    """A hostile value may be a right one; what may not be is another error than a typed one."""
    try:
        return read(*arguments)
    except CensusError:
        return None


@MANY
@given(changes_of(loaded(PROFILE)))
def test_a_profile_with_any_value_anywhere_is_a_profile_or_refused(data):
    takes_or_refuses(lambda: parse_op_profile(strict_yaml.dump(data), "mine", "mine.yaml"))


@MANY
@given(changes_of(loaded(GOLDEN)))
def test_a_golden_with_any_value_anywhere_is_a_golden_or_refused(tmp_path_factory, data):
    path = tmp_path_factory.getbasetemp() / "golden.yaml"
    path.write_text(strict_yaml.dump(data), encoding="utf-8")
    golden = takes_or_refuses(read_golden, path)
    assert golden is None or golden.pinned


@MANY
@given(changes_of(loaded(GOLDEN)["spec"]))
def test_a_spec_with_any_value_anywhere_is_a_spec_or_refused(data):
    try:
        spec = ModelSpec.from_dict(data)
    except ModelSpecError:
        return
    assert spec.to_dict() == data


@MANY
@given(st.binary(max_size=300) | st.text(max_size=300).map(str.encode))
def test_random_bytes_are_refused_by_every_reader(tmp_path_factory, content):
    for name, read in READERS.values():
        path = tmp_path_factory.getbasetemp() / name
        path.write_bytes(content)
        takes_or_refuses(read, str(path))


@MOST
@given(st.sampled_from(CONFIGS).flatmap(changes_of))
def test_a_config_with_any_value_anywhere_is_measured_or_refused(tmp_path_factory, data):
    path = tmp_path_factory.getbasetemp() / "config.json"
    path.write_text(json.dumps(data), encoding="utf-8")
    takes_or_refuses(lambda: measure(load_config(path), "default"))


TOO_LARGE = {
    "layers": ("llama", {"num_hidden_layers": 10**9}),
    "layers of another name": ("gpt2", {"n_layer": 10**9}),
    "experts": ("mixtral", {"num_local_experts": 10**9}),
    "experts of all layers": ("mixtral", {"num_local_experts": 60_000, "num_hidden_layers": 4000}),
    "width": ("llama", {"hidden_size": 10**15}),
    "vocabulary": ("llama", {"vocab_size": 10**400}),
}


@pytest.mark.parametrize("size", TOO_LARGE)
def test_a_config_too_large_to_build_is_refused_before_it_is_built(tmp_path, monkeypatch, size):
    def built(*_):
        raise AssertionError("something was built")

    model_type, changes = TOO_LARGE[size]
    config = FAMILIES[model_type].new_config()
    for name, value in changes.items():
        setattr(config, name, value)
    monkeypatch.setattr("census.build._from_config", built)
    assert "expected at most" in refused(measure, config)
    (tmp_path / "config.json").write_text(
        json.dumps({**FAMILIES[model_type].config, **changes, "model_type": model_type})
    )
    assert "expected at most" in refused(load_config, tmp_path)


def test_no_measured_case_is_beyond_a_bound():
    for case in (case for case in MEASURED.values() if not not_as_pinned(case)):
        check_sizes(vars(case.config_object), case.name)


ELSEWHERE = ("../x", "a/../../x", "/x", "..", ".", "", "a/b", "a\x00b", "a\n", ".hidden", "x" * 300)


@pytest.mark.parametrize("name", ELSEWHERE, ids=range(len(ELSEWHERE)))
def test_no_name_of_a_case_or_a_type_leads_out_of_the_folder_of_goldens(tmp_path, name):
    for model_type, case in ((name, "case"), ("llama", name)):
        with pytest.raises(GoldenError, match="rename the case"):
            golden_path(tmp_path, model_type, case)


def test_every_golden_lies_where_its_names_say():
    for path in GOLDENS.glob("*/*.yaml"):
        assert golden_path(GOLDENS, path.parent.name, path.stem) == path


def test_a_model_type_that_is_a_path_reads_no_file(tmp_path, monkeypatch):
    (tmp_path / "config.json").write_text(json.dumps({**LLAMA, "model_type": "../llama"}))
    assert "expected a model type" in refused(load_config, tmp_path)


def test_a_profile_name_that_is_a_path_reads_that_file_alone(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("../profiles/moe", "profiles/moe.yaml", "moe/../moe"):
        assert "expected a known family or the file of a profile" in refused(load_op_profile, name)


@pytest.mark.parametrize("text", ["5\n", "a: 5\n", "a: [1\n", "a: &x {}\n"])
def test_broken_cases_are_refused(tmp_path, monkeypatch, text):
    (tmp_path / "test_models" / "cases").mkdir(parents=True)
    (tmp_path / "test_models" / "cases" / "mine.yaml").write_text(text)
    monkeypatch.chdir(tmp_path)
    refused(cases_here, {"moe"})


def test_code_that_lies_beside_a_config_is_never_run(tmp_path, monkeypatch):
    mark = tmp_path / "mark"
    folder = tmp_path / "model"
    folder.mkdir()
    for module in ("modeling_mine", "configuration_mine", "sitecustomize", "transformers", "llama"):
        (folder / f"{module}.py").write_text(f"open({str(mark)!r}, 'w')\nclass Config: ...\nclass Model: ...\n")
    auto_map = {"AutoConfig": "configuration_mine.Config", "AutoModelForCausalLM": "modeling_mine.Model"}
    config = {**LLAMA, "auto_map": auto_map, "trust_remote_code": True}
    monkeypatch.chdir(folder)
    for name in ("TRUST_REMOTE_CODE", "HF_TRUST_REMOTE_CODE", "TRANSFORMERS_TRUST_REMOTE_CODE"):
        monkeypatch.setenv(name, "1")
    (folder / "config.json").write_text(json.dumps(config))
    assert measure(load_config(folder), "default").spec["num_hidden_layers"] == 2
    (folder / "config.json").write_text(json.dumps({**config, "model_type": "mine"}))
    with pytest.raises(ConfigError, match="remote code"):
        load_config(folder)
    assert not mark.exists()
