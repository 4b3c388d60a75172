"""Updating goldens: only what changed is written, whole files, with or without workers; never under CI unasked."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from census import strict_yaml
from census.errors import GoldenError
from census.golden import golden_path, golden_text, read_golden, write_golden
from test_models.case_table import CASES

ROOT = Path(__file__).parents[1]
CASE = CASES["qwen3-0.6b"]


def run_suite(goldens, *options, ci=""):
    """Run the golden tests of one case on a folder of goldens, as a user would."""
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-o", f"golden_specs={goldens}",
         "test_models/test_goldens.py", *options],
        cwd=ROOT, env={**os.environ, "CI": ci}, capture_output=True, text=True,
    )  # fmt: skip


@pytest.fixture
def goldens(tmp_path, golden_root):
    """Copy one case's golden into a folder of its own; return the folder and the file."""
    path = golden_path(tmp_path, CASE.model_type, CASE.name)
    path.parent.mkdir(parents=True)
    path.write_text(golden_path(golden_root, CASE.model_type, CASE.name).read_text())
    return tmp_path, path


ONLY = ("-k", f"pins and {CASE.name}")


def test_a_changed_count_fails_with_expected_measured_and_evidence_and_an_update_mends_it(goldens):
    folder, path = goldens
    right = path.read_text()
    path.write_text(right.replace("normOp: 2", "normOp: 5"))
    failed = run_suite(folder, *ONLY)
    assert failed.returncode == 1
    assert "ops.decoder.normOp: 5 -> 2  [input_layernorm; post_attention_layernorm]" in failed.stdout
    assert f"pytest --update-golden -k {CASE.name}" in failed.stdout
    updated = run_suite(folder, *ONLY, "--update-golden", "-n", "2")
    assert updated.returncode == 0, updated.stdout
    assert f"{CASE.name}: ops.decoder.normOp: 5 -> 2" in updated.stdout
    assert "ops.decoder.normOp in 1 goldens" in updated.stdout
    assert strict_yaml.load(path.read_text(), "golden", GoldenError) == strict_yaml.load(right, "golden", GoldenError)


def test_a_case_without_a_golden_fails_writes_nothing_and_names_the_command(tmp_path):
    failed = run_suite(tmp_path, *ONLY)
    assert failed.returncode == 1
    assert f"pytest --update-golden -k {CASE.name}" in failed.stdout
    assert not list(tmp_path.rglob("*"))


def test_a_golden_without_a_case_fails_and_is_named(tmp_path):
    (tmp_path / "llama").mkdir()
    (tmp_path / "llama" / "no-such-case.yaml").write_text("")
    failed = run_suite(tmp_path, "-k", "every_golden_has_a_case")
    assert failed.returncode == 1
    assert "llama/no-such-case.yaml; delete them, or add their cases" in failed.stdout


def test_an_update_of_what_did_not_change_leaves_the_file_as_it_lies(goldens):
    folder, path = goldens
    path.write_text(path.read_text().replace("transformers: 5", "transformers: 4"))
    before = path.read_bytes()
    assert run_suite(folder, *ONLY, "--update-golden").returncode == 0
    assert path.read_bytes() == before


@pytest.mark.parametrize(("option", "code"), [("--update-golden", 4), ("--update-golden=force", 0)])
def test_under_ci_an_update_is_refused_unless_forced(goldens, option, code):
    folder, _ = goldens
    done = run_suite(folder, *ONLY, option, ci="true")
    assert done.returncode == code
    assert ("pass --update-golden=force" in done.stderr) == (code == 4)


def test_a_write_that_fails_leaves_the_old_golden(goldens, monkeypatch):
    _, path = goldens
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
