"""The audit as a profile's author meets it: folders, forms, fixes and drafts."""

import json
import re
from pathlib import Path
from xml.etree import ElementTree

import pytest

from census import load_op_profile, strict_yaml
from census.audit import audit_source
from census.cli import main
from census.errors import AuditError
from census.op_profile import parse_op_profile
from census.profile_draft import draft_profile
from test_models.families import FAMILIES

# Counts of Mixtral's decoder with two faults, in a layout of the author's own.
FAULTY = """\
# My family.
kinds:
  decoder:  # every layer routes
    ffn: moe
    ops:
      attMM: 4
      attBMM: 2
      ffMM: 3   # gate, up, down
      softmax: 2
      dropout: 0
      normOp: 5 # to be checked
      gather: 4
      headCast: 1
      ffAct: 1
      linrec: 0

  dense: {ffn: dense, ops: {attMM: 4, attBMM: 2, ffMM: 3, softmax: 1, dropout: 0, normOp: 2, gather: 4, headCast: 1, ffAct: 1, linrec: 0}}
default: decoder
"""  # noqa: E501  a kind on one line is what is tested


@pytest.fixture
def here(tmp_path, monkeypatch):
    """Work in an empty folder; write configs of families and profiles into it."""
    monkeypatch.chdir(tmp_path)

    def write(name, text=FAULTY, **changes):
        if name in FAMILIES:
            Path(f"{name}.json").write_text(json.dumps({"model_type": name, **FAMILIES[name].config, **changes}))
            return f"{name}.json"
        Path(name).parent.mkdir(exist_ok=True)
        Path(name).write_text(text)
        return name

    return write


def drafted(name):
    return draft_profile(FAMILIES[name].new_config(), name)


def test_a_fix_writes_the_measured_counts_and_changes_nothing_else(here, capsys):
    profile, source = here("mine.yaml"), here("mixtral")
    assert main(["audit", source, "--profile", profile]) == 1
    assert main(["audit", source, "--profile", profile, "--fix"]) == 0
    assert "mine.yaml: 2 counts written" in capsys.readouterr().err
    right = FAULTY.replace("softmax: 2", "softmax: 1").replace("normOp: 5 #", "normOp: 2 #")
    assert Path(profile).read_text() == right
    assert main(["audit", source, "--profile", profile]) == 0


def test_a_fix_of_an_indented_file_keeps_its_indentation_and_comments(here):
    indented = re.sub("^( +)", r"\1\1", FAULTY, flags=re.MULTILINE)
    profile, source = here("mine.yaml", indented), here("mixtral")
    assert main(["audit", source, "--profile", profile, "--fix"]) == 0
    assert Path(profile).read_text().split() == indented.replace("x: 2", "x: 1").replace("Op: 5", "Op: 2").split()
    lines = zip(Path(profile).read_text().splitlines(), indented.splitlines(), strict=True)
    assert all(len(mine) - len(mine.lstrip()) == len(old) - len(old.lstrip()) for mine, old in lines)


def test_a_fix_that_two_sources_contradict_is_refused_and_writes_nothing(here, capsys):
    profile = here("mine.yaml", Path(load_op_profile("llama2").source).read_text().replace("normOp: 2", "normOp: 3"))
    before = Path(profile).read_text()
    assert main(["audit", here("llama"), here("gemma3_text"), "--profile", profile, "--fix"]) == 2
    assert "normOp: expected one count to write, found 2 in llama and 4 in gemma3_text" in capsys.readouterr().err
    assert Path(profile).read_text() == before


@pytest.mark.parametrize("profile", [[], ["--profile", "mixtral"]])
def test_a_fix_without_a_file_of_ones_own_is_refused(here, profile, capsys):
    assert main(["audit", here("mixtral"), *profile, "--fix"]) == 2
    assert capsys.readouterr().err.startswith("census: --fix: expected --profile with the file of a profile")


