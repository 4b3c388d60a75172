"""A layer that is not built is one that would have been built the same, and where that is not sure it is built."""

import dataclasses
import random
from types import ModuleType

import pytest
import torch
from torch import nn
from transformers import LlamaConfig
from transformers.modeling_layers import GradientCheckpointingLayer

from census import measure
from census.build import build
from census.events import ATTENTION
from census.listening import record
from census.repeated_layers import NotRepeatsError, RepeatedLayers
from test_models.families import FAMILIES

DEPTH = 8


def nothing(config, index):
    return None


def a_config():
    config = LlamaConfig(num_hidden_layers=DEPTH)
    config.flavours = ["sliding", "full", "sliding", "sliding", "full", "sliding", "sliding", "full"]
    config.routed = [2, 5]
    config.nested = [[1], [2]] * 4
    return config


def layer_of(question):
    """Return a layer's class that holds the answer to a question of its config and index."""

    class Layer(GradientCheckpointingLayer):
        def __init__(self, config, layer_idx):
            super().__init__()
            self.layer_idx = layer_idx
            self.inner = nn.Linear(4, 4, device="meta")
            self.inner.answer = question(config, layer_idx)

        def forward(self, hidden_states):
            return self.inner(hidden_states)

    return Layer


def one(layer_class, config, index):
    return layer_class(config, index)


def built(layer_class, make=one, then=None, tied=(), first=0, depth=DEPTH):
    """Return which layer each of a stack shows, and the stack."""
    file, config, repeated = ModuleType("file"), a_config(), RepeatedLayers()
    file.Layer = layer_class
    with repeated.built_once(file, config):
        layers = [make(layer_class, config, index) for index in range(depth)]
    if then is not None:
        then(layers)
    repeats = repeated.repeats({f"layers.{first + i}": layer for i, layer in enumerate(layers)}, tied)
    return tuple(repeats[index].of if index in repeats else index for index in range(depth)), layers


