"""Config to model: the modules Transformers builds of a config, on the meta device, and its layer stack."""

from __future__ import annotations

import copy
import random
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
import transformers
from torch import nn
from transformers import AutoModel, AutoModelForCausalLM, AutoModelForImageTextToText
from transformers.initialization import no_init_weights

from census.config import text_config
from census.errors import BuildError
from census.kernels import IMPLEMENTATION, attention_interface

if TYPE_CHECKING:
    from transformers import PretrainedConfig
    from transformers.models.auto.auto_factory import _BaseAutoModelClass


@dataclass(frozen=True)
class BuiltModel:
    """A language model on the meta device, with its decoder stack.

    Attributes:
        model: what is run: the language model, without weights.
        whole: what holds it and its head; the same module where the language model has a class of its own.
        config: the copy of the language model's config it was built of.
        path: the path of its layer list in `model`.
        layers: the layers, in order.
        embedding: the shape of the input embedding: (vocabulary, width).
        tied: whether the head's weight is the input embedding, and what states it.
    """

    model: nn.Module
    whole: nn.Module
    config: PretrainedConfig
    path: str
    layers: tuple[nn.Module, ...]
    embedding: tuple[int, ...]
    tied: tuple[bool, str]


def build(config: PretrainedConfig) -> BuiltModel:
    """Build the language model a config states, on the meta device, weights left out.

    The caller's config stays as it is. Quantization settings and remote code are ignored: they change
    storage, not structure, and census runs no code that comes with a config.

    Raises:
        BuildError: Transformers has no class for the config or refused it, or no layer stack was found.
    """
    auto_class, own = _class_and_config(config)
    with ExitStack() as stack:
        stack.enter_context(unchanged_globals())
        stack.enter_context(attention_interface())
        stack.enter_context(no_init_weights())
        stack.enter_context(torch.device("meta"))
        whole = _from_config(auto_class, own)
    model = whole.get_decoder() if auto_class is AutoModelForImageTextToText else whole  # type: ignore[operator]
    language = text_config(own)
    path, layers = find_layers(model, language)
    embedding = _embedding(model)
    return BuiltModel(model, whole, language, path, layers, tuple(embedding.shape), _tied(whole, language, embedding))


def _class_and_config(config: PretrainedConfig) -> tuple[type[_BaseAutoModelClass], PretrainedConfig]:
    """Return the auto class that builds the language model, and a copy of the config it takes.

    A language model without a causal-LM class of its own is taken from the multimodal model that holds it.
    """
    text = text_config(config)
    if type(text) in AutoModelForCausalLM._model_mapping:
        return AutoModelForCausalLM, copy.deepcopy(text)
    if type(config) in AutoModelForImageTextToText._model_mapping:
        return AutoModelForImageTextToText, copy.deepcopy(config)
    if type(text) in AutoModel._model_mapping:
        return AutoModel, copy.deepcopy(text)
    raise BuildError(
        f"{config.model_type}: expected a config of which transformers {transformers.__version__} builds a "
        f"language model, found no class for it; pass a causal language model's config"
    )


def _from_config(auto_class: type[_BaseAutoModelClass], config: PretrainedConfig) -> nn.Module:
    def make(attention: str) -> nn.Module:
        return auto_class.from_config(  # type: ignore[no-any-return]
            config, dtype=torch.float32, attn_implementation=attention, trust_remote_code=False
        )

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


def _embedding(model: nn.Module) -> torch.Tensor:
    module = model.get_input_embeddings()  # type: ignore[operator]
    weight = getattr(module, "weight", None)
    if not isinstance(weight, torch.Tensor):
        raise BuildError(
            f"{type(model).__name__}: expected an input embedding with a weight, found "
            f"{type(module).__name__}; census states models that take tokens"
        )
    return weight


def _tied(whole: nn.Module, config: PretrainedConfig, embedding: torch.Tensor) -> tuple[bool, str]:
    head = whole.get_output_embeddings()  # type: ignore[operator]
    if head is None:
        stated = bool(getattr(config, "tie_word_embeddings", False))
        return stated, "config: tie_word_embeddings; transformers builds this model without a head"
    tied = head.weight is embedding
    return tied, "the head's weight is the input embedding" if tied else "the head has a weight of its own"


def find_layers(model: nn.Module, config: PretrainedConfig) -> tuple[str, tuple[nn.Module, ...]]:
    """Return the path and the entries of the decoder's layer list.

    It is the only outermost module list, or of several the one that is as long as `num_hidden_layers` says.

    Raises:
        BuildError: there is no list, or of several none or more than one is that long.
    """
    lists = {
        path: module
        for path, module in model.named_modules()
        if isinstance(module, nn.ModuleList) and len(module) and not _inside_a_list(model, path)
    }
    depth = getattr(config, "num_hidden_layers", None)
    stacks = {path: module for path, module in lists.items() if len(module) == depth} if len(lists) > 1 else lists
    if len(stacks) != 1:
        found = ", ".join(f"{path} ({len(module)})" for path, module in lists.items()) or "no module list"
        raise BuildError(
            f"{config.model_type}: expected one list of num_hidden_layers = {depth} layers in "
            f"{type(model).__name__}, found {found}; census states models with one decoder stack; report the model"
        )
    [(path, module)] = stacks.items()
    return path, tuple(module)


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
