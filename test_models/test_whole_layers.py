"""Nothing of a small type's layers is taken on trust: each layer runs itself, and runs all that it holds.

A layer stands for those built like it; one that went by its own index would hide behind it. And no count and no flag
tells a norm of keys that is built and not called from one that is.
"""

import pytest

from census.kinds import read_runs
from census.measurement import forward
from test_models.case_table import MEASURED

SMALL = [
    case
    for name, case in MEASURED.items()
    if case.group.startswith("types") and name.endswith("-small") and not case.language_model
]

small_types = pytest.mark.parametrize("small", SMALL, ids=str)

_CROSS = ("encoder_attn", "encoder_attn_layer_norm")

# By type, the parts of a path that no run on tokens alone reaches: cross-attention of a decoder without its encoder,
# segments where none are given, and of a shared block's adapters those of the other places where it stands.
IDLE = {
    **dict.fromkeys(
        ("bart", "bigbird_pegasus", "blenderbot", "blenderbot-small", "marian", "mbart", "musicgen", "mvp", "pegasus",
         "plbart", "trocr", "whisper"),
        _CROSS,
    ),
    "prophetnet": ("cross_attn", "cross_attn_layer_norm"),
    "xlnet": ("r_s_bias", "seg_embed"),
    "zamba2": ("gate_up_proj_adapter_list",),
}  # fmt: skip


@small_types
def test_every_parameter_of_a_layer_is_in_what_ran(small):
    built, recording = forward(small.new_config())
    idle = set()
    for index, run in recording.executions:
        taken = {recording.values[value].weight for event in recording.runs[run].events for value in event.inputs}
        idle.update(name for name, _ in built.layers[index].named_parameters() if name not in taken)
    stated = set(IDLE.get(small.model_type, ()))
    unstated = sorted(name for name in idle if stated.isdisjoint(name.split(".")))
    assert not unstated, f"{small}: held and not run: {', '.join(unstated)}"
    healed = stated - {part for name in idle for part in name.split(".")}
    assert not healed, f"{small}: stated to lie idle and run: {', '.join(healed)}"


@small_types
def test_a_layer_that_runs_itself_states_what_its_representative_does(small):
    def read(in_full):
        built, recording = forward(small.new_config(), in_full=in_full)
        layers = read_runs(built, recording)
        return [
            (index, {**layers[run].ops, **layers[run].dims, **layers[run].details})
            for index, run in recording.executions
        ]

    represented, whole = read(in_full=False), read(in_full=True)
    assert [index for index, _ in represented] == [index for index, _ in whole]
    for (index, stood_for), (_, own) in zip(represented, whole, strict=True):
        unlike = {
            field: (stood_for.get(field), own.get(field))
            for field in {**stood_for, **own}
            if stood_for.get(field) != own.get(field)
        }
        assert not unlike, f"{small}, layer {index}: represented, itself: {unlike}"
