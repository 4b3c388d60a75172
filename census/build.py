"""Config to model: the modules Transformers builds of a config, on the meta device, and its layer stack."""

from __future__ import annotations

import copy
import functools
import inspect
import random
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from types import ModuleType
from typing import TYPE_CHECKING, Any, TypeVar

import torch
import transformers
from torch import nn
from transformers import (
    AutoModel,
    AutoModelForCausalLM,
    AutoModelForImageTextToText,
    AutoModelForSeq2SeqLM,
    PreTrainedModel,
)
from transformers.initialization import no_init_weights

from census.config import text_config
from census.config_file import check_sizes
from census.errors import BuildError
from census.kernels import IMPLEMENTATION, attention_interface
from census.own_model import OwnModel
from census.releases import classes_of, model_of, stated_depth
from census.repeated_layers import NotRepeatsError, Repeat, RepeatedLayers

if TYPE_CHECKING:
    from transformers import PretrainedConfig

    from census.releases import AutoClass

    _Builds = AutoClass | type[PreTrainedModel]


@dataclass(frozen=True)
class BuiltStack:
    """Modules on the meta device that are run, with their layers.

    Attributes:
        model: what is run, without weights.
        config: the copy of the config it was built of.
        paths: the path of each layer in `model`.
        layers: the layers, in order: of an encoder-decoder the encoder's first.
        repeats: by their indices the layers that show another one's modules.
    """

    model: nn.Module
    config: PretrainedConfig
    paths: tuple[str, ...]
    layers: tuple[nn.Module, ...]
    repeats: Mapping[int, Repeat]

    def list_of(self, index: int) -> str:
        """Return the path of the list that a layer is an entry of."""
        return self.paths[index].rpartition(".")[0]

    @functools.cached_property
    def built_as(self) -> tuple[int, ...]:
        """For each layer the index of the one whose modules it shows, its own where it was built itself."""
        return tuple(self.repeats[index].of if index in self.repeats else index for index in range(len(self.layers)))

    def place_of(self, index: int) -> int:
        """Return the place of a layer in that list."""
        return int(self.paths[index].rpartition(".")[2])


@dataclass(frozen=True)
class BuiltModel(BuiltStack):
    """A language model, with its layers.

    Attributes:
        whole: what holds it and its head; the same module where the language model has a class of its own.
        embedding: the shape of the input embedding: (vocabulary, width).
        codebooks: how many sequences of tokens it takes side by side, each with an embedding of its own.
        tied: whether the head's weight is the input embedding, and what states it.
        head: what makes logits, None where there is none.
        tokens: the name that its forward has for the tokens it takes.
        told: what else its forward is told, by name.
    """

    whole: nn.Module
    embedding: tuple[int, ...]
    codebooks: int
    tied: tuple[bool, str]
    head: nn.Module | None
    tokens: str = "input_ids"
    told: Mapping[str, object] = field(default_factory=lambda: {"use_cache": False})


_Stack = TypeVar("_Stack", bound=BuiltStack)


def build(config: PretrainedConfig | OwnModel, in_full: bool = False) -> BuiltModel:
    """Build the language model a config states, or its authors do, on the meta device, weights left out.

    The caller's config stays as it is. Quantization settings and remote code are ignored: they change
    storage, not structure, and census runs no code that comes with a config.

    Args:
        config: the config.
        in_full: build every layer, instead of once those that are built alike.

    Raises:
        ConfigError: the config states more layers, experts or width than census builds.
        BuildError: Transformers has no class for the config or refused it, or no layer stack was found.
    """
    if isinstance(config, OwnModel):
        return _build_own(config)
    check_sizes(vars(config), config.model_type)
    if in_full:
        return _build(config, None)
    return _repeats_built_once(functools.partial(_build, config))


def _repeats_built_once(built: Callable[[RepeatedLayers | None], _Stack]) -> _Stack:
    """Return what is built with the layers that repeat another built once, or in full where that cannot be."""
    try:
        return built(RepeatedLayers())
    except (BuildError, NotRepeatsError):
        # What failed may be the model, or what is done to build its layers once: built in full, it tells.
        return built(None)


