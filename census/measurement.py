"""The census itself: from a config to its ModelSpec, measured.

config -> model on meta -> layers by shape -> one forward -> events -> counts, dims -> ModelSpec
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from census.build import BuiltModel, build
from census.config import text_config
from census.counts import Fact
from census.coverage import model_types
from census.errors import CensusError, ConfigError, UnknownPartError
from census.events import Recording
from census.graph import LayerGraph
from census.kinds import (
    KindCensus,
    attention_in,
    beside,
    kind_spec,
    kinds_of_the_fitting,
    read_layer,
    read_runs,
    with_details,
)
from census.listening import record
from census.op_profile import OpProfile, infer_arch, load_op_profile, named_arch
from census.own_model import OwnModel
from census.spec import ModelSpec, fold_layers
from census.towers import TowerReading, audio_configs, read_tower, tower_spec, vision_config
from census.weight_spec import outside_weights, weights_of_kinds

if TYPE_CHECKING:
    from transformers import PretrainedConfig

_LOCK = threading.RLock()
"""One census at a time: Transformers' registries and torch's modes belong to the process."""

SEQ_LENGTH = 256
"""Tokens of the forward, or half as many as a model has positions for. No count and no dimension depends on it.

As long as the longest stretch that a model makes one entry of (128 tokens of a compressed attention), so that what
runs on whole stretches alone is seen.
"""

_POSITIONS = ("max_position_embeddings", "max_seq_len")
"""The config fields that say how many positions a model has."""

_FIRST_STATED = (
    "num_attention_heads", "num_key_value_heads", "head_dim",
    "q_lora_rank", "kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim",
    "linear_num_key_heads", "linear_key_head_dim", "linear_num_value_heads", "linear_value_head_dim",
    "linear_conv_kernel_dim",
    "num_experts", "num_experts_per_tok", "moe_intermediate_size",
    "num_shared_experts", "shared_expert_intermediate_size",
    "layer_norms",
)  # fmt: skip
"""Widths and numbers: the first kind that states one gives it, full attention before linear."""

_ANY_STATES = (
    "qkv_bias", "o_bias", "qk_norm", "attn_output_gate", "mlp_bias", "shared_expert_gate", "norm_bias",
)  # fmt: skip
"""Flags: true where any kind states it, false where none does."""


@dataclass(frozen=True)
class ModelCensus:
    """A model's census with its evidence.

    Attributes:
        spec: the ModelSpec, as a mapping.
        kinds: for every kind the model has, what a layer of it runs.
        stack: the kind of every layer execution, in order.
        order: the index of the layer that runs at each place of the stack; one that runs twice stands twice.
        attention: the attention flavour at each place, which the kind does not tell where a family has none for it.
        evidence: for every scalar field of the spec, what stated it.
        left_out: parts of a multimodal model that are not stated, with the reason.
    """

    spec: Mapping[str, Any]
    kinds: Mapping[str, KindCensus]
    stack: tuple[str, ...]
    order: tuple[int, ...]
    attention: tuple[str, ...]
    evidence: Mapping[str, str]
    left_out: Mapping[str, str]


def census_model_spec(
    config: PretrainedConfig | OwnModel, arch: str | None = None, name: str | None = None
) -> dict[str, Any]:
    """Return the ModelSpec of a config, measured from the layers Transformers builds of it.

    Args:
        config: a Transformers config; of a multimodal one the language model is described. It stays as it is. Or an
            `OwnModel`, of a module that Transformers does not build.
        arch: the family whose op profile names the kinds; inferred from the name if left out.
        name: the model's name in the spec; the config's own, or its model type, if left out.

    Returns:
        The spec as plain data, as `ModelSpec.from_dict` takes it.

    Raises:
        BuildError: Transformers could not build or run the model.
        UnknownPartError: a layer runs something census does not know.
        KindError: the family has no kind for a layer, or one kind for layers built differently.
    """
    return dict(measure(config, arch, name).spec)


def census_kind(config: PretrainedConfig, layer_index: int, seq_length: int | None = None) -> KindCensus:
    """Return what one layer of a model runs and how wide it is.

    Args:
        config: a Transformers config.
        layer_index: the layer's place in the stack, from 0; negative from the end.
        seq_length: tokens of the measured forward, 256 or half as many as the model has positions for if left out; no
            result depends on it.

    Raises:
        ConfigError: the model has no such layer, or the length is no positive number.
        BuildError: Transformers could not build or run the model.
        UnknownPartError: the layer runs something census does not know.
    """
    with _LOCK:
        built, recording = forward(config, seq_length)
    depth = len(recording.executions)
    if not -depth <= layer_index < depth:
        raise ConfigError(f"layer {layer_index}: expected 0 to {depth - 1}, since the model has {depth} layers")
    index, run = recording.executions[layer_index]
    return read_layer(built, recording, index, run)


@dataclass(frozen=True)
class Measurement:
    """A census with what it was read from.

    Attributes:
        census: the census.
        built: the model that was run.
        recording: what was heard of it.
        tower: what the vision tower was read as, None where none is stated.
    """

    census: ModelCensus
    built: BuiltModel
    recording: Recording
    tower: TowerReading | None


def measure(
    config: PretrainedConfig | OwnModel,
    arch: str | OpProfile | None = None,
    name: str | None = None,
    seq_length: int | None = None,
    batch: int = 1,
) -> ModelCensus:
    """Measure a model: its spec, its kinds and the evidence of every number.

    Args:
        config: a Transformers config, or an `OwnModel`.
        arch: a family's name or a profile. If left out, the family its name points to where that has kinds for the
            layers; else, of the families of its model type, one whose profile states what was measured, or the first
            that has the kinds; else `default`.
        name: the model's name in the spec.
        seq_length: tokens of the measured forward, 256 or half as many as the model has positions for if left out; no
            result depends on it.
        batch: sequences of the measured forward; no result depends on it.

    Raises:
        BuildError, UnknownPartError, KindError: as `census_model_spec`.
    """
    return measurement_of(config, arch, name, seq_length, batch).census


def measurement_of(
    config: PretrainedConfig | OwnModel,
    arch: str | OpProfile | None = None,
    name: str | None = None,
    seq_length: int | None = None,
    batch: int = 1,
) -> Measurement:
    """Measure a model as `measure` does, and keep what it was read from."""
    name = name or getattr(config, "_name_or_path", "") or config.model_type
    if arch:
        profiles, decided = [arch if isinstance(arch, OpProfile) else load_op_profile(arch)], True
    else:
        profiles, decided = _candidates(config, name)
    with _LOCK:
        built, recording = forward(config, seq_length, batch)
        tower, vision, left_out = _towers(config)
    read = read_runs(built, recording)
    attention = tuple(attention_in(read, run) for _, run in recording.executions)
    profile, stack, kinds = kinds_of_the_fitting(profiles, decided, built, recording, read, attention)
    stated = beside(profile, built, recording, stack, read)
    kinds = {kind: with_details(census, stated[kind]) for kind, census in kinds.items()}
    mixers = {
        kind: tuple(
            dict.fromkeys(
                m
                for k, (_, run) in zip(stack, recording.executions, strict=True)
                if k == kind
                for m in read[run].mixers
            )
        )
        for kind in kinds
    }
    facts = _model_facts(config, built, kinds, stack)
    weights = weights_of_kinds(built, recording, stack, read)
    ops = {kind: kinds[kind].ops if kind in kinds else profile.kinds[kind].ops for kind in profile.kinds}
    spec = ModelSpec.from_dict(
        {
            "name": name,
            "arch": profile.arch,
            **{field: fact.value for field, fact in facts.items()},
            "ops": {kind: counts.to_dict() for kind, counts in ops.items()},
            "layers": [group.to_dict() for group in fold_layers(stack)],
            "kinds": {
                kind: kind_spec(kinds[kind], mixers[kind], stack.count(kind), stated[kind], weights[kind])
                for kind in kinds
            },
            "outside": outside_weights(built, recording),
            **({"vision": vision} if vision else {}),
        },
        where=f"census of {name}",
    )
    order = tuple(index for index, _ in recording.executions)
    evidence = {field: fact.evidence for field, fact in facts.items()}
    census = ModelCensus(spec.to_dict(), kinds, stack, order, attention, evidence, left_out)
    return Measurement(census, built, recording, tower)


def _towers(config: PretrainedConfig) -> tuple[TowerReading | None, dict[str, Any], dict[str, str]]:
    """Return a multimodal config's vision tower, what it states, and the parts that are not stated, with the reason."""
    left_out = {part: f"{kind}: census states no audio towers" for part, kind in audio_configs(config).items()}
    tower = vision_config(config)
    if tower is None:
        return None, {}, left_out
    try:
        reading = read_tower(config, tower)
        return reading, tower_spec(tower, reading), left_out
    except CensusError as error:
        return None, {}, {"vision_config": str(error), **left_out}


