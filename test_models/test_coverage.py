"""What census says it covers is what the case table and the goldens hold, and README's figures are those."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from census import strict_yaml
from census.cli import main
from census.coverage import TABLE, model_types, table_text, totals
from test_models.case_table import CASES, coverage

README = Path(__file__).parents[1] / "README.md"


@pytest.mark.pinned
def test_the_table_of_model_types_is_what_cases_and_goldens_say(golden_root):
    stated = TABLE.read_text(encoding="utf-8")
    assert stated == table_text(coverage(golden_root)), (
        "run: python -m pytest --update-golden test_models/test_goldens.py"
    )


def test_readmes_figures_are_those_of_the_list():
    [line] = re.findall(r"Of Transformers' .*?\.\n", README.read_text(encoding="utf-8"), re.DOTALL)
    figures = {kind: f"{measured} of {known}" for kind, (measured, known) in totals(model_types()).items()}
    assert f"{figures['causal-lm']} causal" in line
    assert f"{figures['image-text-to-text']} image-text-to-text" in line


def test_at_least_what_is_promised_is_measured():
    measured = {kind: number for kind, (number, _) in totals(model_types()).items()}
    assert measured["causal-lm"] >= 188
    assert measured["image-text-to-text"] >= 80
    assert all(not model_types()[name].refused for name in ("t5", "bart", "mt5", "pegasus", "m2m_100", "led"))


def test_the_list_prints_every_type_in_each_format(capsys):
    assert main(["list", "--format", "json"]) == 0
    listed = json.loads(capsys.readouterr().out)
    assert set(listed) == {case.model_type for case in CASES.values()}
    assert listed["qwen3_next"]["mixers"] == ["full_attention", "gated_delta_rule"]
    assert main(["list", "--format", "markdown"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "| type | of | families | mixers | state |"
    assert len(lines) == len(listed) + 2
    assert main(["list"]) == 0
    out, err = capsys.readouterr()
    assert re.search(r"^  reformer +causal-lm +refused: ", out, re.MULTILINE)
    assert f"{totals(model_types())['causal-lm'][0]} of " in err


def test_the_list_imports_neither_torch_nor_transformers():
    program = (
        "import sys; sys.modules.update(torch=None, transformers=None); from census.cli import main; main(['list'])"
    )
    subprocess.run([sys.executable, "-c", program], check=True, capture_output=True)


@pytest.mark.parametrize("model_type", ["mixtral", "reformer"])
def test_a_draft_is_an_entry_of_the_case_table(model_type, capsys):
    assert main(["draft", model_type]) == 0
    text = capsys.readouterr().out
    [(name, entry)] = strict_yaml.load(text, "draft", ValueError).items()
    assert (name, entry["model_type"]) == (f"{model_type}-default", model_type)
    if model_type == "mixtral":
        assert entry["arch"] == "mixtral"
        assert "vector [4, 2, 3, 1, 0, 2, 4, 1, 1, 0]" in text
    else:
        assert "is_decoder=True" in entry["refused"]
