"""What a model costs, computed from its spec alone: parameters, FLOPs of a forward, bytes of its cache.

Every layer of the stack is summed by what its kind states: `docs/costs.md` gives the formulas with their sources.
Conventions: a multiply-add is 2 FLOPs; matmuls, convolutions and state updates are counted, elementwise work is not; a
score kernel is counted whole, without halving it for causality.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from census.errors import ModelSpecError
from census.kind_spec import KindSpec, WeightVariant
from census.op_counts import OpCounts
from census.spec import ModelSpec

LAWS: Mapping[str, str] = {
    "scores": "linear in the sequence length for each token, quadratic for all",
    "window_scores": "bounded for each token by the window, the chunk or the entries an indexer keeps",
    "index_scores": "linear in the sequence length for each token, quadratic for all",
}
"""How a part's FLOPs for each token grow with the sequence length; those of all other parts are constant."""


def parameters(spec: ModelSpec | Mapping[str, object]) -> dict[str, int]:
    """Return the parameters of a model's language model, by part.

    Returns:
        The parts of the layers (`attention`, `indexer`, `norm`, `dense`, `routed`, `shared`, `router`, `stream`), with
        the norms outside the layers under `norm`; `embedding`, `head` (none where it is tied) and `other` outside
        them; `idle`, what no forward uses. `total` is their sum. `active` is what one token runs through, with both
        tables; `active_without_input_embedding` leaves the looked-up tables out, as many publishers do (a tied one
        is still the head's), `active_without_embedding_and_head` both. A part that a model does not have is absent.

    Raises:
        ModelSpecError: the spec does not state the parameters.
    """
    spec = _checked(spec)
    found: Counter[str] = Counter()
    unused = 0
    for _, _, weights in _layers(spec):
        for part, matrices in (weights.projections or {}).items():
            found[part] += sum(_held(matrix) for matrix in matrices)
            unused += sum(_unused(matrix) for matrix in matrices)
        unused += _unused_biases(weights)
        found.update(weights.other_parameters or {})
    for kind in (spec.kinds or {}).values():
        found.subtract(kind.tied_parameters or {})
        found["idle"] += kind.idle_parameters or 0
    outside = spec.outside
    assert outside is not None, "checked"
    found["embedding"] = sum(rows * width for rows, width in outside.tables or ())
    for part, matrices in (outside.projections or {}).items():
        found[part] += sum(_held(matrix) for matrix in matrices)
    found.update(outside.other_parameters or {})
    found["idle"] += outside.idle_parameters or 0
    parts = {part: found[part] for part in _ORDER if found[part]}
    total = sum(parts.values())
    # What is not chosen by a token does not act on it; nor does what never runs.
    active = total - unused - parts.get("idle", 0)
    heads = (outside.projections or {}).get("head", ())
    tied = sum(matrix[0] * matrix[1] for matrix in heads if _held(matrix) == 0)
    tables = parts.get("embedding", 0)
    without_input = active - tables + tied
    return {
        **parts,
        "total": total,
        "active": active,
        "active_without_input_embedding": without_input,
        "active_without_embedding_and_head": without_input - sum(matrix[0] * matrix[1] for matrix in heads),
    }


_ORDER = (
    "attention", "indexer", "norm", "dense", "routed", "shared", "router", "stream",
    "embedding", "head", "other", "idle",
)  # fmt: skip


def flops(spec: ModelSpec | Mapping[str, object], seq_length: int) -> dict[str, int]:
    """Return the FLOPs of one forward over one sequence, by part.

    Returns:
        The projections of each part of the layers under the part's name; `scores` and `window_scores`, the two
        batched matmuls of score attention over the whole sequence and within a bound; `index_scores` of a sparse
        attention's indexer; `recurrence`, the updates of states; `convolution`; `head` and `other` outside the
        layers; `total`. `LAWS` says how each grows. A part that a model does not have is absent.

    Raises:
        ModelSpecError: the spec does not state the projections, or the length is no positive number.
    """
    spec = _checked(spec)
    if type(seq_length) is not int or seq_length < 1:
        raise ModelSpecError(f"seq_length: expected a positive whole number, found {seq_length!r}; pass the tokens")
    found: Counter[str] = Counter()
    for place, kind, weights in _layers(spec):
        for part, matrices in (weights.projections or {}).items():
            found[part] += seq_length * sum(2 * _run(matrix) for matrix in matrices)
        found.update(_mixing(spec, place, kind, seq_length))
    assert spec.outside is not None, "checked"
    for part, matrices in (spec.outside.projections or {}).items():
        found[part] += seq_length * sum(2 * _run(matrix) for matrix in matrices)
    parts = {part: found[part] for part in _FLOP_ORDER if found[part]}
    return {**parts, "total": sum(parts.values())}


