"""Reading is pure: hand-written events in, counts and dims out, without torch."""

import subprocess
import sys

import pytest

from census.counts import op_facts
from census.dims import dim_facts
from census.errors import UnknownPartError
from census.events import ATTENTION, DROPOUT, ActivationCall, Event, LayerRun, Recording, Value
from census.parts import LayerParts

TOKENS, WIDTH = 6, 8


class Layer:
    """A layer written by hand: each call appends an event and returns the value it makes."""

    def __init__(self):
        self.values, self.events, self.activations = [Value((1, TOKENS, WIDTH))], [], []

    def value(self, *shape, weight=None):
        self.values.append(Value(shape, weight))
        return len(self.values) - 1

    def run(self, op, inputs, *shape, module="", scalars=(), attributes=None):
        output = self.value(*shape)
        self.events.append(Event(op, module, tuple(inputs), (output,), scalars, None, attributes or {}))
        return output

    def norm(self, value, name):
        weight, bias = self.value(WIDTH, weight=f"{name}.weight"), self.value(WIDTH, weight=f"{name}.bias")
        return self.run("aten.native_layer_norm", [value, weight, bias], 1, TOKENS, WIDTH, module=name)

    def project(self, value, name, width, out, bias=False):
        rows = self.run("aten.view", [value], TOKENS, width, module=name)
        weight = self.run("aten.t", [self.value(out, width, weight=f"{name}.weight")], width, out, module=name)
        added = [self.value(out, weight=f"{name}.bias")] if bias else []
        op = "aten.addmm" if bias else "aten.mm"
        made = self.run(op, [*added, rows, weight], TOKENS, out, module=name)
        return self.run("aten.view", [made], 1, TOKENS, out, module=name)

    def attend(self, entry, heads=2, kv_heads=1):
        size = WIDTH // heads
        parts = [
            self.run(
                "aten.view",
                [self.project(entry, f"attn.{role}", WIDTH, count * size)],
                1,
                count,
                TOKENS,
                size,
            )
            for role, count in (("q", heads), ("k", kv_heads), ("v", kv_heads))
        ]
        attributes = {"flavour": "full", "window": None}
        return self.run(ATTENTION, parts, 1, heads, TOKENS, size, module="attn", attributes=attributes)

    def attention(self, entry):
        mixed = self.run("aten.view", [self.attend(entry)], 1, TOKENS, WIDTH)
        return self.project(mixed, "attn.o", WIDTH, WIDTH)

    def feed_forward(self, entry, width=20):
        wide = self.project(entry, "mlp.up", WIDTH, width, bias=True)
        active = self.run("aten.relu", [wide], 1, TOKENS, width, module="mlp.act")
        return self.project(active, "mlp.down", width, WIDTH, bias=True)

    def add(self, *values):
        return self.run("aten.add", values, 1, TOKENS, WIDTH)

    def recording(self, output):
        run = LayerRun(0, "layers.0", tuple(self.events), tuple(self.activations), 0, output)
        return Recording(tuple(self.values), (run,), ((0, 0),))

    def parts(self, output):
        recording = self.recording(output)
        return LayerParts(recording, recording.runs[0])

    def vector(self, output):
        return [fact.value for fact in op_facts(self.parts(output)).values()]


def sequential(layer):
    middle = layer.add(0, layer.attention(layer.norm(0, "ln1")))
    return layer.add(middle, layer.feed_forward(layer.norm(middle, "ln2")))


def test_a_sequential_layer():
    layer = Layer()
    assert layer.vector(sequential(layer)) == [4, 2, 2, 1, 0, 2, 4, 1, 1, 0]


def test_a_parallel_layer_under_one_norm_is_one_region():
    layer = Layer()
    entry = layer.norm(0, "ln")
    output = layer.add(layer.add(0, layer.attention(entry)), layer.feed_forward(entry))
    assert layer.vector(output) == [4, 2, 2, 1, 0, 1, 2, 1, 1, 0]


def test_a_parallel_layer_under_two_norms_is_two_regions():
    layer = Layer()
    attended = layer.attention(layer.norm(0, "ln1"))
    output = layer.add(0, layer.add(attended, layer.feed_forward(layer.norm(0, "ln2"))))
    assert layer.vector(output) == [4, 2, 2, 1, 0, 2, 4, 1, 1, 0]


