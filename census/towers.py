"""The vision tower of a multimodal model, measured as its language model is: its layers run on an image's patches."""

from __future__ import annotations

import inspect
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from census.build import BuiltStack, build_tower
from census.counts import Fact
from census.errors import UnknownPartError
from census.events import Recording
from census.kinds import KindCensus, attention_in, beside, kind_spec, kinds_of_the_fitting, read_runs, with_details
from census.listening import hear
from census.op_profile import load_op_profile
from census.spec import fold_layers
from census.torch_private import known_values
from census.weight_spec import weights_of_kinds

if TYPE_CHECKING:
    from transformers import PretrainedConfig

_SIDE = 16
"""Patches of a side of the image, where the tower does not say how large its images are."""

_KNOWN_VALUES = 4096
"""How many numbers of a fake tensor are kept: a grid of patches is asked for while the tower runs."""

_CHANNELS = ("num_channels", "in_channels", "in_chans")
_STATED = {
    "out_hidden_size": ("out_hidden_size", "vision_output_dim"),
    "patch_size": ("patch_size",),
    "spatial_merge_size": ("spatial_merge_size", "merge_kernel_size"),
    "num_position_embeddings": ("num_position_embeddings",),
    "max_position_embeddings": ("max_position_embeddings",),
}
"""What the tower's config alone says: field of the spec, and the names it has there."""


def vision_config(config: PretrainedConfig) -> PretrainedConfig | None:
    """Return the part of a multimodal config that describes its vision tower, None where there is none."""
    from transformers import PretrainedConfig

    tower = getattr(config, "vision_config", None)
    return tower if isinstance(tower, PretrainedConfig) else None


def audio_configs(config: PretrainedConfig) -> dict[str, str]:
    """Return the model types of a multimodal config's audio towers, by the names of their parts."""
    parts = {name: getattr(config, name, None) for name in ("audio_config", "audio_encoder", "audio_encoder_config")}
    return {name: part.model_type for name, part in parts.items() if part is not None and hasattr(part, "model_type")}


@dataclass(frozen=True)
class TowerReading:
    """What was heard of a vision tower, and what it was read as.

    Attributes:
        built: the tower.
        recording: its forward.
        read: what each run of the recording was read as.
        stack: the kind of every layer, in order.
        kinds: for every kind, what a layer of it runs.
        beside: what each kind states beside its dimensions, with the places of the layers that do.
    """

    built: BuiltStack
    recording: Recording
    read: Mapping[int, KindCensus]
    stack: tuple[str, ...]
    kinds: Mapping[str, KindCensus]
    beside: Mapping[str, Mapping[str, tuple[Fact, list[int]]]]


def read_tower(config: PretrainedConfig, tower: PretrainedConfig) -> TowerReading:
    """Run a vision tower and read its layers.

    Args:
        config: the multimodal config.
        tower: the part of it that describes the tower.

    Raises:
        BuildError: Transformers could not build the tower, or it did not run on an image's patches.
        UnknownPartError: a layer runs something census does not know.
        KindError: profile `vision` has no kind for a layer.
    """
    built = build_tower(config, tower)
    with known_values(_KNOWN_VALUES):
        recording = hear(built, lambda: _image(built))
    read = read_runs(built, recording)
    for index, run in recording.executions:
        _require_heads(built.paths[index], read[run])
    attention = [attention_in(read, run) for _, run in recording.executions]
    profile, stack, kinds = kinds_of_the_fitting([load_op_profile("vision")], True, built, recording, read, attention)
    stated = beside(profile, built, recording, stack, read)
    kinds = {kind: with_details(census, stated[kind]) for kind, census in kinds.items()}
    return TowerReading(built, recording, read, stack, kinds, stated)


