"""A diff shows what differs between two models, goldens, specs and profiles, and nothing else."""

import inspect
import json
import subprocess
import sys
from pathlib import Path

import pytest

from census import load_op_profile, measure, strict_yaml
from census.cli import main
from test_models.families import FAMILIES

ROOT = Path(__file__).parents[1]
GOLDENS = ROOT / "golden_specs" / "mixtral"
OLD_MIXTRAL = str(ROOT / "docs" / "mixtral_old.yaml")


@pytest.fixture
def write(tmp_path):
    """Write text, a family's config or its spec into a file; return its path."""

    def written(name, data):
        path = tmp_path / name
        path.write_text(data if isinstance(data, str) else json.dumps(data))
        return str(path)

    return written


def config(name, **changes):
    return {"model_type": name, **FAMILIES[name].config, **changes}


def differences(capsys, *arguments):
    code = main(["diff", *arguments, "--format", "json"])
    found = json.loads(capsys.readouterr().out)["differences"]
    return code, {one["path"]: (one["a"], one["b"]) for section in found.values() for one in section}


def test_a_model_and_its_own_spec_are_equal(write, capsys):
    one, spec = write("llama.json", config("llama")), write("spec.json", FAMILIES["llama"].base.spec)
    assert main(["diff", one, spec]) == 0
    assert capsys.readouterr().out == ""


def test_a_golden_and_its_spec_as_yaml_are_equal(write):
    golden = GOLDENS / "mixtral-8x7b.yaml"
    spec = strict_yaml.load(golden.read_text(), "golden", ValueError)["spec"]
    assert main(["diff", str(golden), write("spec.yaml", strict_yaml.dump(spec))]) == 0
    train = {"model": {"name": "x", "config_overrides": spec}}
    assert main(["diff", write("train.yaml", strict_yaml.dump(train)), str(golden)]) == 0


def test_two_models_differ_in_what_was_changed_and_in_what_follows_from_it(write, capsys):
    one = write("one.json", config("llama"))
    other = write("other.json", config("llama", num_hidden_layers=3, attention_bias=True))
    code, found = differences(capsys, one, other)
    assert code == 1
    follows = {
        "num_hidden_layers": (2, 3),
        "layers": ("2 decoder", "3 decoder"),
        "qkv_bias": (False, True),
        "o_bias": (False, True),
        "kinds.decoder.qkv_bias": (False, True),
        "kinds.decoder.o_bias": (False, True),
    }
    assert follows.items() <= found.items()
    stay = ("hidden_size", "head_dim", "intermediate_size", "mlp_bias", "ops", "kinds.decoder.head_dim", "name")
    assert not [path for path in found if path.startswith(stay)]


def test_a_model_is_measured_under_the_family_of_the_spec_beside_it(write, capsys):
    family = FAMILIES["deepseek_v3"]
    spec = measure(family.new_config(), "moe").spec
    assert (family.base.spec["arch"], spec["arch"]) == ("deepseek", "moe")
    code, found = differences(capsys, write("config.json", config("deepseek_v3")), write("spec.json", spec))
    assert (code, found) == (0, {})


def test_a_models_name_is_no_difference(write):
    spec = FAMILIES["llama"].base.spec
    assert main(["diff", write("one.json", spec), write("other.json", {**spec, "name": "another"})]) == 0


def test_a_profile_beside_a_model_is_compared_by_the_ops_of_the_models_kinds(write, capsys):
    code, found = differences(capsys, OLD_MIXTRAL, write("mixtral.json", config("mixtral")))
    assert (code, found) == (1, {"ops.decoder.softmax": (2, 1), "ops.decoder.normOp": (5, 2)})


def test_a_profile_beside_a_golden_is_compared_by_ops_too(capsys):
    code, found = differences(capsys, str(GOLDENS / "mixtral-8x7b.yaml"), OLD_MIXTRAL)
    assert (code, found) == (1, {"ops.decoder.softmax": (1, 2), "ops.decoder.normOp": (2, 5)})


def test_two_profiles_are_compared_by_kinds_flavours_and_ops(capsys):
    code, found = differences(capsys, load_op_profile("mixtral").source, OLD_MIXTRAL)
    assert (code, found) == (1, {"ops.decoder.softmax": (1, 2), "ops.decoder.normOp": (2, 5)})
    code, found = differences(capsys, load_op_profile("deepseek").source, load_op_profile("moe").source)
    assert (code, sorted(found)) == (1, ["kinds.dense.optional[0]", "kinds.moe.optional[0]"])


def test_a_table_and_markdown_name_both_sides_in_their_heads(write, capsys):
    one, other = (
        write(f"{positions}.json", config("llama", max_position_embeddings=positions)) for positions in (512, 1024)
    )
    assert main(["diff", one, other]) == 1
    head, row = capsys.readouterr().out.splitlines()
    assert (head.split(), row.split()) == (["field", one, other], ["max_position_embeddings", "512", "1024"])
    assert main(["diff", one, other, "--format", "markdown"]) == 1
    head, _, row = capsys.readouterr().out.splitlines()
    assert (head, row) == (f"| field | {one} | {other} |", "| max_position_embeddings | 512 | 1024 |")


@pytest.mark.parametrize("text", ["[1, 2]", "a: 1\n"])
def test_a_file_of_another_form_is_refused_with_what_can_be_compared(write, text, capsys):
    assert main(["diff", write("other.yaml", text), OLD_MIXTRAL]) == 2
    captured = capsys.readouterr()
    assert (captured.out, captured.err.count("\n")) == ("", 1)
    assert "found a file of none of their forms; a model, a golden or a spec is compared with" in captured.err


def test_a_spec_without_ops_is_not_compared_with_a_profile(write, capsys):
    spec = {key: value for key, value in FAMILIES["llama"].base.spec.items() if key not in ("ops", "layers", "kinds")}
    assert main(["diff", write("spec.json", spec), OLD_MIXTRAL]) == 2
    assert "spec.json: expected a spec with ops beside a profile, found none; a model" in capsys.readouterr().err


def test_a_model_whose_layers_the_profile_has_no_kind_for_is_refused(write, capsys):
    assert main(["diff", write("config.json", config("qwen3_next")), OLD_MIXTRAL]) == 2
    assert "expected one kind for a layer of attention linear" in capsys.readouterr().err


def test_goldens_are_compared_without_torch():
    program = inspect.cleandoc(
        f"""
        import sys
        from census.cli import main
        code = main(["diff", {str(GOLDENS / "mixtral-8x7b.yaml")!r}, {OLD_MIXTRAL!r}])
        sys.exit(10 * bool({{"torch", "transformers"}} & sys.modules.keys()) + code)
        """
    )
    assert subprocess.run([sys.executable, "-c", program], capture_output=True).returncode == 1