def _build(config: PretrainedConfig, repeated: RepeatedLayers | None) -> BuiltModel:
    builds, own = _class_and_config(config)
    whole = _on_the_meta_device(builds, own, repeated)
    decodes_alone = builds is AutoModelForImageTextToText and not (
        own.is_encoder_decoder and _encodes_tokens(builds, own)
    )
    model = whole.get_decoder() if decodes_alone else whole  # type: ignore[operator]
    whole_is_run = builds is AutoModelForSeq2SeqLM or (builds is AutoModelForImageTextToText and not decodes_alone)
    language = own if whole_is_run else text_config(own)
    layers = find_layers(model, language)
    tables = _embeddings(model)
    head = whole.get_output_embeddings()  # type: ignore[operator]
    tied = _tied(head, language, tables[0])
    return BuiltModel(
        model, language, tuple(layers), tuple(layers.values()), _repeats(whole, layers, repeated), whole,
        tuple(tables[0].shape), len(tables), tied, head,
    )  # fmt: skip


def _on_the_meta_device(builds: _Builds, config: PretrainedConfig, repeated: RepeatedLayers | None) -> nn.Module:
    with ExitStack() as stack:
        stack.enter_context(unchanged_globals())
        stack.enter_context(attention_interface())
        stack.enter_context(no_init_weights())
        stack.enter_context(torch.device("meta"))
        # A composite model's towers have layers of the same classes, and no place among the layers that are stated.
        if repeated is not None and builds is not AutoModelForImageTextToText:
            stack.enter_context(repeated.built_once(_modeling_file(builds, config), config))
        return _from_config(builds, config)


def _modeling_file(builds: _Builds, config: PretrainedConfig) -> ModuleType:
    """Return the module in which the class is written that a config's model is of."""
    known: Any = builds if issubclass(builds, PreTrainedModel) else classes_of(builds)[type(config)]
    return sys.modules[(known[0] if isinstance(known, tuple) else known).__module__]


def _repeats(
    whole: nn.Module, layers: Mapping[str, nn.Module], repeated: RepeatedLayers | None
) -> Mapping[int, Repeat]:
    """Return by their indices the layers that show another one's modules.

    Raises:
        NotRepeatsError: a layer that was taken for a repeat may not be one.
    """
    if repeated is None:
        return {}
    tied: Any = getattr(whole, "all_tied_weights_keys", None)
    if tied is None:
        raise NotRepeatsError
    return repeated.repeats(layers, [*tied, *tied.values()])


def _build_own(config: OwnModel) -> BuiltModel:
    """Build a model by what its authors build it with.

    Raises:
        BuildError: it built no model, or one without what it was said to have.
    """
    if isinstance(config.build, nn.Module) or not callable(config.build):
        raise BuildError(
            f"{config.model_type}: build: expected a function that builds the model, found a "
            f"{type(config.build).__name__}; pass one, as `lambda: OurModel(...)`: a measurement uses its model up"
        )
    with ExitStack() as stack:
        stack.enter_context(unchanged_globals())
        stack.enter_context(attention_interface())
        stack.enter_context(no_init_weights())
        stack.enter_context(torch.device("meta"))
        try:
            model = config.build()
        except Exception as error:
            raise BuildError(
                f"{config.model_type}: build failed on the meta device ({one_line(error)}); build the model without "
                f"reading values of its tensors"
            ) from error
    if not isinstance(model, nn.Module):
        raise BuildError(f"{config.model_type}: build: expected a torch module, found {model!r}; return the model")
    embedding = _named(config, model, "embedding", lambda module: isinstance(module, nn.Embedding))
    head = _named(config, model, "head", lambda module: module is not embedding and _shape(module) == _shape(embedding))
    layers = find_layers(model, config)
    # A method of the instance: what it takes first is what is given to the model.
    tokens = next(iter(inspect.signature(model.forward).parameters), "")
    tied = head.weight is embedding.weight
    evidence = f"{config.head}.weight {'is' if tied else 'is not'} {config.embedding}.weight"
    return BuiltModel(
        model, config, tuple(layers), tuple(layers.values()), {}, model, _shape(embedding),
        1, (tied, evidence), head, tokens, {},
    )  # fmt: skip


