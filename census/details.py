"""What a layer runs that neither op vector nor dimensions say: reach, sharing, states, indexers, streams.

Every fact is stated beside a kind's dimensions under the name that Transformers' configs have for it, where they have
one. None of them changes what an op or a dimension means.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from census.blocks import Kernel, Mixer
from census.counts import Fact
from census.parts import LayerParts


def detail_facts(parts: LayerParts) -> dict[str, Fact]:
    """Return what one layer states beside its dimensions, each with its evidence."""
    facts: dict[str, Fact] = {"branch_norms": _branch_norms(parts)}
    for mixer in parts.mixers:
        for kernel in mixer.kernels:
            states = _score_kernel if kernel.scores else _recurrence
            facts |= {name: fact for name, fact in states(kernel) if name not in facts}
        facts |= {name: fact for name, fact in _around(parts, mixer) if name not in facts}
    facts |= dict(_indexer(parts))
    facts |= dict(_feed_forward(parts))
    facts |= dict(_stream(parts))
    return facts


def _branch_norms(parts: LayerParts) -> Fact:
    return Fact(
        tuple(len(norms) for norms in parts.norms_of_branches),
        "; ".join(", ".join(norm.module for norm in norms) or "none" for norms in parts.norms_of_branches),
    )


def _score_kernel(kernel: Kernel) -> Iterator[tuple[str, Fact]]:
    window, where = kernel.event.attributes.get("window"), kernel.event.module
    if isinstance(window, int):
        chunked = kernel.event.attributes["flavour"] == "chunked"
        yield ("attention_chunk_size" if chunked else "sliding_window"), Fact(window, f"{where}: its mask")
    _, keys, values = kernel.roles
    if not keys and not values:
        yield "is_kv_shared_layer", Fact(True, f"{where}: keys and values that another layer projected")


def _recurrence(kernel: Kernel) -> Iterator[tuple[str, Fact]]:
    elements = kernel.event.attributes["state"]
    assert isinstance(elements, int), "a recurrence states the elements of its state"
    yield "linear_state_size", Fact(elements, f"{kernel.event.module}: the state of {kernel.name}")
    flops = kernel.event.attributes["flops"]
    assert isinstance(flops, int), "a recurrence states the FLOPs of a token"
    yield "linear_flops_per_token", Fact(flops, f"{kernel.event.module}: {kernel.name}")


def _around(parts: LayerParts, mixer: Mixer) -> Iterator[tuple[str, Fact]]:
    weights = {event.inputs[1]: event.module for event in mixer.convolutions}
    if weights:
        shapes = [parts.graph.shape(weight) for weight in weights]
        evidence = ", ".join(f"{module} {shape}" for module, shape in zip(weights.values(), shapes, strict=True))
        yield "conv_dim", Fact(sum(shape[0] for shape in shapes), evidence)
        yield "conv_kernel_dim", Fact(max(shape[-1] for shape in shapes), evidence)
        yield "conv_flops_per_token", Fact(sum(2 * math.prod(shape) for shape in shapes), evidence)
    for kernel in mixer.kernels:
        heads = kernel.heads[0] or kernel.heads[2]
        gates = [
            gate for gate in mixer.gates if heads is not None and gate.out_features == heads[0] != gate.in_features
        ]
        if gates:
            yield "attn_gate_per_head", Fact(True, ", ".join(map(str, gates)))


def _indexer(parts: LayerParts) -> Iterator[tuple[str, Fact]]:
    if parts.index_choice is None:
        return
    choice, query = parts.index_choice
    shape = parts.graph.shape(query)
    # Queries are scored all together, or one after another.
    heads = math.prod(shape) // (parts.tokens * shape[-1]) or shape[-2]
    evidence = f"{choice.module}: scores by queries of {heads} x {shape[-1]}"
    yield "index_n_heads", Fact(heads, evidence)
    yield "index_head_dim", Fact(shape[-1], evidence)
    scored, chosen = parts.graph.shape(choice.inputs[0])[-1], parts.graph.shape(choice.outputs[0])[-1]
    if chosen < scored:
        yield "index_topk", Fact(chosen, f"{choice.module}: {choice.op} of {scored} entries")


def _feed_forward(parts: LayerParts) -> Iterator[tuple[str, Fact]]:
    feed_forward = parts.feed_forward
    if feed_forward is None or feed_forward.routed is None:
        return
    if feed_forward.latents:
        latent = min(projection.out_features for projection in feed_forward.latents)
        yield "moe_latent_size", Fact(latent, ", ".join(map(str, feed_forward.latents)))
    choice = feed_forward.choice
    if choice is not None and choice.op == "aten.topk":
        scored = parts.graph.shape(choice.inputs[0])[-1]
        if scored > feed_forward.experts:
            evidence = f"{choice.module}: {choice.op} of {scored} scores for {feed_forward.experts} experts"
            yield "zero_expert_num", Fact(scored - feed_forward.experts, evidence)


def _stream(parts: LayerParts) -> Iterator[tuple[str, Fact]]:
    if parts.streams > 1:
        yield "residual_streams", Fact(parts.streams, f"residual stream {parts.graph.shape(parts.run.input)}")
    if parts.low_rank_residuals:
        down = parts.low_rank_residuals[0]
        yield "residual_low_rank", Fact(down.out_features, str(down))
    if parts.per_layer_inputs:
        down = parts.per_layer_inputs[0]
        yield "hidden_size_per_layer_input", Fact(down.out_features, str(down))
