"""One forward of a model on fake tensors, heard at three levels, as a recording.

Functions are heard for what no operator shows (a dropout on a CPU build of torch), operators for everything
that computes, modules for who was running. One representative of each layer signature runs; a layer built
the same and called with the same arguments hands back what its representative returned.
"""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812
from torch import nn
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from transformers import activations

from census.build import BuiltModel, one_line, unchanged_globals
from census.errors import BuildError
from census.events import DROPOUT, RECURRENCE, ActivationCall, Event, LayerRun, Recording, Value
from census.grouping import layer_signatures
from census.kernels import attention_interface
from census.recurrences import Recurrence, recurrences

_DROPOUTS = frozenset(
    {
        F.dropout, F.dropout1d, F.dropout2d, F.dropout3d,
        F.alpha_dropout, F.feature_alpha_dropout, torch.dropout,
    }
)  # fmt: skip

_FINDS = frozenset({torch.nonzero, torch.Tensor.nonzero})

_SHAPE_ONLY = frozenset(
    f"aten.{kind}_{form}"
    for kind, form in (
        *((kind, "like") for kind in ("empty", "zeros", "ones", "full", "rand", "randn")),
        *(("new", form) for form in ("empty", "zeros", "ones", "full", "empty_strided")),
    )
)
"""Operators that take a tensor for its shape and type alone: nothing of it is in what they return."""

_ACTIVATION_MODULES = (torch.nn.modules.activation.__name__, activations.__name__)
_NO_ACTIVATIONS = (nn.Softmax, nn.LogSoftmax, nn.Softmin, nn.Softmax2d, nn.MultiheadAttention)


def record(built: BuiltModel, seq_length: int, batch: int = 1, every_layer: bool = False) -> Recording:
    """Run the model's own forward once on fake tensors, in training mode, and return what was heard.

    Args:
        built: the model; it is used up, since its parameters are replaced by fake ones.
        seq_length: tokens of the sequence.
        batch: sequences.
        every_layer: run every layer itself, instead of one of each signature.

    Raises:
        BuildError: the forward failed.
    """
    session = _Session(built, every_layer)
    with ExitStack() as stack:
        stack.enter_context(unchanged_globals())
        stack.enter_context(attention_interface(session.recorder))
        stack.enter_context(_standing_in(built.model, session.recorder))
        # In inference mode torch hands composite operators to a listener whole, and every count would change.
        stack.enter_context(torch.inference_mode(mode=False))
        stack.enter_context(torch.no_grad())
        fake_mode = FakeTensorMode(allow_non_fake_inputs=False)
        session.make_fake(fake_mode)
        built.model.train()
        stack.enter_context(fake_mode)
        tokens = torch.ones((batch, seq_length), dtype=torch.long)
        stack.enter_context(session.recorder)
        stack.enter_context(_Functions(session.recorder))
        try:
            built.model(input_ids=tokens, use_cache=False)
        except Exception as error:
            raise BuildError(
                f"{built.config.model_type}: {session.recorder.where()} failed on fake tensors ({one_line(error)}); "
                f"run the same config in Transformers, or report it with the config"
            ) from error
    return session.recording()