def _named(config: OwnModel, model: nn.Module, fact: str, fits: Callable[[nn.Module], bool]) -> nn.Module:
    """Return the module that an own model's fact names by its path, of those that it may name.

    Raises:
        BuildError: there is no such module, or it is none that fits.
    """
    modules = dict(model.named_modules())
    path = getattr(config, fact)
    if path not in modules or not fits(modules[path]):
        fitting = ", ".join(path for path, module in modules.items() if path and fits(module))
        wanted = "an nn.Embedding" if fact == "embedding" else "a module with a weight as large as the embedding's"
        raise BuildError(
            f"{config.model_type}: {fact}: expected the path of {wanted}, found {path!r}; "
            f"{f'pass one of {fitting}' if fitting else 'census states language models with a table and a head'}"
        )
    found: nn.Module = modules[path]
    return found


def _shape(module: nn.Module) -> tuple[int, ...]:
    weight = getattr(module, "weight", None)
    return tuple(weight.shape) if isinstance(weight, torch.Tensor) else ()


def build_tower(config: PretrainedConfig, tower: PretrainedConfig) -> BuiltStack:
    """Build the vision tower of a multimodal config, on the meta device, weights left out.

    Args:
        config: the multimodal config.
        tower: the part of it that describes the tower.

    Raises:
        BuildError: Transformers has no class for it or refused it, or no layer stack was found.
    """
    return _repeats_built_once(functools.partial(_build_tower, config, tower))


def _build_tower(config: PretrainedConfig, tower: PretrainedConfig, repeated: RepeatedLayers | None) -> BuiltStack:
    alone = type(tower) in classes_of(AutoModel)
    builds = AutoModel if alone else AutoModelForImageTextToText
    model = _on_the_meta_device(builds, copy.deepcopy(tower if alone else config), repeated)
    held = [module for module in model.modules() if type(getattr(module, "config", None)) is type(tower)]
    if not held:
        raise BuildError(f"{tower.model_type}: expected a module of this config in {type(model).__name__}, found none")
    layers = find_layers(held[0], tower)
    return BuiltStack(held[0], tower, tuple(layers), tuple(layers.values()), _repeats(model, layers, repeated))


def _class_and_config(config: PretrainedConfig) -> tuple[_Builds, PretrainedConfig]:
    """Return the class that builds the language model, and a copy of the config it takes.

    A language model without a causal-LM class of its own is taken from the multimodal model that holds it. Some
    classes stand in the map of causal language models under the composite's config, though they take its decoder's.
    """
    text = text_config(config)
    for builds in (AutoModelForSeq2SeqLM, AutoModelForImageTextToText):
        if config.is_encoder_decoder and type(config) in classes_of(builds) and _encodes_tokens(builds, config):
            return builds, copy.deepcopy(config)
    if type(text) in classes_of(AutoModelForCausalLM):
        return AutoModelForCausalLM, copy.deepcopy(text)
    if text is not config and type(config) in classes_of(AutoModelForCausalLM):
        return classes_of(AutoModelForCausalLM)[type(config)], copy.deepcopy(text)
    if type(config) in classes_of(AutoModelForImageTextToText):
        return AutoModelForImageTextToText, copy.deepcopy(config)
    if type(text) in classes_of(AutoModel):
        return AutoModel, copy.deepcopy(text)
    raise BuildError(
        f"{config.model_type}: expected a config of which transformers {transformers.__version__} builds a "
        f"language model, found no class for it; pass a causal language model's config"
    )


def _encodes_tokens(builds: AutoClass, config: PretrainedConfig) -> bool:
    return "input_ids" in inspect.signature(classes_of(builds)[type(config)].forward).parameters


