"""The parameters of a built model by part, told by their names alone: a measurement that shares no code with census."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping

from torch import nn

_STREAM = "|".join(
    (
        r"_hc\.|hyper_connection\.(?!hc_norm)|message_gate|residual|laurel|altup",
        r"\bple\.(?!conv)|^per_layer_(input_gate|proj)|layer_scalar|layer_scale",
        r"^(attention|mlp)_input\.query|cross_attn_(attn|mlp)_gate|mlp\.global_scale",
    )
)
_MIXERS_NORM = "|".join(
    (
        r"(q_proj|relative_position_bias)\.norm",
        r"\b(q|k|v|qk|kv|q_a|kv_a|q_b|query|key|value|dt|b|c|inner|sub|g|kv_latent|q_latent)_?(layer_?norm|norm|ln)",
        r"attn_sub_norm|inner_attn_ln",
        r"(mixer|mamba|linear_attn|self_attn|attn|temporal_block|mlstm_layer)\.(?!self_attn|attn_norm|layer_norm)\w*norm\b",
    )
)
_PATTERNS = (
    ("indexer", r"\bindexer\."),
    ("stream", _STREAM),
    ("attention", r"conv|norm_attn_norm\.attn"),
    ("shared", r"shared_expert|shared_mlp|latent_proj"),
    ("router", r"\brouter|\bgate\.|moe_statics|expert_bias"),
    ("routed", r"\bexperts\b|block_sparse_moe\.(input|output)_linear"),
    ("dense", r"mixer\.(up|down)_proj|^linear\.|feed_forward\."),
    ("dense", r"ffn\.ffn_layernorm|ffn_sub_norm|mlp\.(?!post_mlp|layer_norm)\w*norm"),
    ("attention", _MIXERS_NORM),
    ("norm", r"norm|(^|\.)ln(_\w+|\d)?\."),
    ("attention", r"attn|attention|mixer|mamba|temporal_block|\bself_att\b|mlstm_layer|adapter_list"),
    ("dense", r"mlp|ffn|feed_forward|\bfc\d|\bff\b|intermediate|\boutput\b|dense"),
)
"""Parts of a layer, each with what the names of its parameters hold; the first that is found decides."""

_BY_TYPE = {
    # Attention of which each head group is an expert: MoA's experts project queries and outputs.
    "jetmoe": (
        ("attention", r"self_attention\.experts\.(input|output|router)"),
        ("stream", r"(experts|mlp)\.bias"),
        ("routed", r"mlp\.(input|output)_linear"),
    ),
    # A gated norm: the projections that gate it are the part's that takes it.
    "axk2": (("attention", r"input_layernorm\.mlp"), ("feed forward", r"post_attention_layernorm\.mlp")),
    # One norm for every expert's output, in the latent width that all share.
    "muse_spark": (("shared", r"experts\.post_expert_norm"),),
    # The shared expert's output is normed at its end as a branch's is.
    "ergo": (("norm", r"shared_experts\.norm"), ("routed", r"experts\.post_expert_norm")),
    # The number scales the weights of the routed and of the shared experts alike.
    "inkling_text": (("shared", r"gate\.global_scale"),),
    "inkling_mm_model": (("shared", r"gate\.global_scale"),),
}
"""What a name does not say, by model type."""


def part_of(name: str, model_type: str, routes: bool) -> str:
    """Return the part of a layer that a parameter's name points to.

    Args:
        name: its name in the layer.
        model_type: the model's type.
        routes: whether the layer holds experts: what every token runs beside them is shared.
    """
    patterns = (*_BY_TYPE.get(model_type, ()), *_PATTERNS)
    part = next((part for part, pattern in patterns if re.search(pattern, name, re.IGNORECASE)), "stream")
    if part in ("dense", "shared", "feed forward"):
        return "shared" if routes else "dense"
    return part


def parts_by_name(layers: Iterable[nn.Module], model_type: str) -> Mapping[str, int]:
    """Return the elements of layers' parameters by part, those held by several once."""
    found: Counter[str] = Counter()
    seen: set[int] = set()
    for layer in layers:
        names = dict(layer.named_parameters())
        routes = any(part_of(name, model_type, False) == "routed" for name in names)
        for name, parameter in names.items():
            if id(parameter) not in seen:
                seen.add(id(parameter))
                found[part_of(name, model_type, routes)] += parameter.numel()
    return found
