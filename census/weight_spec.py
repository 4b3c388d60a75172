"""The parameters of a model as its spec states them: of each kind's layers, and outside the layers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from typing import Any

import torch
from torch import nn
from transformers import PreTrainedModel

from census.build import BuiltModel, BuiltStack
from census.errors import UnknownPartError
from census.events import Recording, Shape
from census.kinds import KindCensus
from census.torch_private import parameters_of
from census.weights import Matrix, PartWeights, matrix


def weights_of_kinds(
    built: BuiltStack, recording: Recording, stack: Sequence[str], read: Mapping[int, KindCensus]
) -> dict[str, dict[str, Any]]:
    """Return for each kind the fields of a `KindSpec` that state its parameters.

    Args:
        built: the model that was run.
        recording: what was heard of it.
        stack: the kind of every layer execution.
        read: what each run was read as.
    """
    held_by = {index: dict(built.layers[index].named_parameters(remove_duplicate=False)) for index in {*built.built_as}}
    stated = {run: _stated(census.weights) for run, census in read.items()}
    told = {run: repr(fields) for run, fields in stated.items()}
    seen: set[Hashable] = set()
    alike: dict[str, dict[str, tuple[dict[str, Any], list[int]]]] = {kind: {} for kind in stack}
    tied: dict[str, Counter[str]] = {kind: Counter() for kind in stack}
    idle: Counter[str] = Counter()

    def own(index: int, parameter: torch.Tensor) -> Hashable:
        # A layer that shows another one's modules has parameters of its own as large.
        return id(parameter) if built.built_as[index] == index else (index, id(parameter))

    for place, ((index, run), kind) in enumerate(zip(recording.executions, stack, strict=True)):
        alike[kind].setdefault(told[run], (stated[run], []))[1].append(place)
        held = held_by[built.built_as[index]]
        for part, used in read[run].weights.items():
            for name in used.names:
                if name not in held:
                    ran = built.paths[recording.runs[run].index]
                    raise UnknownPartError(
                        f"{built.paths[index]}: expected the parameters of {ran}, which ran in its place, found no "
                        f"{name}; report the model"
                    )
                parameter = own(index, held[name])
                if parameter in seen:
                    tied[kind][part] += held[name].numel()
                seen.add(parameter)
    for (index, _), kind in zip(recording.executions, stack, strict=True):
        for held_one in held_by[built.built_as[index]].values():
            parameter = own(index, held_one)
            idle[kind] += 0 if parameter in seen else held_one.numel()
            seen.add(parameter)
    return {
        kind: _of_kind(list(variants.values()), dict(sorted(tied[kind].items())), idle[kind])
        for kind, variants in alike.items()
    }


def _stated(weights: Mapping[str, PartWeights]) -> dict[str, Any]:
    projections = {part: [list(matrix) for matrix in used.projections] for part, used in weights.items()}
    others = {part: used.other for part, used in weights.items()}
    return {
        "projections": {part: matrices for part, matrices in projections.items() if matrices},
        "other_parameters": {part: elements for part, elements in others.items() if elements},
    }


def _of_kind(
    variants: Sequence[tuple[dict[str, Any], list[int]]], tied: Mapping[str, int], idle: int
) -> dict[str, Any]:
    (first, _), *others = variants
    fields = {
        **first,
        "variants": [{"layers": places, **_nonempty(stated)} for stated, places in others],
        "tied_parameters": tied,
        "idle_parameters": idle,
    }
    return _nonempty(fields)


def _nonempty(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {field: value for field, value in fields.items() if value}


def outside_weights(built: BuiltModel, recording: Recording) -> dict[str, Any]:
    """Return the fields of an `OutsideSpec`: what a language model and its head hold outside the layers.

    A model inside the model of which nothing ran is a tower of another modality, and left out.
    """
    layers = {id(parameter) for index in {*built.built_as} for parameter in built.layers[index].parameters()}
    ran = {built.paths[index] for index, _ in recording.executions}
    called = {call.path: call for call in recording.outside}
    head = built.head
    heads = {
        id(module) for module in (head.modules() if head is not None else ()) if not isinstance(module, nn.Embedding)
    }
    tables: list[list[int]] = []
    projections: dict[str, list[Matrix]] = {"head": [], "other": []}
    others: Counter[str] = Counter()
    idle = 0
    seen = set(layers)
    named = dict(built.model.named_modules())
    apart = bool(heads) and not heads & {id(module) for module in named.values()}
    heads |= {
        id(module) for path, module in named.items() if path in called and _projects_to(module, built.embedding[0])
    }
    if head is not None and apart:
        named |= {f"head.{path}": module for path, module in head.named_modules()}
    towers = [f"{path}." for path, part in named.items() if path and _is_a_tower(path, part, {*called, *ran})]
    for path, module in _heads_last(named, heads):
        if f"{path}.".startswith(tuple(towers)):
            continue
        for parameter in parameters_of(module).values():
            if parameter is None:
                continue
            is_head = id(module) in heads
            held = id(parameter) not in seen
            seen.add(id(parameter))
            if is_head and parameter.dim() == 2:
                # A head outside what was run still has its own tensors, of which the table's was a copy.
                held = held and not (apart and built.tied[0])
                projections["head"].append(matrix(parameter.shape[1], parameter.shape[0], int(held), 1))
            elif not held:
                continue
            elif isinstance(module, nn.Embedding) and parameter.dim() == 2:
                tables.append(list(parameter.shape))
            elif is_head:
                others["head"] += parameter.numel()
            elif path not in called:
                idle += parameter.numel()
            elif (ran_as := _projection(module, parameter, called[path].input, recording.tokens)) is not None:
                projections["other"].append(ran_as)
            else:
                others["norm" if _is_a_norm(module, called[path].input) else "other"] += parameter.numel()
    return _nonempty(
        {
            "tables": tables,
            "projections": {part: [list(entry) for entry in found] for part, found in projections.items() if found},
            "other_parameters": dict(sorted(others.items())),
            "idle_parameters": idle,
        }
    )


def _is_a_tower(path: str, module: nn.Module, ran: set[str]) -> bool:
    return isinstance(module, PreTrainedModel) and not any(other.startswith(f"{path}.") for other in ran)


def _projects_to(module: nn.Module, vocabulary: int) -> bool:
    return isinstance(module, nn.Linear) and module.out_features == vocabulary


def _heads_last(named: Mapping[str, nn.Module], heads: set[int]) -> list[tuple[str, nn.Module]]:
    return sorted(named.items(), key=lambda item: id(item[1]) in heads)


def _projection(module: nn.Module, parameter: torch.Tensor, taken: tuple[int, ...], tokens: int) -> Matrix | None:
    """Return a module's weight as a projection of what it took, None where it is none."""
    if not isinstance(module, nn.Linear) or parameter is not module.weight or not taken:
        return None
    rows = torch.Size(taken[:-1]).numel()
    return matrix(module.in_features, module.out_features, 1, rows // tokens) if rows % tokens == 0 else None


def _is_a_norm(module: nn.Module, taken: Shape) -> bool:
    """Tell whether a module's every parameter scales or shifts what it takes, element by element."""
    return not isinstance(module, nn.Linear) and all(tuple(held.shape) == taken[-1:] for held in module.parameters())
