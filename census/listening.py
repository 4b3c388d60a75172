"""One forward of a model on fake tensors, heard at three levels, as a recording.

Functions are heard for what no operator shows (a dropout on a CPU build of torch), operators for everything
that computes, modules for who was running. One representative of each layer signature runs; a layer built
the same and called with the same arguments hands back what its representative returned.
"""

from __future__ import annotations

import functools
import inspect
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from transformers import activations

from census.build import BuiltModel, BuiltStack, one_line, unchanged_globals
from census.errors import BuildError, UnknownPartError
from census.events import ActivationCall, LayerRun, ModuleCall, Recording
from census.fake_operators import FakeOperators
from census.grouping import layer_signatures
from census.kernels import attention_interface
from census.own_model import OwnModel
from census.recorder import FunctionListener, Recorder, listing_groups, tensors_of
from census.stand_ins import StandIns
from census.torch_private import (
    FakeTensor,
    FakeTensorMode,
    buffers_of,
    logger_name,
    parameters_of,
    same_modules,
    without_modes,
)

_ACTIVATION_MODULES = (torch.nn.modules.activation.__name__, activations.__name__)
_NO_ACTIVATIONS = (nn.Softmax, nn.LogSoftmax, nn.Softmin, nn.Softmax2d, nn.MultiheadAttention)


def record(built: BuiltModel, seq_length: int, batch: int = 1, in_full: bool = False) -> Recording:
    """Run the model's own forward once on fake tokens, in training mode, and return what was heard.

    Args:
        built: the model; it is used up, since its layers are listened to.
        seq_length: tokens of the sequence.
        batch: sequences.
        in_full: run every layer itself, instead of one of each signature, and every operator, instead of once for
            what it is given: the slow way that says the same.

    Raises:
        BuildError: the forward failed, or a layer of it never ran.
        UnknownPartError: a function with a recurrence's name takes other arguments.
    """

    def inputs() -> dict[str, object]:
        tokens = torch.ones((batch * built.codebooks, seq_length), dtype=torch.long)
        return {built.tokens: tokens, **built.told, **_further_inputs(built, tokens)}

    return hear(built, inputs, batch, in_full, batch * seq_length)


def hear(
    built: BuiltStack,
    inputs: Callable[[], Mapping[str, object]],
    batch: int = 1,
    in_full: bool = False,
    tokens: int = 0,
) -> Recording:
    """Run a forward once on fake tensors, in training mode, and return what was heard.

    Args:
        built: what is run; it is used up, since its layers are listened to.
        inputs: makes what it is given, of fake tensors.
        batch: sequences.
        in_full: run every layer itself, instead of one of each signature, and every operator, instead of once for
            what it is given: the slow way that says the same.
        tokens: tokens of all sequences, where tokens are what it is given.

    Raises:
        BuildError: the forward failed, or a layer of it never ran.
        UnknownPartError: a function with a recurrence's name takes other arguments.
    """
    session = _Session(built, batch, in_full, tokens)
    with ExitStack() as stack:
        stack.enter_context(unchanged_globals())
        stack.enter_context(_unlogged())
        stack.enter_context(attention_interface(session.recorder))
        stack.enter_context(session.stand_ins.of(built.model))
        # In inference mode torch hands composite operators to a listener whole, and every count would change.
        stack.enter_context(torch.inference_mode(mode=False))
        stack.enter_context(torch.no_grad())
        fake_mode = FakeTensorMode(allow_non_fake_inputs=False)
        stack.enter_context(session.ready(fake_mode))
        stack.enter_context(fake_mode)
        made = inputs()
        stack.enter_context(session.recorder)
        stack.enter_context(FunctionListener(session.recorder, isinstance(built.config, OwnModel)))
        stack.enter_context(session.outside())
        stack.enter_context(listing_groups())
        # A model that casts a module while it runs would swap its fake parameters; their type is nothing to a count.
        stack.enter_context(same_modules())
        try:
            built.model(**made)
        except UnknownPartError:
            raise
        except Exception as error:
            needs = _more_than(made, built)
            raise BuildError(
                f"{built.config.model_type}: {session.recorder.where()} failed on fake tensors ({one_line(error)}); "
                + (f"its forward also takes {needs}, which census does not make; " if needs else "")
                + "run the same config in Transformers, or report it with the config"
            ) from error
    recording = session.recording()
    _refuse_idle_layers(built, recording)
    return recording


@contextmanager
def _unlogged() -> Iterator[None]:
    """Keep fake tensors from logging a failing operator's source at length; the error's one line names it."""

    def nothing(_: logging.LogRecord) -> bool:
        return False

    logger = logging.getLogger(logger_name)
    logger.addFilter(nothing)
    try:
        yield
    finally:
        logger.removeFilter(nothing)