def test_norms_at_both_ends_of_a_branch_and_after_the_sum_are_the_layers_own():
    layer = Layer()
    middle = layer.add(0, layer.norm(layer.attention(layer.norm(0, "pre")), "post"))
    output = layer.norm(layer.add(middle, layer.feed_forward(middle)), "after")
    assert layer.vector(output) == [4, 2, 2, 1, 0, 3, 4, 1, 1, 0]


def test_a_norm_that_runs_and_leads_nowhere_near_the_stream_is_not_the_layers_own():
    layer = Layer()
    middle = layer.add(0, layer.attention(layer.norm(0, "ln1")))
    wide = layer.project(layer.norm(middle, "ln2"), "mlp.up", WIDTH, WIDTH)
    inner = layer.run("aten.relu", [layer.norm(wide, "mlp.norm")], 1, TOKENS, WIDTH)
    assert layer.vector(layer.add(middle, layer.project(inner, "mlp.down", WIDTH, WIDTH)))[5] == 2


def test_a_layer_that_takes_keys_and_values_from_another_projects_two_roles():
    layer = Layer()
    entry = layer.norm(0, "ln1")
    query = layer.run("aten.view", [layer.project(entry, "attn.q", WIDTH, WIDTH)], 1, 2, TOKENS, 4)
    key, value = layer.value(1, 1, TOKENS, 4), layer.value(1, 1, TOKENS, 4)
    attributes = {"flavour": "full", "window": None}
    mixed = layer.run(ATTENTION, [query, key, value], 1, 2, TOKENS, 4, module="attn", attributes=attributes)
    output = layer.project(layer.run("aten.view", [mixed], 1, TOKENS, WIDTH), "attn.o", WIDTH, WIDTH)
    assert layer.vector(layer.add(0, output))[0] == 2


def test_differential_attention_shares_its_roles_between_two_kernels():
    # Two kernels over the same projections, their difference projected once: attMM 4, two softmaxes.
    layer = Layer()
    entry = layer.norm(0, "ln1")
    roles = [
        layer.run("aten.view", [layer.project(entry, f"attn.{role}", WIDTH, WIDTH)], 1, 2, TOKENS, 4) for role in "qkv"
    ]
    attributes = {"flavour": "full", "window": None}
    one, two = (layer.run(ATTENTION, roles, 1, 2, TOKENS, 4, module="attn", attributes=attributes) for _ in range(2))
    mixed = layer.run("aten.view", [layer.run("aten.sub", [one, two], 1, 2, TOKENS, 4)], 1, TOKENS, WIDTH)
    vector = layer.vector(layer.add(0, layer.project(mixed, "attn.o", WIDTH, WIDTH)))
    assert (vector[0], vector[1], vector[3]) == (4, 4, 2)


def test_scores_of_the_layers_own_are_a_kernel_and_their_dropout_is_the_kernels():
    layer = Layer()
    entry = layer.norm(0, "ln1")
    query, key, value = (
        layer.run("aten.view", [layer.project(entry, f"attn.{role}", WIDTH, WIDTH)], 1, 2, TOKENS, 4) for role in "qkv"
    )
    turned = layer.run("aten.transpose", [key], 1, 2, 4, TOKENS)
    scores = layer.run("aten.bmm", [query, turned], 2, TOKENS, TOKENS)
    weights = layer.run("aten._softmax", [scores], 2, TOKENS, TOKENS, module="attn")
    dropped = layer.run(DROPOUT, [weights], 2, TOKENS, TOKENS, module="attn", attributes={"p": 0.1})
    mixed = layer.run("aten.view", [layer.run("aten.bmm", [dropped, value], 2, TOKENS, 4)], 1, TOKENS, WIDTH)
    output = layer.project(mixed, "attn.o", WIDTH, WIDTH)
    residual = layer.run(DROPOUT, [output], 1, TOKENS, WIDTH, module="drop", attributes={"p": 0.1})
    assert layer.vector(layer.add(0, residual)) == [4, 2, 0, 1, 1, 1, 2, 1, 0, 0]