def test_github_annotations_stand_on_the_lines_of_the_counts(here, capsys):
    assert main(["audit", here("mixtral"), "--profile", here("folder/mine.yaml"), "--format", "github"]) == 1
    errors = [line for line in capsys.readouterr().out.splitlines() if line.startswith("::error")]
    lines = FAULTY.splitlines()
    at = [1 + next(i for i, line in enumerate(lines) if text in line) for text in ("softmax: 2", "normOp: 5")]
    assert [error.split("::")[1] for error in errors] == [f"error file=folder/mine.yaml,line={line}" for line in at]
    assert "decoder.normOp: stated 5, mixtral runs 2: input_layernorm; post_attention_layernorm" in errors[1]


def test_github_gets_ten_errors_and_the_number_of_the_others(here, capsys):
    wrong = FAULTY.replace(": 0\n", ": 9\n").replace(": 4\n", ": 9\n").replace(": 1\n", ": 9\n").replace("M: 2", "M: 9")
    sources = [here("mixtral"), here("gpt_oss")]
    assert main(["audit", *sources, "--profile", here("mine.yaml", wrong), "--format", "github"]) == 1
    out = capsys.readouterr().out.splitlines()
    assert sum(line.startswith("::error") for line in out) == 10
    assert any(line.startswith("census: ") and line.endswith("of 18") for line in out)


def test_a_junit_report_has_a_case_an_op_and_a_skipped_one_for_a_kind_without_layers(here, capsys):
    assert main(["audit", here("mixtral"), "--profile", here("mine.yaml"), "--format", "junit"]) == 1
    [suite] = ElementTree.fromstring(capsys.readouterr().out)
    assert {key: suite.get(key) for key in ("tests", "failures", "errors", "skipped")} == {
        "tests": "11", "failures": "2", "errors": "0", "skipped": "1"
    }  # fmt: skip
    failed = {case.get("name"): case[0].get("message") for case in suite if case.find("failure") is not None}
    assert failed == {"softmax": "stated 2, measured 1", "normOp": "stated 5, measured 2"}


def test_json_holds_rows_and_the_kinds_that_no_source_has(here, capsys):
    assert main(["audit", here("mixtral"), "--profile", here("mine.yaml"), "--format", "json"]) == 1
    [audit] = json.loads(capsys.readouterr().out)
    assert {row["op"]: row["measured"] for row in audit["rows"] if not row["agrees"]} == {"softmax": 1, "normOp": 2}
    assert audit["unmeasured_kinds"] == ["dense"]


def test_markdown_marks_what_differs(here, capsys):
    assert main(["audit", here("mixtral"), "--profile", here("mine.yaml"), "--format", "markdown"]) == 1
    out = capsys.readouterr().out
    assert "| mixtral | decoder | softmax | 2 | 1 | DIFFERS | self_attn: score kernel |" in out
    assert "- mine.dense: no source has a layer of this kind" in out


def test_layers_that_no_kind_fits_are_named_beside_the_rows_of_those_that_fit(here, capsys):
    assert main(["audit", here("qwen3_next"), "--profile", here("mine.yaml")]) == 2
    captured = capsys.readouterr()
    assert "qwen3_next  decoder  attMM     4       4 " in captured.out
    assert (
        "qwen3_next: model.layers.0 to model.layers.2 (3 layers): attention linear, feed-forward moe, "
        "runs 4 0 3 0 0 2 4 0 1 1: mine has no one kind for it" in captured.out
    )
    assert captured.err.startswith("census: qwen3_next: could not be measured: family mine: expected one kind")


def test_of_a_folder_the_profile_whose_kinds_fit_is_taken(here, capsys):
    here("profiles/routed.yaml"), here("profiles/mixed.yaml", drafted("qwen3_next"))
    assert main(["audit", here("qwen3_next"), "--profile", "profiles", "--format", "json"]) == 0
    assert [audit["profile"] for audit in json.loads(capsys.readouterr().out)] == ["profiles/mixed.yaml"]


def test_of_a_folder_in_which_several_profiles_fit_none_is_guessed(here, capsys):
    here("profiles/one.yaml"), here("profiles/other.yaml")
    assert main(["audit", here("mixtral"), "--profile", "profiles"]) == 2
    assert "found profiles/one.yaml, profiles/other.yaml; pass its file" in capsys.readouterr().err


