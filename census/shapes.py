"""How one layer is built: its attention flavour, its feed-forward flavour, and its parameters' shapes."""

from __future__ import annotations

import dis
import inspect
import sys
from collections.abc import Callable, Iterator, Set
from dataclasses import dataclass
from types import CodeType, FunctionType

from torch import nn

from census.blocks import FeedForward, Kernel
from census.dataflow import Source
from census.errors import UnknownPartError
from census.grouping import own_attributes, parameter_shapes
from census.parts import LayerParts
from census.recurrences import RECURRENT_MODULES, recurrences
from census.wrappers import functions_within


@dataclass(frozen=True)
class LayerShape:
    """How one layer is built. Two layers of one shape are the same layer.

    Attributes:
        attention: `full`, `sliding`, `chunked`, `linear`, `full_shared` and `sliding_shared` (keys and values come
            from another layer), `cross` (they are projected from what came from outside the stack), `full_cross`
            and `sliding_cross` (self- and cross-attention), `hybrid` (attention beside a recurrence), or `none`.
        ffn: `dense`, `sparse` (most of its activations are cut to zero), `moe`, or `none`.
        params: the path and shape of every parameter.
    """

    attention: str
    ffn: str
    params: tuple[tuple[str, tuple[int, ...]], ...]


def flavours(parts: LayerParts) -> tuple[str, str]:
    """Return the attention and the feed-forward flavour of a layer that ran.

    Raises:
        UnknownPartError: nothing in it mixes tokens or feeds forward.
    """
    found = {_flavour(parts, kernel) for mixer in parts.mixers for kernel in mixer.kernels}
    if len(found) == 2 and "cross" in found and "linear" not in found:
        [reach] = found - {"cross"}
        found = {f"{reach}_cross"}
    attention = "hybrid" if len(found) > 1 else found.pop() if found else "none"
    ffn = "none" if parts.feed_forward is None else _ffn(parts.feed_forward)
    if attention == ffn == "none" and not parts.mixers:
        raise UnknownPartError(
            f"{parts.run.path}: expected a score kernel, a recurrence or a feed-forward, found none; "
            f"if it runs a recurrence, register its function in census/recurrences.py"
        )
    return attention, ffn


def mixers_of(parts: LayerParts) -> tuple[str, ...]:
    """Return what mixes a layer's tokens, each once: an attention's flavour, a recurrence's name, a convolution."""
    names = [
        f"{_flavour(parts, kernel)}_attention" if kernel.scores else kernel.name
        for mixer in parts.mixers
        for kernel in mixer.kernels
    ]
    alone = [mixer for mixer in parts.mixers if not mixer.kernels]
    return tuple(dict.fromkeys([*names, *("short_convolution" for _ in alone)]))


def _ffn(feed_forward: FeedForward) -> str:
    if feed_forward.routed is not None:
        return "moe"
    return "sparse" if feed_forward.dense is not None and feed_forward.dense.sparse else "dense"


def _flavour(parts: LayerParts, kernel: Kernel) -> str:
    if not kernel.scores:
        return "linear"
    _, keys, values = kernel.roles
    if keys and all(parts.graph.source(projection.data) is Source.EXTERNAL for projection in keys):
        return "cross"
    return str(kernel.event.attributes["flavour"]) + ("" if keys or values else "_shared")


def difference(one: LayerShape, other: LayerShape, optional: tuple[str, ...] = ()) -> str | None:
    """Return how two shapes' feed-forwards or parameters differ, None where they do not.

    A window does not make a layer another: the attention's reach alone is no difference. Nor do parameters under
    a name that is `optional`.
    """
    if one.ffn != other.ffn:
        return f"their feed-forward ({one.ffn} against {other.ffn})"
    mine, theirs = dict(one.params), dict(other.params)
    for path in {**mine, **theirs}:
        if set(path.split(".")).isdisjoint(optional) and mine.get(path) != theirs.get(path):
            return f"{path} ({mine.get(path, 'absent')} against {theirs.get(path, 'absent')})"
    return None


