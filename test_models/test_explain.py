"""Every number of a spec is traced to code that exists, and to the code that ran."""

import inspect
import json
import re
import subprocess
import sys
from importlib.metadata import distribution
from pathlib import Path

import pytest

from census import load_op_profile
from census.cli import main
from census.errors import FieldError
from census.explain import explain
from test_models.case_table import MEASURED
from test_models.families import FAMILIES


def explained(model_type, field, **changes):
    family = FAMILIES[model_type]
    [one] = explain(family.new_config(**changes), family.arch, model_type, field)
    return one


def line_of(model_type, *texts):
    """Return the line of a modeling file that holds the last text, looked for after each of those before it."""
    file = distribution("transformers").locate_file(f"transformers/models/{model_type}/modeling_{model_type}.py")
    lines = file.read_text(encoding="utf-8").splitlines()
    at = 0
    for text in texts:
        at = next(number for number, line in enumerate(lines) if number >= at and text in line)
    return f"transformers/models/{model_type}/modeling_{model_type}.py:{at + 1}"


def test_a_score_kernel_is_traced_to_the_attentions_forward_with_what_it_took():
    one = explained("llama", "num_key_value_heads")
    [place] = one.places
    assert (one.value, place.module) == (2, "model.layers.0.self_attn")
    assert place.shapes == "census.attention of (1, 4, 256, 16), (1, 2, 256, 16), (1, 2, 256, 16)"
    assert place.code == f"{line_of('llama', 'class LlamaAttention', 'def forward')} LlamaAttention.forward"


def test_a_recurrence_is_traced_to_its_own_function():
    [place] = explained("qwen3_next", "linear_attention.linrec").places
    line = line_of("qwen3_next", "def torch_chunk_gated_delta_rule(")
    assert (place.module, place.code) == ("model.layers.0.linear_attn", f"{line} torch_chunk_gated_delta_rule")


def test_a_projection_of_torchs_is_traced_to_the_module_that_calls_it():
    [place] = explained("llama", "o_bias").places
    assert place.code.endswith(" LlamaAttention.forward")
    assert place.shapes == "self_attn.o_proj.weight (64, 64)"


def test_each_norm_is_traced_with_its_weight():
    places = explained("llama", "ops.decoder.normOp").places
    assert [(place.module, place.shapes) for place in places] == [
        ("model.layers.0.input_layernorm", "input_layernorm.weight (64,)"),
        ("model.layers.0.post_attention_layernorm", "post_attention_layernorm.weight (64,)"),
    ]


@pytest.mark.pinned
def test_a_kinds_field_is_traced_in_a_layer_of_the_kind():
    [place] = explained("deepseek_v3", "kinds.moe.num_experts_per_tok").places
    first = FAMILIES["deepseek_v3"].base.stack.index("moe")
    assert place.module == f"model.layers.{first}.mlp.gate"


def test_what_the_config_alone_says_is_traced_to_its_class():
    [place] = explained("llama", "max_position_embeddings").places
    assert place.module == "config.max_position_embeddings"
    assert re.fullmatch(r"transformers/models/llama/configuration_llama\.py:\d+ LlamaConfig", place.code)


def test_a_count_that_no_layer_states_is_traced_to_the_profiles_line():
    family = FAMILIES["llama"]
    [one] = explain(family.new_config(), "deepseek", "llama", "moe.ffMM")
    profile = load_op_profile("deepseek")
    file, _, line = one.places[0].code.rpartition(":")
    text = Path(profile.source).read_text(encoding="utf-8").splitlines()[int(line) - 1]
    assert (file, one.evidence) == (profile.source, "the model has no layer of this kind: its profile's own count")
    assert f"ffMM: {profile.kinds['moe'].ops['ffMM']}" in text


BY_PART = ("projections", "other_parameters")