def tower_spec(tower: PretrainedConfig, reading: TowerReading) -> dict[str, Any]:
    """Return the `vision` of a spec: a tower's dimensions, its layers and their op vectors.

    Args:
        tower: the part of the multimodal config that describes it.
        reading: what it was read as.

    Raises:
        UnknownPartError: a layer was run in place of one with other parameters.
    """
    stack, kinds, stated = reading.stack, reading.kinds, reading.beside
    first = kinds[stack[0]]
    weights = weights_of_kinds(reading.built, reading.recording, stack, reading.read)
    facts = {
        "hidden_size": first.dims["hidden_size"],
        "num_hidden_layers": len(stack),
        "num_attention_heads": first.dims["num_attention_heads"],
        "name": tower.model_type,
        "intermediate_size": first.dims.get("intermediate_size"),
        **{field: _number(tower, *names) for field, names in _STATED.items()},
        "ops": {kind: census.ops.to_dict() for kind, census in kinds.items()},
        "layers": [group.to_dict() for group in fold_layers(stack)],
        "kinds": {
            kind: kind_spec(kinds[kind], kinds[kind].mixers, stack.count(kind), stated[kind], weights[kind])
            for kind in kinds
        },
    }
    return {field: value for field, value in facts.items() if value is not None}


def _require_heads(path: str, kind: KindCensus) -> None:
    """Refuse a layer that attends in windows which its heads cannot be told from: both are rows of one matmul."""
    heads, width = kind.dims.get("num_attention_heads", 0), kind.dims.get("head_dim", 0)
    assert isinstance(heads, int) and isinstance(width, int), "heads and widths are numbers"
    if heads * width > 2 * int(kind.dims["hidden_size"]):  # type: ignore[arg-type]
        raise UnknownPartError(
            f"{path}: expected heads about as wide together as the stream ({kind.dims['hidden_size']}), found {heads} "
            f"of {width}; census does not tell windows from heads; report the model"
        )


def _number(config: PretrainedConfig, *names: str, otherwise: int | None = None) -> int | None:
    """Return the first number that a config states under one of several names: of a square, its side."""
    for name in names:
        value = getattr(config, name, None)
        if isinstance(value, list | tuple) and value:
            value = value[0]
        if type(value) is int and value > 0:
            return value
    return otherwise


def field_of_config(tower: PretrainedConfig, field: str) -> str:
    """Return the name under which a tower's config states a field of the spec that the config alone says."""
    return next(name for name in _STATED[field] if _number(tower, name) is not None)


def _image(built: BuiltStack) -> Mapping[str, object]:
    """Return what a tower's forward takes of one image, by the names of its arguments.

    It takes pixels, (batch, channels, height, width), or patches, (patches, values of a patch), with the grid they
    form: frames, rows and columns of it; or patches in a batch, with rows and columns, and which of them are padding.
    """
    taken = list(inspect.signature(built.model.forward).parameters)
    tower = built.config
    channels, side = _number(tower, *_CHANNELS, otherwise=3), _number(tower, "patch_size", otherwise=14)
    frames = _number(tower, "temporal_patch_size", otherwise=1)
    assert channels is not None and side is not None and frames is not None, "each has a number to fall back on"
    grids = [name for name in taken if name in ("grid_thw", "image_grid_thw")]
    if grids:
        values = math.prod((channels, frames, side, side))
        image: dict[str, object] = {taken[0]: torch.empty(_SIDE * _SIDE, values)}
        image[grids[0]] = torch.tensor([[1, _SIDE, _SIDE]])
        if "merge_sizes" in taken:
            image["merge_sizes"] = torch.tensor([_number(tower, "spatial_merge_size", otherwise=2)])
        return image
    if "spatial_shapes" in taken:
        return {
            taken[0]: torch.empty(1, _SIDE * _SIDE, channels * side * side),
            "spatial_shapes": torch.tensor([[_SIDE, _SIDE]]),
            "pixel_attention_mask": torch.ones(1, _SIDE * _SIDE, dtype=torch.long),
        }
    size = _number(tower, "image_size", otherwise=side * _SIDE)
    assert size is not None, "it has a number to fall back on"
    image = {taken[0]: torch.empty(1, channels, size, size)}
    if "image_sizes" in taken:
        image["image_sizes"] = [(size, size)]
    return image