def layer_shape(layer: nn.Module) -> LayerShape:
    """Return how a layer is built, from its modules alone: nothing is run.

    What a layer would run is read off its file's code: a function of the table of recurrences makes it
    `linear`, Transformers' attention interface or scores of its own `full`, `sliding` or `chunked`, both of them
    `hybrid`, a convolution alone `none`. The census of a model measures the same flavours; this is for a caller
    who holds a layer and no model.

    Args:
        layer: one entry of a decoder's layer list.

    Raises:
        UnknownPartError: nothing in the layer is known to mix tokens or to feed forward.
    """
    mixing = {way: module for module in layer.modules() for way in _mixing(module)}
    attention = "linear" if "recurrence" in mixing else "none"
    if "attention" in mixing:
        shared = "_shared" if getattr(mixing["attention"], "is_kv_shared_layer", False) else ""
        attention = "hybrid" if "recurrence" in mixing else _reach(layer, mixing["attention"]) + shared
    ffn = _ffn_flavour(layer)
    if not mixing and ffn == "none":
        raise UnknownPartError(
            f"{type(layer).__name__}: expected modules that attend, recur or feed forward, found none; "
            f"pass one entry of a decoder's layer list"
        )
    return LayerShape(attention, ffn, parameter_shapes(layer))


def _mixing(module: nn.Module) -> set[str]:
    """Return the ways in which a module itself mixes tokens, as far as its code tells."""
    if isinstance(module, nn.Conv1d):
        return {"convolution"}
    methods = [held for held in vars(type(module)).values() if inspect.isfunction(held)]
    names = {name for method in methods for name in _named_functions(method)}
    if type(module).__name__ in RECURRENT_MODULES or not recurrences().keys().isdisjoint(_called(module, names)):
        return {"recurrence"}
    # A function, or torch's module of the same name, made where it is called.
    own_scores = not {"softmax", "Softmax"}.isdisjoint(names) and any(map(_multiplies, methods))
    return {"attention"} if "ALL_ATTENTION_FUNCTIONS" in names or own_scores else set()


def _called(module: nn.Module, names: Set[str]) -> set[str]:
    """Return the names that a module's methods refer to, and those of the functions they come to in its own file."""
    file = sys.modules[type(module).__module__]
    called, seen = set(names), set[FunctionType]()
    pending = list(map(vars(module).get, own_attributes(module)))
    pending += [vars(file)[name] for name in names & vars(file).keys()]
    for held in pending:
        for function in functions_within(held):
            called.add(function.__name__)
            if function.__module__ == file.__name__ and function not in seen:
                seen.add(function)
                further = set(_named_functions(function)) - called
                called |= further
                pending += [vars(file)[name] for name in further & vars(file).keys()]
    return called


def _multiplies(method: Callable[..., object]) -> bool:
    """Tell whether a method multiplies matrices, by a function or by the operator `@`."""
    by_operator = any(step.argrepr == "@" for step in dis.get_instructions(inspect.unwrap(method)))
    return by_operator or not {"matmul", "bmm", "baddbmm"}.isdisjoint(_named_functions(method))


def _reach(layer: nn.Module, attention: nn.Module) -> str:
    """Return how far an attention reaches, by what says so first: its arguments, a layer type, a window, its config."""
    if "cross_attention_states" in inspect.signature(attention.forward).parameters:
        return "cross"
    config, index = getattr(attention, "config", None), getattr(attention, "layer_idx", None)
    types = getattr(config, "layer_types", None)
    stated = [getattr(holder, name, None) for holder in (attention, layer) for name in ("layer_type", "attention_type")]
    if types and isinstance(index, int):
        stated.append(types[index])
    for layer_type in stated:
        if isinstance(layer_type, str):
            return next((flavour for flavour in ("sliding", "chunked") if layer_type.startswith(flavour)), "full")
    window = getattr(attention, "sliding_window", getattr(config, "sliding_window", None))
    return "full" if window is None else "sliding"


def _ffn_flavour(layer: nn.Module) -> str:
    """Return `moe` or `dense` by the parameters that no token mixer holds, `none` where all are vectors."""
    feeding = [child for child in layer.children() if not any(map(_mixing, child.modules()))]
    # A vector stored as (1, 1, width), as RWKV's mixing weights, is a vector.
    ranks = {sum(size > 1 for size in parameter.shape) for child in feeding for parameter in child.parameters()}
    return "moe" if 3 in ranks else "dense" if 2 in ranks else "none"


def _named_functions(function: Callable[..., object]) -> Iterator[str]:
    """Yield every name a function's code refers to, those of the functions it holds inside included."""
    code = inspect.unwrap(function).__code__
    pending: list[CodeType] = [code]
    for part in pending:
        yield from part.co_names
        pending.extend(constant for constant in part.co_consts if isinstance(constant, CodeType))