@pytest.mark.parametrize("model_type", ["llama", "gemma3_text", "gpt2", "qwen3_next", "deepseek_v3"])
def test_every_field_of_a_spec_is_traced_to_a_line_that_defines_code(model_type):
    family = FAMILIES[model_type]
    found = explain(family.new_config(), family.arch, model_type)
    spec = family.base.spec
    fields = {field for field in spec if field not in ("name", "arch", "ops", "layers", "kinds")}
    fields |= {f"ops.{kind}.{op}" for kind, ops in spec["ops"].items() for op in ops}
    fields |= {
        f"kinds.{kind}.{field}"
        for kind, stated in spec["kinds"].items()
        for field in stated
        if field not in ("layers_with", *BY_PART)
    }
    fields |= {
        f"kinds.{kind}.{field}.{part}"
        for kind, stated in spec["kinds"].items()
        for field in BY_PART
        for part in stated.get(field, ())
    }
    fields |= {f"layers[{number}].count" for number in range(len(spec["layers"]))}
    assert {one.field for one in found if ".layers_with." not in one.field} == fields
    packages = distribution("transformers").locate_file("")
    for one in found:
        assert one.places, one.field
        for place in one.places:
            file, line, name = re.fullmatch(r"(\S+):(\d+) (\S+)", place.code).groups()
            text = packages.joinpath(file).read_text(encoding="utf-8").splitlines()[int(line) - 1]
            assert re.search(rf"(def|class) {name.rpartition('.')[2]}\b", text), f"{one.field}: {place}: {text}"


def test_a_towers_field_is_traced_in_the_tower():
    from census import load_config

    found = {one.field: one for one in explain(load_config("qwen3_vl"), field="vision")}
    assert found["vision.hidden_size"].places[0].code.endswith(" Qwen3VLVisionBlock.forward")
    assert found["vision.ops.encoder.softmax"].places[0].code.endswith(" Qwen3VLVisionAttention.forward")
    assert found["vision.patch_size"].evidence == "config: patch_size"


def test_an_unknown_field_is_refused_with_near_names():
    with pytest.raises(FieldError, match=r"qk_nrom: expected a field .* did you mean qk_norm"):
        explained("llama", "qk_nrom")


def test_the_command_prints_a_field_and_refuses_an_unknown_one_in_one_line(tmp_path, capsys):
    path = tmp_path / "llama.json"
    path.write_text(json.dumps({"model_type": "llama", **FAMILIES["llama"].config}))
    assert main(["explain", str(path), "decoder.attBMM"]) == 0
    first, evidence, place = capsys.readouterr().out.splitlines()
    assert (first, evidence) == (
        "ops.decoder.attBMM: 2",
        "  self_attn: score kernel: QK^T; self_attn: score kernel: AV",
    )
    assert place.endswith("LlamaAttention.forward")
    assert main(["explain", str(path), "decoder.attBM"]) == 2
    captured = capsys.readouterr()
    assert (captured.out, captured.err.count("\n")) == ("", 1)
    assert "decoder.attBMM" in captured.err


def test_the_command_prints_the_same_as_json(tmp_path, capsys):
    path = tmp_path / "llama.json"
    path.write_text(json.dumps({"model_type": "llama", **FAMILIES["llama"].config}))
    assert main(["explain", str(path), "head_dim", "--format", "json"]) == 0
    [one] = json.loads(capsys.readouterr().out)
    assert (one["field"], one["value"]) == ("head_dim", 16)
    assert one == explained("llama", "head_dim").to_dict()


@pytest.mark.parametrize(
    "arguments", [["--help"], ["explain", "--help"], ["audit", "--help"], ["diff", "--help"], ["list"]]
)
def test_help_and_the_list_import_neither_torch_nor_transformers(arguments):
    program = inspect.cleandoc(
        f"""
        import sys
        from census.cli import main
        try:
            main({arguments!r})
        except SystemExit:
            pass
        sys.exit(bool({{"torch", "transformers", "ruamel", "rich"}} & sys.modules.keys()))
        """
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_what_a_kind_holds_is_traced_to_its_parameters_a_part_at_a_time():
    found = {one.field: one for one in explain(FAMILIES["mixtral"].new_config())}
    routed = found["kinds.decoder.projections.routed"]
    assert routed.evidence == "mlp.experts.down_proj; mlp.experts.gate_up_proj"
    assert routed.places[0].code.endswith("MixtralExperts.forward")
    norms = found["kinds.decoder.other_parameters.norm"]
    assert norms.evidence == "input_layernorm.weight; post_attention_layernorm.weight"


def test_experts_in_modules_of_their_own_are_named_once():
    found = explain(MEASURED["nllb-moe-encoder-decoder"].new_config(), field="kinds.decoder_moe.projections.routed")
    assert found[0].evidence == (
        "ffn.experts.expert_0.fc1.weight and 3 alike; ffn.experts.expert_0.fc2.weight and 3 alike"
    )
