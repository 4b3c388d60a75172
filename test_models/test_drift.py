"""What `census drift` says of a Transformers that somebody altered, of releases that are missing, and of two sides."""

import json
import os
import shutil
import sys
from pathlib import Path

import pytest
import torch

from census import drift as drift_module
from census.cli import main
from census.drift import CaseDrift, Change, Drift, Side, compare_case
from census.drift_cases import drift_cases
from census.drift_environments import cache_folder, environment
from census.drift_report import drift_text
from census.errors import DriftError
from census.recorder import FunctionListener, Recorder

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def altered(tmp_path_factory):
    """A Transformers whose GPT-NeoX normalizes its feed-forward's input no more; all else is the installed one's."""
    import transformers

    folder = tmp_path_factory.mktemp("altered")
    shutil.copytree(Path(transformers.__file__).parent, folder / "transformers", copy_function=os.symlink)
    file = folder / "transformers" / "models" / "gpt_neox" / "modeling_gpt_neox.py"
    text = file.read_text(encoding="utf-8")
    norm = "self.mlp(self.post_attention_layernorm(hidden_states))"
    assert text.count(norm) == 1
    file.unlink()
    file.write_text(text.replace(norm, "self.mlp(hidden_states)"), encoding="utf-8")
    return folder


@pytest.mark.xdist_group("drift")
def test_a_norm_taken_out_of_a_modeling_file_is_reported_with_its_field_and_module(
    altered, capfd, monkeypatch, tmp_path
):
    import transformers

    monkeypatch.chdir(tmp_path)
    arguments = ["--from", transformers.__version__, "--to", str(altered), "--types", "gpt_neox", "--format", "json"]
    assert main(["drift", *arguments]) == 1
    [case] = json.loads(capfd.readouterr().out)["cases"]
    assert (case["case"], case["state"]) == ("gpt_neox", "changed")
    changes = {change["field"]: change for change in case["changes"]}
    norms = changes["ops.decoder.normOp"]
    assert norms["values"] == [2, 1]
    assert norms["evidence"] == ["input_layernorm; post_attention_layernorm", "input_layernorm"]
    for [place] in norms["places"]:
        # torch's own norms are told by the module of a modeling file that holds them.
        assert place.startswith("gpt_neox.layers.0 (transformers/models/gpt_neox/modeling_gpt_neox.py:")
    assert {"layer_norms", "kinds.decoder.layer_norms"} <= changes.keys()
    assert not any(path.startswith("kinds.decoder.projections") for path in changes)


def _side(label, **results):
    return Side(label, {"transformers": label}, results)


def _spec(**fields):
    return {"spec": {"name": "m", "hidden_size": 8, **fields}, "explanations": [], "left_out": {}}


@pytest.mark.parametrize(
    ("one", "other", "state"),
    [
        (_spec(), _spec(), "equal"),
        (_spec(head_dim=4), _spec(head_dim=8), "changed"),
        ({"absent": "no model type m"}, _spec(), "new"),
        (_spec(), {"absent": "no model type m"}, "gone"),
        (_spec(), {"failed": "it does not run"}, "failed"),
        ({"failed": "it does not run"}, {"failed": "it does not run"}, "failed"),
    ],
)
def test_a_case_is_one_of_five_states(one, other, state):
    assert compare_case("m", "m", _side("5.0.0", m=one), _side("5.1.0", m=other)).state == state


def test_nothing_is_said_of_a_model_type_that_neither_release_has():
    absent = {"absent": "no model type m"}
    assert compare_case("m", "m", _side("5.0.0", m=absent), _side("5.1.0", m=absent)) is None


def test_a_part_that_one_side_alone_states_is_one_change():
    tower = {"hidden_size": 16, "num_hidden_layers": 2, "kinds": {"decoder": {"head_dim": 4}}}
    said = compare_case("m", "m", _side("5.0.0", m=_spec()), _side("5.1.0", m=_spec(vision=tower)))
    assert [(change.field, change.values) for change in said.changes] == [("vision", ("absent", "stated"))]


def test_a_failure_says_which_release_could_not_and_why():
    said = compare_case("m", "m", _side("5.0.0", m={"failed": "no"}), _side("5.1.0", m=_spec()))
    assert said.reasons == {"5.0.0": "no"}


class _Releases:
    """Releases in which each case changes once: stands for the environments and their processes."""

    def __init__(self, known, head_dims):
        self.known, self.head_dims, self.measured = known, head_dims, []

    def side(self, made, cases, explain=False):
        self.measured.append(made)
        place = self.known.index(made)
        return _side(made, **{name: _spec(head_dim=4 if place < self.head_dims[name] else 8) for name in cases})


