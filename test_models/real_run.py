"""An independent counter: what each layer of a real model runs on real CPU tensors, with eager attention.

It shares no code with `census`: torch and Transformers are all it knows. A model is built with random weights and run
forward in training mode; four listeners say what ran.

- operators (`TorchDispatchMode`): softmaxes, matrix products, nonlinear functions, sums;
- functions (`TorchFunctionMode`): dropouts, which a CPU build of torch takes apart into other operators;
- modules (hooks): norms and layers;
- calls of Python functions (`sys.setprofile`): the functions of the modeling files that compute a recurrence.

Every tensor carries what it was made of since the last projection, so that a product of two activations is told from
one with a weight, a score's softmax from a router's, and a norm on the residual stream from one inside a mixer.
"""

from __future__ import annotations

import copy
import importlib
import inspect
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import nn
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map
from transformers import (
    AutoModel,
    AutoModelForCausalLM,
    AutoModelForSeq2SeqLM,
    PretrainedConfig,
    PreTrainedModel,
)

BATCH = 2
LENGTH = 37
"""Tokens of the counted run: a prime above every head's, expert's and chunk's size, so that a shape tells tokens."""

RECURRENCES = frozenset(
    """
    torch_chunk_gated_delta_rule torch_recurrent_gated_delta_rule chunk_kimi_delta_attention
    recurrent_kimi_delta_attention mamba2_chunk_scan mamba_selective_scan _rnn_scan rwkv_linear_attention
    wrap_chunkwise_pad_zeros wrap_chunkwise_arbitrary_sequence_length
    """.split()
)
"""Functions of Transformers' modeling files, read there, that update a state along the sequence."""

APART = ("altup", "laurel", "per_layer_", "ple", "indexer")
"""Beginnings of modules' names whose work is stated apart from the vector: mixed streams, a linear branch beside the
others, an input by token of each layer's own, an indexer."""

NORMS = ("input_layernorm", "post_attention_layernorm")
"""Modules that are a norm and hold projections of their own (A.X K2), which are no feed-forward."""

_NONE: frozenset[Any] = frozenset()


@dataclass(frozen=True)
class Mark:
    """What a tensor was made of.

    Attributes:
        weight: of parameters alone.
        stream: it is the residual stream: the layer's input, or a sum with it.
        normed_stream: it is a norm of the stream, hence the stream itself where it is summed on.
        near: the projections it comes from, none between; `past`: all of the layer's.
        acts, norms: nonlinear functions and norms since the last projection, each as (number, ...).
        scores, softmaxes, kernels: score products, score softmaxes and mixers' outputs since the last projection.
    """

    weight: bool = False
    stream: bool = False
    normed_stream: bool = False
    near: frozenset[int] = _NONE
    past: frozenset[int] = _NONE
    acts: frozenset[int] = _NONE
    norms: frozenset[int] = _NONE
    scores: frozenset[int] = _NONE
    softmaxes: frozenset[int] = _NONE
    kernels: frozenset[int] = _NONE


_PLAIN = Mark()


@dataclass(frozen=True)
class Projection:
    """A matrix product with a weight: rows x taken by taken x given, and what its operand was made of."""

    number: int
    path: str
    rows: int
    taken: int
    given: int
    mark: Mark


@dataclass
class Kernel:
    """A score kernel or a recurrence: by what projections its queries, keys and values were made."""

    scores: bool
    queries: frozenset[int] = _NONE
    keys: frozenset[int] = _NONE
    values: frozenset[int] = _NONE
    products: int = 0


