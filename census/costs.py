"""What a model costs, computed from its spec alone: parameters, FLOPs of a forward, bytes of its cache.

Every layer of the stack is summed by what its kind states: `docs/costs.md` gives the formulas with their sources.
Conventions: a multiply-add is 2 FLOPs; matmuls, convolutions and state updates are counted, elementwise work is not; a
score kernel is counted whole, without halving it for causality.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from census.errors import ModelSpecError
from census.kind_spec import KindSpec
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
    for layer in _layers(spec):
        for part, matrices in layer.projections.items():
            found[part] += sum(_held(matrix) for matrix in matrices)
            unused += sum(_unused(matrix) for matrix in matrices)
        unused += _unused_biases(layer)
        found.update(layer.other_parameters)
    for kind in (spec.kinds or {}).values():
        tied_parameters = kind.tied_parameters or {}
        found.subtract(tied_parameters)
        # What an earlier layer holds is not chosen there already.
        for part, elements in tied_parameters.items():
            matrices = (kind.projections or {}).get(part, ())
            of_layer = sum(_held(matrix) for matrix in matrices)
            unused -= elements * sum(_unused(matrix) for matrix in matrices) // max(of_layer, 1)
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
    for layer in _layers(spec):
        for part, matrices in layer.projections.items():
            found[part] += seq_length * sum(2 * _run(matrix) for matrix in matrices)
        found.update(_mixing(layer, seq_length))
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
    for layer in _layers(spec):
        if _is_decoders(layer.kind) or not decodes:
            found.update(_cached(layer, seq_length))
    parts = {part: found[part] * bytes_per_value for part in _CACHE_ORDER if found[part]}
    expanded = {"expanded": found["expanded"] * bytes_per_value} if found["expanded"] else {}
    return {**parts, "total": sum(parts.values()), **expanded}


_CACHE_ORDER = ("keys_values", "window_keys_values", "index_keys", "state", "convolution")


def _is_decoders(kind: KindSpec) -> bool:
    """Tell whether a layer attends to its own tokens and to an encoder's: of a stack with such, others encode."""
    return "cross_attention" in (kind.mixers or ()) and len(kind.mixers or ()) > 1


def _across(kind: KindSpec) -> int:
    """Return how many of a layer's kernels attend to all of an encoder's tokens, whatever its own attention's bound."""
    return int(_is_decoders(kind))


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


@dataclass(frozen=True)
class _Layer:
    """One layer of the stack: its place, its kind and op vector, and the weights that it holds."""

    place: int
    name: str
    kind: KindSpec
    ops: OpCounts
    projections: Mapping[str, Sequence[Sequence[int]]]
    other_parameters: Mapping[str, int]

    def bounds(self, *fields: str) -> list[int]:
        """Return those of some fields that the layer has."""
        return [value for field in fields if (value := self.stated(field)) is not None]

    def stated(self, field: str) -> int | None:
        """Return a field of the kind, None where this layer of it has none."""
        places = (self.kind.layers_with or {}).get(field)
        value = getattr(self.kind, field)
        return value if places is None or self.place in places else None

    def needed(self, field: str) -> int:
        """Return a field of the kind that its op vector needs.

        Raises:
            ModelSpecError: the kind does not state it.
        """
        value: int | None = getattr(self.kind, field)
        if value is None:
            raise ModelSpecError(
                f"kinds.{self.name}.{field}: expected a number, since ops.{self.name} runs what has one, found "
                f"nothing; state it, or take the spec from census show"
            )
        return value


def _checked(spec: ModelSpec | Mapping[str, object]) -> ModelSpec:
    if not isinstance(spec, ModelSpec):
        spec = ModelSpec.from_dict(spec)
    lacking = [field for field in ("ops", "layers", "kinds", "outside") if not getattr(spec, field)]
    for group in spec.layers or ():
        kind = (spec.kinds or {}).get(group.kind)
        if kind is None or not kind.projections:
            lacking.append(f"kinds.{group.kind}.projections")
    if lacking:
        raise ModelSpecError(
            f"{spec.name}: expected a spec that says what its layers hold, found none of {', '.join(lacking)}; "
            f"take it from census show, since field names alone do not say it"
        )
    return spec


def _layers(spec: ModelSpec) -> Iterator[_Layer]:
    assert spec.ops is not None and spec.kinds is not None, "checked"
    names = [group.kind for group in spec.layers or () for _ in range(group.count)]
    for place, name in enumerate(names):
        kind = spec.kinds[name]
        weights = next((variant for variant in kind.variants or () if place in variant.layers), kind)
        yield _Layer(place, name, kind, spec.ops[name], weights.projections or {}, weights.other_parameters or {})


