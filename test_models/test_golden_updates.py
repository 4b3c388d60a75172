"""Updating goldens: only what changed is written, whole files, with or without workers; never under CI unasked."""

import os

import pytest
import transformers.models.qwen3.modeling_qwen3  # noqa: F401 - an inner run drops what it is the first to import

import census.golden_check
import census.measurement  # noqa: F401
from census import strict_yaml
from census.errors import GoldenError
from census.golden import golden_path, golden_text, read_golden, write_golden
from test_models import test_goldens

pytest_plugins = ["pytester"]

CASE = "qwen3-small"

PROJECT = f"""
from transformers import Qwen3Config

def test_a_case_is_what_its_golden_pins(census):
    config = Qwen3Config(hidden_size=64, intermediate_size=96, num_hidden_layers=2, vocab_size=128)
    census.check_golden(config, name="{CASE}", profile="default")
"""


@pytest.fixture
def run_suite(pytester, monkeypatch):
    """Return a run of a project of one case, as a user would run it."""
    pytester.makepyfile(test_case=PROJECT)

    def run(*options, ci=""):
        monkeypatch.setenv("CI", ci)
        monkeypatch.delenv("GITHUB_ACTIONS", raising=False)
        return pytester.runpytest_inprocess("-p", "no:cacheprovider", *options)

    return run


@pytest.fixture
def path(run_suite, pytester):
    """Write the case's golden; return the file."""
    assert run_suite("--update-golden").ret == 0
    return golden_path(pytester.path / "golden_specs", "qwen3", CASE)


def test_a_changed_count_fails_with_expected_measured_and_evidence_and_an_update_mends_it(run_suite, path):
    right = path.read_text()
    path.write_text(right.replace("normOp: 2", "normOp: 5"))
    failed = run_suite()
    assert failed.ret == 1
    assert "ops.decoder.normOp: 5 -> 2  [input_layernorm; post_attention_layernorm]" in failed.stdout.str()
    assert "pytest --update-golden -k test_a_case_is_what_its_golden_pins" in failed.stdout.str()
    updated = run_suite("--update-golden")
    assert updated.ret == 0
    assert f"{CASE}: ops.decoder.normOp: 5 -> 2" in updated.stdout.str()
    assert "ops.decoder.normOp in 1 goldens" in updated.stdout.str()
    assert strict_yaml.load(path.read_text(), "golden", GoldenError) == strict_yaml.load(right, "golden", GoldenError)


def test_a_case_without_a_golden_fails_writes_nothing_and_names_the_command(run_suite, pytester):
    failed = run_suite()
    assert failed.ret == 1
    assert "found none; review the model, then run pytest --update-golden -k " in failed.stdout.str()
    assert not (pytester.path / "golden_specs").exists()


def test_a_golden_without_a_case_fails_and_is_named(tmp_path):
    (tmp_path / "llama").mkdir()
    (tmp_path / "llama" / "no-such-case.yaml").write_text("")
    with pytest.raises(AssertionError, match=r"llama/no-such-case.yaml; delete them, or add their cases"):
        test_goldens.test_every_golden_has_a_case(tmp_path)


def test_an_update_of_what_did_not_change_leaves_the_file_as_it_lies(run_suite, path):
    path.write_text(path.read_text().replace("transformers: 5", "transformers: 4"))
    before = path.read_bytes()
    assert run_suite("--update-golden").ret == 0
    assert path.read_bytes() == before


@pytest.mark.parametrize(("option", "code"), [("--update-golden", 4), ("--update-golden=force", 0)])
def test_under_ci_an_update_is_refused_unless_forced(run_suite, option, code):
    done = run_suite(option, ci="true")
    assert done.ret == code
    assert ("pass --update-golden=force" in done.stderr.str()) == (code == 4)


def test_a_write_that_fails_leaves_the_old_golden(path, monkeypatch):
    before, golden = path.read_bytes(), read_golden(path)

    def full_disk(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full_disk)
    with pytest.raises(GoldenError, match="No space left on device; nothing was changed"):
        write_golden(path, golden)
    assert path.read_bytes() == before
    assert list(path.parent.iterdir()) == [path]


def test_a_golden_is_its_own_text(case, golden_root):
    path = golden_path(golden_root, case.model_type, case.name)
    assert golden_text(read_golden(path)) == path.read_text()


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "expected"),
        ("case: a\ncase: b\n", "case"),
        ("case: a\nmodel_type: llama\nspec: {}\n", "expected the keys"),
        (
            "case: a\nmodel_type: llama\nmeasured_with: {}\nvouched_for_by: []\ncosts: {}\nspec: {name: a}\n",
            "hidden_size",
        ),
    ],
)
def test_a_broken_golden_is_refused(tmp_path, text, says):
    path = tmp_path / "broken.yaml"
    path.write_text(text)
    with pytest.raises((GoldenError, ValueError), match=says):
        read_golden(path)