@dataclass
class LayerRun:
    """What one execution of a layer ran. `kernels` by number; `acts` as number to (path, name, width)."""

    path: str
    module: nn.Module
    first: int
    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any] = field(default_factory=dict)
    projections: list[Projection] = field(default_factory=list)
    products: dict[int, tuple[frozenset[int], frozenset[int]]] = field(default_factory=dict)
    kernels: dict[int, Kernel] = field(default_factory=dict)
    acts: dict[int, tuple[str, str, int]] = field(default_factory=dict)
    dropouts: list[tuple[str, int]] = field(default_factory=list)
    norms: dict[int, str] = field(default_factory=dict)
    norms_on_stream: set[int] = field(default_factory=set)
    length: int = 0
    rows: int = 0

    def counts(self) -> dict[str, int]:
        """Return the ops that this counter states, as `docs/op_vector.md` defines them."""
        kernels = list(self.kernels.values())
        scores = [kernel for kernel in kernels if kernel.scores]
        feeding, units, acts = self._feed_forward()
        return {
            "attMM": self._roles() + len(self._outputs()),
            "attBMM": sum(kernel.products for kernel in scores),
            "ffMM": units if feeding else 0,
            "softmax": len(scores),
            "dropout": self._dropouts(),
            "normOp": len(self.norms_on_stream),
            "ffAct": acts,
            "linrec": len(kernels) - len(scores),
        }

    def _dropouts(self) -> int:
        """Return the dropouts; those of routed experts, which do not take every token once, count for one expert."""
        routed = {site for site, rows in self.dropouts if rows != self.rows}
        return len(routed) + sum(site not in routed for site, _ in self.dropouts)

    def _roles(self) -> int:
        roles = set()
        for kernel in self.kernels.values():
            for role in ("queries", "keys", "values"):
                own = frozenset(made for made in getattr(kernel, role) if made >= self.first)
                if own:
                    roles.add((role, own))
        return len(roles)

    def _outputs(self) -> list[Projection]:
        """Return the projections of a mixer's output, one after another where it has several in a row."""
        found: dict[int, Projection] = {}
        for projection in self.projections:
            mark = projection.mark
            in_a_row = mark.near and mark.near <= found.keys() and not (mark.stream or mark.norms or mark.acts)
            if mark.kernels or in_a_row:
                found[projection.number] = projection
        return list(found.values())

    def _feed_forward(self) -> tuple[int, int, int]:
        """Return the down projections of the feed-forward, all its projections in units of one, its activations."""
        by_number = {projection.number: projection for projection in self.projections}
        downs = [
            projection
            for projection in self.projections
            if not _apart(projection.path, (*APART, *NORMS))
            and not projection.mark.kernels
            and not projection.mark.norms & self.norms_on_stream
            and any(self.acts[act][2] == projection.taken for act in self._own(projection.mark.acts))
            and any(by_number[up].taken == projection.given for up in projection.mark.near & by_number.keys())
        ]
        # An expert takes the rows that were routed to it; the other feed-forwards take every token.
        routed = [down for down in downs if down.rows != self.rows]
        by_site = {(_site(down.path), down.taken, down.given): down for down in routed}
        chosen = list(by_site.values()) if routed else downs
        units = 0.0
        acts: set[object] = set()
        for down in chosen:
            made_by = [by_number[made] for made in down.mark.near if made in by_number]
            weights = sum(up.taken * up.given for up in made_by) + down.taken * down.given
            units += weights / (down.given * down.taken)
            for act in self._own(down.mark.acts):
                path, name, width = self.acts[act]
                if width == down.taken:
                    acts.add((_site(path), name) if routed else act)
        return len(chosen), int(units) if units == int(units) else -1, len(acts)

    def _own(self, acts: frozenset[int]) -> list[int]:
        return [act for act in acts if act in self.acts]


def _apart(path: str, names: tuple[str, ...] = APART) -> bool:
    return any(name.startswith(names) for name in path.split("."))


def _site(path: str) -> str:
    """Return a module's path with its numbers left out: experts of one list are one site."""
    return re.sub(r"\d+", "*", path)


_VIEWS = frozenset(
    """
    view _unsafe_view reshape transpose permute t expand slice select unsqueeze squeeze clone _to_copy contiguous
    detach alias as_strided split split_with_sizes unbind chunk cat stack copy_ to repeat lift_fresh
    """.split()
)
_SUMS = frozenset("add add_ sub sub_ addcmul addcmul_ index_add index_add_ sum".split())
_NONLINEAR = frozenset(
    """
    silu silu_ gelu relu relu_ tanh sigmoid sigmoid_ softplus hardswish leaky_relu elu mish erf log_sigmoid_forward
    hardtanh
    """.split()
)
_NORMING = frozenset("rsqrt native_layer_norm _fused_rms_norm linalg_vector_norm native_group_norm".split())
_INDEXING = frozenset("index index_select gather select slice".split())


