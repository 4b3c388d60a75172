"""The dimensions and flags of one layer, read from its kernels' inputs, its parameters and its router.

Every fact is named as the ModelSpec names it. Heads and widths are those of the tensors a kernel takes, not
of config fields: KV heads unexpanded, latent attention's values unpadded.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from census.blocks import FeedForward, Kernel, Mixer
from census.counts import Fact
from census.dataflow import Projection, Source
from census.errors import UnknownPartError
from census.events import Event
from census.parts import LayerParts


def dim_facts(parts: LayerParts) -> dict[str, Fact]:
    """Return the spec fields one layer states, each with its evidence.

    Raises:
        UnknownPartError: a part's dimensions contradict each other.
    """
    facts = {"hidden_size": Fact(parts.hidden_size, f"residual stream {parts.graph.shape(parts.run.input)}")}
    for mixer in parts.mixers:
        for kernel in mixer.kernels:
            states = _score_kernel if kernel.scores else _recurrence
            facts |= {name: fact for name, fact in states(parts, mixer, kernel) if name not in facts}
    feed_forward = parts.feed_forward
    if feed_forward is not None:
        facts |= dict(_feed_forward(parts, feed_forward))
    facts |= dict(_norms(parts))
    return facts


def _score_kernel(parts: LayerParts, mixer: Mixer, kernel: Kernel) -> Iterator[tuple[str, Fact]]:
    query, key, value = kernel.heads
    assert query is not None and key is not None and value is not None, "a score kernel takes all three"
    taken = f"{kernel.event.module}: score kernel takes {_heads_text(kernel)}"
    yield "num_attention_heads", Fact(query[0], taken)
    yield "num_key_value_heads", Fact(key[0], taken)
    latent = _latent(parts, mixer, kernel)
    if latent is not None:
        yield from _latent_dims(mixer, kernel, latent)
    yield "head_dim", Fact(query[1] if latent is None else value[1], taken)
    if latent is not None or value[1] != query[1]:
        yield "v_head_dim", Fact(value[1], taken)
    projected = [p for role in kernel.roles for p in role] + list(mixer.latents)
    if projected:
        yield "qkv_bias", _bias(projected)
    if mixer.outputs:
        yield "o_bias", _bias(mixer.outputs)
    norms = parts.head_norms(kernel)
    yield "qk_norm", _flag(norms, (norm.module for norm in norms), "no norm between projections and kernel")
    yield "attn_output_gate", _output_gate(mixer, kernel)


def _heads_text(kernel: Kernel) -> str:
    named = zip(("queries", "keys", "values"), kernel.heads, strict=True)
    return ", ".join(f"{role} of {heads[0]} x {heads[1]}" for role, heads in named if heads is not None)


def _output_gate(mixer: Mixer, kernel: Kernel) -> Fact:
    (heads, width), _, (_, value_width) = kernel.heads  # type: ignore[misc]
    queries, keys, _ = kernel.roles
    fused = [p for p in queries if p not in keys and p.out_features == 2 * heads * width]
    own = [p for p in mixer.gates if p.out_features == heads * value_width]
    return _flag(
        fused or own,
        map(str, fused or own),
        f"queries of {heads} x {width} by {', '.join(map(str, queries))}; no gate as wide as they",
    )


def _latent(parts: LayerParts, mixer: Mixer, kernel: Kernel) -> Projection | None:
    """Return the projection up from a latent that makes a kernel's values, None where there is no latent."""
    _, keys, values = kernel.roles
    if len(values) != 1 or values[0].data in mixer.starts or parts.graph.source(values[0].data) is Source.EXTERNAL:
        return None
    [up] = values
    before = {*mixer.latents, *keys} - {up}
    return up if any(p.out_features >= up.in_features for p in before) else None


def _latent_dims(mixer: Mixer, kernel: Kernel, up: Projection) -> Iterator[tuple[str, Fact]]:
    (_, width), (heads, _), (_, value_width) = kernel.heads  # type: ignore[misc]
    yield "kv_lora_rank", Fact(up.in_features, f"{up} takes the latent")
    nope = up.out_features // heads - value_width
    yield "qk_nope_head_dim", Fact(nope, f"{up} makes {heads} heads of it and of values of {value_width}")
    if width > nope:
        yield "qk_rope_head_dim", Fact(width - nope, f"queries of {width} less the {nope} without rotation")
    for projection in kernel.roles[0]:
        if projection.data not in mixer.starts:
            yield "q_lora_rank", Fact(projection.in_features, f"{projection} takes the queries' latent")


