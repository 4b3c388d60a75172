"""The layer stack a config's fields state: the attention and feed-forward flavour of every layer."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from census.resolver_fields import ATTENTION_FLAVOURS, FFN_FLAVOURS
from census.resolver_reading import ConfigFields

_UNREAD = (
    "hybrid_override_pattern",
    "layers_block_type",
    "attn_type_list",
    "attn_layer_indices",
    "attn_layer_period",
    "linear_attn_config",
    "block_configs",
)
"""Fields that state a stack in a way this reading does not know."""

_UNREAD_ROUTING: Mapping[str, int] = {
    "moe_layer_freq": 1,
    "moe_layer_interval": 1,
    "moe_every_n_layers": 1,
    "expert_layer_period": 1,
    "moe_layer_start_index": 0,
    "num_dense_layers": 0,
}
"""Field that says which layers route in a way this reading does not know -> the value by which all of them do."""


def layer_flavours(fields: ConfigFields, depth: int) -> list[tuple[str, str]]:
    """Return the attention and the feed-forward flavour of every layer, in order.

    Args:
        fields: the language model's fields.
        depth: how many layers there are.

    Raises:
        ConfigError: a field states another number of layers, or a kind of layer that is not known; or fields
            state linear attention and nothing says in which layers.
    """
    return list(zip(_attentions(fields, depth), _feed_forwards(fields, depth), strict=True))


def _attentions(fields: ConfigFields, depth: int) -> list[str]:
    if fields.states("layer_types"):
        return _named(fields, "layer_types", depth, ATTENTION_FLAVOURS)
    if fields.states("full_attention_interval"):
        return _at(_every(fields, "full_attention_interval", depth), depth, "full", "linear")
    for field in ("linear_num_value_heads", *_UNREAD):
        if fields.states(field) and not _marks_all(fields.get(field)):
            raise fields.error(
                "layer_types",
                f"the kind of each layer, since {field} states more kinds than one",
                "nothing",
                "pass overrides={'layer_types': [...]}",
            )
    return ["full"] * depth


def _marks_all(value: object) -> bool:
    """Return whether a list marks every layer by 1, as MiniMax-M2's of score attention does."""
    return isinstance(value, list | tuple) and all(entry == 1 for entry in value)


def _feed_forwards(fields: ConfigFields, depth: int) -> list[str]:
    if not fields.number("num_experts"):
        return ["dense"] * depth
    for field, read in _ROUTED_LAYERS.items():
        if fields.states(field):
            return read(fields, field, depth)
    for field, everywhere in _UNREAD_ROUTING.items():
        value = fields.get(field)
        if value is not None and value != everywhere and not _marks_all(value):
            raise fields.error(
                field,
                "a field that census reads to say which layers route",
                repr(value),
                f"state one of {', '.join(_ROUTED_LAYERS)} in the config, or measure the model",
            )
    return ["moe"] * depth


def _mlp_layer_types(fields: ConfigFields, field: str, depth: int) -> list[str]:
    return _named(fields, field, depth, FFN_FLAVOURS)


def _listed_layers(fields: ConfigFields, field: str, depth: int) -> list[str]:
    """Read the indices of the routed layers: a list, or a text such as `3,4,5`."""
    value = fields.get(field)
    entries = value.split(",") if isinstance(value, str) else fields.sequence(field)
    try:
        routed = {int(str(entry)) for entry in entries}
    except ValueError:
        raise fields.error(field, "indices of layers", repr(value), "correct the config") from None
    return _at(routed, depth, "moe", "dense")


def _after_leading(fields: ConfigFields, field: str, depth: int) -> list[str]:
    leading = min(fields.number(field) or 0, depth)
    return ["dense"] * leading + ["moe"] * (depth - leading)


def _sparse_steps(fields: ConfigFields, field: str, depth: int) -> list[str]:
    """Read Qwen's rule: each `decoder_sparse_step`-th layer routes, those of `mlp_only_layers` do not."""
    step = "decoder_sparse_step"
    routed = _every(fields, step, depth) if fields.states(step) else set(range(depth))
    dense = fields.sequence("mlp_only_layers") if fields.states("mlp_only_layers") else ()
    return _at(routed.difference(dense), depth, "moe", "dense")


def _every_step(fields: ConfigFields, field: str, depth: int) -> list[str]:
    return _at(_every(fields, field, depth), depth, "moe", "dense")


_ROUTED_LAYERS: Mapping[str, Callable[[ConfigFields, str, int], list[str]]] = {
    "mlp_layer_types": _mlp_layer_types,
    "moe_layers": _listed_layers,
    "moe_layers_enum": _listed_layers,
    "first_k_dense_replace": _after_leading,
    "decoder_sparse_step": _sparse_steps,
    "mlp_only_layers": _sparse_steps,
    "interleave_moe_layer_step": _every_step,
}
"""Field that says which layers route -> how it is read. The first one stated does; without one all route."""


def _every(fields: ConfigFields, field: str, depth: int) -> set[int]:
    """Return each `field`-th layer of the stack: 3, 7, 11, ... for 4."""
    step = fields.number(field)
    if not step:
        raise fields.error(field, "a step of at least 1", step, "correct the config")
    return set(range(step - 1, depth, step))


def _at(layers: set[int], depth: int, there: str, elsewhere: str) -> list[str]:
    return [there if layer in layers else elsewhere for layer in range(depth)]


def _named(fields: ConfigFields, field: str, depth: int, flavours: Mapping[str, str]) -> list[str]:
    names: Sequence[object] = fields.sequence(field)
    if len(names) != depth:
        raise fields.error(
            field,
            f"one entry for each of num_hidden_layers = {depth}",
            f"{len(names)} entries",
            "correct either; layers that predict further tokens are no part of the list",
        )
    unknown = next((name for name in names if name not in flavours), None)
    if unknown is not None:
        raise fields.error(
            f"{field}[{names.index(unknown)}]",
            f"one of {', '.join(flavours)}",
            repr(unknown),
            "measure this model; its fields alone do not say how the layer is built",
        )
    return [flavours[str(name)] for name in names]
