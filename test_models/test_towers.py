"""Vision towers: what runs on an image's patches is what the tower's source and published config say, or left out."""

import pytest

from census import load_op_profile, measure
from census.cli import main
from census.golden import golden_path, read_golden
from test_models.case_table import CASES, MEASURED, census_of, in_group

VIT = [4, 2, 2, 1, 0, 2, 4, 1, 1, 0]

# Of a case: the tower's width, layers and heads, and the vector of a layer.
TOWERS = [
    ("qwen3-vl-8b", 1152, 27, 16, VIT),  # config.json of Qwen3-VL-8B
    ("llama-4-scout-17b-16e", 1408, 34, 16, VIT),  # config.json of Llama-4-Scout
    ("qwen2_vl-language", 1280, 32, 16, VIT),  # Qwen2VLVisionConfig: embed_dim, depth, num_heads
    ("glm4v-language", 1536, 24, 12, [4, 2, 3, 1, 0, 2, 4, 1, 1, 0]),  # Glm4VisionMlp: gate, up and down
    ("ovis2-language", 1024, 24, 8, [4, 2, 3, 1, 0, 2, 4, 1, 1, 0]),  # Ovis2VisionMLP: gate, up and down
]


@pytest.mark.parametrize(
    ("case_name", "width", "layers", "heads", "vector"),
    [pytest.param(*row, id=row[0], marks=in_group(row[0])) for row in TOWERS],
)
def test_a_tower_is_what_its_config_and_its_source_say(case_name, width, layers, heads, vector):
    vision = census_of(case_name).spec["vision"]
    assert [vision[name] for name in ("hidden_size", "num_hidden_layers", "num_attention_heads")] == [
        width, layers, heads
    ]  # fmt: skip
    assert vision["layers"] == [{"kind": "encoder", "count": layers}]
    assert list(vision["ops"]["encoder"].values()) == vector


def test_a_plain_towers_vector_is_that_of_profile_vision(golden_root):
    stated = load_op_profile("vision").kinds["encoder"].ops.to_dict()
    specs = [read_golden(golden_path(golden_root, case.model_type, case.name)).spec for case in MEASURED.values()]
    vectors = [spec["vision"]["ops"]["encoder"] for spec in specs if "vision" in spec]
    assert len(vectors) >= 60
    # A tower with a gated feed-forward has one projection more, and differs from it in nothing else.
    assert all(vector in (stated, {**stated, "ffMM": 3}) for vector in vectors)


@pytest.mark.case("glm4v-language")
def test_glm4vs_tower_feeds_forward_as_wide_as_it_hands_on_and_not_as_its_config_names():
    # Glm4VisionMlp takes out_hidden_size for its width; intermediate_size of the config is the merger's.
    case = CASES["glm4v-language"]
    tower = case.config_object.vision_config
    assert census_of("glm4v-language").spec["vision"]["intermediate_size"] == tower.out_hidden_size
    assert tower.intermediate_size != tower.out_hidden_size


@pytest.mark.case("qwen2_5_omni_thinker-language")
def test_a_tower_and_sound_that_are_not_stated_are_named_with_the_reason(capsys):
    census = measure(CASES["qwen2_5_omni_thinker-language"].new_config(), "qwen")
    assert "vision" not in census.spec
    assert census.left_out["audio_config"] == "qwen2_5_omni_audio_encoder: census states no audio towers"
    assert "qwen2_5_omni_vision_encoder" in census.left_out["vision_config"]
    assert main(["show", "qwen2_5_omni_thinker"]) == 0
    out, err = capsys.readouterr()
    assert "vision:" not in out
    assert "census: vision_config is left out: qwen2_5_omni_vision_encoder" in err


def test_a_tower_that_pads_its_windows_is_left_out_with_the_rows_that_are_too_many():
    # SAM's windows are rows of the batch that its heads are also in: 25 windows of 12 heads are no 300 heads.
    left_out = census_of("got-ocr-2.0").left_out["vision_config"]
    assert "found 4900 rows" in left_out


def test_windows_that_divide_an_image_evenly_are_not_stated_as_heads():
    # 28 x 28 patches in windows of 14: four windows of 12 heads are rows of one matmul, and no 48 heads.
    config = CASES["got-ocr-2.0"].new_config()
    config.vision_config.image_size, config.vision_config.window_size = 448, 14
    left_out = measure(config, "default").left_out["vision_config"]
    assert "found 48 of 64; census does not tell windows from heads" in left_out