def _recurrence(parts: LayerParts, mixer: Mixer, kernel: Kernel) -> Iterator[tuple[str, Fact]]:
    _, key, value = kernel.heads
    taken = f"{kernel.event.module}: {kernel.name} takes {_heads_text(kernel)}"
    if key is not None:
        yield "linear_num_key_heads", Fact(key[0], taken)
        yield "linear_key_head_dim", Fact(key[1], taken)
    if value is not None:
        yield "linear_num_value_heads", Fact(value[0], taken)
        yield "linear_value_head_dim", Fact(value[1], taken)
    for event in mixer.convolutions:
        weight = parts.graph.shape(event.inputs[1])
        yield "linear_conv_kernel_dim", Fact(weight[-1], f"{event.module}: convolution by {weight}")


def _feed_forward(parts: LayerParts, feed_forward: FeedForward) -> Iterator[tuple[str, Fact]]:
    if feed_forward.dense is not None:
        dense = feed_forward.dense
        yield "intermediate_size", Fact(dense.width, f"{dense.projections[-1]}")
        yield "mlp_bias", _bias(dense.projections)
    if feed_forward.routed is not None:
        routed = feed_forward.routed
        yield "num_experts", Fact(feed_forward.experts, f"{min(routed.projections, key=lambda p: p.groups)}")
        yield "num_experts_per_tok", _chosen_experts(parts, feed_forward)
        yield "moe_intermediate_size", Fact(routed.width, f"{routed.projections[-1]}")
        yield "mlp_bias", _bias(routed.projections)
        if feed_forward.shared:
            yield from _shared_expert(feed_forward, routed.width)


def _shared_expert(feed_forward: FeedForward, routed_width: int) -> Iterator[tuple[str, Fact]]:
    shared = feed_forward.shared
    width = sum(mlp.width for mlp in shared)
    listed = ", ".join(str(mlp.projections[-1]) for mlp in shared)
    evidence = f"{listed}, a routed expert being {routed_width} wide"
    yield "shared_expert_intermediate_size", Fact(width, evidence)
    yield "num_shared_experts", Fact(len(shared) if width % routed_width else width // routed_width, evidence)
    gates = [gate for mlp in shared for gate in mlp.gates if gate.out_features == 1]
    yield "shared_expert_gate", _flag(gates, map(str, gates), "no projection to one number")


def _chosen_experts(parts: LayerParts, feed_forward: FeedForward) -> Fact:
    """Return how many experts a token runs: by the experts' own rows, or the router's top-k where all run."""
    choice = feed_forward.choice
    assert choice is not None and feed_forward.routed is not None, "a routed feed-forward has a choice"
    first = feed_forward.routed.projections[0]
    tokens = parts.tokens
    top = _choices(parts, choice)
    everywhere = first.selected or first.groups == 1 or first.rows == tokens * first.groups
    chosen, rest = divmod(first.rows, tokens)
    if rest or (top is not None and top != chosen and not everywhere) or (everywhere and top is None):
        raise UnknownPartError(
            f"{parts.run.path}.{first.event.module}: expected experts to run as many rows a token as the router "
            f"chooses ({top}), found {first.rows} rows for {tokens} tokens; report the model"
        )
    where = f"{choice.module or parts.run.path}: {choice.op} of {parts.graph.shape(choice.inputs[0])}"
    return Fact(chosen if top is None else top, f"{where}; {first.rows} rows of experts for {tokens} tokens")


def _choices(parts: LayerParts, choice: Event) -> int | None:
    """Return how many experts a router chooses: the k of its top-k, or one for each of its maxima."""
    if choice.op == "aten.topk":
        return parts.graph.shape(choice.outputs[0])[-1]
    maxima = [event for event in parts.run.events if event.op == "aten.argmax"]
    return len(maxima) or None


def _norms(parts: LayerParts) -> Iterator[tuple[str, Fact]]:
    yield "layer_norms", Fact(len(parts.norms), "; ".join(norm.module for norm in parts.norms))
    biases = [name for norm in parts.norms for name in parts.norm_biases(norm)]
    yield "norm_bias", _flag(biases, biases, "the layer's norms add no parameter")


def _bias(projections: Iterable[Projection]) -> Fact:
    names = sorted({name for projection in projections for name in projection.bias})
    without = ", ".join(sorted({name for projection in projections for name in projection.weights}))
    return _flag(names, names, f"none added to {without}")


def _flag(held: object, evidence: Iterable[str], otherwise: str) -> Fact:
    return Fact(True, ", ".join(evidence)) if held else Fact(False, otherwise)
