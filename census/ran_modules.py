"""The modules that evidence names: from the text of a census' evidence back to what ran, its shapes and its source."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from torch import nn

from census.build import BuiltStack
from census.code_places import class_place, forward_place, function_place
from census.events import ATTENTION, RECURRENCE, Event, Recording
from census.graph import LayerGraph

_PATH = re.compile(r"(?:^|(?<=[;,] )|(?<= (?:by|to) )|(?<= \+ )|(?<=\+))([A-Za-z_][\w.]*\w)(?=$|[;,:+]| [(+]| takes)")
"""A path as evidence writes it: what a clause begins with. A word that is no path of the layer is passed over."""

_CONFIG = "config: "

_OF_TORCH = "torch."
"""Torch's own modules are told by the module of a modeling file that holds them."""


@dataclass(frozen=True)
class Place:
    """A module that ran.

    Attributes:
        module: its path in the model, or the field of the config.
        shapes: of the parameters that the evidence names, of what a kernel took, or of the residual stream.
        code: the file, line and name of its forward; for a recurrence those of its function.
    """

    module: str
    shapes: str
    code: str

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain data."""
        return {"module": self.module, "shapes": self.shapes, "code": self.code}


@dataclass(frozen=True)
class RanStack:
    """A stack of layers that ran: a language model's, or a tower's.

    Attributes:
        built: what was run.
        recording: what was heard.
        stack: the kind of every layer execution, in order.
    """

    built: BuiltStack
    recording: Recording
    stack: tuple[str, ...]
    _graphs: dict[int, LayerGraph] = field(default_factory=dict, repr=False)

    def places(self, kind: str, evidence: str, layers: Iterable[int] = ()) -> tuple[Place, ...]:
        """Return the modules that a kind's evidence names, the layer itself where it names none.

        Args:
            kind: the kind.
            evidence: what the census read a number from.
            layers: the places in the stack of the layers that state it; all of the kind's if left out.
        """
        if evidence.startswith(_CONFIG):
            return (self.of_config(evidence),)
        chosen = tuple(layers) or tuple(place for place, name in enumerate(self.stack) if name == kind)
        # A flag may be a later layer's of the kind: a path that the first does not hold is looked for in the others.
        executions = dict.fromkeys(self.recording.executions[place] for place in chosen)
        found = (tuple(dict.fromkeys(self._named(*execution, evidence))) for execution in executions)
        return next(filter(None, found), (self.layer(chosen[0]),))

    def layer(self, place: int) -> Place:
        """Return the layer at a place of the stack, with what it takes and returns on the residual stream."""
        index, number = self.recording.executions[place]
        run, values = self.recording.runs[number], self.recording.values
        shapes = f"{values[run.input].shape} -> {values[run.output].shape}"
        return Place(self.built.paths[index], shapes, forward_place(self.built.layers[index]))

    def of_config(self, evidence: str) -> Place:
        """Return the config class that states a number, by evidence that begins with `config: `."""
        stated = re.split(r"[;,]", evidence.removeprefix(_CONFIG))[0]
        return Place(f"config.{stated}", "", class_place(type(self.built.config)))

    def holding(self, path: str) -> Place:
        """Return the module of a modeling file that holds what stands at a path of what was run."""
        modules = dict(self.built.model.named_modules())
        owner = _written(modules, path)
        return Place(owner or type(self.built.model).__name__, "", forward_place(modules[owner]))

    def _named(self, index: int, number: int, evidence: str) -> Iterator[Place]:
        layer, path = self.built.layers[index], self.built.paths[index]
        modules = dict(layer.named_modules())
        parameters = {name: tuple(p.shape) for name, p in layer.named_parameters(remove_duplicate=False)}
        shapes: dict[str, list[str]] = {}
        inner_paths = dict.fromkeys(
            found.removeprefix(path).removeprefix(".") for found in _PATH.findall(evidence) if found
        )
        if evidence.startswith(":"):
            # The layer's own forward computes it.
            inner_paths[""] = None
        for inner in inner_paths:
            kernels = [
                kernel for kernel in self._kernels(number) if kernel.module == inner and _names(evidence, kernel)
            ]
            if kernels and inner in modules:
                yield from (self._kernel(path, modules, kernel) for kernel in kernels)
            elif inner in parameters:
                owner = _written(modules, inner.rpartition(".")[0])
                shapes.setdefault(owner, []).append(f"{inner} {parameters[inner]}")
            elif inner in modules:
                # Of a module with parts of its own no parameter beside them is what is meant.
                leaf = not any(modules[inner].children())
                own = modules[inner].named_parameters(inner, recurse=False) if leaf else ()
                held = [f"{name} {parameters[name]}" for name, _ in own if name in parameters]
                shapes.setdefault(_written(modules, inner), []).extend(held)
        for owner, held in shapes.items():
            yield Place(_joined(path, owner), ", ".join(held), forward_place(modules[owner]))

    def _kernels(self, number: int) -> tuple[Event, ...]:
        if number not in self._graphs:
            self._graphs[number] = LayerGraph(self.recording, self.recording.runs[number])
        return self._graphs[number].kernels

    def _kernel(self, path: str, modules: Mapping[str, nn.Module], kernel: Event) -> Place:
        heads = kernel.attributes.get("heads", (1, 1, 1))
        taken = kernel.inputs[: sum(head is not None for head in heads)]  # type: ignore[attr-defined]
        shapes = f"{kernel.op} of {', '.join(str(self.recording.values[value].shape) for value in taken)}"
        function = kernel.attributes.get("function")
        code = function_place(str(function)) if function else forward_place(modules[_written(modules, kernel.module)])
        return Place(_joined(path, kernel.module), shapes, code)


def _names(evidence: str, kernel: Event) -> bool:
    """Tell whether evidence that names a kernel's module is of the kernel: not of a convolution beside it."""
    words = ("kernel", "mask", "keys") if kernel.op == ATTENTION else (kernel.op.removeprefix(RECURRENCE),)
    return any(word in evidence for word in words)


def _written(modules: Mapping[str, nn.Module], path: str) -> str:
    """Return the path of the nearest module around a path, itself included, that torch does not bring along."""
    while path and (path not in modules or type(modules[path]).__module__.startswith(_OF_TORCH)):
        path = path.rpartition(".")[0]
    return path


def _joined(path: str, inner: str) -> str:
    return f"{path}.{inner}" if inner else path
