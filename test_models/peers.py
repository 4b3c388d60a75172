"""Models that others wrote, built of their own configs: what each states of a published model that census measures.

A peer shares nothing with Transformers and reads nothing of census: it has a class of its own for the layers and a
table of its own for the sizes, by the model's name. Sizes are read off the modules it builds, on the meta device,
under the names that a spec has for them; heads and the router's top-k, which no weight has the shape of, are what the
peer's modules take. A field is None where the peer's layers have no such thing.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import nn

from census import strict_yaml
from census.errors import CensusError
from census.golden import golden_path, read_golden
from test_models.case_table import CASES, Case

TABLE = Path(__file__).parent / "peer_differences.yaml"
GOLDENS = Path(__file__).parent.parent / "golden_specs"

_Value = TypeVar("_Value", bound=Hashable)


class PeerError(CensusError):
    """The table of differences is broken, or a peer's layers are built otherwise than is read here."""


@dataclass(frozen=True, kw_only=True)
class PeerModel:
    """What a peer's model is, under the names of a spec.

    `parameters` is the number of elements of all its parameters, one that two modules share counted once;
    `sliding_layers` lists the layers whose attention sees a window, the first being 0.
    """

    parameters: int
    hidden_size: int
    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    vocab_size: int
    tie_word_embeddings: bool
    qkv_bias: bool
    o_bias: bool
    qk_norm: bool
    mlp_bias: bool
    layer_norms: int
    norm_bias: bool
    intermediate_size: int
    num_experts: int | None = None
    num_experts_per_tok: int | None = None
    moe_intermediate_size: int | None = None
    linear_num_key_heads: int | None = None
    linear_key_head_dim: int | None = None
    linear_num_value_heads: int | None = None
    linear_value_head_dim: int | None = None
    linear_conv_kernel_dim: int | None = None
    sliding_window: int | None = None
    sliding_layers: tuple[int, ...] = ()


@dataclass(frozen=True)
class Peer:
    """A library that builds models of its own configs.

    Attributes:
        package: what is imported of it.
        read: a model's name in the library to what the library builds.
        models: the published models that it knows, by the case's name, with the library's own name for each.
    """

    package: str
    read: Callable[[str], PeerModel]
    models: Mapping[str, str]

    @property
    def installed(self) -> bool:
        return importlib.util.find_spec(self.package) is not None


def _same(values: Iterable[_Value]) -> _Value:
    found = set(values)
    if len(found) != 1:
        raise PeerError(f"expected one value over all layers, found {found}")
    return found.pop()


def _has_bias(*modules: nn.Module | None) -> bool:
    return any(
        name.endswith("bias") for module in modules if module is not None for name, _ in module.named_parameters()
    )


def _norms(*modules: nn.Module | None) -> list[nn.Module]:
    return [module for module in modules if module is not None and not isinstance(module, nn.Identity)]


def _numel(model: nn.Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters())