_FLOP_ORDER = (
    "attention", "indexer", "scores", "window_scores", "index_scores", "recurrence", "convolution",
    "dense", "routed", "shared", "router", "stream", "head", "other",
)  # fmt: skip


def cache_bytes(spec: ModelSpec | Mapping[str, object], seq_length: int, bytes_per_value: int = 2) -> dict[str, int]:
    """Return the bytes that a forward of one sequence leaves in the cache, by part.

    Returns:
        `keys_values`, keys and values of every token; of latent attention the latent and the rotated part of a key,
        which are what Transformers keeps; `window_keys_values`, those within a window or chunk, of which Transformers
        keeps one less than the window, the next token being one; `index_keys` of an indexer; `state` of recurrences
        and `convolution` states, which do not grow; `total`. `expanded`, apart from the total, is what keys and values
        of latent attention come to where they are kept as the kernel takes them. An encoder leaves nothing; the
        decoder's attention to it is counted with as many tokens.

    Raises:
        ModelSpecError: the spec states no kinds, or a size is no positive number.
    """
    spec = _checked(spec)
    for name, size in (("seq_length", seq_length), ("bytes_per_value", bytes_per_value)):
        if type(size) is not int or size < 1:
            raise ModelSpecError(f"{name}: expected a positive whole number, found {size!r}; correct it")
    found: Counter[str] = Counter()
    decodes = any(_is_decoders(kind) for kind in (spec.kinds or {}).values())
    for place, kind, _ in _layers(spec):
        if _is_decoders(kind) or not decodes:
            found.update(_cached(spec, kind, place, seq_length))
    parts = {part: found[part] * bytes_per_value for part in _CACHE_ORDER if found[part]}
    expanded = {"expanded": found["expanded"] * bytes_per_value} if found["expanded"] else {}
    return {**parts, "total": sum(parts.values()), **expanded}


_CACHE_ORDER = ("keys_values", "window_keys_values", "index_keys", "state", "convolution")


def _is_decoders(kind: KindSpec) -> bool:
    """Tell whether a layer attends to its own tokens and to an encoder's: of a stack with such, others encode."""
    return "cross_attention" in (kind.mixers or ()) and len(kind.mixers or ()) > 1


PINNED_LENGTH = 4096
"""The sequence length of the costs that goldens pin."""


def pinned_costs(spec: ModelSpec | Mapping[str, object]) -> dict[str, dict[str, int]]:
    """Return what a model costs as goldens pin it: parameters, and at 4,096 tokens FLOPs and the cache at 2 bytes.

    Raises:
        ModelSpecError: the spec does not state what they are computed from.
    """
    spec = _checked(spec)
    return {
        "parameters": parameters(spec),
        f"flops_at_{PINNED_LENGTH}": flops(spec, PINNED_LENGTH),
        f"cache_bytes_at_{PINNED_LENGTH}": cache_bytes(spec, PINNED_LENGTH),
    }


def _checked(spec: ModelSpec | Mapping[str, object]) -> ModelSpec:
    if not isinstance(spec, ModelSpec):
        spec = ModelSpec.from_dict(spec)
    if not spec.layers or not spec.kinds or spec.outside is None:
        raise ModelSpecError(
            f"{spec.name}: expected a spec that states its layers, kinds and outside, found one without; "
            f"take it from census show, since field names alone do not say what a model holds"
        )
    return spec


def _layers(spec: ModelSpec) -> Iterator[tuple[int, KindSpec, KindSpec | WeightVariant]]:
    """Yield for every layer of the stack its place, its kind, and what states its weights."""
    names = [group.kind for group in spec.layers or () for _ in range(group.count)]
    for place, name in enumerate(names):
        kind = (spec.kinds or {})[name]
        yield place, kind, next((variant for variant in kind.variants or () if place in variant.layers), kind)


def _held(matrix: Sequence[int]) -> int:
    return matrix[0] * matrix[1] * (matrix[2] if len(matrix) > 2 else 1)


def _run(matrix: Sequence[int]) -> int:
    return matrix[0] * matrix[1] * (matrix[3] if len(matrix) > 2 else 1)


