"""A module that Transformers does not build is measured by what builds it, or refused with what census would need."""

import functools

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from torch import nn

from census import BuildError, OwnModel, UnknownPartError, measure, parameters

WIDTH, HEADS, KEYS, VOCABULARY = 64, 4, 2, 100


class Layer(nn.Module):
    """Attention of four heads over two of keys, by torch's own kernel, and a plain feed-forward."""

    def __init__(self):
        super().__init__()
        self.before_attention, self.before_mlp = nn.RMSNorm(WIDTH), nn.RMSNorm(WIDTH)
        self.query, self.out = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH, bias=False)
        self.key, self.value = (nn.Linear(WIDTH, WIDTH * KEYS // HEADS) for _ in "kv")
        self.up, self.down = nn.Linear(WIDTH, 3 * WIDTH, bias=False), nn.Linear(3 * WIDTH, WIDTH, bias=False)

    def forward(self, stream):
        taken = self.before_attention(stream)
        query, key, value = (
            made(taken).unflatten(-1, (-1, WIDTH // HEADS)).transpose(1, 2)
            for made in (self.query, self.key, self.value)
        )
        stream = stream + self.out(self.attend(query, key, value).transpose(1, 2).flatten(2))
        return stream + self.down(F.gelu(self.up(self.before_mlp(stream))))

    def attend(self, query, key, value):
        return F.scaled_dot_product_attention(query, key, value, is_causal=True, enable_gqa=True)


class Repeating(Layer):
    def attend(self, query, key, value):
        key, value = (held.repeat_interleave(HEADS // KEYS, 1) for held in (key, value))
        return F.scaled_dot_product_attention(query, key, value, None, 0.0, True)


class Dropping(Layer):
    def attend(self, query, key, value):
        return F.scaled_dot_product_attention(query, key, value, dropout_p=0.1, is_causal=True, enable_gqa=True)


class ByHand(Layer):
    def attend(self, query, key, value):
        key, value = (held.repeat_interleave(HEADS // KEYS, 1) for held in (key, value))
        return (query @ key.transpose(-2, -1) / 4).softmax(-1) @ value


class Masked(Layer):
    def attend(self, query, key, value):
        tokens = query.shape[-2]
        window = torch.ones(tokens, tokens, dtype=torch.bool).tril().triu(-8)
        return F.scaled_dot_product_attention(query, key, value, attn_mask=window, enable_gqa=True)


class MaskedByHand(Layer):
    def attend(self, query, key, value):
        tokens = query.shape[-2]
        key, value = (held.repeat_interleave(HEADS // KEYS, 1) for held in (key, value))
        scores = query @ key.transpose(-2, -1) / 4
        return scores.masked_fill(torch.ones(tokens, tokens, dtype=torch.bool).triu(1), -1e9).softmax(-1) @ value


class Model(nn.Module):
    def __init__(self, layer=Layer, tied=False):
        super().__init__()
        self.table = nn.Embedding(VOCABULARY, WIDTH)
        self.blocks = nn.ModuleList(layer() for _ in range(3))
        self.norm, self.logits = nn.RMSNorm(WIDTH), nn.Linear(WIDTH, VOCABULARY, bias=False)
        if tied:
            self.logits.weight = self.table.weight

    def forward(self, tokens):
        stream = self.table(tokens)
        for block in self.blocks:
            stream = block(stream)
        return self.logits(self.norm(stream))


def own(build=Model, **facts):
    return OwnModel(build, "ours", **{"embedding": "table", "head": "logits", **facts})


def test_a_module_is_stated_as_its_source_reads():
    spec = measure(own(), "default").spec
    assert spec["ops"]["decoder"] == {
        "attMM": 4, "attBMM": 2, "ffMM": 2, "softmax": 1, "dropout": 0, "normOp": 2, "gather": 4, "headCast": 1,
        "ffAct": 1, "linrec": 0,
    }  # fmt: skip
    stated = {
        "name": "ours", "hidden_size": 64, "num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 2,
        "head_dim": 16, "vocab_size": 100, "intermediate_size": 192, "qkv_bias": True, "o_bias": False,
        "mlp_bias": False, "tie_word_embeddings": False,
    }  # fmt: skip
    assert {field: spec[field] for field in stated} == stated
    assert "max_position_embeddings" not in spec


@pytest.mark.parametrize("tied", [False, True])
def test_its_parameters_by_the_spec_are_those_it_holds(tied):
    build = functools.partial(Model, tied=tied)
    spec = measure(own(build), "default").spec
    assert spec["tie_word_embeddings"] is tied
    assert parameters(spec)["total"] == sum(parameter.numel() for parameter in build().parameters())


def sharing():
    model = Model()
    model.blocks[1].out.weight = model.blocks[0].query.weight
    return model


def test_a_weight_that_two_layers_share_is_of_each_by_its_own_name_and_held_once():
    spec = measure(own(sharing), "default").spec
    attention = [WIDTH, WIDTH], [WIDTH, WIDTH // 2], [WIDTH, WIDTH // 2], [WIDTH, WIDTH]
    assert spec["kinds"]["decoder"]["projections"]["attention"] == list(attention)
    assert spec["kinds"]["decoder"]["tied_parameters"] == {"attention": WIDTH * WIDTH}
    assert parameters(spec)["total"] == sum(parameter.numel() for parameter in sharing().parameters())


@pytest.mark.parametrize("layer", [Repeating, ByHand])
def test_the_same_attention_written_otherwise_is_stated_the_same(layer):
    assert measure(own(functools.partial(Model, layer)), "default").spec == measure(own(), "default").spec


def test_a_dropout_of_torchs_score_kernel_is_the_kernels_own():
    assert measure(own(functools.partial(Model, Dropping)), "default").spec == measure(own(), "default").spec


def test_the_positions_are_those_it_was_said_to_have():
    assert measure(own(max_position_embeddings=32), "default").spec["max_position_embeddings"] == 32


@pytest.mark.parametrize("layer", [Masked, MaskedByHand])
def test_a_mask_of_its_own_is_refused_since_its_reach_cannot_be_read(layer):
    with pytest.raises(UnknownPartError, match=r"^blocks\.0: expected scores without a mask.*is_causal=True"):
        measure(own(functools.partial(Model, layer)), "default")


class Empty(Model):
    def __init__(self):
        super().__init__()
        self.blocks = nn.Sequential(*self.blocks)


class Reading(Model):
    def __init__(self):
        super().__init__()
        self.scale = self.table.weight.max().item()


@pytest.mark.parametrize(
    ("config", "says"),
    [
        (own(Model()), r"build: expected a function that builds the model, found a Model; pass one"),
        (own(lambda: 3), "build: expected a torch module, found 3"),
        (own(Reading), "build failed on the meta device .*without reading values"),
        (own(embedding="tables"), "embedding: expected the path of an nn.Embedding, found 'tables'; pass one of table"),
        (own(head="table"), "head: expected the path of a module .* found 'table'; pass one of logits"),
        (own(Empty), "expected a list of layers in Empty, found no module list; hold them in an nn.ModuleList"),
    ],
)
def test_what_cannot_be_measured_is_refused_with_what_census_needs(config, says):
    with pytest.raises(BuildError, match=f"^ours: {says}"):
        measure(config, "default")