@dataclass
class _Recorder(TorchDispatchMode):
    """Hears operators while a layer runs, and numbers every tensor version it meets."""

    values: list[Value] = field(default_factory=list)
    names: dict[int, str] = field(default_factory=dict)
    events: list[Event] = field(default_factory=list)
    activations: list[ActivationCall] = field(default_factory=list)
    modules: list[str] = field(default_factory=list)
    activation: str | None = None
    layer: str | None = None
    paused: int = 0
    failed: str | None = None

    def __post_init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # torch's
        self._numbers: dict[int, int] = {}
        self._alive: list[torch.Tensor] = []
        self._written: dict[int, int] = {}
        self._kernel: dict[str, object] = {}

    def where(self) -> str:
        """Say what was running, for an error."""
        if self.failed is not None:
            return self.failed
        if self.layer is None:
            return "the forward outside its layers"
        inside = self.modules[-1] if self.modules else ""
        return f"{self.layer}.{inside}" if inside else self.layer

    def number(self, tensor: torch.Tensor) -> int:
        """Return the number of a tensor's present version.

        Memory that was written through another tensor since makes a new version, of the old one and of what
        was written.
        """
        known = self._numbers.get(id(tensor))
        if known is None:
            return self._new(tensor)
        written = self._written.get(_storage(tensor), -1) if self._written else -1
        if written <= known:
            return known
        number = self._new(tensor)
        self.events.append(Event("aten.alias", self._module(), (known, written), (number,)))
        return number

    def _new(self, tensor: torch.Tensor) -> int:
        self.values.append(Value(tuple(tensor.shape), self.names.get(id(tensor))))
        number = len(self.values) - 1
        self._numbers[id(tensor)] = number
        self._alive.append(tensor)
        return number

    def describe_kernel(self, attributes: dict[str, object]) -> None:
        """Take the attributes of the score kernel that runs next."""
        self._kernel = attributes

    def hear(
        self,
        op: str,
        inputs: Sequence[torch.Tensor],
        outputs: Sequence[torch.Tensor],
        attributes: Mapping[str, object],
    ) -> None:
        """Record one thing that is no operator: a dropout, a recurrence."""
        if self.layer is None or self.paused:
            return
        taken = tuple(self.number(tensor) for tensor in inputs)
        made = tuple(self._new(tensor) for tensor in outputs)
        self.events.append(Event(op, self._module(), taken, made, (), self.activation, attributes))

    def _module(self) -> str:
        return self.modules[-1] if self.modules else ""

    def __torch_dispatch__(
        self,
        func: torch._ops.OpOverload,
        types: object,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        kwargs = kwargs or {}
        if self.layer is None or self.paused:
            return func(*args, **kwargs)
        arguments = (*args, *kwargs.values())
        tensors = [tensor for argument in arguments for tensor in _tensors(argument)]
        op = func._schema.name.replace("::", ".")
        inputs = () if op in _SHAPE_ONLY else tuple(map(self.number, tensors))
        result = func(*args, **kwargs)
        written = _written_arguments(func, args, kwargs)
        outputs = tuple(self._new(tensor) for tensor in (written or list(_tensors(result))))
        for tensor, number in zip(written, outputs, strict=False):
            self._written[_storage(tensor)] = number
        if not outputs:
            return result
        scalars = tuple(argument for argument in arguments if not isinstance(argument, torch.Tensor))
        attributes = self._kernel if op == "census.attention" else {}
        self.events.append(Event(op, self._module(), inputs, outputs, scalars, self.activation, attributes))
        return result


class _Functions(TorchFunctionMode):
    """Hears at the function what no operator shows as it is.

    A dropout, since a CPU build of torch has no operator for one; a grouped matmul, since its operator refuses
    widths that its kernel's alignment rules out, which are nothing to a count; and a choice by value (which
    experts were hit, which tokens hit one), since fake tensors have no values: the first expert is hit, by every
    token, so that a loop over experts runs one of them, as one is what is counted.
    """

    def __init__(self, recorder: _Recorder) -> None:
        super().__init__()
        self._recorder = recorder

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: object,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        kwargs = kwargs or {}
        if func is torch._grouped_mm and args[1].dim() == 3:
            return self._grouped_matmul(*args, **kwargs)
        if func in _FINDS and not kwargs.get("as_tuple"):
            return self._first_entry(args[0])
        if func is torch.where and len(args) == 1:
            return self._every_column(args[0])
        return self._dropout(args, kwargs) if func in _DROPOUTS else func(*args, **kwargs)

    def _grouped_matmul(
        self, rows: torch.Tensor, weights: torch.Tensor, offs: torch.Tensor, **_: object
    ) -> torch.Tensor:
        """Return rows (rows, in) by one weight (in, out) for each group of them: (rows, out)."""
        with _pause(self._recorder):
            made = rows.new_empty((*rows.shape[:-1], weights.shape[-1]))
        self._recorder.hear("aten._grouped_mm", [rows, weights, offs], [made], {})
        return made

    def _first_entry(self, mask: torch.Tensor) -> torch.Tensor:
        """Return one position, the first, as `nonzero` does: (1, dimensions)."""
        with _pause(self._recorder):
            made = torch.tensor([[0] * mask.dim()])
        self._recorder.hear("nonzero", [mask], [made], {})
        return made

    def _every_column(self, mask: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Return a position in each column of a mask, as `where` does: a tensor for each dimension."""
        with _pause(self._recorder):
            made = tuple(torch.zeros(mask.shape[-1], dtype=torch.long) for _ in range(mask.dim()))
        self._recorder.hear("nonzero", [mask], made, {})
        return made

    def _dropout(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> torch.Tensor:
        probability = args[1] if len(args) > 1 else kwargs.get("p", 0.5)
        training = args[2] if len(args) > 2 else kwargs.get("training", kwargs.get("train", True))
        taken: torch.Tensor = args[0] if args else kwargs["input"]
        if not (training and probability > 0):
            return taken
        with _pause(self._recorder):
            made = torch.empty_like(taken)
        self._recorder.hear(DROPOUT, [taken], [made], {"p": probability})
        return made


@dataclass
class _Representative:
    run: int
    result: object
    arguments: object


class _Session:
    """The layers of one model during one forward: who runs, and who hands back what another returned."""

    def __init__(self, built: BuiltModel, every_layer: bool) -> None:
        self.recorder = _Recorder()
        self.built = built
        self._runs: list[LayerRun] = []
        self._executions: list[tuple[int, int]] = []
        self._representatives: dict[object, _Representative] = {}
        self._returned: set[int] = set()
        signatures = layer_signatures(built.layers)
        groups = {signature: number for number, signature in enumerate(dict.fromkeys(signatures))}
        for index, (layer, signature) in enumerate(zip(built.layers, signatures, strict=True)):
            group = index if every_layer else groups[signature]
            layer.forward = functools.partial(self._layer, index, group, layer, layer.forward)

    def make_fake(self, mode: FakeTensorMode) -> None:
        """Replace the model's parameters and buffers by fake ones on the CPU, shared ones still shared."""
        names = {
            id(tensor): name for module in (self.built.model, *self.built.layers) for name, tensor in _held(module)
        }
        fakes: dict[int, FakeTensor] = {}
        for module in self.built.model.modules():
            for tensors in (module._parameters, module._buffers):
                for name, tensor in tensors.items():
                    if tensor is None:
                        continue
                    key = id(tensor)
                    if key not in fakes:
                        fakes[key] = FakeTensor(mode, tensor.detach().to("meta"), torch.device("cpu"))
                        self.recorder.names[id(fakes[key])] = names[key]
                    tensors[name] = fakes[key]  # type: ignore[assignment]

    def recording(self) -> Recording:
        """Return what was heard."""
        return Recording(tuple(self.recorder.values), tuple(self._runs), tuple(self._executions))

    def _layer(
        self, index: int, group: int, layer: nn.Module, forward: Callable[..., Any], *args: Any, **kwargs: Any
    ) -> Any:
        if self.recorder.layer is not None:
            return forward(*args, **kwargs)
        key = (group, self._call(args, kwargs))
        known = self._representatives.get(key)
        if known is not None:
            self._executions.append((index, known.run))
            return known.result
        held = _held_by_mappings((*args, *kwargs.values()))
        result = self._record(index, layer, forward, args, kwargs)
        self._executions.append((index, len(self._runs) - 1))
        self._returned.update(map(id, _tensors(result)))
        if held == _held_by_mappings((*args, *kwargs.values())):
            # The arguments are kept, so that none of their identities can be another tensor's later.
            self._representatives[key] = _Representative(len(self._runs) - 1, result, (args, kwargs))
        return result

    def _call(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> object:
        """Return a key under which two calls of a layer are the same call, the stream's values apart."""
        stream, *rest = (*args, *kwargs.values())
        shape = tuple(stream.shape) if isinstance(stream, torch.Tensor) else object()
        return (shape, tuple(kwargs), tuple(map(self._argument, rest)))

    def _argument(self, argument: object) -> object:
        """Return a key of one argument beside the stream.

        Tensors are compared by identity, those that a layer returned by shape: whichever layer returned one, the
        work on it is the same. A mapping is compared by what it holds. Any other object that could carry state
        from layer to layer is never the same.
        """
        if isinstance(argument, torch.Tensor):
            return ("returned", tuple(argument.shape)) if id(argument) in self._returned else ("tensor", id(argument))
        if isinstance(argument, tuple):
            return tuple(map(self._argument, argument))
        if isinstance(argument, Mapping):
            return tuple((str(name), self._argument(value)) for name, value in argument.items())
        if isinstance(argument, bool | int | float | str | None):
            return argument
        return object()

    def _record(
        self,
        index: int,
        layer: nn.Module,
        forward: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> Any:
        recorder = self.recorder
        path = f"{self.built.path}.{index}"
        recorder.layer, recorder.events, recorder.activations = path, [], []
        with _hooks(layer, recorder):
            before = recorder.number(_first_tensor((*args, *kwargs.values()), path))
            result = forward(*args, **kwargs)
            after = recorder.number(_first_tensor((result,), path))
        self._runs.append(LayerRun(index, path, tuple(recorder.events), tuple(recorder.activations), before, after))
        recorder.layer = None
        return result


def _held(module: nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    yield from module.named_parameters()
    yield from module.named_buffers()


@contextmanager
def _hooks(layer: nn.Module, recorder: _Recorder) -> Iterator[None]:
    """Keep the recorder's stack of running modules while one layer runs."""
    handles = []
    for path, module in layer.named_modules():
        if path:
            handles.append(module.register_forward_pre_hook(functools.partial(_enter, recorder, path)))
            handles.append(module.register_forward_hook(functools.partial(_leave, recorder, path)))
    try:
        yield
    except Exception:
        recorder.failed = recorder.where()
        raise
    finally:
        for handle in handles:
            handle.remove()
        recorder.modules.clear()
        recorder.activation = None


def _enter(recorder: _Recorder, path: str, module: nn.Module, args: object) -> None:
    recorder.modules.append(path)
    if recorder.activation is None and _is_activation(module):
        recorder.activation = path


def _leave(recorder: _Recorder, path: str, module: nn.Module, args: object, result: object) -> None:
    recorder.modules.pop()
    if recorder.activation == path and path not in recorder.modules:
        recorder.activation = None
        output = recorder.number(_first_tensor((result,), path))
        recorder.activations.append(ActivationCall(path, type(module).__name__, output))


def _is_activation(module: nn.Module) -> bool:
    return type(module).__module__ in _ACTIVATION_MODULES and not isinstance(module, _NO_ACTIVATIONS)


@contextmanager
def _standing_in(model: nn.Module, recorder: _Recorder) -> Iterator[None]:
    """Let every recurrence of the table that the model can call be stood in for by its entry.

    The functions are matched wherever they are held: in the modeling files' globals and on the modules.
    Globals are put back on the way out; the modules belong to the census.
    """
    table = recurrences()
    files = {sys.modules[type(module).__module__] for module in model.modules()}
    put_back: list[tuple[ModuleType, str, object]] = []
    try:
        for file in files:
            for name, held in list(vars(file).items()):
                stand_in = _stand_in_for(table, held, recorder)
                if stand_in is not None:
                    put_back.append((file, name, held))
                    setattr(file, name, stand_in)
        for module in model.modules():
            for name in {*vars(module), *table}:
                stand_in = _stand_in_for(table, getattr(module, name, None), recorder)
                if stand_in is not None:
                    setattr(module, name, stand_in)
        yield
    finally:
        for file, name, held in put_back:
            setattr(file, name, held)


def _stand_in_for(table: Mapping[str, Recurrence], held: object, recorder: _Recorder) -> Callable[..., Any] | None:
    """Return what stands in for a function of the table, arguments bound to it included; None for all else."""
    if isinstance(held, functools.partial):
        inner = _stand_in_for(table, held.func, recorder)
        return None if inner is None else functools.partial(inner, *held.args, **held.keywords)
    entry = table.get(getattr(held, "__name__", "")) if callable(held) else None
    return None if entry is None else _stand_in(entry, held, recorder)


def _stand_in(entry: Recurrence, function: Any, recorder: _Recorder) -> Callable[..., Any]:
    signature = inspect.signature(function)

    @functools.wraps(function)
    def called(*args: Any, **kwargs: Any) -> Any:
        bound = signature.bind_partial(*args, **kwargs)
        bound.apply_defaults()
        arguments = {**bound.arguments, **bound.arguments.get("kwargs", {})}
        with _pause(recorder):
            result = entry.outputs(**arguments)
        parts = [None if role is None else arguments[role] for role in entry.roles]
        taken = [part for part in parts if part is not None]
        rest = [
            tensor
            for name, argument in bound.arguments.items()
            if name not in entry.roles
            for tensor in _tensors(argument)
        ]
        heads = [
            None if part is None else heads(tuple(part.shape)) for part, heads in zip(parts, entry.heads, strict=True)
        ]
        recorder.hear(RECURRENCE + entry.name, taken + rest, list(_tensors(result)), {"heads": tuple(heads)})
        return result

    return called


@contextmanager
def _pause(recorder: _Recorder) -> Iterator[None]:
    recorder.paused += 1
    try:
        yield
    finally:
        recorder.paused -= 1


def _tensors(argument: object) -> Iterator[torch.Tensor]:
    if isinstance(argument, torch.Tensor):
        yield argument
    elif isinstance(argument, list | tuple):
        for item in argument:
            yield from _tensors(item)


def _held_by_mappings(arguments: Sequence[object]) -> list[tuple[object, int]]:
    """Return each name of each mapping among arguments, with the identity of what it holds."""
    mappings = (argument for argument in arguments if isinstance(argument, Mapping))
    return [(name, id(value)) for mapping in mappings for name, value in mapping.items()]


def _first_tensor(arguments: Sequence[object], path: str) -> torch.Tensor:
    for tensor in _tensors(arguments):
        return tensor
    raise BuildError(f"{path}: expected a tensor on the residual stream, found none in its call; report the model")


@functools.cache
def _writes(func: torch._ops.OpOverload) -> tuple[tuple[int, str], ...]:
    return tuple(
        (position, argument.name)
        for position, argument in enumerate(func._schema.arguments)
        if argument.alias_info is not None and argument.alias_info.is_write
    )


def _written_arguments(
    func: torch._ops.OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> list[torch.Tensor]:
    written = [args[i] if i < len(args) else kwargs.get(name) for i, name in _writes(func)]
    return [tensor for tensor in written if isinstance(tensor, torch.Tensor)]


def _storage(tensor: torch.Tensor) -> int:
    return int(tensor.untyped_storage()._cdata)
