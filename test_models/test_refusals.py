"""What the engine does not know is refused, by a message that names the module and what to do."""

import pytest
import torch
from torch import nn

from census import BuildError, ConfigError, KindError, UnknownPartError, census_kind, census_model_spec
from test_models.families import FAMILIES


def test_one_kind_for_two_layer_shapes_names_both_layers():
    # qwen2_moe with mlp_only_layers [1]: layer 0 routes, layer 1 is dense; the qwen family has one kind.
    with pytest.raises(
        KindError,
        match=r"family qwen: kind 'decoder' would price two .* model\.layers\.0 and "
        r"model\.layers\.1 differ in their feed-forward \(moe against dense\); pass --arch",
    ):
        census_model_spec(FAMILIES["qwen2_moe"].new_config(), arch="qwen")


def test_a_family_without_a_kind_for_a_layer_is_refused():
    with pytest.raises(KindError, match=r"family deepseek: .*linear"):
        census_model_spec(FAMILIES["qwen3_next"].new_config(), arch="deepseek")


def test_a_layer_index_that_the_model_does_not_have_is_refused():
    with pytest.raises(ConfigError, match="layer 2: expected 0 to 1"):
        census_kind(FAMILIES["llama"].new_config(), 2)


@pytest.mark.parametrize("length", [0, -1, 1.5, True])
def test_a_length_that_is_no_positive_number_is_refused(length):
    with pytest.raises(ConfigError, match="seq_length: expected a positive whole number"):
        census_kind(FAMILIES["llama"].new_config(), 0, seq_length=length)


def test_a_config_without_a_language_model_is_refused():
    from transformers import CONFIG_MAPPING

    with pytest.raises(BuildError, match=r"ViTModel: expected an input embedding .*; census states models that take"):
        census_model_spec(CONFIG_MAPPING["vit"](), arch="default")


def attention(forward):
    """Return a patch of Llama's attention by a forward of one's own."""

    def patched(self, hidden_states, *args, **kwargs):
        return forward(self, hidden_states), None

    return patched


def average_of_the_past(self, hidden_states):
    summed = torch.cumsum(self.v_proj(hidden_states), dim=1)
    return self.o_proj(summed.repeat(1, 1, 2))


def token_before(self, hidden_states):
    return self.o_proj(torch.roll(self.v_proj(hidden_states), 1, dims=1).repeat(1, 1, 2))


def scores_without_softmax(self, hidden_states):
    queries, values = self.k_proj(hidden_states), self.v_proj(hidden_states)
    return self.o_proj((queries @ queries.transpose(1, 2) @ values).repeat(1, 1, 2))


@pytest.mark.parametrize(
    ("mixer", "found"),
    [(average_of_the_past, "cumsum"), (token_before, "roll"), (scores_without_softmax, "bmm")],
)
def test_a_token_mixer_that_nothing_recognises_is_refused(monkeypatch, mixer, found):
    from transformers.models.llama.modeling_llama import LlamaAttention

    monkeypatch.setattr(LlamaAttention, "forward", attention(mixer))
    with pytest.raises(UnknownPartError, match=rf"model\.layers\.0\.self_attn.*{found}.*recurrences\.py"):
        census_kind(FAMILIES["llama"].new_config(), 0)


def test_a_projection_without_a_place_is_named(monkeypatch):
    from transformers.models.llama.modeling_llama import LlamaMLP

    forward = LlamaMLP.forward

    def with_an_idle_projection(self, hidden_states):
        self.gate_proj(hidden_states)
        return forward(self, hidden_states)

    monkeypatch.setattr(LlamaMLP, "forward", with_an_idle_projection)
    with pytest.raises(UnknownPartError, match=r"mlp\.gate_proj: expected a place for every projection"):
        census_kind(FAMILIES["llama"].new_config(), 0)


def test_a_feed_forward_that_is_no_whole_number_of_projections_is_refused(monkeypatch):
    from transformers.models.llama.modeling_llama import LlamaMLP

    init = LlamaMLP.__init__

    def with_an_odd_width(self, config):
        init(self, config)
        self.up_proj = nn.Linear(config.hidden_size, 96)

    def forward(self, hidden_states):
        wide = self.act_fn(self.gate_proj(hidden_states))
        return self.down_proj(wide + self.up_proj(hidden_states).repeat(1, 1, 2)[..., :160])

    monkeypatch.setattr(LlamaMLP, "__init__", with_an_odd_width)
    monkeypatch.setattr(LlamaMLP, "forward", forward)
    with pytest.raises(UnknownPartError, match=r"expected projections of a whole number of 64 x 160, found 2\.6"):
        census_kind(FAMILIES["llama"].new_config(), 0)


def test_a_layer_that_never_runs_is_named(monkeypatch):
    from transformers.models.llama.modeling_llama import LlamaModel

    forward = LlamaModel.forward

    def without_its_first_layer(self, *args, **kwargs):
        self.config.num_hidden_layers = 1
        return forward(self, *args, **kwargs)

    monkeypatch.setattr(LlamaModel, "forward", without_its_first_layer)
    with pytest.raises(BuildError, match=r"expected each of its 2 layers to run, found model\.layers\.1 idle"):
        census_kind(FAMILIES["llama"].new_config(), 0)


@pytest.mark.parametrize("model_type", ["llama", "qwen3_next"])
def test_a_width_of_zero_is_refused_and_not_counted_as_nothing(model_type):
    from transformers import CONFIG_MAPPING

    field = "moe_intermediate_size" if model_type == "qwen3_next" else "intermediate_size"
    config = CONFIG_MAPPING[model_type](num_hidden_layers=4, **{field: 0})
    with pytest.raises(UnknownPartError, match=r"model\.layers\.0\.mlp\..*: expected a parameter with elements"):
        census_model_spec(config)


def test_a_class_whose_module_is_not_imported_is_refused(monkeypatch):
    from transformers.models.llama import modeling_llama

    monkeypatch.setattr(modeling_llama.LlamaMLP, "__module__", "gone")
    with pytest.raises(BuildError, match="LlamaMLP: expected its module gone to be imported"):
        census_model_spec(FAMILIES["llama"].new_config())