def _refuse_idle_layers(built: BuiltStack, recording: Recording) -> None:
    ran = {index for index, _ in recording.executions}
    # A list of which nothing ran beside one that did is a tower: it waits for an image or for sound.
    lists = {built.list_of(index) for index in ran}
    idle = [index for index in range(len(built.layers)) if index not in ran and built.list_of(index) in lists]
    if idle or not ran:
        paths = [built.paths[index] for index in idle or range(len(built.layers))]
        raise BuildError(
            f"{built.config.model_type}: expected each of its {len(ran) + len(paths)} layers to run, found "
            f"{', '.join(paths[:6])}{', ...' if len(paths) > 6 else ''} idle; census does not state layers that wait "
            f"for more than it makes"
        )


_ORDINARY = frozenset(
    """
    self input_ids attention_mask position_ids past_key_values cache inputs_embeds labels use_cache output_attentions
    output_hidden_states output_router_logits return_dict cache_position logits_to_keep token_type_ids kwargs
    encoder_hidden_states encoder_attention_mask head_mask cross_attn_head_mask cache_params state seq_idx
    """.split()
)
"""What a forward takes that a run on tokens alone can leave out."""


def _more_than(made: Mapping[str, object], built: BuiltStack) -> str:
    """Return what else a forward takes than it was given, for an error: what it may have lacked."""
    taken = inspect.signature(built.model.forward).parameters
    return ", ".join(name for name in taken if name not in _ORDINARY and name not in made)


def _further_inputs(built: BuiltModel, tokens: torch.Tensor) -> dict[str, torch.Tensor]:
    """Return what a model takes beside its tokens, by the names of its forward's arguments.

    A decoder takes tokens of its own, a model of documents the box of each token; layers of cross-attention alone run
    on an image's states only.
    """
    taken = inspect.signature(built.model.forward).parameters
    further: dict[str, torch.Tensor] = {}
    if built.config.is_encoder_decoder and "decoder_input_ids" in taken:
        further["decoder_input_ids"] = tokens
    if built.config.is_encoder_decoder and "bbox" in taken:
        further["bbox"] = torch.zeros((*tokens.shape, 4))
    if "cross_attention_states" in taken:
        further["cross_attention_states"] = torch.empty((*tokens.shape, built.embedding[1]))
    return further


@dataclass
class _Representative:
    run: int
    result: object
    arguments: object