# Questions that are noted, and which layer each of a stack shows: the first that was asked and answered the same.
NOTED = {
    "none": (nothing, (0,) * DEPTH),
    "at least": (lambda config, i: i >= 3, (0, 0, 0, 3, 3, 3, 3, 3)),
    "within": (lambda config, i: 2 < i <= 5, (0, 0, 0, 3, 3, 3, 6, 6)),
    "is": (lambda config, i: "first" if i == 0 else "later", (0, 1, 1, 1, 1, 1, 1, 1)),
    "step": (lambda config, i: (i + 1) % 4 == 0, (0, 0, 0, 3, 0, 0, 0, 3)),
    "step from the right": (lambda config, i: 9 - i > 4, (0, 0, 0, 0, 0, 5, 5, 5)),
    "block": (lambda config, i: i // 3 == 1, (0, 0, 0, 3, 3, 3, 0, 0)),
    "truth": (lambda config, i: bool(i), (0, 1, 1, 1, 1, 1, 1, 1)),
    "entry": (lambda config, i: config.flavours[i], (0, 1, 0, 0, 1, 0, 0, 1)),
    "entry of a remainder": (lambda config, i: config.flavours[i % 2], (0, 1) * 4),
    "entry before": (lambda config, i: config.flavours[i - 1], (0, 1, 0, 1, 1, 0, 1, 1)),
    "in a list": (lambda config, i: i in config.routed, (0, 0, 2, 0, 0, 2, 0, 0)),
    "in a tuple": (lambda config, i: i in (1, 6), (0, 1, 0, 0, 0, 0, 6, 0)),
    "two": (lambda config, i: i not in config.routed and i % 2 == 1, (0, 1, 2, 1, 0, 2, 0, 1)),
}
UNSETTLED = {
    "a list of the file's own": lambda config, i: list(config.flavours)[i],
    "an entry that is no plain value": lambda config, i: tuple(config.nested[i]),
    "a mapping": lambda config, i: {3: "third"}.get(i),
    "a set": lambda config, i: i in {1, 2},
    "text": lambda config, i: f"{i}"[:0],
    "half": lambda config, i: i / 2 > 100,
    "a random state": lambda config, i: random.Random(int(i)).random() < 2,
    "a shape": lambda config, i: torch.empty(i + 1, device="meta").dim(),
    "a range": lambda config, i: len(range(i)) < 100,
    "its bits": lambda config, i: i.bit_length() < 60,
    "a power": lambda config, i: 2**i > 1000,
}


@pytest.mark.parametrize(("question", "shown"), NOTED.values(), ids=list(NOTED))
def test_layers_of_one_answer_are_built_once(question, shown):
    config = a_config()
    answers = [question(config, index) for index in range(DEPTH)]
    built_as, layers = built(layer_of(question))
    assert built_as == shown
    assert [layer.layer_idx for layer in layers] == list(range(DEPTH))
    assert [layer.inner.answer for layer in layers] == answers
    assert all(type(layer.layer_idx) is int for layer in layers)


@pytest.mark.parametrize("question", UNSETTLED.values(), ids=list(UNSETTLED))
def test_what_is_asked_otherwise_is_built(question):
    config = a_config()
    built_as, layers = built(layer_of(question))
    answers = [question(config, index) for index in range(DEPTH)]
    assert [layer.inner.answer for layer in layers] == answers
    assert all(answers[shown] == answers[index] for index, shown in enumerate(built_as))


def test_what_a_layer_holds_of_its_number_is_told():
    built_as, layers = built(layer_of(lambda config, i: [i + 1, (i,), {"at": i}]))
    assert built_as == tuple(range(DEPTH))
    assert layers[3].inner.answer == [4, (3,), {"at": 3}]
    assert [type(held) for held in (layers[3].inner.answer[0], layers[3].inner.answer[1][0])] == [int, int]


def test_a_number_made_of_the_index_is_another_in_each_layer():
    built_as, layers = built(layer_of(lambda config, i: i + 1))
    assert built_as == tuple(range(DEPTH))
    assert [layer.inner.answer for layer in layers] == list(range(1, DEPTH + 1))


def test_a_stack_of_many_different_layers_is_built_and_not_compared_with_all_before():
    noted = []

    def question(config, i):
        noted.append(type(i) is not int)
        return int(i)

    built_as, layers = built(layer_of(question), depth=40)
    assert built_as == tuple(range(40)) == tuple(layer.inner.answer for layer in layers)
    assert noted == [True] * 8 + [False] * 32


def test_a_repeat_shows_the_modules_of_the_layer_that_was_built():
    _, layers = built(layer_of(nothing))
    assert all(layer.inner is layers[0].inner for layer in layers)
    assert len({id(layer) for layer in layers}) == DEPTH


def test_what_a_layer_is_given_beside_numbers_must_be_the_same():
    class Layer(layer_of(nothing)):
        def __init__(self, config, layer_idx, flavour):
            super().__init__(config, layer_idx)
            self.flavour = flavour

    flavours = a_config().flavours
    built_as, layers = built(Layer, make=lambda cls, config, i: cls(config, i, flavour=flavours[i]))
    assert built_as == tuple(flavours.index(flavour) for flavour in flavours)
    assert [layer.flavour for layer in layers] == flavours


def test_what_could_be_shared_is_not_repeated():
    shared = nn.Linear(4, 4, device="meta")

    class Layer(layer_of(nothing)):
        def __init__(self, config, layer_idx, block):
            super().__init__(config, layer_idx)
            self.block = block

    built_as, _ = built(Layer, make=lambda cls, config, i: cls(config, i, shared))
    assert built_as == tuple(range(DEPTH))


def test_a_config_that_is_changed_from_layer_to_layer_is_another_one():
    flavours = a_config().flavours

    def make(layer_class, config, index):
        config.width = flavours[index]
        return layer_class(config, index)

    built_as, layers = built(layer_of(lambda config, i: config.width), make=make)
    assert built_as == tuple(flavours.index(flavour) for flavour in flavours)
    assert [layer.inner.answer for layer in layers] == flavours


def sets(value):
    def then(layers):
        for index, layer in enumerate(layers):
            layer.inner.answer = value(index)

    return then


def gives_each_a_buffer(layers):
    for layer in layers:
        layer.inner.register_buffer("scale", torch.empty(3, device="meta"))


def makes_one_wider(layers):
    layers[5].inner.weight = nn.Parameter(torch.empty(9, 9, device="meta"))


def gives_one_a_module(layers):
    layers[5].extra = nn.Linear(2, 2, device="meta")


def marks_one(layers):
    layers[5].is_special = True


@pytest.mark.parametrize(
    "then", [sets(lambda index: index), gives_each_a_buffer, makes_one_wider, gives_one_a_module, marks_one]
)
def test_layers_that_are_changed_after_they_were_built_are_no_repeats(then):
    with pytest.raises(NotRepeatsError):
        built(layer_of(nothing), then=then)


def test_layers_whose_parameters_are_tied_are_no_repeats():
    assert built(layer_of(nothing), tied=["lm_head.weight"])[0] == (0,) * DEPTH
    for within in ("", "tower."):
        with pytest.raises(NotRepeatsError):
            built(layer_of(nothing), tied=[f"{within}layers.3.inner.weight"])


def test_a_number_that_is_kept_and_is_not_the_layers_place_is_no_index():
    with pytest.raises(NotRepeatsError):
        built(layer_of(nothing), first=1)
    assert built(layer_of(lambda config, i: i == 100), make=lambda cls, config, i: cls(config, 7))[0] == (0,) * DEPTH


def test_the_classes_and_the_config_are_put_back():
    layer_class, config = layer_of(NOTED["entry"][0]), a_config()
    own, file = layer_class.__init__, ModuleType("file")
    file.Layer = layer_class
    for fails in (False, True):
        try:
            with RepeatedLayers().built_once(file, config):
                assert layer_class.__init__ is not own
                config.routed = [7]
                assert not fails
        except AssertionError:
            assert fails
        assert layer_class.__init__ is own
        assert vars(config) == {**vars(a_config()), "routed": [7]}
        assert {type(held) for held in (config.flavours, config.nested)} == {list}


@pytest.mark.parametrize("in_full", [False, True])
def test_a_repeat_that_runs_itself_takes_its_own_place_in_a_cache(in_full):
    stack = dataclasses.replace(build(FAMILIES["llama"].new_config(), in_full), told={"use_cache": True})
    recording = record(stack, 8)
    shapes = [
        [recording.values[value].shape[-2] for value in event.inputs[:2]]
        for run in recording.runs
        for event in run.events
        if event.op == ATTENTION
    ]
    # As many keys as queries: those of another layer would stand before them.
    assert shapes == [[8, 8]] * len(stack.layers)
    assert stack.layers[0].self_attn.layer_idx == 0


def test_a_stack_of_repeats_is_measured_as_one_that_is_built():
    family = FAMILIES["llama"]
    few = build(family.new_config())
    assert len(set(few.built_as)) == 1 < len(few.layers)
    assert len(set(build(family.new_config(), in_full=True).built_as)) == len(few.layers)


def test_a_model_whose_building_fails_with_a_number_that_notes_is_built_in_full(monkeypatch):
    from transformers.models.llama import modeling_llama

    own = modeling_llama.LlamaAttention.__init__

    def strict(attention, config, layer_idx):
        assert type(layer_idx) is int, "an index"
        own(attention, config, layer_idx)

    spec = measure(FAMILIES["llama"].new_config()).spec
    monkeypatch.setattr(modeling_llama.LlamaAttention, "__init__", strict)
    assert len(set(build(FAMILIES["llama"].new_config()).built_as)) > 1
    assert measure(FAMILIES["llama"].new_config()).spec == spec