def test_a_folder_without_profiles_is_refused(here, capsys):
    Path("empty").mkdir()
    assert main(["audit", here("mixtral"), "--profile", "empty"]) == 2
    assert capsys.readouterr().err.startswith("census: empty: expected profiles, found no .yaml file")


@pytest.mark.parametrize("model_type", sorted(FAMILIES))
def test_a_draft_is_audited_clean_by_its_own_source(model_type):
    profile = parse_op_profile(drafted(model_type), "draft", "draft")
    audit = audit_source(profile, FAMILIES[model_type].new_config(), model_type)
    assert (audit.differing, audit.unmeasured, audit.failures) == ([], [], ())


def test_a_draft_has_a_kind_for_each_flavour_of_layer_with_its_counts():
    profile = parse_op_profile(drafted("qwen3_next"), "draft", "draft")
    kinds = {name: (kind.attention, kind.ffn, kind.ops.to_vector()) for name, kind in profile.kinds.items()}
    assert kinds == {
        "linear_attention": ("linear", "moe", (4, 0, 3, 0, 0, 2, 4, 0, 1, 1)),
        "full_attention": ("full", "moe", (4, 2, 3, 1, 0, 2, 4, 1, 1, 0)),
    }
    assert profile.default == "linear_attention"


def test_a_draft_of_layers_that_flavours_cannot_tell_apart_is_refused():
    from transformers import CONFIG_MAPPING

    config = CONFIG_MAPPING["gemma3n_text"](
        hidden_size=64, vocab_size=512, vocab_size_per_layer_input=512, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, head_dim=16, intermediate_size=[64, 128], hidden_size_per_layer_input=8,
        num_kv_shared_layers=0, activation_sparsity_pattern=[0.0, 0.0], laurel_rank=4,
        layer_types=["full_attention", "full_attention"],
    )  # fmt: skip
    with pytest.raises(AuditError, match=r"tell apart by their flavours.*intermediate_size \(64 against 128\)"):
        draft_profile(config, "gemma3n")


def test_the_command_prints_a_draft_of_one_source_alone(here, capsys):
    assert main(["audit", "--draft", here("mixtral")]) == 0
    assert parse_op_profile(capsys.readouterr().out, "draft", "draft").default == "decoder"
    assert main(["audit", "--draft", here("mixtral"), here("llama")]) == 2
    assert capsys.readouterr().err == "census: --draft: expected one source to measure, found 2; name one\n"


def test_all_cases_are_those_of_the_profiles_family_in_the_case_table(here, capsys):
    folder = Path("test_models") / "cases"
    folder.mkdir(parents=True)
    cases = {
        "small": {"model_type": "mixtral", "arch": "mine", "config": FAMILIES["mixtral"].config},
        "other": {"model_type": "llama", "arch": "llama2", "config": FAMILIES["llama"].config},
    }
    (folder / "table.yaml").write_text(strict_yaml.dump(cases))
    assert main(["audit", "--all-cases", "--profile", here("mine.yaml"), "--format", "json"]) == 1
    [audit] = json.loads(capsys.readouterr().out)
    assert {row["source"] for row in audit["rows"]} == {"small"}
    assert main(["audit", "--all-cases", "--profile", "cm"]) == 2
    assert "expected cases of family cm, found none" in capsys.readouterr().err


def test_all_cases_without_a_case_table_are_refused(here, capsys):
    assert main(["audit", "--all-cases", "--profile", here("mine.yaml")]) == 2
    assert capsys.readouterr().err.startswith("census: --all-cases: expected the case table in test_models")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ([], "audit: expected a source to hold the profile against"),
        (["--all-cases"], "--all-cases: expected --profile"),
    ],
)
def test_an_audit_of_nothing_is_refused(arguments, says, capsys):
    assert main(["audit", *arguments]) == 2
    assert capsys.readouterr().err.startswith(f"census: {says}")
