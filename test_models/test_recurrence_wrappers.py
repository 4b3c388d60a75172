"""A recurrence is known by what runs, whatever stands around its function and wherever a layer holds it."""

import functools
import types

import pytest
from torch import nn

from census import OwnModel, UnknownPartError, measure

WIDTH, HEADS = 32, 4


def torch_chunk_gated_delta_rule(query, key, value, g=None, **_):
    raise AssertionError("a recurrence that is heard does not run")


RULE = torch_chunk_gated_delta_rule


def decorated(rule):
    @functools.wraps(rule)
    def wrapper(*args, **kwargs):
        return rule(*args, **kwargs)

    return wrapper


def handed_on(rule):
    def torch_chunk_gated_delta_rule(*args, **kwargs):
        return rule(*args, **kwargs)

    return torch_chunk_gated_delta_rule


def anonymous(rule):
    return lambda *args: rule(*args)


class Holder:
    def __init__(self, rule):
        self.rule = rule

    def __call__(self, *args, **kwargs):
        return self.rule(*args, **kwargs)

    def run(self, *args, **kwargs):
        return self.rule(*args, **kwargs)


def as_module(rule):
    """Return a module around a function, as the `kernels` package makes of one that it may replace."""

    class Func(nn.Module):
        def forward(self, *args, **kwargs):
            return rule(*args, **kwargs)

    return Func()


WAYS = {
    "functools.wraps": decorated,
    "a wrapper of the same name": handed_on,
    "a wrapper without a name": anonymous,
    "a partial": lambda rule: functools.partial(rule, g=None),
    "a callable": Holder,
    "a method": lambda rule: Holder(rule).run,
    "a module": as_module,
    "a module around a decorator around a partial": lambda rule: as_module(decorated(functools.partial(rule, g=None))),
}


class Layer(nn.Module):
    def __init__(self, rule=None):
        super().__init__()
        self.before_mixer, self.before_mlp = nn.RMSNorm(WIDTH), nn.RMSNorm(WIDTH)
        self.query, self.key, self.value, self.out = (nn.Linear(WIDTH, WIDTH, bias=False) for _ in "qkvo")
        self.up, self.down = nn.Linear(WIDTH, 2 * WIDTH, bias=False), nn.Linear(2 * WIDTH, WIDTH, bias=False)
        self.rule = rule

    def forward(self, stream):
        taken = self.before_mixer(stream)
        parts = [made(taken).unflatten(-1, (HEADS, -1)) for made in (self.query, self.key, self.value)]
        mixed, _ = (self.rule or RULE)(*parts)
        stream = stream + self.out(mixed.flatten(2))
        return stream + self.down(nn.functional.silu(self.up(self.before_mlp(stream))))


class Model(nn.Module):
    def __init__(self, rule=None):
        super().__init__()
        self.table = nn.Embedding(100, WIDTH)
        self.blocks = nn.ModuleList(Layer(rule) for _ in range(2))
        self.norm, self.logits = nn.RMSNorm(WIDTH), nn.Linear(WIDTH, 100, bias=False)

    def forward(self, tokens):
        stream = self.table(tokens)
        for block in self.blocks:
            stream = block(stream)
        return self.logits(self.norm(stream))


def ops_of(rule=None):
    return measure(OwnModel(functools.partial(Model, rule), "ours", "table", "logits"), "qwen3_5").spec["ops"][
        "linear_attention"
    ]


BY_CONSTRUCTION = {
    "attMM": 4, "attBMM": 0, "ffMM": 2, "softmax": 0, "dropout": 0, "normOp": 2, "gather": 4, "headCast": 0,
    "ffAct": 1, "linrec": 1,
}  # fmt: skip


@pytest.mark.parametrize("way", WAYS)
def test_a_wrapped_recurrence_that_a_module_holds_is_heard(way):
    assert ops_of(WAYS[way](torch_chunk_gated_delta_rule)) == BY_CONSTRUCTION


@pytest.mark.parametrize("way", WAYS)
def test_a_wrapped_recurrence_that_a_file_holds_under_another_name_is_heard(monkeypatch, way):
    monkeypatch.setitem(globals(), "RULE", WAYS[way](torch_chunk_gated_delta_rule))
    assert ops_of() == BY_CONSTRUCTION


def test_the_function_is_itself_again_afterwards():
    code = torch_chunk_gated_delta_rule.__code__
    ops_of(torch_chunk_gated_delta_rule)
    assert torch_chunk_gated_delta_rule.__code__ is code


def test_a_function_of_a_known_name_and_other_arguments_is_refused_with_its_place():
    def mix(q, k, v):
        return v, None

    rule = types.FunctionType(mix.__code__, globals(), "chunk_gated_delta_rule")
    line = mix.__code__.co_firstlineno
    with pytest.raises(
        UnknownPartError, match=rf"blocks\.0: .*\({__file__}:{line}\) to take query, key, value"
    ) as refused:
        ops_of(rule)
    assert "give the function another name" in str(refused.value)
