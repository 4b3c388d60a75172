"""A source gives the config it names, or one line that says what to do."""

import copy
import json
import os

import huggingface_hub
import pytest
from transformers import CONFIG_MAPPING

from census.config import load_config, text_config
from census.errors import ConfigError

LLAMA = {
    "model_type": "llama",
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 128,
    "vocab_size": 100,
}
TEXT = {field: value for field, value in LLAMA.items() if field != "model_type"}


@pytest.fixture
def config_file(tmp_path):
    def write(content):
        path = tmp_path / "config.json"
        path.write_bytes(content if isinstance(content, bytes) else json.dumps(content).encode())
        return path

    return write


def refusal(source):
    with pytest.raises(ConfigError) as caught:
        load_config(source)
    message = str(caught.value)
    assert "\n" not in message
    assert "; " in message
    return message


def test_a_file_its_folder_and_a_string_give_one_config(config_file):
    path = config_file(LLAMA)
    configs = [load_config(source) for source in (path, path.parent, str(path))]
    assert {type(config).__name__ for config in configs} == {"LlamaConfig"}
    assert {config.hidden_size for config in configs} == {64}


def test_a_model_type_gives_its_default_config():
    assert load_config("qwen3_next").num_hidden_layers == CONFIG_MAPPING["qwen3_next"]().num_hidden_layers


def test_a_path_goes_before_a_model_type(config_file, monkeypatch):
    folder = config_file(LLAMA).parent.rename(config_file(LLAMA).parent.parent / "gpt2")
    monkeypatch.chdir(folder.parent)
    assert load_config("gpt2").model_type == "llama"


def test_storage_and_remote_code_are_dropped_wherever_they_stand(config_file):
    dropped = {
        "auto_map": {"AutoConfig": "x.C"},
        "quantization_config": {"bits": 4},
        "compression_config": {},
    }
    text = {**TEXT, "model_type": "qwen3_vl_text", **dropped}
    config = load_config(config_file({"model_type": "qwen3_vl", "text_config": text, **dropped}))
    for part in (config, text_config(config)):
        assert not [field for field in dropped if hasattr(part, field)]


def test_where_somebody_once_kept_the_model_is_no_name_of_it(config_file):
    assert load_config(config_file({**LLAMA, "_name_or_path": "/home/me/checkpoint"})).name_or_path == ""


def test_mistral_with_layer_types_is_what_transformers_reads_it_as(config_file):
    types = ["full_attention", "sliding_attention"]
    assert load_config(config_file({**LLAMA, "model_type": "mistral", "layer_types": types})).model_type == "ministral"


def test_a_layer_counted_from_the_end_is_read(config_file):
    # As published configs of LLaVA state which layer of the tower hands on its features.
    fields = {"model_type": "llava", "vision_feature_layer": -2, "text_config": LLAMA}
    assert load_config(config_file(fields)).vision_feature_layer == -2


@pytest.mark.parametrize("limit", ["Infinity", '{"__float__": "Infinity"}'])
def test_an_open_time_step_limit_is_read(config_file, limit):
    config = load_config(config_file(f'{{"model_type": "mamba2", "time_step_limit": [0.0, {limit}]}}'.encode()))
    assert tuple(config.time_step_limit) == (0.0, float("inf"))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "expected a JSON object, found an empty file"),
        (b" \n", "expected a JSON object, found an empty file"),
        (bytes(range(256)), "expected UTF-8 text, found other bytes"),
        (json.dumps(LLAMA).encode("utf-16"), "expected UTF-8 text, found other bytes"),
        (b"1" * (8 * 1024 * 1024 + 1), "expected at most 8388608 bytes, found more"),
        (b"[1]", "expected a JSON object, found list"),
        (b'{"model_type": "llama",', "expected JSON, found Expecting property name"),
        (b'{"a": 1, "a": 2}', "expected JSON, found the key 'a' twice in one object"),
        (b'{"a": NaN}', "a: expected a finite number, found nan"),
        (b'{"a": {"b": [Infinity]}}', "a.b: expected a finite number, found inf"),
        (b'{"a": 1e999}', "a: expected a finite number, found inf"),
        (b'{"a": ' + b"9" * 5000 + b"}", "expected JSON, found Exceeds the limit"),
        (b"[" * 100_000, "expected at most 64 levels, found more"),
        (b'{"a": ' + b"[" * 100 + b"]" * 100 + b"}", "a: expected at most 64 levels, found more"),
        ({}, "model_type: expected a model type, found nothing"),
        ({"model_type": 5}, "model_type: expected a model type, found 5"),
        ({**LLAMA, "num_hidden_layers": 5000}, "num_hidden_layers: expected at most 4096 layers, found 5000"),
        ({"model_type": "gpt2", "n_layer": 5000}, "n_layer: expected at most 4096 layers, found 5000"),
        (
            {"text_config": {"n_routed_experts": 70000}},
            "text_config.n_routed_experts: expected at most 65536 experts",
        ),
        (
            {**LLAMA, "vocab_size": 2**40 + 1},
            "vocab_size: expected at most 1099511627776, found 1099511627777",
        ),
        ({**LLAMA, "hidden_size": -64}, "hidden_size: expected no negative number, found -64"),
        pytest.param({**LLAMA, "hidden_size": 64.0}, "refused by transformers", marks=pytest.mark.pinned),
        pytest.param(
            {**LLAMA, "model_type": "qwen3", "layer_types": ["full_attention"]},
            "must be equal to the number of `layer_t",
            marks=pytest.mark.pinned,
        ),
        ({**LLAMA, "num_attention_heads": 0}, "refused by transformers"),
        ({**LLAMA, "to_dict": 1}, "to_dict: expected a config's field, found the name of a method"),
        ({"model_type": "lama"}, "found 'lama' (near: llama"),
        ({"model_type": "zz", "auto_map": {}}, "it needs remote code (auto_map), which census never runs"),
        (
            {"model_type": "kimi_k2", "architectures": ["DeepseekV3ForCausalLM"], "auto_map": {}},
            "its architectures name DeepseekV3ForCausalLM, which Transformers builds as model type "
            "'deepseek_v3': if the model is that, set model_type to it in a copy of the file",
        ),
        pytest.param(
            {"model_type": "kimi_k3", "text_config": {"model_type": "kimi_linear"}},
            "its text_config names model type 'kimi_linear', which Transformers builds",
            marks=pytest.mark.pinned,
        ),
        (
            {"model_type": "qwen3_vl", "text_config": {**TEXT, "model_type": "qwen9"}},
            "text_config.model_type: expected 'qwen3_vl_text' in a 'qwen3_vl' config, found 'qwen9'",
        ),
        (
            {"model_type": "qwen3_vl", "text_config": LLAMA},
            "text_config.model_type: expected 'qwen3_vl_text' in a 'qwen3_vl' config, found 'llama'",
        ),
        (
            {"model_type": "mistral3", "text_config": {"model_type": "qwn3"}},
            "expected one that Transformers knows in a 'mistral3' config, found 'qwn3' (near: qwen3",
        ),
        (
            {**LLAMA, "model_type": "llava"},
            "text_config: expected the language model's fields and its model_type, found vocab_size, hidden",
        ),
    ],
)
def test_a_file_that_is_no_config_is_refused_in_one_line(config_file, content, message):
    path = config_file(content)
    found = refusal(path)
    assert found.startswith(f"{path}: ")
    assert message in found