def _held(matrix: Sequence[int]) -> int:
    return matrix[0] * matrix[1] * (matrix[2] if len(matrix) > 2 else 1)


def _run(matrix: Sequence[int]) -> int:
    return matrix[0] * matrix[1] * (matrix[3] if len(matrix) > 2 else 1)


def _unused(matrix: Sequence[int]) -> int:
    """Return the elements of a projection's weights that a token does not run through."""
    return max(_held(matrix) - _run(matrix), 0)


def _unused_biases(layer: _Layer) -> int:
    """Return the elements of the experts' biases that a token does not use: each expert has as many.

    Raises:
        ModelSpecError: they are not as many for each.
    """
    elements = layer.other_parameters.get("routed", 0)
    if not elements:
        return 0
    _, _, held, run = (*layer.projections["routed"][0], 1, 1)[:4]
    if elements % held:
        raise ModelSpecError(
            f"kinds.{layer.name}.other_parameters.routed: expected as many elements for each of {held} experts, found "
            f"{elements}; correct either"
        )
    return elements * max(held - run, 0) // held


def _widths(layer: _Layer) -> tuple[int, int]:
    """Return the width of a query and of a value of a score kernel's head."""
    kind, head = layer.kind, layer.needed("head_dim")
    latent = kind.qk_nope_head_dim is not None
    query = (kind.qk_nope_head_dim or 0) + (kind.qk_rope_head_dim or 0) if latent else head
    return query, kind.v_head_dim or head


def _mixing(layer: _Layer, seq_length: int) -> Counter[str]:
    """Return the FLOPs by which a layer's kernels mix the tokens of one sequence."""
    found: Counter[str] = Counter()
    if layer.ops["attBMM"]:
        bounds = layer.bounds("sliding_window", "attention_chunk_size", "index_topk")
        reach = min([seq_length, *bounds])
        kernels, across = layer.ops["attBMM"] // 2, _across(layer.kind)
        for_a_pair = 2 * layer.needed("num_attention_heads") * sum(_widths(layer))
        found["window_scores" if bounds else "scores"] += (kernels - across) * seq_length * reach * for_a_pair
        found["scores"] += across * seq_length**2 * for_a_pair
    if (index_heads := layer.stated("index_n_heads")) is not None:
        # Each head's scores, and their weighted sum over the heads (DeepSeek-V3.2 report, equation 1).
        found["index_scores"] += 2 * seq_length**2 * index_heads * (layer.needed("index_head_dim") + 1)
    if layer.ops["linrec"]:
        found["recurrence"] += seq_length * layer.ops["linrec"] * layer.needed("linear_flops_per_token")
    if (taps := layer.stated("conv_flops_per_token")) is not None:
        found["convolution"] += seq_length * taps
    return found


def _cached(layer: _Layer, seq_length: int) -> Counter[str]:
    """Return the values that a layer leaves in the cache."""
    found: Counter[str] = Counter()
    if layer.ops["attBMM"] and not layer.stated("is_kv_shared_layer"):
        # Transformers keeps one token less than a window, the next being one.
        bounds = [bound - 1 for bound in layer.bounds("sliding_window", "attention_chunk_size")]
        kept = min([seq_length, *bounds])
        # One for each kernel that has keys and values projected for it: kernels fed by the same share theirs.
        caches = max(min(layer.ops["attBMM"] // 2, layer.ops["attMM"] // 4), 1)
        across, expanded = _across(layer.kind), layer.needed("num_key_value_heads") * sum(_widths(layer))
        latent = layer.kind.kv_lora_rank
        each = expanded if latent is None else latent + (layer.kind.qk_rope_head_dim or 0)
        found["window_keys_values" if bounds else "keys_values"] += (caches - across) * kept * each
        found["keys_values"] += across * seq_length * each
        if latent is not None:
            found["expanded"] += caches * kept * expanded
    if (index_width := layer.stated("index_head_dim")) is not None:
        found["index_keys"] += seq_length * index_width
    if layer.ops["linrec"]:
        found["state"] += layer.ops["linrec"] * layer.needed("linear_state_size")
    if (channels := layer.stated("conv_dim")) is not None:
        found["convolution"] += channels * layer.needed("conv_kernel_dim")
    return found