def test_an_activation_module_of_several_operators_is_one_activation():
    layer = Layer()
    middle = layer.add(0, layer.attention(layer.norm(0, "ln1")))
    wide = layer.project(layer.norm(middle, "ln2"), "mlp.up", WIDTH, 20)
    output = wide
    for op in ("aten.tanh", "aten.sigmoid"):
        output = layer.value(1, TOKENS, 20)
        layer.events.append(Event(op, "mlp.act", (wide,), (output,), (), "mlp.act"))
    layer.activations.append(ActivationCall("mlp.act", "NewGELU", output))
    assert layer.vector(layer.add(middle, layer.project(output, "mlp.down", 20, WIDTH)))[8] == 1


def test_dims_are_those_of_the_kernels_inputs_and_flags_those_of_the_parameters():
    layer = Layer()
    dims = {field: fact.value for field, fact in dim_facts(layer.parts(sequential(layer))).items()}
    assert dims == {
        "hidden_size": 8,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "head_dim": 4,
        "qkv_bias": False,
        "o_bias": False,
        "qk_norm": False,
        "attn_output_gate": False,
        "intermediate_size": 20,
        "mlp_bias": True,
        "layer_norms": 2,
        "norm_bias": True,
    }


def test_evidence_names_the_module_and_the_weight():
    layer = Layer()
    facts = op_facts(layer.parts(sequential(layer)))
    assert facts["normOp"].evidence == "ln1; ln2"
    assert facts["ffMM"].evidence == "mlp.up.weight (8 -> 20), mlp.down.weight (20 -> 8), in units of 8 x 20"


def test_a_layer_whose_input_is_not_carried_to_its_output_is_refused():
    layer = Layer()
    with pytest.raises(UnknownPartError, match="expected a residual stream"):
        layer.vector(layer.attention(layer.norm(0, "ln1")))


def test_a_projection_after_an_activation_on_the_kernels_branch_is_refused():
    layer = Layer()
    attended = layer.attention(layer.norm(0, "ln1"))
    active = layer.run("aten.relu", [attended], 1, TOKENS, WIDTH, module="odd")
    with pytest.raises(UnknownPartError, match=r"layers\.0\.odd.*: expected projections up from .* found odd\.down"):
        layer.vector(layer.add(0, layer.project(active, "odd.down", WIDTH, WIDTH)))


def test_an_activation_straight_after_a_kernel_is_refused():
    layer = Layer()
    attended = layer.attend(layer.norm(0, "ln1"))
    active = layer.run("aten.relu", [attended], 1, TOKENS, WIDTH, module="odd")
    with pytest.raises(UnknownPartError, match=r"layers\.0\.odd: expected projections alone .* aten\.relu"):
        layer.vector(layer.add(0, layer.project(active, "odd.down", WIDTH, WIDTH)))


def test_a_feed_forward_of_an_attentions_output_is_a_region_of_its_own():
    layer = Layer()
    attended = layer.attention(layer.norm(0, "ln1"))
    fed = layer.feed_forward(layer.norm(attended, "ln2"))
    assert layer.vector(layer.add(0, fed)) == [4, 2, 2, 1, 0, 2, 4, 1, 1, 0]


def test_a_feed_forwards_output_may_be_gated_by_a_projection_of_its_own():
    layer = Layer()
    entry = layer.norm(0, "ln")
    gate = layer.run("aten.sigmoid", [layer.project(entry, "mlp.gate", WIDTH, WIDTH)], 1, TOKENS, WIDTH)
    gated = layer.run("aten.mul", [gate, layer.feed_forward(entry)], 1, TOKENS, WIDTH)
    assert layer.vector(layer.add(0, gated)) == [0, 0, 2, 0, 0, 1, 2, 0, 1, 0]


def test_a_low_rank_map_of_the_stream_is_no_feed_forward():
    layer = Layer()
    entry = layer.norm(0, "ln")
    narrow = layer.project(layer.project(entry, "low.left", WIDTH, 2), "low.right", 2, WIDTH)
    mapped = layer.add(0, narrow)
    assert layer.vector(layer.add(mapped, layer.feed_forward(entry))) == [0, 0, 2, 0, 0, 1, 2, 0, 1, 0]


def test_reading_imports_no_torch():
    program = "import sys; sys.modules['torch'] = None; import census.counts, census.dims, census.parts"
    subprocess.run([sys.executable, "-c", program], check=True)