class _Session:
    """The layers of one model during one forward: who runs, and who hands back what another returned."""

    def __init__(self, built: BuiltStack, batch: int, in_full: bool, tokens: int) -> None:
        self.recorder = Recorder()
        self.stand_ins = StandIns(self.recorder)
        self.batch = batch
        self.tokens = tokens
        self._in_full = in_full
        self._outside: list[ModuleCall] = []
        self._fakes: dict[int, FakeTensor] = {}
        self._replaced: list[tuple[dict[str, Any], str, torch.Tensor]] = []
        self._mode: FakeTensorMode
        self._of_no_layer: list[tuple[str, nn.Module]] = []
        self.built = built
        self._runs: list[LayerRun] = []
        self._executions: list[tuple[int, int]] = []
        self._representatives: dict[object, _Representative] = {}
        self._returned: set[int] = set()
        self._built = {index: built.layers[index] for index in sorted(set(built.built_as))}
        places = [built.place_of(index) for index in self._built]
        signatures = dict(zip(self._built, layer_signatures([*self._built.values()], places), strict=True))
        for index, (layer, built_as) in enumerate(zip(built.layers, built.built_as, strict=True)):
            group = index if in_full else signatures[built_as]
            layer.forward = functools.partial(self._layer, index, group, layer, layer.forward)

    @contextmanager
    def ready(self, mode: FakeTensorMode) -> Iterator[None]:
        """Let the model run, in training mode: what is outside its layers here, each layer when it first runs itself.

        Its own tensors are put back on the way out.
        """
        self._mode = mode
        if not self._in_full:
            self.recorder.operate = FakeOperators(mode).run
            # What the operators remember, the mode need not remember too.
            mode.cache_enabled = False
        modules = list(self.built.model.named_modules())
        if not all(module.training for _, module in modules):
            self.built.model.train()
        inside = {*self.built.layers, *(module for layer in self._built.values() for module in layer.modules())}
        self._of_no_layer = [(path, module) for path, module in modules if module not in inside]
        self._make_ready(self._of_no_layer)
        try:
            yield
        finally:
            for tensors, name, tensor in self._replaced:
                tensors[name] = tensor
            for layer in self.built.layers:
                # A layer that leads to itself would stay until the collector looks at everything there is.
                vars(layer).pop("forward", None)

    def _make_ready(self, modules: Sequence[tuple[str, nn.Module]]) -> None:
        """Replace modules' tensors by fake ones on the CPU, shared ones still shared, named by the paths given."""
        named: set[int] = set()
        for path, module in modules:
            self.stand_ins.held_by(module)
            for tensors in (parameters_of(module), buffers_of(module)):
                for name, tensor in tensors.items():
                    if tensor is None:
                        continue
                    if not isinstance(tensor, FakeTensor):
                        self._replaced.append((tensors, name, tensor))
                        tensors[name] = fake = self._fake(tensor)  # type: ignore[assignment]
                    else:
                        fake = tensor
                    if id(fake) not in named:
                        named.add(id(fake))
                        self.recorder.name(fake, f"{path}.{name}" if path else name)

    def _fake(self, tensor: torch.Tensor) -> FakeTensor:
        if id(tensor) not in self._fakes:
            self._fakes[id(tensor)] = FakeTensor(self._mode, tensor.detach().to("meta"), torch.device("cpu"))
        return self._fakes[id(tensor)]

    def recording(self) -> Recording:
        """Return what was heard."""
        return Recording(
            tuple(self.recorder.values),
            tuple(self._runs),
            tuple(self._executions),
            self.batch,
            self.tokens,
            tuple(self._outside),
        )

    @contextmanager
    def outside(self) -> Iterator[None]:
        """Note the calls of the modules outside the layers that hold parameters."""

        def note(path: str, _: nn.Module, args: tuple[object, ...], __: object) -> None:
            taken = next((tuple(tensor.shape) for tensor in tensors_of(args)), ())
            self._outside.append(ModuleCall(path, taken))

        handles = [
            module.register_forward_hook(functools.partial(note, path))
            for path, module in self._of_no_layer
            if any(held is not None for held in parameters_of(module).values())
        ]
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()

    def _layer(
        self, index: int, group: object, layer: nn.Module, forward: Callable[..., Any], *args: Any, **kwargs: Any
    ) -> Any:
        if self.recorder.layer is not None:
            return forward(*args, **kwargs)
        key = (group, self._call(args, kwargs))
        known = self._representatives.get(key)
        if known is not None:
            self._executions.append((index, known.run))
            return known.result
        held = _held_by_mappings((*args, *kwargs.values()))
        repeat = self.built.repeats.get(index)
        with repeat.by_itself() if repeat is not None else nullcontext():
            result = self._record(index, layer, forward, args, kwargs)
        self._executions.append((index, len(self._runs) - 1))
        self._returned.update(map(id, tensors_of(result)))
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
        path = self.built.paths[index]
        modules = list(layer.named_modules())
        with without_modes():
            self._make_ready(modules)
        recorder.layer, recorder.events, recorder.activations = path, [], []
        with _hooks(modules, recorder):
            before = recorder.stream = recorder.number(_first_tensor((*args, *kwargs.values()), path))
            result = forward(*args, **kwargs)
            after = recorder.number(_first_tensor((result,), path))
        self._runs.append(LayerRun(index, path, tuple(recorder.events), tuple(recorder.activations), before, after))
        recorder.layer = None
        return result


@contextmanager
def _hooks(modules: Sequence[tuple[str, nn.Module]], recorder: Recorder) -> Iterator[None]:
    """Keep the recorder's stack of running modules while one layer runs."""
    handles = []
    for path, module in modules:
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


def _enter(recorder: Recorder, path: str, module: nn.Module, args: object) -> None:
    recorder.modules.append(path)
    if recorder.activation is None and _is_activation(module):
        recorder.activation = path


def _leave(recorder: Recorder, path: str, module: nn.Module, args: object, result: object) -> None:
    recorder.modules.pop()
    if recorder.activation == path and path not in recorder.modules:
        recorder.activation = None
        output = recorder.number(_first_tensor((result,), path))
        recorder.activations.append(ActivationCall(path, type(module).__name__, output))


def _is_activation(module: nn.Module) -> bool:
    return type(module).__module__ in _ACTIVATION_MODULES and not isinstance(module, _NO_ACTIVATIONS)


def _held_by_mappings(arguments: Sequence[object]) -> list[tuple[object, int]]:
    """Return each name of each mapping among arguments, with the identity of what it holds."""
    mappings = (argument for argument in arguments if isinstance(argument, Mapping))
    return [(name, id(value)) for mapping in mappings for name, value in mapping.items()]


def _first_tensor(arguments: Sequence[object], path: str) -> torch.Tensor:
    for tensor in tensors_of(arguments):
        return tensor
    raise BuildError(f"{path}: expected a tensor on the residual stream, found none in its call; report the model")