def _candidates(config: PretrainedConfig, name: str) -> tuple[list[OpProfile], bool]:
    """Return the profiles that may name a config's kinds, and whether the first is the one its name points to."""
    named = named_arch(name if name == config.model_type else f"{name} {config.model_type}")
    known = model_types().get(config.model_type)
    archs = [*([named] if named else ()), *(known.families if known else ())] or [infer_arch(name)]
    return [load_op_profile(arch) for arch in dict.fromkeys([*archs, "default"])], named is not None


def forward(
    config: PretrainedConfig | OwnModel, seq_length: int | None = None, batch: int = 1, in_full: bool = False
) -> tuple[BuiltModel, Recording]:
    """Build a config's model and run its forward once; return the model and what was heard.

    Args:
        config: the config.
        seq_length: tokens of the sequence; 256, or half as many as the model has positions for, if left out.
        batch: sequences.
        in_full: build and run every layer itself, and every operator: the slow way that says the same.

    Raises:
        ConfigError: the length or the batch is no positive number.
        BuildError: Transformers could not build or run the model, or a layer of it never ran.
    """
    if seq_length is None:
        stated = [getattr(text_config(config), name, None) for name in _POSITIONS]
        # Half of them: some models count past a token's own position.
        seq_length = min(
            [SEQ_LENGTH, *(positions // 2 for positions in stated if type(positions) is int and positions > 1)]
        )
    for field, size in (("seq_length", seq_length), ("batch", batch)):
        if type(size) is not int or size < 1:
            raise ConfigError(f"{field}: expected a positive whole number, found {size!r}")
    with _LOCK:
        built = build(config, in_full)
        recording = record(built, seq_length, batch, in_full)
    if isinstance(config, OwnModel):
        _refuse_unread_masks(recording)
    return built, recording


def _refuse_unread_masks(recording: Recording) -> None:
    """Refuse scores with a mask of an own model's making: fake tensors do not say how far it reaches.

    The masks that a model of Transformers asks for are known by the function that makes them.
    """
    for run in recording.runs:
        for attention in LayerGraph(recording, run).eager_attentions:
            if attention.masked:
                where = f"{run.path}.{attention.event.module}".rstrip(".")
                raise UnknownPartError(
                    f"{where}: expected scores without a mask, or with the causal one of "
                    f"F.scaled_dot_product_attention(is_causal=True), found a mask or a bias of the model's own, of "
                    f"which census cannot tell how far it reaches; take is_causal=True, or register the model with "
                    f"Transformers' auto classes and take its masks"
                )


def _model_facts(
    config: PretrainedConfig, built: BuiltModel, kinds: Mapping[str, KindCensus], stack: Sequence[str]
) -> dict[str, Fact]:
    """Return every scalar field of the spec, with its evidence."""
    in_order = sorted(kinds.values(), key=lambda kind: kind.shape.attention == "linear")
    facts = {
        "num_hidden_layers": Fact(
            len(stack), f"{built.paths[0]} to {built.paths[-1]}: {len(built.layers)} layers, {len(stack)} executions"
        ),
        **_outside_the_layers(config, built),
    }
    for field in ("hidden_size", *_FIRST_STATED):
        stated = next((kind for kind in in_order if field in kind.dims), None)
        if stated is not None:
            facts[field] = Fact(stated.dims[field], stated.evidence[field])
    for field in _ANY_STATES:
        states = [kind for kind in in_order if field in kind.dims]
        if states:
            chosen = next((kind for kind in states if kind.dims[field]), states[0])
            facts[field] = Fact(chosen.dims[field], chosen.evidence[field])
    facts |= _intermediate_size(in_order)
    facts |= _leading_dense_layers(kinds, stack)
    if "num_attention_heads" not in facts and "linear_num_value_heads" in facts:
        # A stack that never attends has the heads of its recurrence; a spec cannot be without any.
        facts["num_attention_heads"] = facts["linear_num_value_heads"]
    return facts


def _outside_the_layers(config: PretrainedConfig, built: BuiltModel) -> dict[str, Fact]:
    tied, evidence = built.tied
    facts = {
        "vocab_size": Fact(built.embedding[0], f"input embedding {built.embedding}"),
        "tie_word_embeddings": Fact(tied, evidence),
    }
    positions = getattr(text_config(config), "max_position_embeddings", None)
    # Some configs state a number below one for no limit.
    if type(positions) is int and positions > 0:
        facts["max_position_embeddings"] = Fact(positions, "config: max_position_embeddings")
    return facts


def _intermediate_size(kinds: Sequence[KindCensus]) -> dict[str, Fact]:
    """Return a dense kind's width; where every layer routes the shared expert's, else the experts'."""
    for field in ("intermediate_size", "shared_expert_intermediate_size", "moe_intermediate_size"):
        for kind in kinds:
            if field in kind.dims:
                return {"intermediate_size": Fact(kind.dims[field], kind.evidence[field])}
    return {}


def _leading_dense_layers(kinds: Mapping[str, KindCensus], stack: Sequence[str]) -> dict[str, Fact]:
    """Return how many dense layers lead a stack whose other layers all route; nothing for other stacks."""
    ffns = [kinds[kind].shape.ffn for kind in stack]
    leading = next((place for place, ffn in enumerate(ffns) if ffn != "dense"), len(ffns))
    if 0 < leading < len(ffns) and set(ffns[leading:]) == {"moe"}:
        return {"first_k_dense_replace": Fact(leading, f"layers 0 to {leading - 1} are dense, all others route")}
    return {}
