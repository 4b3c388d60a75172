"""The command as its help says: data on stdout, one line with the next step on stderr, three exit codes."""

import json
import re
import subprocess
import sys

import pytest

from census import ModelSpec, strict_yaml
from census.cli import main
from census.errors import CensusError
from test_models.families import FAMILIES


@pytest.fixture
def config_file(tmp_path):
    """Write a family's small config as a config.json; return its path."""

    def write(model_type, **changes):
        family = FAMILIES[model_type]
        path = tmp_path / f"{model_type}.json"
        path.write_text(json.dumps({"model_type": model_type, **family.config, **changes}))
        return str(path)

    return write


def test_show_prints_the_spec_as_yaml(config_file, capsys):
    assert main(["show", config_file("qwen3_next")]) == 0
    spec = ModelSpec.from_yaml(capsys.readouterr().out, "stdout").to_dict()
    assert spec == {**FAMILIES["qwen3_next"].measure().spec, "name": "qwen3_next"}


def test_show_prints_the_same_spec_as_json(config_file, capsys):
    assert main(["show", config_file("deepseek_v3"), "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out) == FAMILIES["deepseek_v3"].measure().spec


def test_train_yaml_is_a_model_section_with_overrides(config_file, capsys):
    assert main(["show", config_file("mixtral"), "--format", "train-yaml", "--name", "my-mixtral"]) == 0
    document = strict_yaml.load(capsys.readouterr().out, where="stdout", error=CensusError)
    assert document["model"]["name"] == "my-mixtral"
    assert ModelSpec.from_dict(document["model"]["config_overrides"]).name == "my-mixtral"


def test_the_table_folds_the_stack_and_shows_evidence(config_file, capsys):
    types = ["linear_attention", "full_attention"] * 3
    assert main(["show", config_file("qwen3_next", layer_types=types, num_hidden_layers=6), "--format", "table"]) == 0
    out = capsys.readouterr().out
    assert "stack  3 x (1 linear_attention + 1 full_attention)" in out
    assert re.search(r"^  linrec +1 +linear_attn: gated_delta_rule$", out, re.MULTILINE)


def test_arch_and_name_are_taken(config_file, capsys):
    assert main(["show", config_file("llama"), "--arch", "llama2", "--name", "mine", "--format", "json"]) == 0
    spec = json.loads(capsys.readouterr().out)
    assert (spec["arch"], spec["name"]) == ("llama2", "mine")


def test_an_audit_that_agrees_exits_0(config_file, capsys):
    assert main(["audit", config_file("mixtral"), "--profile", "mixtral"]) == 0
    assert "DIFFERS" not in capsys.readouterr().out


def test_an_audit_that_differs_exits_1_and_marks_the_op(config_file, capsys):
    assert main(["audit", config_file("gemma3_text"), "--profile", "default"]) == 1
    [line] = [line for line in capsys.readouterr().out.splitlines() if "DIFFERS" in line]
    assert line.split()[:6] == ["gemma3_text", "decoder", "normOp", "2", "4", "DIFFERS"]


def test_an_audit_that_cannot_measure_exits_2_and_goes_on_with_the_rest(config_file, capsys):
    assert main(["audit", config_file("qwen3_next"), config_file("mixtral"), "--profile", "mixtral"]) == 2
    captured = capsys.readouterr()
    assert "mixtral" in captured.out
    assert "could not be measured: family mixtral" in captured.err


def test_resolve_prints_the_resolvers_spec(config_file, capsys):
    assert main(["resolve", config_file("deepseek_v3")]) == 0
    assert ModelSpec.from_yaml(capsys.readouterr().out, "stdout").kv_lora_rank == 16


def test_resolve_against_census_prints_the_fields_that_differ(config_file, capsys):
    assert main(["resolve", config_file("mixtral"), "--against-census"]) == 0
    assert capsys.readouterr().out == ""
    # The config states prediction layers, which Transformers does not build.
    assert main(["resolve", config_file("deepseek_v3", num_nextn_predict_layers=2), "--against-census"]) == 1
    assert capsys.readouterr().out == "mtp_depth: measured absent, config says 2\n"


@pytest.mark.parametrize(
    ("source", "says"),
    [
        ("no_such_type", "found none of them"),
        ("qwen3_nexd", "near: qwen3_next"),
        ("missing/config.json", "config.json"),
    ],
)
def test_an_unknown_source_is_one_line_with_the_next_step_and_exit_2(source, says, capsys):
    assert main(["show", source]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.count("\n") == 1
    assert captured.err.startswith("census: ")
    assert says in captured.err


def test_debug_shows_the_traceback(config_file):
    with pytest.raises(CensusError):
        main(["show", "no_such_type", "--debug"])


@pytest.mark.parametrize("command", ["show", "explain", "audit", "diff", "resolve", "report"])
def test_the_help_of_every_command_has_an_example(command, capsys):
    with pytest.raises(SystemExit) as stop:
        main([command, "--help"])
    assert stop.value.code == 0
    assert f"example: census {command} " in " ".join(capsys.readouterr().out.split())


def test_version_names_what_is_measured_with(capsys):
    with pytest.raises(SystemExit):
        main(["--version"])
    assert capsys.readouterr().out.split()[::2] == ["census", "transformers", "torch"]


@pytest.mark.parametrize(("arguments", "code", "lines"), [(["show", "mixtral"], 0, 28), (["show"], 2, 0)])
def test_as_a_process_it_prints_all_and_exits_as_main_does(arguments, code, lines):
    done = subprocess.run([sys.executable, "-m", "census", *arguments], capture_output=True, text=True)
    assert (done.returncode, len(done.stdout.splitlines())) == (code, lines), done.stderr


def test_costs_are_printed_for_the_length_that_was_asked_for(capsys):
    main(["show", "mixtral", "--costs", "--seq-length", "8", "--format", "json"])
    costs = json.loads(capsys.readouterr().out)
    assert costs["parameters"]["router"] == 32 * 8 * 4096
    assert costs["cache_bytes"]["total"] == 32 * 8 * 2 * 8 * 128 * 2
    assert costs["flops"]["head"] == 2 * 8 * 4096 * 32000


def test_costs_of_no_tokens_are_refused(capsys):
    assert main(["show", "mixtral", "--costs", "--seq-length", "0"]) == 2
    assert "seq_length: expected a positive whole number, found 0" in capsys.readouterr().err


def test_a_length_without_costs_is_refused_instead_of_ignored(capsys):
    assert main(["show", "mixtral", "--seq-length", "8"]) == 2
    assert "--seq-length: expected --costs beside it" in capsys.readouterr().err


def test_costs_as_a_table_say_how_each_part_grows(capsys):
    main(["show", "mixtral", "--costs", "--format", "table"])
    assert re.search(r"^  scores +[\d,]+  linear in the sequence length for each token", capsys.readouterr().out, re.M)