def _unused(matrix: Sequence[int]) -> int:
    """Return the elements of a projection's weights that a token does not run through."""
    return max(_held(matrix) - _run(matrix), 0)


def _unused_biases(weights: KindSpec | WeightVariant) -> int:
    """Return the elements of what experts hold beside their weights that a token does not use: all hold as much."""
    elements = (weights.other_parameters or {}).get("routed", 0)
    experts = {(matrix[2], matrix[3]) for matrix in (weights.projections or {}).get("routed", ()) if len(matrix) > 2}
    if not elements or len(experts) != 1:
        return 0
    [(held, run)] = experts
    return elements * max(held - run, 0) // held if elements % held == 0 else 0


def _has(kind: KindSpec, field: str, place: int) -> bool:
    """Tell whether the layer at a place has a field that its kind states."""
    places = (kind.layers_with or {}).get(field)
    return getattr(kind, field) is not None and (places is None or place in places)


def _widths(kind: KindSpec) -> tuple[int, int]:
    """Return the width of a query and of a value of a score kernel's head."""
    assert kind.head_dim is not None, "a kernel has heads"
    latent = kind.qk_nope_head_dim is not None
    query = (kind.qk_nope_head_dim or 0) + (kind.qk_rope_head_dim or 0) if latent else kind.head_dim
    return query, kind.v_head_dim or kind.head_dim


def _mixing(spec: ModelSpec, place: int, kind: KindSpec, seq_length: int) -> Counter[str]:
    """Return the FLOPs by which a layer's kernels mix the tokens of one sequence."""
    found: Counter[str] = Counter()
    ops = _ops_of(spec, kind)
    if ops["attBMM"]:
        assert kind.num_attention_heads is not None, "a kernel has heads"
        bounds = [
            getattr(kind, field)
            for field in ("sliding_window", "attention_chunk_size", "index_topk")
            if _has(kind, field, place)
        ]
        reach = min([seq_length, *bounds])
        query, value = _widths(kind)
        kernels = ops["attBMM"] // 2
        found["window_scores" if bounds else "scores"] += (
            2 * kernels * seq_length * reach * kind.num_attention_heads * (query + value)
        )
    if _has(kind, "index_n_heads", place):
        assert kind.index_n_heads is not None and kind.index_head_dim is not None, "an indexer has heads of a width"
        # Each head's scores, and their weighted sum over the heads (DeepSeek-V3.2 report, equation 1).
        found["index_scores"] += 2 * seq_length**2 * kind.index_n_heads * (kind.index_head_dim + 1)
    if kind.linear_flops_per_token is not None:
        found["recurrence"] += seq_length * ops["linrec"] * kind.linear_flops_per_token
    if kind.conv_flops_per_token is not None:
        found["convolution"] += seq_length * kind.conv_flops_per_token
    return found


def _cached(spec: ModelSpec, kind: KindSpec, place: int, seq_length: int) -> Counter[str]:
    """Return the values that a layer leaves in the cache."""
    found: Counter[str] = Counter()
    if kind.num_key_value_heads is not None and not _has(kind, "is_kv_shared_layer", place):
        bounds = [
            getattr(kind, field) - 1 for field in ("sliding_window", "attention_chunk_size") if _has(kind, field, place)
        ]
        kept = min([seq_length, *bounds])
        query, value = _widths(kind)
        # One for each kernel that has keys and values projected for it: kernels fed by the same share theirs.
        ops = _ops_of(spec, kind)
        caches = max(min(ops["attBMM"] // 2, ops["attMM"] // 4), 1)
        expanded = caches * kind.num_key_value_heads * (query + value)
        part = "window_keys_values" if bounds else "keys_values"
        if kind.kv_lora_rank is not None:
            found[part] += kept * caches * (kind.kv_lora_rank + (kind.qk_rope_head_dim or 0))
            found["expanded"] += kept * expanded
        else:
            found[part] += kept * expanded
    if _has(kind, "index_head_dim", place):
        assert kind.index_head_dim is not None, "it has one"
        found["index_keys"] += seq_length * kind.index_head_dim
    if kind.linear_state_size is not None:
        found["state"] += kind.linear_state_size * _ops_of(spec, kind)["linrec"]
    if kind.conv_dim is not None and kind.conv_kernel_dim is not None:
        found["convolution"] += kind.conv_dim * kind.conv_kernel_dim
    return found


def _ops_of(spec: ModelSpec, kind: KindSpec) -> OpCounts:
    return (spec.ops or {})[next(name for name, other in (spec.kinds or {}).items() if other is kind)]