def read_litgpt(name: str) -> PeerModel:
    from litgpt.config import Config
    from litgpt.model import GPT, LLaMAMoE

    config = Config.from_name(name)
    with torch.device("meta"):
        model = GPT(config)
    layers = list(model.transformer.h)
    attentions = [layer.attn for layer in layers]
    norms = [_norms(layer.norm_1, layer.post_attention_norm, layer.norm_2, layer.post_mlp_norm) for layer in layers]
    routed = _same(isinstance(layer.mlp, LLaMAMoE) for layer in layers)
    feed_forwards = [held for layer in layers for held in (layer.mlp.experts if routed else [layer.mlp])]
    width = _same(feed_forward.proj.in_features for feed_forward in feed_forwards)
    sliding = tuple(i for i, attention in enumerate(attentions) if attention.apply_sliding_window_attention)
    return PeerModel(
        parameters=_numel(model),
        hidden_size=model.transformer.wte.embedding_dim,
        num_hidden_layers=len(layers),
        num_attention_heads=config.n_head,
        num_key_value_heads=config.n_query_groups,
        head_dim=_same(attention.proj.in_features // config.n_head for attention in attentions),
        vocab_size=model.transformer.wte.num_embeddings,
        tie_word_embeddings=model.lm_head.weight is model.transformer.wte.weight,
        qkv_bias=_same(_has_bias(attention.qkv) for attention in attentions),
        o_bias=_same(_has_bias(attention.proj) for attention in attentions),
        qk_norm=_same(bool(_norms(attention.norm_q, attention.norm_k)) for attention in attentions),
        mlp_bias=_same(_has_bias(feed_forward) for feed_forward in feed_forwards),
        layer_norms=_same(len(held) for held in norms),
        norm_bias=_same(_has_bias(*held) for held in norms),
        intermediate_size=width,
        num_experts=_same(len(layer.mlp.experts) for layer in layers) if routed else None,
        num_experts_per_tok=config.n_expert_per_token if routed else None,
        moe_intermediate_size=width if routed else None,
        sliding_window=config.sliding_window_size if sliding else None,
        sliding_layers=sliding,
    )


def read_torchtune(name: str) -> PeerModel:
    family, _, builder = name.partition(".")
    module = importlib.import_module(f"torchtune.models.{family}")
    from torchtune.modules import TiedLinear

    with torch.device("meta"):
        model = getattr(module, builder)()
    layers = list(model.layers)
    attentions = [layer.attn for layer in layers]
    norms = [_norms(layer.sa_norm, layer.sa_scale, layer.mlp_norm, layer.mlp_scale) for layer in layers]
    windows = [getattr(attention, "sliding_window_size", None) for attention in attentions]
    sliding = tuple(i for i, window in enumerate(windows) if window is not None)
    return PeerModel(
        parameters=_numel(model),
        hidden_size=model.tok_embeddings.embedding_dim,
        num_hidden_layers=len(layers),
        num_attention_heads=_same(attention.q_proj.out_features // attention.head_dim for attention in attentions),
        num_key_value_heads=_same(attention.k_proj.out_features // attention.head_dim for attention in attentions),
        head_dim=_same(attention.head_dim for attention in attentions),
        vocab_size=model.tok_embeddings.num_embeddings,
        tie_word_embeddings=isinstance(model.output, TiedLinear),
        qkv_bias=_same(_has_bias(attention.q_proj, attention.k_proj, attention.v_proj) for attention in attentions),
        o_bias=_same(_has_bias(attention.output_proj) for attention in attentions),
        qk_norm=_same(bool(_norms(attention.q_norm, attention.k_norm)) for attention in attentions),
        mlp_bias=_same(_has_bias(layer.mlp) for layer in layers),
        layer_norms=_same(len(held) for held in norms),
        norm_bias=_same(_has_bias(*held) for held in norms),
        intermediate_size=_same(layer.mlp.w2.in_features for layer in layers),
        sliding_window=_same(windows[i] for i in sliding) if sliding else None,
        sliding_layers=sliding,
    )


def read_fms(name: str) -> PeerModel:
    from fms.models import get_model
    from fms.modules.feedforward import MOEFeedForward

    architecture, _, variant = name.partition(".")
    model = get_model(architecture, variant, device_type="meta")
    body = model.base_model
    layers = list(body.layers)
    attentions = [layer.attn for layer in layers if hasattr(layer, "attn")]
    recurrences = [layer.ssm for layer in layers if hasattr(layer, "ssm")]
    feed_forwards = [layer.ff_sub_layer for layer in layers]
    norms = [_norms(layer.ln, layer.ff_ln) for layer in layers]
    routed = _same(isinstance(feed_forward, MOEFeedForward) for feed_forward in feed_forwards)
    # A linear's weight has the inputs last; the experts' down projections, one tensor of rank 3, do as well.
    projections = [feed_forward.cond_ffn if routed else feed_forward for feed_forward in feed_forwards]
    downs = [held.w2 for held in projections]
    width = _same((down if routed else down.weight).shape[-1] for down in downs)
    # gpt-oss' blocks hold their window, 0 where they see everything; no other architecture read here has one.
    windows = {
        i: layer.layer_sliding_window for i, layer in enumerate(layers) if hasattr(layer, "layer_sliding_window")
    }
    sliding = tuple(i for i, window in windows.items() if window)
    return PeerModel(
        parameters=_numel(model),
        hidden_size=body.embedding.embedding_dim,
        num_hidden_layers=len(layers),
        num_attention_heads=_same(attention.nheads for attention in attentions),
        num_key_value_heads=_same(attention.kvheads for attention in attentions),
        head_dim=_same(attention.dense.in_features // attention.nheads for attention in attentions),
        vocab_size=body.embedding.num_embeddings,
        tie_word_embeddings=model.head.weight is body.embedding.weight,
        qkv_bias=_same(_has_bias(attention.in_proj) for attention in attentions),
        o_bias=_same(_has_bias(attention.dense) for attention in attentions),
        qk_norm=_same(hasattr(attention.in_proj, "q_norm") for attention in attentions),
        mlp_bias=_same(_has_bias(held) for held in projections),
        layer_norms=_same(len(held) for held in norms),
        norm_bias=_same(_has_bias(*held) for held in norms),
        intermediate_size=width,
        num_experts=_same(down.shape[0] for down in downs) if routed else None,
        num_experts_per_tok=_same(ff.num_activated_experts for ff in feed_forwards) if routed else None,
        moe_intermediate_size=width if routed else None,
        linear_num_key_heads=_same(ssm.n_groups for ssm in recurrences) if recurrences else None,
        linear_key_head_dim=_same(ssm.ssm_state_size for ssm in recurrences) if recurrences else None,
        linear_num_value_heads=_same(ssm.dt_bias.numel() for ssm in recurrences) if recurrences else None,
        linear_value_head_dim=_same(ssm.head_dim for ssm in recurrences) if recurrences else None,
        linear_conv_kernel_dim=_same(ssm.conv1d.kernel_size[0] for ssm in recurrences) if recurrences else None,
        sliding_window=_same(windows[i] for i in sliding) if sliding else None,
        sliding_layers=sliding,
    )


PEERS = {
    # By `hf_config`, the model's name on the hub, or what the hub calls it now.
    "litgpt": Peer(
        "litgpt",
        read_litgpt,
        {
            "codellama-34b": "CodeLlama-34b-hf",
            "falcon-180b": "falcon-180B",
            "falcon-40b": "falcon-40b",
            "falcon-7b": "falcon-7b",
            "falcon3-1b": "Falcon3-1B-Base",
            "falcon3-7b": "Falcon3-7B-Base",
            "gemma-2-27b": "Gemma-2-27b-it",
            "gemma-2-2b": "Gemma-2-2b",
            "gemma-2-9b": "Gemma-2-9b",
            "gemma-3-1b": "Gemma-3-1b-it",
            "gemma-3-27b": "Gemma-3-27b-it",
            "gemma-3-4b": "Gemma-3-4b-it",
            "gemma-7b": "Gemma-7b",
            "llama-2-13b": "Llama-2-13b-hf",
            "llama-2-70b": "Llama-2-70b-chat-hf",
            "llama-2-7b": "Llama-2-7b-hf",
            "llama-3.1-405b": "Llama-3.1-405B",
            "llama-3.1-70b": "Llama-3.1-70B",
            "llama-3.1-8b": "Llama-3.1-8B",
            "llama-3.2-1b": "Llama-3.2-1B",
            "llama-3.2-3b": "Llama-3.2-3B",
            "mistral-7b-v0.3": "Mistral-7B-Instruct-v0.3",
            "mistral-large-instruct-2407": "Mistral-Large-Instruct-2407",
            "mixtral-8x22b": "Mixtral-8x22B-Instruct-v0.1",
            "mixtral-8x7b": "Mixtral-8x7B-Instruct-v0.1",
            "olmo-2-7b": "OLMo-2-1124-7B-Instruct",
            "olmo-7b": "OLMo-7B-hf",
            "phi-2": "phi-2",
            "pythia-1.4b": "pythia-1.4b",
            "pythia-1.4b-deduped": "pythia-1.4b-deduped",
            "pythia-14m": "pythia-14m",
            "pythia-160m": "pythia-160m",
            "pythia-1b": "pythia-1b",
            "pythia-2.8b": "pythia-2.8b",
            "pythia-6.9b": "pythia-6.9b",
            "qwen2.5-72b": "Qwen2.5-72B",
            "qwen2.5-7b": "Qwen2.5-7B",
            "qwen3-0.6b": "Qwen3-0.6B",
            "qwen3-1.7b": "Qwen3-1.7B",
            "qwen3-235b-a22b": "Qwen3-235B-A22B",
            # Published in 8-bit floats under a name of its own, of the same build.
            "qwen3-30b-a3b": "Qwen3-30B-A3B",
            "qwen3-32b": "Qwen3-32B",
            "qwen3-8b": "Qwen3-8B",
            "smollm2-1.7b": "SmolLM2-1.7B",
            "stablelm-3b-4e1t": "stablelm-3b-4e1t",
            "tinyllama-1.1b-chat-v1.0": "tiny-llama-1.1b-chat",
        },
    ),
    # The module under torchtune.models, and the builder in it.
    "torchtune": Peer(
        "torchtune",
        read_torchtune,
        {
            "gemma-2-27b": "gemma2.gemma2_27b",
            "gemma-2-2b": "gemma2.gemma2_2b",
            "gemma-2-9b": "gemma2.gemma2_9b",
            "gemma-7b": "gemma.gemma_7b",
            "llama-2-13b": "llama2.llama2_13b",
            "llama-2-70b": "llama2.llama2_70b",
            "llama-2-7b": "llama2.llama2_7b",
            "llama-3.1-405b": "llama3_1.llama3_1_405b",
            "llama-3.1-70b": "llama3_1.llama3_1_70b",
            "llama-3.1-8b": "llama3_1.llama3_1_8b",
            "llama-3.2-1b": "llama3_2.llama3_2_1b",
            "llama-3.2-3b": "llama3_2.llama3_2_3b",
            "qwen2.5-72b": "qwen2_5.qwen2_5_72b_base",
            "qwen2.5-7b": "qwen2_5.qwen2_5_7b_base",
        },
    ),
    # The architecture, and the variant of it.
    "foundation-model-stack": Peer(
        "fms",
        read_fms,
        {
            "bamba-9b-v1": "bamba.9_8b",
            "gpt-oss-20b": "gpt_oss.20b",
            "granite-20b-code-base-8k": "gpt_bigcode.ibm.20b",
            "granite-3.1-8b": "granite.8b",
            "llama-2-13b": "llama.2-13b",
            "llama-2-70b": "llama.2-70b",
            "llama-2-7b": "llama.2-7b",
            "mistral-7b-v0.3": "mistral.7b",
            "mixtral-8x7b": "mixtral.8x7b",
            "qwen3-0.6b": "qwen3.0.6b",
        },
    ),
}

PAIRS = tuple((peer, case) for peer in PEERS for case in PEERS[peer].models)


@dataclass(frozen=True)
class Differences:
    """How a peer's model is known to differ from the census's, and why.

    Attributes:
        fields: by field, what the peer states and the name of the cause.
        terms: by cause, what the peer's parameters have more than ours; negative where they lack it.
    """

    fields: Mapping[str, tuple[Any, str]]
    terms: Mapping[str, int]

    @property
    def causes(self) -> set[str]:
        return {cause for _, cause in self.fields.values()} | set(self.terms)


def load_differences(path: Path = TABLE) -> tuple[dict[str, str], dict[tuple[str, str], Differences]]:
    """Return the causes by name, and the known differences by peer and case."""
    table = strict_yaml.load(path.read_text(encoding="utf-8"), where=str(path), error=PeerError)
    causes: dict[str, str] = table.pop("causes")
    found = {}
    for peer, cases in table.items():
        for case, rows in cases.items():
            terms = rows.pop("parameters", {})
            stated = {name: (row["peer"], row["cause"]) for name, row in rows.items()}
            found[peer, case] = Differences(stated, terms)
    return causes, found


CAUSES, DIFFERENCES = load_differences()
_NONE = Differences({}, {})


@functools.cache
def peer_model(peer: str, case: str) -> PeerModel:
    """Return what a peer builds of a published model, built once a process."""
    known = PEERS[peer]
    return known.read(known.models[case])


@functools.cache
def parameters_of(name: str) -> int:
    """Return how many parameters a case's language model has, its head among them, as Transformers builds it."""
    from transformers import AutoModelForCausalLM
    from transformers.initialization import no_init_weights

    with torch.device("meta"), no_init_weights():
        model = AutoModelForCausalLM.from_config(CASES[name].new_config().get_text_config(), dtype=torch.bfloat16)
    model.tie_weights()
    return _numel(model)


def census_model(case: Case) -> dict[str, Any]:
    """Return what the census says of a case, under the names of a PeerModel: its golden, and its parameters."""
    spec = read_golden(golden_path(GOLDENS, case.model_type, case.name)).spec
    kinds = [layer["kind"] for layer in spec["layers"] for _ in range(layer["count"])]
    windows = {name: held["sliding_window"] for name, held in spec["kinds"].items() if "sliding_window" in held}
    sliding = {
        i
        for i, kind in enumerate(kinds)
        if kind in windows and i in spec["kinds"][kind].get("layers_with", {}).get("sliding_window", range(len(kinds)))
    }
    stated = {field.name: spec.get(field.name) for field in fields(PeerModel)}
    stated["parameters"] = parameters_of(case.name)
    stated["sliding_window"] = _same(windows.values()) if windows else None
    stated["sliding_layers"] = tuple(sorted(sliding))
    return stated


def unexplained(peer: str, name: str) -> list[str]:
    """Return how a peer's model differs from the census beyond what the table says, and which rows no longer hold."""
    known = DIFFERENCES.get((peer, name), _NONE)
    ours = census_model(CASES[name])
    theirs = {field: getattr(peer_model(peer, name), field) for field in ours}
    found = []
    more = theirs.pop("parameters") - ours.pop("parameters")
    if more != sum(known.terms.values()):
        found.append(f"parameters: the peer has {more} more, the table's terms {dict(known.terms)}")
    for field, value in theirs.items():
        listed, _ = known.fields.get(field, (ours[field], ""))
        if value != listed:
            found.append(f"{field}: expected {listed}, the peer has {value}; census {ours[field]}")
    for field, (listed, _) in known.fields.items():
        if field not in ours:
            found.append(f"{field}: the table lists a difference in what is not compared")
        elif listed == ours[field]:
            found.append(f"{field}: the table lists a difference, the census says {listed} too")
    return found


def sizes_are_the_peers(peer: str, name: str) -> bool:
    """Tell whether a case's sizes were taken over from the peer alone, which then says nothing of them."""
    sources = [source.strip() for source in CASES[name].source.split(";")]
    # "known and supported by the exact total alone" names fields, no place where they are written.
    return all(source.startswith((PEERS[peer].package, "known ")) for source in sources)


@functools.cache
def vouched_by_peers() -> dict[str, tuple[str, ...]]:
    """Return by case the peers whose model is the census's, or differs only as the table says, as the test holds."""
    vouched: dict[str, tuple[str, ...]] = {}
    for peer, name in PAIRS:
        if not sizes_are_the_peers(peer, name):
            vouched[name] = (*vouched.get(name, ()), peer)
    return dict(sorted(vouched.items()))
