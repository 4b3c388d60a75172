"""The pytest plugin in a project of another team: the example of `docs/plugin.md`, copied out of this checkout."""

import shutil
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest
import transformers.models.llama.modeling_llama  # noqa: F401

# Loaded before an inner run, which drops what it is the first to import; torch cannot be imported twice.
import census.golden_check
import census.measurement
import census.pytest_plugin  # noqa: F401

pytest_plugins = ["pytester"]

ROOT = Path(__file__).parents[1]
GOLDEN = "golden_specs/by_hand/our-module.yaml"
FIELD = "ops.ours.normOp: 2 -> 3"


@pytest.fixture
def project(pytester, monkeypatch):
    """Copy the example into a project of its own and go there; no CI is set."""
    monkeypatch.setenv("CI", "")
    monkeypatch.delenv("GITHUB_ACTIONS", raising=False)
    shutil.copytree(ROOT / "docs" / "example_project", pytester.path, dirs_exist_ok=True)
    monkeypatch.syspath_prepend(pytester.path)
    return pytester


def run(project, *options):
    return project.runpytest_inprocess("-p", "no:cacheprovider", *options)


def replace(path, old, new):
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


def add_a_norm(project):
    replace(project.path / "our_models.py", "self.heads = heads", "self.heads, self.after = heads, nn.RMSNorm(width)")
    replace(project.path / "our_models.py", "stream + self.down(", "stream + self.after(self.down(")
    replace(project.path / "our_models.py", "self.before_mlp(stream))))", "self.before_mlp(stream)))))")


def test_the_example_passes_and_says_what_it_measured(project):
    done = run(project)
    done.assert_outcomes(passed=2)
    done.stdout.fnmatch_lines(["*= census =*", "2 cases of 2 families, 0 goldens written, 0 refused", "slowest: our-*"])


def test_a_norm_more_fails_by_field_until_the_golden_is_updated(project, monkeypatch):
    add_a_norm(project)
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    failed = run(project, "--junitxml=report.xml")
    failed.assert_outcomes(passed=1, failed=1)
    text = failed.stdout.str()
    assert FIELD in text
    assert str(project.path / GOLDEN) in text
    assert "pytest --update-golden -k test_our_module" in text
    [line] = [n for n, row in enumerate((project.path / GOLDEN).read_text().splitlines(), 1) if "normOp: 2" in row]
    assert f"line={line}::our-module: {FIELD}" in text
    assert f"::error file={GOLDEN}," in text
    root = ElementTree.parse(project.path / "report.xml").getroot()
    said = {(node.get("name"), node.get("value")) for node in root.iter("property")}
    assert {("census.model", "our-module"), ("census.field", FIELD)} <= said
    updated = run(project, "--update-golden", "-k", "test_our_module")
    updated.assert_outcomes(passed=1, deselected=1)
    assert f"our-module: {FIELD}" in updated.stdout.str()
    run(project).assert_outcomes(passed=2)


def test_a_bare_module_is_refused_with_what_it_takes(project):
    replace(project.path / "test_our_models.py", "check_golden(model,", "check_golden(model.build(),")
    failed = run(project, "-k", "test_our_module")
    failed.assert_outcomes(failed=1, deselected=1)
    assert "expected a Transformers config or a census.OwnModel, found a ByHand" in failed.stdout.str()
    assert "0 goldens written, 1 refused" in failed.stdout.str()


@pytest.mark.pinned
def test_annotations_say_what_runs_before_what_is_computed_of_it_and_a_line_of_each_test_first(project, monkeypatch):
    add_a_norm(project)
    replace(
        project.path / "our_models.py", 'model_type = "ours"', 'model_type = "ours"\n    attention_bias: bool = True'
    )
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    text = run(project).stdout.str()
    errors = [line.partition("::")[2].partition("::") for line in text.splitlines() if line.startswith("::error")]
    assert len(errors) == len({where for where, _, _ in errors}) <= 10
    # The second model's biases come before anything more of the first model.
    assert [said.split(": ")[1] for _, _, said in errors[:2]] == ["kinds.decoder.o_bias", "ops.ours.normOp"]
    assert [said.split(": ")[1].startswith("costs.") for _, _, said in errors][-2:] == [True, True]


SAME_GOLDEN = """
from pathlib import Path
from census.golden import read_golden
from census.golden_check import Pin

def check(census):
    pinned = read_golden(Path("measured.yaml"))
    census.check_pin(Pin(Path("golden_specs/by_hand/our-module.yaml"), pinned, None))

def test_one(census):
    check(census)

def test_again(census):
    check(census)
"""
"""Two tests of one golden, measured before, so that the workers import no torch."""


def test_two_tests_of_one_golden_fail_the_session_under_workers_too_and_the_file_is_whole(pytester, monkeypatch):
    monkeypatch.setenv("CI", "")
    golden = ROOT / "docs" / "example_project" / GOLDEN
    shutil.copy(golden, pytester.path / "measured.yaml")
    pytester.makepyfile(test_same=SAME_GOLDEN)
    done = run(pytester, "--update-golden", "-n", "2")
    assert done.ret == 1
    done.assert_outcomes(passed=2)
    assert "test_same.py::test_again and test_same.py::test_one" in done.stdout.str()
    assert (pytester.path / GOLDEN).read_text() == golden.read_text()
    assert [path.name for path in (pytester.path / GOLDEN).parent.iterdir()] == ["our-module.yaml"]


def test_a_project_that_does_not_use_census_imports_none_of_torch(tmp_path):
    (tmp_path / "test_it.py").write_text(
        "import sys\n\ndef test_it():\n    assert 'census.pytest_plugin' in sys.modules\n"
        "    assert not {'torch', 'transformers', 'yaml', 'census.golden'} & set(sys.modules)\n"
    )
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"],
        cwd=tmp_path, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout
    assert "census" not in done.stdout
