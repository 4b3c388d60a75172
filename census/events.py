"""What one forward says: values, the events that made them, and the layer executions they belong to.

An event is one thing that ran inside a layer: an operator, a score kernel, a recurrence, a dropout. A value
is one tensor version, known by its number in `Recording.values`; a tensor written in place becomes a new
value. Nothing here knows torch: reading a recording is pure, so recorded events can be tested by themselves.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

Shape = tuple[int, ...]

ATTENTION = "census.attention"
"""The event of a score kernel: takes queries, keys and values, each (batch, heads, sequence, width), and a mask."""

DROPOUT = "dropout"
"""The event of one dropout call with p > 0 in training."""

RECURRENCE = "recurrence."
"""The prefix of a recurrence's event; what follows names its entry in the table of recurrences."""


@dataclass(frozen=True, slots=True)
class Value:
    """One version of one tensor.

    Attributes:
        shape: its shape.
        weight: the layer-relative name of the parameter or buffer it is, or None for an activation.
    """

    shape: Shape
    weight: str | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Event:
    """One thing that ran; equal to itself alone.

    Attributes:
        op: the operator (`aten.mm`), or one of the names above.
        module: path of the innermost module that was running, relative to the layer ("" is the layer).
        inputs: the tensors it took, in order of its arguments, as value numbers.
        outputs: the tensors it returned or wrote.
        scalars: its arguments that are no tensors, in order, keyword arguments last.
        activation: path of the activation module it ran in, or None.
        attributes: what a kernel or recurrence states of itself (its window, its dropout, its heads, its state's size).
    """

    op: str
    module: str
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    scalars: tuple[object, ...] = ()
    activation: str | None = None
    attributes: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ActivationCall:
    """One call of an activation module: its path, its class, and the value it returned."""

    module: str
    name: str
    output: int


@dataclass(frozen=True, slots=True)
class LayerRun:
    """One execution of one layer.

    Attributes:
        index: the layer's place in the stack.
        path: the layer's path in the model.
        events: what ran in it, in order.
        activations: the activation modules that were called in it, in order.
        input: the value that came in on the residual stream.
        output: the value that left on it.
    """

    index: int
    path: str
    events: tuple[Event, ...]
    activations: tuple[ActivationCall, ...]
    input: int
    output: int


@dataclass(frozen=True, slots=True)
class ModuleCall:
    """One call of a module outside the layers that holds parameters.

    Attributes:
        path: its path in the model.
        input: the shape of the first tensor it took, empty where it took none.
    """

    path: str
    input: Shape


@dataclass(frozen=True, slots=True)
class Recording:
    """One forward of one model.

    Attributes:
        values: every value, by number.
        runs: the layer executions that were recorded.
        executions: for every layer execution of the forward, in order: the layer's index and the place in
            `runs` of the execution that shows what it does (its own, or that of a layer built the same).
        batch: sequences of the forward.
        tokens: tokens of all sequences, 0 where the model was given something else than tokens.
        outside: calls of modules outside the layers.
    """

    values: tuple[Value, ...]
    runs: tuple[LayerRun, ...]
    executions: tuple[tuple[int, int], ...]
    batch: int = 1
    tokens: int = 0
    outside: tuple[ModuleCall, ...] = ()