def _tensors(held: object) -> Iterator[torch.Tensor]:
    """Yield the tensors of nested arguments, in order; operators have them in lists, tuples and mappings alone."""
    if isinstance(held, torch.Tensor):
        yield held
    elif isinstance(held, list | tuple):
        for part in held:
            yield from _tensors(part)
    elif isinstance(held, Mapping):
        for part in held.values():
            yield from _tensors(part)


class _Operators(TorchDispatchMode):
    def __init__(self, counter: Counter) -> None:
        super().__init__()
        self.counter = counter

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        result = func(*args, **(kwargs or {}))
        self.counter.operator(func._schema.name.partition("::")[2], args, kwargs or {}, result)
        return result


class _Functions(TorchFunctionMode):
    def __init__(self, counter: Counter) -> None:
        super().__init__()
        self.counter = counter

    def __torch_function__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        kwargs = kwargs or {}
        name = getattr(func, "__name__", "")
        if name in _DROPOUTS:
            self.counter.dropout(func, args, kwargs)
        result = func(*args, **kwargs)
        if name in ("layer_norm", "rms_norm"):
            self.counter.functional_norm(args[0], result)
        return result


_DROPOUTS = frozenset("dropout alpha_dropout dropout1d dropout2d feature_dropout".split())


class Counter:
    """What is heard during one forward."""

    def __init__(self, model: nn.Module, length: int) -> None:
        self.model, self.length = model, length
        self.runs: list[LayerRun] = []
        self.run: LayerRun | None = None
        self.number = 0
        self.modules: list[tuple[str, nn.Module, list[bool], Mark]] = []
        self.activation: int | None = None
        for parameter in model.parameters():
            _set(parameter, Mark(weight=True))
        for buffer in model.buffers():
            _set(buffer, Mark(weight=True))

    def next(self) -> int:
        """Return a number that nothing else has."""
        self.number += 1
        return self.number

    def operator(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any], result: object) -> None:
        """Take note of one operator, and mark what it returned."""
        run = self.run
        inputs = [*_tensors((args, kwargs))]
        marks = [_mark(tensor) for tensor in inputs]
        if run is None:
            mark = Mark(weight=bool(marks) and all(mark.weight for mark in marks))
        elif name in _INDEXING and marks[0].weight:
            mark = marks[0]
        elif name in ("mm", "addmm", "bmm", "baddbmm"):
            mark = self._product(run, inputs[-2:], marks[-2:], marks)
        elif name == "_grouped_mm":
            mark = self._projection(run, inputs[0], inputs[1], marks[0])
        else:
            mark = self._other(run, name, inputs, marks)
        if self.modules and (name in _NORMING or (name == "pow" and isinstance(args[1], float) and args[1] < 0)):
            self.modules[-1][2].append(True)
        for tensor in _tensors(result):
            if not isinstance(tensor, nn.Parameter):
                _set(tensor, mark)

    def _other(self, run: LayerRun, name: str, inputs: list[torch.Tensor], marks: list[Mark]) -> Mark:
        if not marks:
            return Mark(weight=False)
        joined = _joined(marks)
        streams = [mark for mark in marks if mark.stream or mark.normed_stream]
        if name in _SUMS and streams:
            if len(streams) > 1 or any(mark.stream for mark in streams) or joined.near:
                for mark in marks:
                    if not (mark.stream and len(marks) > 1 and mark.norms == joined.norms):
                        run.norms_on_stream |= {norm for norm in mark.norms if not mark.normed_stream}
                joined = replace(joined, stream=True, norms=_NONE, normed_stream=False)
        elif name in _VIEWS or name in ("mul", "mul_", "div", "div_", "native_dropout", "where", "masked_fill"):
            scaling = name not in _VIEWS and any(
                not mark.weight and not (mark.stream or mark.normed_stream) and tensor.numel() > 1
                for mark, tensor in zip(marks, inputs, strict=True)
            )
            dropped = scaling and name in ("mul", "mul_") and inputs[0].shape == inputs[-1].shape and not joined.near
            keep = not scaling or dropped
            joined = replace(
                joined,
                stream=keep and any(mark.stream for mark in marks),
                normed_stream=keep and any(mark.normed_stream for mark in marks),
            )
        else:
            joined = replace(joined, stream=False, normed_stream=False)
        if name in _NONLINEAR and self.activation is None:
            joined = replace(joined, acts=joined.acts | {self._act(run, name, inputs[0].shape[-1])})
        if name in ("_softmax", "softmax") and joined.scores and self.scores(inputs[0].shape[-2:]):
            number = self.next()
            run.kernels[number] = Kernel(scores=True, products=len(joined.scores))
            for product in joined.scores:
                queries, keys = run.products.get(product, (_NONE, _NONE))
                run.kernels[number].queries |= queries
                run.kernels[number].keys |= keys
            joined = replace(joined, softmaxes=frozenset({number}), scores=_NONE, kernels=_NONE)
        return joined

    def _act(self, run: LayerRun, name: str, width: int) -> int:
        number = self.next()
        run.acts[number] = (self.path(), name, width)
        return number

    def scores(self, shape: tuple[int, ...]) -> bool:
        """Tell whether two last dimensions are tokens by tokens."""
        return len(shape) == 2 and shape[0] % self.run.length == 0 and shape[1] >= self.run.length

    def _product(self, run: LayerRun, operands: list[torch.Tensor], marks: list[Mark], every: list[Mark]) -> Mark:
        left, right = operands
        if marks[1].weight and not marks[0].weight:
            return self._projection(run, left, right, marks[0])
        if marks[0].weight and not marks[1].weight:
            return self._projection(run, right.transpose(-1, -2), left.transpose(-1, -2), marks[1])
        joined = replace(_joined(every), stream=False, normed_stream=False)
        probabilities = marks[0].softmaxes & run.kernels.keys()
        if probabilities and self.scores(left.shape[-2:]):
            for number in probabilities:
                run.kernels[number].products += 1
                run.kernels[number].values |= marks[1].past
            return replace(joined, kernels=joined.kernels | probabilities, softmaxes=_NONE, scores=_NONE)
        if self.scores((left.shape[-2], right.shape[-1])):
            number = self.next()
            run.products[number] = (marks[0].past, marks[1].past)
            return replace(joined, scores=frozenset({number}))
        return joined

    def _projection(self, run: LayerRun, operand: torch.Tensor, weight: torch.Tensor, mark: Mark) -> Mark:
        number = self.next()
        rows = operand.numel() // operand.shape[-1]
        run.projections.append(Projection(number, self.path(), rows, weight.shape[-2], weight.shape[-1], mark))
        return Mark(near=frozenset({number}), past=mark.past | {number})

    def path(self) -> str:
        """Return the path of the innermost running module."""
        return self.modules[-1][0] if self.modules else ""

    def dropout(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Take note of a dropout that drops, unless it drops attention probabilities."""
        names = ("input", "p", "train" if func is torch.dropout else "training")
        given = {**dict(zip(names, args, strict=False)), **kwargs}
        training = given.get("training", given.get("train", True))
        mark = _mark(given["input"])
        if self.run is not None and training and given.get("p", 0.5) > 0 and not (mark.softmaxes or mark.scores):
            taken = given["input"]
            self.run.dropouts.append((_site(self.path()), taken.numel() // taken.shape[-1]))

    def functional_norm(self, taken: torch.Tensor, given: torch.Tensor) -> None:
        """Take note of a norm that no module of its own runs."""
        if self.run is not None and any(True for _ in self.modules[-1][1].children()):
            self._norm(_mark(taken), given)

    def _norm(self, taken: Mark, given: torch.Tensor) -> None:
        assert self.run is not None
        if _apart(self.path()):
            return
        number = self.next()
        self.run.norms[number] = self.path()
        on_stream = taken.stream or taken.normed_stream
        if on_stream:
            self.run.norms_on_stream.add(number)
        _set(given, replace(taken, stream=False, normed_stream=on_stream, norms=frozenset({number})))

    def enter(self, path: str, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Take note that a module begins."""
        first = next(_tensors((args, kwargs)), None)
        self.modules.append((path, module, [], _PLAIN if first is None else _mark(first)))
        if self.run is not None and self.activation is None and _is_activation(module) and first is not None:
            self.activation = self._act(self.run, type(module).__name__, first.shape[-1])

    def leave(self, path: str, module: nn.Module, result: object) -> None:
        """Take note that a module ended: a norm and an activation mark what they return."""
        _, _, norming, taken = self.modules.pop()
        if self.run is None:
            return
        if isinstance(result, torch.Tensor) and norming and not any(True for _ in module.children()):
            self.modules.append((path, module, [], taken))
            self._norm(taken, result)
            self.modules.pop()
        if self.activation is not None and _is_activation(module) and isinstance(result, torch.Tensor):
            mark = _mark(result)
            _set(result, replace(mark, acts=mark.acts | {self.activation}))
            self.activation = None

    def begin(self, path: str, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Take note that a layer begins."""
        if self.run is not None:
            return
        self.run = LayerRun(path, module, self.number + 1, args, kwargs)
        stream = next(_tensors((args, kwargs)))
        # Some models put entries of their own before the tokens.
        known = any(size % self.length == 0 for size in stream.shape)
        self.run.length = self.length if known else stream.shape[1]
        self.run.rows = BATCH * self.run.length if stream.dim() > 3 else stream.numel() // stream.shape[-1]
        _set(stream, Mark(stream=True))

    def end(self, path: str) -> None:
        """Take note that a layer ended."""
        if self.run is not None and self.run.path == path:
            self.runs.append(self.run)
            self.run = None

    def profile(self, frame: Any, event: str, value: object) -> None:
        """Hear of the calls of recurrences: one that returns nothing has computed nothing."""
        if event == "return" and frame.f_code.co_name in RECURRENCES and value is not None and self.run is not None:
            number = self.next()
            given = [leaf for leaf in tree_leaves(frame.f_locals) if isinstance(leaf, torch.Tensor)]
            past = frozenset().union(*(_mark(tensor).past for tensor in given))
            self.run.kernels[number] = Kernel(False, past, past, past)
            for tensor in tree_leaves(value):
                if isinstance(tensor, torch.Tensor):
                    _set(tensor, Mark(kernels=frozenset({number}), past=past))


def _joined(marks: list[Mark]) -> Mark:
    if len(marks) == 1:
        return marks[0]
    return Mark(
        weight=all(mark.weight for mark in marks),
        stream=any(mark.stream for mark in marks),
        normed_stream=any(mark.normed_stream for mark in marks),
        **{
            name: frozenset().union(*(getattr(mark, name) for mark in marks))
            for name in ("near", "past", "acts", "norms", "scores", "softmaxes", "kernels")
        },
    )


def _mark(tensor: torch.Tensor) -> Mark:
    return getattr(tensor, "_mark", _PLAIN)


def _set(tensor: torch.Tensor, mark: Mark) -> None:
    tensor._mark = mark  # type: ignore[attr-defined]


def _is_activation(module: nn.Module) -> bool:
    home = type(module).__module__
    softmax = isinstance(module, nn.Softmax | nn.MultiheadAttention)
    return home in ("torch.nn.modules.activation", "transformers.activations") and not softmax


def build(config: PretrainedConfig) -> nn.Module:
    """Return the language model of a config with random weights, eager attention and eager experts."""
    text = config.get_text_config(decoder=True)
    text = config if type(text) is type(config) else text
    builds: Any
    if config.is_encoder_decoder and type(config) in AutoModelForSeq2SeqLM._model_mapping:
        builds, own = AutoModelForSeq2SeqLM, config
    elif config.is_encoder_decoder and type(text) in AutoModelForSeq2SeqLM._model_mapping:
        builds, own = AutoModelForSeq2SeqLM, text
    elif type(text) in AutoModelForCausalLM._model_mapping:
        builds, own = AutoModelForCausalLM, text
    elif type(config) in AutoModelForCausalLM._model_mapping:
        # Some classes stand in the map under the composite's config, though they take its decoder's.
        builds, own = AutoModelForCausalLM._model_mapping[type(config)], text
    elif type(text) in AutoModel._model_mapping:
        builds, own = AutoModel, text
    else:
        builds, own = _language_model_class(config, text), text
    torch.manual_seed(0)
    own._experts_implementation = "eager"
    make = (
        builds._from_config if isinstance(builds, type) and issubclass(builds, PreTrainedModel) else builds.from_config
    )
    model: PreTrainedModel = make(own, dtype=torch.float32, attn_implementation="eager")
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith("A_log"):
                # A recurrence drawn to forget at once would hide how far it reaches.
                parameter.fill_(-3.0)
            elif parameter.dim() > 1:
                # Weights that begin at zero would hide what they pass on.
                parameter.normal_(0.0, 0.1)
    return model


def _language_model_class(config: PretrainedConfig, text: PretrainedConfig) -> type[PreTrainedModel]:
    """Return the class of a modeling file that takes a text config and tokens, where no auto class knows it."""
    modeling = importlib.import_module(type(config).__module__.replace("configuration_", "modeling_"))
    for held in vars(modeling).values():
        takes = isinstance(held, type) and issubclass(held, PreTrainedModel) and held.config_class is type(text)
        if takes and "input_ids" in inspect.signature(held.forward).parameters:
            return held
    raise LookupError(f"{config.model_type}: {modeling.__name__} has no class that takes tokens and {type(text)}")


def stack(model: nn.Module) -> dict[str, nn.Module]:
    """Return the layers by path: the entries of each outermost list of modules that hold several matrices each."""
    found: dict[str, nn.Module] = {}
    for path, module in model.named_modules():
        inside = any(path.startswith(f"{layer}.") for layer in found)
        if isinstance(module, nn.ModuleList) and not inside:
            entries = {f"{path}.{index}": entry for index, entry in enumerate(module)}
            if any(sum(p.dim() > 1 for p in entry.parameters()) > 1 for entry in entries.values()):
                found |= entries
    return found


def inputs(model: nn.Module, length: int, alike: bool = False) -> dict[str, torch.Tensor | bool]:
    """Return random tokens as the model's forward takes them, the same for every sequence if `alike`."""
    table = model.get_input_embeddings()
    # Some models take several sequences of tokens side by side, each with a table of its own.
    sequences = BATCH * (len(table) if isinstance(table, nn.ModuleList) else 1)
    vocabulary, width = (table[0] if isinstance(table, nn.ModuleList) else table).weight.shape
    generator = torch.Generator().manual_seed(0)
    tokens = torch.randint(3, min(vocabulary, 200), (sequences, length), generator=generator)
    if alike:
        tokens = tokens[:1].repeat(sequences, 1)
    made: dict[str, torch.Tensor | bool] = {"input_ids": tokens, "use_cache": False}
    taken = inspect.signature(model.forward).parameters
    if "decoder_input_ids" in taken:
        made["decoder_input_ids"] = tokens
    if "cross_attention_states" in taken:
        made["cross_attention_states"] = torch.randn((*tokens.shape, width), generator=generator)
    if "bbox" in taken:
        made["bbox"] = torch.zeros((*tokens.shape, 4))
    return made


@contextmanager
def _listening(model: nn.Module, counter: Counter) -> Iterator[None]:
    handles = []
    for path, module in model.named_modules():
        handles.append(
            module.register_forward_pre_hook(
                lambda module, args, kwargs, path=path: counter.enter(path, module, args, kwargs), with_kwargs=True
            )
        )
        handles.append(
            module.register_forward_hook(lambda module, args, result, path=path: counter.leave(path, module, result))
        )
    for path, module in stack(model).items():
        handles.append(
            module.register_forward_pre_hook(
                lambda module, args, kwargs, path=path: counter.begin(path, module, args, kwargs), with_kwargs=True
            )
        )
        handles.append(module.register_forward_hook(lambda module, args, result, path=path: counter.end(path)))
    sys.setprofile(counter.profile)
    try:
        yield
    finally:
        sys.setprofile(None)
        for handle in handles:
            handle.remove()


def count(model: nn.Module, length: int = LENGTH) -> list[LayerRun]:
    """Run the model once in training mode and return what each execution of a layer ran, in order."""
    model.train()
    counter = Counter(model, length)
    given = inputs(model, length)
    with torch.no_grad(), _listening(model, counter), _Functions(counter), _Operators(counter):
        model(**given)
    return counter.runs


@dataclass(frozen=True)
class Call:
    """How a layer was called in a run in which all sequences of the batch are alike."""

    path: str
    layer: nn.Module
    args: tuple[Any, ...]
    kwargs: dict[str, Any]

    def reach(self, positions: Sequence[int]) -> frozenset[int] | None:
        """Return the positions from which the layer alone carries a change of its input to its last position.

        None where the layer's tensors do not tell sequences and positions.
        """
        given = (self.args, self.kwargs)
        stream = next(leaf for leaf in tree_leaves(given) if isinstance(leaf, torch.Tensor))
        sizes = list(stream.shape)
        if BATCH not in sizes or LENGTH not in sizes:
            return None
        sequences, tokens = sizes.index(BATCH), sizes.index(LENGTH)
        generator = torch.Generator().manual_seed(1)
        reached = set()
        for position in positions:
            moved = stream.clone()
            place = moved.select(sequences, 1).select(tokens - (tokens > sequences), position)
            place += torch.randn(place.shape, generator=generator) * stream.std()
            args, kwargs = tree_map(lambda leaf, moved=moved: moved if leaf is stream else _as_it_is(leaf), given)
            result = next(
                leaf
                for leaf in tree_leaves(self.layer.forward(*args, **kwargs))
                if isinstance(leaf, torch.Tensor) and leaf.shape == stream.shape
            )
            one, other = (
                result.select(sequences, row).select(tokens - (tokens > sequences), LENGTH - 1) for row in (0, 1)
            )
            if (one - other).abs().max() > 1e-5 * one.abs().max():
                reached.add(position)
        return frozenset(reached)


def _as_it_is(leaf: object) -> object:
    return copy.copy(leaf) if isinstance(leaf, Mapping) else leaf


def calls(model: nn.Module) -> list[Call]:
    """Run the model once without dropout on sequences that are alike, and return each call of a layer, in order."""
    model.eval()
    heard: list[Call] = []

    def hear(module: nn.Module, args: Any, kwargs: Any, path: str) -> None:
        # What layers hand on in lists and mappings is taken as it was when this one began.
        args, kwargs = tree_map(_as_it_is, (args, kwargs))
        heard.append(Call(path, module, args, kwargs))

    handles = [
        layer.register_forward_pre_hook(
            lambda module, args, kwargs, path=path: hear(module, args, kwargs, path), with_kwargs=True
        )
        for path, layer in stack(model).items()
    ]
    with torch.no_grad():
        model(**inputs(model, LENGTH, alike=True))
    for handle in handles:
        handle.remove()
    return heard


class _Elements(TorchDispatchMode):
    """Adds up the elements of everything that operators return, by the layer they run in."""

    def __init__(self) -> None:
        super().__init__()
        self.layer: nn.Module | None = None
        self.made: list[int] = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        result = func(*args, **(kwargs or {}))
        if self.layer is not None:
            self.made[-1] += sum(tensor.numel() for tensor in _tensors(result))
        return result

    def begin(self, layer: nn.Module) -> None:
        """Take note that a layer begins."""
        if self.layer is None:
            self.layer = layer
            self.made.append(0)

    def end(self, layer: nn.Module) -> None:
        """Take note that a layer ended."""
        if self.layer is layer:
            self.layer = None


def growth(model: nn.Module, length: int) -> list[float]:
    """Return, for each execution of a layer, the elements it makes for each pair of tokens of a sequence.

    Elements made in `length`, twice and four times as many tokens give the factor of the square; what grows with the
    number of tokens, and what does not grow, falls out.
    """
    model.eval()
    made = []
    for tokens in (length, 2 * length, 4 * length):
        counter = _Elements()
        handles = []
        for layer in stack(model).values():
            handles.append(layer.register_forward_pre_hook(lambda module, args, counter=counter: counter.begin(module)))
            handles.append(layer.register_forward_hook(lambda module, *_, counter=counter: counter.end(module)))
        with torch.no_grad(), counter:
            model(**inputs(model, tokens))
        for handle in handles:
            handle.remove()
        made.append(counter.made)
    return [(four - 3 * two + 2 * one) / (6 * BATCH * length**2) for one, two, four in zip(*made, strict=True)]
