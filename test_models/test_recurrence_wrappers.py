"""A recurrence is known by what runs, whatever stands around its function and wherever a layer holds it."""

import functools
import types
from importlib.util import find_spec

import pytest
from torch import nn
from transformers.integrations import hub_kernels

from census import OwnModel, UnknownPartError, measure
from census.recurrences import recurrences

WIDTH, HEADS, TOKENS_AT = 32, 4, 1

SHAPES = {
    "delta rule": "query key value: batch tokens heads width",
    "mamba2": "hidden_states B C: batch tokens heads width",
    "mamba": "hidden_states B C: batch channels tokens",
    "diagonal": "hidden_states: batch tokens channels",
    "rwkv": "key value: batch tokens channels",
    "mlstm": "query key value: batch heads tokens width",
}
"""What a kind of function takes, as read in Transformers, and how the dimensions of each of these lie."""

FUNCTIONS = {
    **dict.fromkeys(
        (
            "torch_chunk_gated_delta_rule",
            "torch_recurrent_gated_delta_rule",
            "chunk_gated_delta_rule",
            "fused_recurrent_gated_delta_rule",
            "chunk_kimi_delta_attention",
            "recurrent_kimi_delta_attention",
        ),
        "delta rule",
    ),
    "mamba2_chunk_scan": "mamba2",
    "mamba_selective_scan": "mamba",
    "_rnn_scan": "diagonal",
    "rwkv_linear_attention": "rwkv",
    **dict.fromkeys(
        (
            "wrap_chunkwise_pad_zeros",
            "wrap_chunkwise_arbitrary_sequence_length",
            "mlstm_chunkwise_native_autograd",
        ),
        "mlstm",
    ),
}


def taken_by(name):
    return SHAPES[FUNCTIONS[name]].partition(":")[0].split()


def recurrence_named(name):
    """Return a function of the name that takes what Transformers' own takes, and says so if it ever runs."""
    made = {}
    says = "a recurrence that is heard does not run"
    exec(f"def {name}({', '.join(taken_by(name))}, g=None, **_): raise AssertionError({says!r})", globals(), made)
    return made[name]


torch_chunk_gated_delta_rule = RULE = recurrence_named("torch_chunk_gated_delta_rule")


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


def from_the_hub(rule):
    from kernels import use_kernel_forward_from_hub

    return use_kernel_forward_from_hub("a name that no kernel has")(rule)


def for_a_package(rule):
    return hub_kernels.use_kernel_func_from_hub_with_fallback(rule.__name__, "a_package_that_nobody_has")(rule)


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

FROM_OUTSIDE = {}
"""How packages wrap a function that they may replace, by themselves and on one another, where they are installed."""
if find_spec("kernels") is not None:
    FROM_OUTSIDE["kernels"] = from_the_hub
    FROM_OUTSIDE["kernels on a decorator"] = lambda rule: from_the_hub(decorated(rule))
if hasattr(hub_kernels, "use_kernel_func_from_hub_with_fallback"):
    FROM_OUTSIDE["Transformers since 5.25"] = for_a_package
WAYS |= FROM_OUTSIDE


class Layer(nn.Module):
    """A mixer of one projection for each tensor that the recurrence takes and one after it, and an MLP."""

    def __init__(self, name, rule=None):
        super().__init__()
        self.dimensions = SHAPES[FUNCTIONS[name]].split(": ")[1].split()
        self.before_mixer, self.before_mlp = nn.RMSNorm(WIDTH), nn.RMSNorm(WIDTH)
        self.taken = nn.ModuleDict({role: nn.Linear(WIDTH, WIDTH, bias=False) for role in taken_by(name)})
        self.out = nn.Linear(WIDTH, WIDTH, bias=False)
        self.up, self.down = nn.Linear(WIDTH, 2 * WIDTH, bias=False), nn.Linear(2 * WIDTH, WIDTH, bias=False)
        self.rule = rule

    def forward(self, stream):
        taken = self.before_mixer(stream)
        parts = [self.laid_out(made(taken)) for made in self.taken.values()]
        mixed = (self.rule or RULE)(*parts)
        mixed = mixed[0] if isinstance(mixed, tuple) else mixed
        stream = stream + self.out(mixed.movedim(self.dimensions.index("tokens"), TOKENS_AT).reshape(stream.shape))
        return stream + self.down(nn.functional.silu(self.up(self.before_mlp(stream))))

    def laid_out(self, part):
        part = part.unflatten(-1, (HEADS, -1)) if "heads" in self.dimensions else part
        return part.movedim(TOKENS_AT, self.dimensions.index("tokens"))


class Model(nn.Module):
    """A layer for each of the rules given."""

    def __init__(self, name, rules):
        super().__init__()
        self.table = nn.Embedding(100, WIDTH)
        self.blocks = nn.ModuleList(Layer(name, rule) for rule in rules)
        self.norm, self.logits = nn.RMSNorm(WIDTH), nn.Linear(WIDTH, 100, bias=False)

    def forward(self, tokens):
        stream = self.table(tokens)
        for block in self.blocks:
            stream = block(stream)
        return self.logits(self.norm(stream))


def ops_of(*rules, name="torch_chunk_gated_delta_rule"):
    """Return the vector of a model whose layers hold a rule each, None for what the file holds; census holds that
    one kind's layers run alike."""
    model = OwnModel(functools.partial(Model, name, rules), "ours", "table", "logits")
    return measure(model, "qwen3_5").spec["ops"]["linear_attention"]


BY_CONSTRUCTION = {
    "attMM": 4, "attBMM": 0, "ffMM": 2, "softmax": 0, "dropout": 0, "normOp": 2, "gather": 4, "headCast": 0,
    "ffAct": 1, "linrec": 1,
}  # fmt: skip
"""Of every kind of recurrence: queries, keys and values, which are its gates' where it takes none, and the output."""


def test_every_function_of_the_table_is_tried():
    assert FUNCTIONS.keys() == recurrences().keys()


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_recurrence_that_a_module_holds_is_heard_in_every_way_of_wrapping_it(name):
    assert ops_of(*(wrap(recurrence_named(name)) for wrap in WAYS.values()), name=name) == BY_CONSTRUCTION


@pytest.mark.parametrize("way", WAYS)
def test_a_wrapped_recurrence_that_a_file_holds_under_another_name_is_heard(monkeypatch, way):
    for name in FUNCTIONS if way in FROM_OUTSIDE else ("torch_chunk_gated_delta_rule",):
        monkeypatch.setitem(globals(), "RULE", WAYS[way](recurrence_named(name)))
        assert ops_of(None, None, name=name) == BY_CONSTRUCTION


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