def _from_config(builds: _Builds, config: PretrainedConfig) -> nn.Module:
    def make(attention: str) -> nn.Module:
        if issubclass(builds, PreTrainedModel):
            return model_of(builds, config, dtype=torch.float32, attn_implementation=attention)
        model: nn.Module = builds.from_config(
            config, dtype=torch.float32, attn_implementation=attention, trust_remote_code=False
        )
        return model

    try:
        try:
            model = make(IMPLEMENTATION)
        except KeyError as error:
            if error.args != (IMPLEMENTATION,):
                raise
            # Some models look the name up in a table of their own; their scores are read off their operators.
            model = make("eager")
        # Skipping the initialization of weights skips the tying that Transformers does in the same step.
        model.tie_weights()  # type: ignore[operator]
    except Exception as error:
        raise BuildError(
            f"{config.model_type}: transformers {transformers.__version__} could not build the model of this "
            f"config ({one_line(error)}); correct the config, or try its published config.json"
        ) from error
    return model


def _tables(module: nn.Module | None) -> list[torch.Tensor]:
    """Return the weights of an embedding or a head: one, or one for each codebook of a model that takes several."""
    parts = list(module) if isinstance(module, nn.ModuleList) else [module]
    return [part.weight for part in parts if isinstance(getattr(part, "weight", None), torch.Tensor)]  # type: ignore[union-attr,misc]


def _embeddings(model: nn.Module) -> list[torch.Tensor]:
    try:
        module = model.get_input_embeddings()  # type: ignore[operator]
    except NotImplementedError:
        module = None
    tables = _tables(module)
    if not tables:
        raise BuildError(
            f"{type(model).__name__}: expected an input embedding with a weight, found "
            f"{type(module).__name__}; census states models that take tokens"
        )
    return tables


def _tied(head: nn.Module | None, config: PretrainedConfig, embedding: torch.Tensor) -> tuple[bool, str]:
    heads = _tables(head)
    if not heads:
        stated = bool(getattr(config, "tie_word_embeddings", False))
        return stated, "config: tie_word_embeddings; transformers builds this model without a head"
    tied = heads[0] is embedding
    return tied, "the head's weight is the input embedding" if tied else "the head has a weight of its own"


def find_layers(model: nn.Module, config: PretrainedConfig | OwnModel) -> dict[str, nn.Module]:
    """Return the layers of a model by their paths.

    They are the entries of its only outermost list of modules that hold several weights, or of several lists the one
    that is as long as `num_hidden_layers` says. Where none or more than one is, all of them are the model's stacks:
    an encoder's and a decoder's, or those that a model runs in turn.

    Raises:
        BuildError: there is no module list.
    """
    lists = {
        path: module
        for path, module in model.named_modules()
        if isinstance(module, nn.ModuleList)
        and not _inside_a_list(model, path)
        and any(sum(parameter.dim() > 1 for parameter in entry.parameters()) > 1 for entry in module)
    }
    depth = stated_depth(config)
    deep = {path: module for path, module in lists.items() if len(module) == depth}
    stacks = deep if len(deep) == 1 and not config.is_encoder_decoder else lists
    if not stacks:
        raise BuildError(
            f"{config.model_type}: expected a list of layers in {type(model).__name__}, found no module list; "
            f"{'hold them in an nn.ModuleList' if isinstance(config, OwnModel) else 'report the model'}"
        )
    return {f"{path}.{index}": layer for path, module in stacks.items() for index, layer in enumerate(module)}


def _inside_a_list(model: nn.Module, path: str) -> bool:
    parts = path.split(".")
    return any(isinstance(model.get_submodule(".".join(parts[:end])), nn.ModuleList) for end in range(1, len(parts)))


@contextmanager
def unchanged_globals() -> Iterator[None]:
    """Leave default dtype, default device, and the random states of torch and Python as they were."""
    dtype, device = torch.get_default_dtype(), torch.get_default_device()
    python_state = random.getstate()
    with torch.random.fork_rng(devices=[]):
        try:
            yield
        finally:
            random.setstate(python_state)
            torch.set_default_dtype(dtype)
            if torch.get_default_device() != device:
                torch.set_default_device(device)


def one_line(error: BaseException) -> str:
    """Return an error's kind and message on one line of at most 300 characters."""
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text}"[:300]