@pytest.mark.pinned
def test_a_refusal_of_transformers_is_quoted_with_its_version(config_file):
    import transformers

    found = refusal(config_file({**LLAMA, "hidden_size": "wide"}))
    assert f"refused by transformers {transformers.__version__}" in found
    assert "expected int, got str" in found


def test_what_is_no_file_is_refused(tmp_path):
    assert "a folder that holds a config.json, found none in it" in refusal(tmp_path)
    (tmp_path / "link").symlink_to("nowhere")
    assert "found a link to nowhere, which is not there" in refusal(tmp_path / "link")
    os.mkfifo(tmp_path / "pipe")
    assert "expected a file, found something else" in refusal(tmp_path / "pipe")


@pytest.mark.parametrize("source", ["lama", "", "no/such/config.json", "./owner/name", "a/b/c", "owner/config.json"])
def test_a_source_that_names_nothing_is_refused_without_the_network(source, monkeypatch):
    monkeypatch.setattr(huggingface_hub, "hf_hub_download", None)
    assert "expected a config.json, a folder that holds one, a model type or a hub id" in refusal(source)


def test_a_mistyped_model_type_names_the_nearest():
    assert "(near: qwen3_next" in refusal("qwen3_nex")


def test_a_hub_id_gives_its_config_under_its_name(config_file, monkeypatch):
    path = str(config_file(LLAMA))
    asked = []
    monkeypatch.setattr(huggingface_hub, "hf_hub_download", lambda *request: asked.append(request) or path)
    config = load_config("owner/name")
    assert (asked, config.hidden_size, config.name_or_path) == (
        [("owner/name", "config.json")],
        64,
        "owner/name",
    )


def test_a_hub_id_without_network_says_what_to_do():
    found = refusal("owner/never-published")
    assert found.startswith("owner/never-published: expected its config.json from the hub, found ")
    assert found.endswith("; download the config.json yourself and pass its path")


@pytest.mark.parametrize(
    ("model_type", "text_type"),
    [
        ("llama", "llama"),
        ("qwen3_vl", "qwen3_vl_text"),
        ("qwen3_5_moe", "qwen3_5_moe_text"),
        ("llama4", "llama4_text"),
        ("gemma3", "gemma3_text"),
        ("step3p7", "step3p5"),
        ("kimi_k25", "deepseek_v3"),
    ],
)
def test_the_language_model_of_a_composite_is_its_text_config(model_type, text_type):
    assert text_config(load_config(model_type)).model_type == text_type


@pytest.mark.parametrize("tied", [True, False])
def test_embeddings_are_tied_as_the_composite_states_whatever_its_text_config_says(config_file, tied):
    for text in ({}, {"tie_word_embeddings": not tied}):
        fields = {"model_type": "qwen3_vl_moe", "tie_word_embeddings": tied, "text_config": {**TEXT, **text}}
        assert text_config(load_config(config_file(fields))).tie_word_embeddings is tied


def test_a_config_stays_as_it_is(config_file):
    config = load_config(config_file({"model_type": "qwen3_vl_moe", "text_config": TEXT}))
    before = copy.deepcopy(config.to_dict())
    text_config(config).hidden_size = 1
    assert config.to_dict() == before


def test_a_plain_config_is_its_own_text_config():
    config = load_config("llama")
    assert text_config(config) is config


@pytest.mark.parametrize("model_type", ["step3p7", "qwen3_vl", "qwen2_vl"])
def test_a_language_model_stated_beside_its_vision_tower_is_not_lost(config_file, model_type):
    text = text_config(load_config(config_file({**TEXT, "model_type": model_type})))
    assert {field: getattr(text, field) for field in TEXT} == TEXT


@pytest.mark.pinned
def test_a_text_type_of_a_first_release_is_read_as_transformers_reads_it(config_file):
    fields = {"model_type": "kimi_k25", "text_config": {"model_type": "kimi_k2", "num_hidden_layers": 3}}
    assert text_config(load_config(config_file(fields))).model_type == "deepseek_v3"
