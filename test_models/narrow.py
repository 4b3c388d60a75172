"""A narrow copy of a case's language model: every kind of its layers, small enough to run on real tensors.

One rule over Transformers' names of config fields: widths become small constants that keep the ratios a layer's
structure hangs on (heads to key-value heads, shared to routed width), the stack is cut after the first layer of its
last kind, windows and chunks become shorter than the run. What a type needs beyond that is a row of `EXCEPTIONS`.
"""

from __future__ import annotations

import copy
import functools
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from census.config import text_config
from census.golden import golden_path, read_golden
from test_models.case_table import MEASURED, Case
from test_models.older_releases import not_as_pinned

if TYPE_CHECKING:
    from transformers import PretrainedConfig

GOLDENS = Path(__file__).parents[1] / "golden_specs"

NARROW_WIDTH, NARROW_DEPTH = 256, 12
"""A case that is no wider and no deeper runs as it is."""

HEADS, HEAD, HIDDEN, VOCABULARY, WINDOW = 4, 16, 64, 512, 16


def _kv_heads(fields: Mapping[str, Any], name: str) -> int:
    """Keep all, one or some of the heads."""
    of = {"swa_num_key_value_heads": "swa_num_attention_heads"}.get(name, "num_attention_heads")
    return {1: 1, fields.get(of): HEADS}.get(fields[name], HEADS // 2)


def _shared_width(fields: Mapping[str, Any], name: str) -> int:
    routed = fields.get("moe_intermediate_size") or fields.get("intermediate_size")
    return 32 * max(1, fields[name] // routed) if isinstance(routed, int) else 32


def _linear_key_heads(fields: Mapping[str, Any], name: str) -> int:
    return 4 if fields[name] == fields["linear_num_value_heads"] else 2


def _query_key_width(fields: Mapping[str, Any], name: str) -> int:
    return 24 if fields.get("qk_rope_head_dim") else 16


def _head(fields: Mapping[str, Any], name: str) -> int:
    """Keep the width of the rotated part, where that is what the field states."""
    return 8 if fields[name] == fields.get("qk_rope_head_dim") else HEAD


def _sizes(names: str, size: Any) -> dict[str, Any]:
    return dict.fromkeys(names.split(), size)


SIZES: dict[str, Any] = {
    **_sizes("hidden_size d_model n_embd dim embed_dim embedding_dim word_embed_proj_dim", HIDDEN),
    **_sizes("moe_hidden_size", HIDDEN // 2),
    **_sizes("num_attention_heads n_head num_heads attention_heads num_sliding_attention_heads", HEADS),
    **_sizes("encoder_attention_heads decoder_attention_heads swa_num_attention_heads linear_num_heads", HEADS),
    **_sizes("num_key_value_heads num_kv_heads swa_num_key_value_heads", _kv_heads),
    **_sizes("head_dim", _head),
    **_sizes("kv_channels d_kv swa_head_dim v_head_dim qk_nope_head_dim index_head_dim linear_head_dim", HEAD),
    **_sizes("qk_rope_head_dim rotary_dim d_rel", 8),
    **_sizes("qk_head_dim", _query_key_width),
    **_sizes("index_n_heads", 4),
    **_sizes("index_topk q_lora_rank", 32),
    **_sizes("kv_lora_rank", 16),
    **_sizes("intermediate_size ffn_dim d_ff ffn_hidden_size dense_intermediate_size intermediate_size_mlp", 128),
    **_sizes("encoder_ffn_dim decoder_ffn_dim", 128),
    **_sizes("moe_intermediate_size expert_ffn_hidden_size", 32),
    **_sizes(
        "shared_expert_intermediate_size shared_intermediate_size shared_experts_intermediate_size", _shared_width
    ),
    **_sizes("moe_shared_expert_intermediate_size share_expert_dim", _shared_width),
    **_sizes("num_experts n_routed_experts num_local_experts moe_num_experts", 8),
    **_sizes("num_experts_per_tok top_k_experts moe_topk moe_k n_group", 2),
    **_sizes("topk_group", 1),
    **_sizes("zero_expert_num", 4),
    **_sizes("linear_num_key_heads", _linear_key_heads),
    **_sizes("linear_num_value_heads", 4),
    **_sizes("linear_key_head_dim linear_value_head_dim", 16),
    **_sizes("ssm_state_size state_size mamba_d_state mamba_dt_rank time_step_rank", 8),
    **_sizes("mamba_num_heads mamba_n_heads", 8),
    **_sizes("mamba_head_dim mamba_d_head chunk_size mamba_chunk_size", 16),
    **_sizes("hidden_size_per_layer_input router_hidden_size", 16),
    **_sizes("laurel_rank loop_gate_rank", 8),
    **_sizes("vocab_size vocab_size_per_layer_input unpadded_vocab_size", VOCABULARY),
    **_sizes("sliding_window sliding_window_size attention_window_size attention_chunk_size", WINDOW),
    **_sizes("max_position_embeddings n_positions", 512),
}
"""The size of a narrow copy by the name of the config's field; a number of nothing stays nothing."""

CHOSEN = ("num_experts_per_tok", "top_k_experts", "moe_topk", "moe_k", "n_group", "topk_group")
"""Numbers of what a router chooses: no more in a copy than in the model."""

DEPTHS = (
    "num_hidden_layers", "n_layer", "num_layers", "layers", "encoder_layers", "decoder_layers", "num_decoder_layers",
    "num_blocks",
)  # fmt: skip

_SECTIONS = {"rope_parameters": {"rope_type": "default", "rope_theta": 10000.0, "mrope_section": [2, 3, 3]}}
_LOOPED = {
    "num_hidden_layers": 6,
    "layer_types": ["hybrid_sliding", "hybrid"] * 3,
    "loop_layer_index_start": 2,
    "loop_layer_index_end": 4,
    "loop_num_passes": 2,
    "n_layers_per_attn_res_block": 2,
}

EXCEPTIONS: dict[str, tuple[str, dict[str, Any]]] = {
    "qwen2_vl": ("the sections of its rotation stand in the modeling file", _SECTIONS),
    "qwen2_5_vl": ("the sections of its rotation stand in the modeling file", _SECTIONS),
    "glm_ocr": ("the sections of its rotation stand in the modeling file", _SECTIONS),
    "paddleocr_vl": ("the sections of its rotation stand in the modeling file", _SECTIONS),
    "qwen2_5_omni_thinker": ("the sections of its rotation stand in the modeling file", _SECTIONS),
    "ernie4_5_vl_moe": (
        "the sections of its rotation stand in the modeling file",
        {"rope_parameters": {"rope_type": "default", "rope_theta": 10000.0, "mrope_section": [3, 3, 2]}},
    ),
    "dots3_note": ("its head's width is checked against its two parts", {"head_dim": 24}),
    "zamba": (
        "its shared block must stand twice in the stack; its heads are twice the stream's width",
        {"num_hidden_layers": 8, "attention_hidden_size": 128, "attention_head_dim": 32},
    ),
    "inkling2_loop": ("43 layers run before the last kind has", _LOOPED),
    "inkling2_loop_text": ("43 layers run before the last kind has", _LOOPED),
    "gemma-4-e2b-it": (
        "the first layer of its last kind is its 20th",
        {
            "num_hidden_layers": 6,
            "num_kv_shared_layers": 2,
            "layer_types": ["sliding_attention", "full_attention"] * 3,
            "per_layer_config": {},
        },
    ),
    "phi4_multimodal": ("the case's window is longer than the run", {"sliding_window": WINDOW}),
    "mistral_large4": (
        "the case has fewer heads than key-value heads, which no attention can run",
        {"num_key_value_heads": 4},
    ),
    "mamba2": ("its heads are the inner width's", {"num_heads": 8, "head_dim": 16}),
    "gemma3n": (
        "the first layer of its last kind is its 25th",
        {
            "num_hidden_layers": 6,
            "num_kv_shared_layers": 2,
            "layer_types": ["sliding_attention", "full_attention"] * 3,
            "intermediate_size": [128] * 6,
            "activation_sparsity_pattern": [0.95, 0.95, 0.0, 0.0, 0.0, 0.0],
        },
    ),
}
"""By model type or case: why the rule alone makes no copy of it, and the fields that do."""


@functools.cache
def golden_of(case_name: str) -> Mapping[str, Any]:
    """Return the pinned spec of a case."""
    case = MEASURED[case_name]
    return read_golden(golden_path(GOLDENS, case.model_type, case.name)).spec


def kinds_in_order(spec: Mapping[str, Any]) -> list[str]:
    """Return the kind of every layer of a spec, in order."""
    return [group["kind"] for group in spec["layers"] for _ in range(group["count"])]


_PARTS = ("text_config", "vision_config", "decoder")
"""What a composite config calls the parts that are copied."""


def is_narrow(case: Case) -> bool:
    """Tell whether a case is small enough to run as it is."""
    spec = golden_of(case.name)
    return spec["hidden_size"] <= NARROW_WIDTH and spec["num_hidden_layers"] <= NARROW_DEPTH


def runs_as_it_is(case: Case) -> bool:
    """Tell whether a case's own config is what runs."""
    return is_narrow(case) and not _own_fields(case)


def _own_fields(case: Case) -> Mapping[str, Any]:
    _, own = EXCEPTIONS.get(case.name) or EXCEPTIONS.get(case.model_type) or ("", {})
    return own


def narrow(case: Case) -> PretrainedConfig:
    """Return the config of a case's language model, or a narrow copy of it."""
    config = case.new_config()
    if runs_as_it_is(case):
        return config
    own = _own_fields(case)
    text = config.get_text_config(decoder=True)
    depth = own.get("num_hidden_layers", 2 if config.is_encoder_decoder else _depth(case, text.to_dict()))
    copied_from = config if type(text) is type(config) else text
    copied = _copied(text, depth, own, copied_from)
    # An encoder that reads images too is a composite of its own (T5Gemma 2).
    composites = [config, *(part for part in [getattr(config, "encoder", None)] if hasattr(part, "vision_config"))]
    held = [(of, name) for of in composites for name, value in vars(of).items() if name in _PARTS]
    for of, name in held:
        part = getattr(of, name)
        if part is text:
            setattr(of, name, copied)
        elif of is not config:
            setattr(of, name, _copied(part, depth, {}, part))
    return copied if copied_from is config else config


def _copied(text: PretrainedConfig, depth: int, own: Mapping[str, Any], states: PretrainedConfig) -> PretrainedConfig:
    fields = {
        name: value
        for name, value in states.to_dict().items()
        if name not in ("model_type", "transformers_version", "architectures", "dtype")
    }
    return type(text)(**{**_narrowed(fields, depth), **copy.deepcopy(dict(own))})


def _depth(case: Case, fields: Mapping[str, Any]) -> int:
    """Return how many layers it takes until each kind, and each type of layer the config names, has stood once."""
    kinds, types = kinds_in_order(golden_of(case.name)), fields.get("layer_types") or []
    return max(2, *(1 + kinds.index(kind) for kind in kinds), *(1 + types.index(layer_type) for layer_type in types))


def _narrowed(fields: Mapping[str, Any], depth: int) -> dict[str, Any]:
    whole = next((fields[name] for name in DEPTHS if isinstance(fields.get(name), int)), 0)
    made = {}
    for name, value in fields.items():
        if name in DEPTHS and isinstance(value, int):
            made[name] = depth
        elif name in SIZES:
            sized = _sized(fields, name, value)
            made[name] = sized[:depth] if isinstance(sized, list) and len(sized) == whole else sized
        elif name == "per_layer_config" and value:
            made[name] = {layer: _narrowed(own, 0) for layer, own in value.items() if int(layer) < depth}
        elif name.endswith("_token_id") and isinstance(value, int):
            made[name] = min(value, 1)
        elif isinstance(value, list) and len(value) == whole:
            made[name] = value[:depth]
        elif isinstance(value, list) and re.search("layers|idxs", name):
            made[name] = [entry for entry in value if not isinstance(entry, int) or entry < depth]
        elif name == "rope_parameters" and isinstance(value, dict):
            made[name] = _rope(value, 8 if fields.get("qk_rope_head_dim") else HEAD)
        else:
            made[name] = value
    return made


def _sized(fields: Mapping[str, Any], name: str, value: Any) -> Any:
    if isinstance(value, list):
        return [_sized({**fields, name: item}, name, item) for item in value]
    if type(value) is not int or value <= 0:
        return value
    size = SIZES[name](fields, name) if callable(SIZES[name]) else SIZES[name]
    return min(size, value) if name in CHOSEN else size


def _rope(parameters: Mapping[str, Any], rotated: int) -> dict[str, Any]:
    """Return rotary parameters whose sections and factors fit the rotated part of a narrow head."""
    half = int(rotated * (parameters.get("partial_rotary_factor") or 1)) // 2
    made: dict[str, Any] = {}
    for name, value in parameters.items():
        if isinstance(value, dict):
            made[name] = _rope(value, rotated)
        elif name == "mrope_section":
            third = 3 * half // 8
            made[name] = [half - 2 * third, third, third]
        elif name in ("long_factor", "short_factor"):
            made[name] = value[:half]
        else:
            made[name] = value
    return made


@functools.cache
def copied_cases() -> Mapping[str, Case]:
    """Return the cases that are copied: of each language model's type one, and any further one with a kind of its own.

    Small ones come first, so that most run as they are. A kind is its name, its vector and its mixers. What an
    older Transformers builds otherwise is left out.
    """
    chosen: dict[str, Case] = {}
    seen: set[object] = set()
    for case in sorted(
        MEASURED.values(), key=lambda case: (not is_narrow(case), not case.group.startswith("types_"), case.name)
    ):
        if not_as_pinned(case):
            continue
        kinds = pinned_kinds(case.name)
        if not kinds <= seen:
            chosen[case.name] = case
            seen |= kinds
    return chosen


def pinned_kinds(case_name: str) -> frozenset[object]:
    """Return each kind that a golden's layers are of: the language model's type, its name, vector and mixers."""
    spec, config = golden_of(case_name), MEASURED[case_name].config_object
    model_type = config.model_type if config.is_encoder_decoder else text_config(config).model_type
    return frozenset(
        (model_type, kind, tuple(spec["ops"][kind].values()), tuple(spec["kinds"][kind].get("mixers", ())))
        for kind in kinds_in_order(spec)
    )
