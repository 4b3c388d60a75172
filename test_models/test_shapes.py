"""Layers by how they are built: one representative stands for its repeats, and a layer alone tells its flavours."""

import pytest
import torch

from census import UnknownPartError, layer_shape
from census.build import build
from census.counts import op_facts
from census.dims import dim_facts
from census.grouping import layer_signatures
from census.measurement import forward
from census.parts import LayerParts
from census.shapes import flavours
from test_models.case_table import PUBLISHED
from test_models.families import FAMILIES

# One case of each class of layers: the static reading needs a build of the whole stack.
ONE_OF_EACH_TYPE = list({case.model_type: case for case in reversed(PUBLISHED.values())}.values())


@pytest.mark.parametrize("family", FAMILIES.values(), ids=str)
def test_running_every_layer_says_what_the_representatives_said(family):
    def read(in_full):
        _, recording = forward(family.new_config(), 48, in_full=in_full)
        parts = {run: LayerParts(recording, recording.runs[run]) for _, run in recording.executions}
        return [
            (index, op_facts(parts[run]), dim_facts(parts[run]), [(e.op, e.module) for e in recording.runs[run].events])
            for index, run in recording.executions
        ], len(recording.runs)

    (represented, few), (whole, all_of_them) = read(in_full=False), read(in_full=True)
    assert represented == whole
    assert few <= all_of_them == len(whole)


@pytest.mark.parametrize("model", ONE_OF_EACH_TYPE, ids=str)
def test_a_layer_alone_tells_the_flavours_that_running_it_measures(model):
    built, recording = forward(model.config_object, 16)
    # A layer that shows another one's modules has its shape.
    for index, run in {built.built_as[index]: (index, run) for index, run in recording.executions}.values():
        shape = layer_shape(built.layers[index])
        assert (shape.attention, shape.ffn) == flavours(LayerParts(recording, recording.runs[run])), index


def test_a_layers_params_are_its_paths_and_shapes():
    built = build(FAMILIES["llama"].new_config())
    assert dict(layer_shape(built.layers[0]).params)["self_attn.k_proj.weight"] == (32, 64)


class ScoresByModule(torch.nn.Module):
    """As CodeGen's attention scored until Transformers 5.23."""

    def __init__(self):
        super().__init__()
        self.qkv_proj, self.out_proj = torch.nn.Linear(8, 24), torch.nn.Linear(8, 8)

    def forward(self, hidden_states):
        query, key, value = self.qkv_proj(hidden_states).chunk(3, -1)
        return self.out_proj(torch.nn.Softmax(dim=-1)(query @ key.mT) @ value)


def test_scores_by_a_module_that_is_made_where_it_is_called_are_attention():
    assert layer_shape(torch.nn.Sequential(ScoresByModule())).attention == "full"


def test_what_is_no_layer_is_refused():
    with pytest.raises(UnknownPartError, match="LayerNorm: expected modules that attend, recur or feed forward"):
        layer_shape(torch.nn.LayerNorm(4))


def test_a_plain_attribute_makes_another_layer_and_the_layers_own_index_does_not():
    layers = build(FAMILIES["gemma3_text"].new_config()).layers
    one, two, three = layer_signatures(layers, range(len(layers)))
    assert one == two
    assert one != three, "a sliding layer and a full one have the same parameters and do different work"


def test_a_layer_is_counted_as_often_as_it_runs(monkeypatch):
    from transformers.models.llama.modeling_llama import LlamaModel

    forward = LlamaModel.forward

    def twice_through_the_first_layer(self, *args, **kwargs):
        first = self.layers[0]
        inner = first.forward
        first.forward = lambda hidden_states, **others: inner(inner(hidden_states, **others), **others)
        return forward(self, *args, **kwargs)

    monkeypatch.setattr(LlamaModel, "forward", twice_through_the_first_layer)
    census = FAMILIES["llama"].measure()
    assert census.stack == ("decoder",) * 3
    assert census.evidence["num_hidden_layers"] == "model.layers.0 to model.layers.1: 2 layers, 3 executions"