def test_a_search_names_the_release_of_each_change_and_measures_a_few(monkeypatch):
    known = [f"5.{minor}.0" for minor in range(16)]
    releases = _Releases(known, {"a": 3, "b": 11})
    monkeypatch.setattr(drift_module, "environment", lambda package, release: release)
    monkeypatch.setattr(drift_module, "measure_side", releases.side)
    monkeypatch.setattr(drift_module, "releases_between", lambda package, one, other: known)
    cases = {name: {"model_type": name, "config": {}, "arch": None} for name in ("a", "b")}
    found = drift_module.drift("transformers", known[0], known[-1], cases, lambda line: None, search=True)
    assert {case.case: [change.first for change in case.changes] for case in found.cases} == {
        "a": ["5.3.0"],
        "b": ["5.11.0"],
    }
    assert len(releases.measured) <= 2 + 2 * 4


def test_a_checkouts_cases_are_those_of_its_table_and_elsewhere_those_of_the_list(monkeypatch, tmp_path):
    monkeypatch.chdir(ROOT)
    assert drift_cases(["mixtral"])["mixtral-8x7b"]["config"]["num_local_experts"] == 8
    monkeypatch.chdir(tmp_path)
    assert drift_cases(["mixtral"]) == {"mixtral": {"model_type": "mixtral", "config": {}, "arch": None}}


def test_a_type_that_is_not_measured_is_refused_with_its_neighbours():
    with pytest.raises(DriftError, match=r"lama: expected a model type .* \(near: llama"):
        drift_cases(["lama"])


def test_a_folder_without_the_package_and_what_is_no_version_are_refused(tmp_path):
    with pytest.raises(DriftError, match=r"expected a folder that holds transformers"):
        environment("transformers", str(tmp_path))
    with pytest.raises(DriftError, match=r"newest: expected a version of transformers"):
        environment("transformers", "newest")


def test_the_installed_release_is_measured_where_it_is():
    import transformers

    assert environment("transformers", transformers.__version__).python == sys.executable


def test_the_cache_is_the_users_and_a_relative_one_is_ignored(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_folder() == tmp_path / "census" / "environments"
    monkeypatch.setenv("XDG_CACHE_HOME", "cache")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache_folder() == tmp_path / ".cache" / "census" / "environments"


def test_heads_repeated_before_a_recurrence_are_known_by_what_they_repeat():
    recorder = Recorder()
    recorder.layer = "layers.0"
    keys = torch.zeros(1, 8, 2, 4)
    with FunctionListener(recorder):
        repeated = keys.repeat_interleave(3, dim=2)
        assert recorder.unrepeated(repeated) is keys
        assert recorder.unrepeated(keys) is keys


def a_drift():
    norms = Change("ops.decoder.normOp", (2, 1), ("two norms", "one norm"), (("layers.0.a (f.py:1 A)",), ()), "5.2.0")
    cases = (
        CaseDrift("one", "llama", "changed", (norms,)),
        CaseDrift("two", "new_type", "new", reasons={"5.0.0": "no model type new_type"}, first="5.1.0"),
        CaseDrift("three", "gpt2", "failed", reasons={"5.3.0": "could not be built"}),
        CaseDrift("four", "bloom", "equal"),
    )
    return Drift("transformers", (Side("5.0.0", {"torch": "2"}, {}), Side("5.3.0", {"torch": "2"}, {})), cases)


def test_a_table_says_of_each_case_what_differs_what_stated_it_and_since_when():
    assert drift_text(a_drift(), "table").splitlines() == [
        "transformers 5.0.0 -> 5.3.0: 1 changed, 1 new, 0 gone, 1 failed, 1 equal",
        "",
        "one (llama): changed",
        "  ops.decoder.normOp: 2 -> 1, first in 5.2.0",
        "    5.0.0: two norms; layers.0.a (f.py:1 A)",
        "    5.3.0: one norm",
        "",
        "two (new_type): new, first in 5.1.0",
        "  5.0.0: no model type new_type",
        "",
        "three (gpt2): failed",
        "  5.3.0: could not be built",
        "",
        "equal: four",
    ]


def test_markdown_has_a_row_for_each_change_and_each_case_that_one_side_lacks():
    text = drift_text(a_drift(), "markdown")
    assert "| one | `ops.decoder.normOp` | 2 | 1 | 5.2.0 | two norms; layers.0.a (f.py:1 A) | one norm |" in text
    assert "## New\n\n| case | first in | reason |\n| --- | --- | --- |\n| two | 5.1.0 | 5.0.0: no model type" in text
    assert "## Failed" in text and "## Gone" not in text
