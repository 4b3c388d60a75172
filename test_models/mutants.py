"""The mutants: faults planted in layers, profiles, goldens, cases and the engine, each with what must name it.

A check of the suite that a fault is planted for must fail, and its failure must say every text of `names`: the field
that the fault changes, or the module it refuses. An *equivalent* changes code and no count: its check must pass.
"""

from __future__ import annotations

from dataclasses import dataclass

from test_models.planting import Edit


@dataclass(frozen=True)
class Mutant:
    """One planted fault.

    Attributes:
        name: what it plants.
        case: the case, or the small family, that the check runs on.
        edits: the texts it changes.
        names: what the failure says; nothing of an equivalent, which no check may see.
        check: which check of the suite must see it (`CHECKS` in test_mutants.py).
    """

    name: str
    case: str
    edits: tuple[Edit, ...]
    names: tuple[str, ...]
    check: str = "golden"

    def __str__(self) -> str:
        return self.name


LLAMA, QWEN3, MIXTRAL = "tinyllama-1.1b-chat-v1.0", "qwen3-0.6b", "mixtral-8x7b"
QWEN35_MOE, DEEPSEEK = "qwen3_5_moe_text-small", "deepseek-v3"
GPT2, GEMMA2 = "gpt2", "gemma-2-2b"


def _of(model: str, *parts: str) -> str:
    """Return where a function of a model's modeling file is."""
    return f"transformers.models.{model}.modeling_{model}:{'.'.join(parts)}"


def _in_layer(
    name: str, case: str, where: str, old: str, new: str, *names: str, check: str = "golden", times: int = 1
) -> Mutant:
    return Mutant(name, case, (Edit(where, old, new, times),), names, check)


_LLAMA_LAYER = _of("llama", "LlamaDecoderLayer")
_LLAMA_ATTENTION = _of("llama", "LlamaAttention")
_QWEN3_ATTENTION = _of("qwen3", "Qwen3Attention")
_DELTA = _of("qwen3_5_moe", "Qwen3_5MoeGatedDeltaNet.forward")
_RULE = "chunked_attn_out, chunked_last_recurrent_state ="
_CALLS_THE_RULE = f"{_RULE} torch_chunk_gated_delta_rule("

NORMS = (
    _in_layer(
        "a layer's first norm is dropped", LLAMA, f"{_LLAMA_LAYER}.forward",
        "hidden_states = self.input_layernorm(hidden_states)", "hidden_states = hidden_states",
        "ops.decoder.normOp: 2 -> 1", " layer_norms: 2 -> 1", "branch_norms[0]: 1 -> 0",
    ),
    _in_layer(
        "a branch's input is normed twice", LLAMA, f"{_LLAMA_LAYER}.forward",
        "hidden_states = self.input_layernorm(hidden_states)",
        "hidden_states = self.input_layernorm(self.input_layernorm(hidden_states))",
        "ops.decoder.normOp: 2 -> 3", " layer_norms: 2 -> 3", "branch_norms[0]: 1 -> 2",
    ),
    _in_layer(
        "a branch in the middle norms its input twice", LLAMA, f"{_LLAMA_LAYER}.forward",
        "hidden_states = self.post_attention_layernorm(hidden_states)",
        "hidden_states = self.post_attention_layernorm(self.post_attention_layernorm(hidden_states))",
        "ops.decoder.normOp: 2 -> 3", " layer_norms: 2 -> 3", "branch_norms[1]: 1 -> 2",
    ),
    _in_layer(
        "a branch's output is normed too", LLAMA, f"{_LLAMA_LAYER}.forward",
        "hidden_states = self.mlp(hidden_states)", "hidden_states = self.input_layernorm(self.mlp(hidden_states))",
        "ops.decoder.normOp: 2 -> 3", "branch_norms[1]: 1 -> 2",
    ),
    _in_layer(
        "the sandwich loses its last norm", GEMMA2, _of("gemma2", "Gemma2DecoderLayer.forward"),
        "hidden_states = self.post_feedforward_layernorm(hidden_states)", "hidden_states = hidden_states",
        "ops.decoder.normOp: 4 -> 3", "branch_norms[1]: 2 -> 1",
    ),
    _in_layer(
        "a norm is built and is an identity", LLAMA, f"{_LLAMA_LAYER}.__init__",
        "self.post_attention_layernorm = LlamaRMSNorm(config.hidden_size, eps=config.rms_norm_eps)",
        "self.post_attention_layernorm = nn.Identity()", "ops.decoder.normOp: 2 -> 1",
    ),
    _in_layer(
        "a norm gains a bias", LLAMA, f"{_LLAMA_LAYER}.__init__",
        "self.input_layernorm = LlamaRMSNorm(config.hidden_size, eps=config.rms_norm_eps)",
        "self.input_layernorm = nn.LayerNorm(config.hidden_size)", "norm_bias: false -> true",
    ),
    Mutant(
        "queries and keys are normed where none were", LLAMA,
        (
            Edit(f"{_LLAMA_ATTENTION}.__init__", "self.is_causal = True",
                 "self.is_causal = True\n    self.norm = LlamaRMSNorm(self.head_dim)"),
            Edit(f"{_LLAMA_ATTENTION}.forward", "self.q_proj(hidden_states).view(hidden_shape)",
                 "self.norm(self.q_proj(hidden_states).view(hidden_shape))"),
        ),
        ("qk_norm: false -> true", "kinds.decoder.qk_norm"),
    ),
    Mutant(
        "neither queries nor keys are normed", QWEN3,
        (
            Edit(f"{_QWEN3_ATTENTION}.forward", "self.q_norm(self.q_proj(hidden_states).view(hidden_shape))",
                 "self.q_proj(hidden_states).view(hidden_shape)"),
            Edit(f"{_QWEN3_ATTENTION}.forward", "self.k_norm(self.k_proj(hidden_states).view(hidden_shape))",
                 "self.k_proj(hidden_states).view(hidden_shape)"),
        ),
        ("qk_norm: true -> false", "kinds.decoder.qk_norm"),
    ),
    _in_layer(
        "queries alone are normed", QWEN3, f"{_QWEN3_ATTENTION}.forward",
        "self.k_norm(self.k_proj(hidden_states).view(hidden_shape))", "self.k_proj(hidden_states).view(hidden_shape)",
        "held and not run: self_attn.k_norm.weight", check="every parameter",
    ),
    _in_layer(
        "the norm of keys is not built", QWEN3, f"{_QWEN3_ATTENTION}.__init__",
        "self.k_norm = Qwen3RMSNorm(self.head_dim, eps=config.rms_norm_eps)", "self.k_norm = nn.Identity()",
        # 28 layers of a weight of 128 are missing.
        "751628800", "751632384", check="published",
    ),
)  # fmt: skip

ATTENTIONS = (
    _in_layer(
        "the keys' projection gains a bias", LLAMA, f"{_LLAMA_ATTENTION}.__init__",
        "self.k_proj = nn.Linear(\n"
        "        config.hidden_size, config.num_key_value_heads * self.head_dim, bias=config.attention_bias",
        "self.k_proj = nn.Linear(\n        config.hidden_size, config.num_key_value_heads * self.head_dim, bias=True",
        "qkv_bias: false -> true", "kinds.decoder.qkv_bias",
    ),
    _in_layer(
        "the output's projection gains a bias", LLAMA, f"{_LLAMA_ATTENTION}.__init__",
        "self.head_dim, config.hidden_size, bias=config.attention_bias", "self.head_dim, config.hidden_size, bias=True",
        "o_bias: false -> true", "kinds.decoder.o_bias",
    ),
    _in_layer(
        "the output is not projected", LLAMA, f"{_LLAMA_ATTENTION}.forward",
        "attn_output = self.o_proj(attn_output)", "attn_output = attn_output",
        "ops.decoder.attMM: 4 -> 3", "o_bias: false -> absent",
    ),
    _in_layer(
        "the output is projected twice", LLAMA, f"{_LLAMA_ATTENTION}.forward",
        "attn_output = self.o_proj(attn_output)", "attn_output = self.o_proj(self.o_proj(attn_output))",
        "ops.decoder.attMM: 4 -> 5",
    ),
    Mutant(
        "the queries' projection is twice as wide", QWEN3,
        (
            Edit(f"{_QWEN3_ATTENTION}.__init__",
                 "config.hidden_size, config.num_attention_heads * self.head_dim, bias=config.attention_bias",
                 "config.hidden_size, config.num_attention_heads * self.head_dim * 2, bias=config.attention_bias"),
            Edit(f"{_QWEN3_ATTENTION}.forward", "self.q_proj(hidden_states).view(hidden_shape)",
                 "self.q_proj(hidden_states).chunk(2, dim=-1)[0].reshape(hidden_shape)"),
        ),
        ("attn_output_gate: false -> true", "kinds.decoder.attn_output_gate"),
    ),
    Mutant(
        "the output gate is dropped", QWEN35_MOE,
        (
            Edit(_of("qwen3_5_moe", "Qwen3_5MoeAttention.__init__"),
                 "config.num_attention_heads * self.head_dim * 2", "config.num_attention_heads * self.head_dim"),
            Edit(_of("qwen3_5_moe", "Qwen3_5MoeAttention.forward"),
                 "self.q_proj(hidden_states).view(*input_shape, -1, self.head_dim * 2), 2, dim=-1",
                 "self.q_proj(hidden_states).view(*input_shape, -1, self.head_dim).repeat(1, 1, 1, 2), 2, dim=-1"),
            Edit(_of("qwen3_5_moe", "Qwen3_5MoeAttention.forward"), "attn_output * torch.sigmoid(gate)", "attn_output"),
        ),
        ("attn_output_gate: true -> false", "kinds.full_attention.attn_output_gate"),
    ),
    _in_layer(
        "the heads of keys and values are halved", LLAMA, f"{_LLAMA_ATTENTION}.__init__",
        "config.num_key_value_heads * self.head_dim", "config.num_key_value_heads // 2 * self.head_dim",
        "num_key_value_heads: 4 -> 2", "kinds.decoder.num_key_value_heads", times=2,
    ),
    _in_layer(
        "twice as many heads are half as wide", GPT2, _of("gpt2", "GPT2Attention.__init__"),
        "self.num_heads = config.num_attention_heads", "self.num_heads = config.num_attention_heads * 2",
        " head_dim: 64 -> 32", " num_attention_heads: 12 -> 24",
    ),
    _in_layer(
        "the keys are the values' projection and their own is idle", LLAMA, f"{_LLAMA_ATTENTION}.forward",
        "self.k_proj(hidden_states)", "self.v_proj(hidden_states)",
        "held and not run: self_attn.k_proj.weight", check="every parameter",
    ),
    _in_layer(
        "the attention reaches no branch", LLAMA, f"{_LLAMA_LAYER}.forward",
        "hidden_states = residual + hidden_states\n\n    # Fully Connected", "hidden_states = residual",
        "UnknownPartError", "self_attn", "a kernel's output on a residual branch",
    ),
    _in_layer(
        "the attention's sum is dropped", LLAMA, f"{_LLAMA_LAYER}.forward",
        "hidden_states = residual + hidden_states\n    return", "hidden_states = hidden_states\n    return",
        "UnknownPartError", "model.layers.0", "residual stream",
    ),
    _in_layer(
        "the queries' latent is half as wide", DEEPSEEK, _of("deepseek_v3", "DeepseekV3Attention.__init__"),
        "self.q_lora_rank = config.q_lora_rank", "self.q_lora_rank = config.q_lora_rank // 2",
        "q_lora_rank: 1536 -> 768", "kinds.moe.q_lora_rank",
    ),
    _in_layer(
        "latent attention's values are half as wide", DEEPSEEK, _of("deepseek_v3", "DeepseekV3Attention.__init__"),
        "self.v_head_dim = config.v_head_dim", "self.v_head_dim = config.v_head_dim // 2",
        " v_head_dim: 128 -> 64", " head_dim: 128 -> 64",
    ),
    Mutant(
        "no layer slides", GEMMA2,
        (
            Edit(_of("gemma2", "Gemma2Attention.__init__"), "self.sliding_window = config.sliding_window if",
                 "self.sliding_window = None if"),
            Edit(_of("gemma2", "Gemma2Model.forward"), "causal_mask_mapping[self.config.layer_types[i]]",
                 'causal_mask_mapping["full_attention"]'),
        ),
        ("kinds.decoder.sliding_window: 4096 -> absent", "kinds.decoder.mixers"),
    ),
    _in_layer(
        "every layer is moved by positions", "smollm3-default", _of("smollm3", "SmolLM3Attention.__init__"),
        "self.use_rope = config.no_rope_layers[layer_idx]", "self.use_rope = True",
        "kinds.decoder.no_rope: true -> absent",
    ),
    _in_layer(
        "a parallel block becomes one after the other", "cohere-small", _of("cohere", "CohereDecoderLayer.forward"),
        "hidden_states_mlp = self.mlp(hidden_states)",
        "hidden_states_mlp = self.mlp(residual + hidden_states_attention)", ".gather: 2 -> 4", ".branch_norms",
    ),
    _in_layer(
        "two layers attend in one", LLAMA, f"{_LLAMA_LAYER}.forward",
        "hidden_states = self.mlp(hidden_states)",
        "hidden_states = self.mlp(hidden_states) + self.self_attn(\n"
        "        hidden_states, position_embeddings, attention_mask)[0]",
        "ops.decoder.softmax: 1 -> 2", "ops.decoder.attBMM: 2 -> 4", "ops.decoder.headCast: 1 -> 2",
    ),
)  # fmt: skip

FEED_FORWARDS = (
    _in_layer(
        "the feed-forward's gate is dropped", LLAMA, _of("llama", "LlamaMLP.forward"),
        "self.act_fn(self.gate_proj(x)) * self.up_proj(x)", "self.act_fn(self.up_proj(x))",
        "ops.decoder.ffMM: 3 -> 2",
    ),
    _in_layer(
        "the activation is dropped", LLAMA, _of("llama", "LlamaMLP.forward"),
        "self.act_fn(self.gate_proj(x))", "self.gate_proj(x)", "ops.decoder.ffAct: 1 -> 0",
    ),
    _in_layer(
        "the gated values are activated too", LLAMA, _of("llama", "LlamaMLP.forward"),
        "* self.up_proj(x)", "* self.act_fn(self.up_proj(x))", "ops.decoder.ffAct: 1 -> 2",
    ),
    _in_layer(
        "the down-projection gains a bias", LLAMA, _of("llama", "LlamaMLP.__init__"),
        "nn.Linear(self.intermediate_size, self.hidden_size, bias=config.mlp_bias)",
        "nn.Linear(self.intermediate_size, self.hidden_size, bias=True)", "mlp_bias: false -> true",
    ),
    _in_layer(
        "the feed-forward is wider by one", LLAMA, _of("llama", "LlamaMLP.__init__"),
        "self.intermediate_size = config.intermediate_size", "self.intermediate_size = config.intermediate_size + 1",
        "intermediate_size: 5632 -> 5633",
    ),
    _in_layer(
        "a token takes one expert more", MIXTRAL, _of("mixtral", "MixtralTopKRouter.__init__"),
        "self.top_k = config.num_experts_per_tok", "self.top_k = config.num_experts_per_tok + 1",
        "num_experts_per_tok: 2 -> 3", "kinds.decoder.num_experts_per_tok",
    ),
    _in_layer(
        "an expert is half as wide", MIXTRAL, _of("mixtral", "MixtralExperts.__init__"),
        "self.intermediate_dim = config.intermediate_size", "self.intermediate_dim = config.intermediate_size // 2",
        "moe_intermediate_size: 14336 -> 7168", " intermediate_size: 14336 -> 7168",
    ),
    Mutant(
        "an expert is missing", MIXTRAL,
        tuple(
            Edit(_of("mixtral", f"{part}.__init__"), "self.num_experts = config.num_local_experts",
                 "self.num_experts = config.num_local_experts - 1")
            for part in ("MixtralExperts", "MixtralTopKRouter")
        ),
        ("num_experts: 8 -> 7",),
    ),
    _in_layer(
        "the shared expert's gate is dropped", QWEN35_MOE, _of("qwen3_5_moe", "Qwen3_5MoeSparseMoeBlock.forward"),
        "F.sigmoid(self.shared_expert_gate(hidden_states_reshaped)) * shared_expert_output", "shared_expert_output",
        "shared_expert_gate: true -> false", "kinds.linear_attention.shared_expert_gate",
    ),
    _in_layer(
        "the shared expert reaches no branch", QWEN35_MOE, _of("qwen3_5_moe", "Qwen3_5MoeSparseMoeBlock.forward"),
        "expert_output = expert_output + shared_expert_output", "expert_output = expert_output",
        "UnknownPartError", "mlp.shared_expert", "a place for every projection",
    ),
    _in_layer(
        "the shared expert is twice as wide", QWEN35_MOE, _of("qwen3_5_moe", "Qwen3_5MoeSparseMoeBlock.__init__"),
        "intermediate_size=config.shared_expert_intermediate_size",
        "intermediate_size=config.shared_expert_intermediate_size * 2",
        "shared_expert_intermediate_size: 48 -> 96", "num_shared_experts: 1 -> 3",
    ),
)  # fmt: skip

DROPOUTS = (
    _in_layer(
        "a dropout is dropped", GPT2, _of("gpt2", "GPT2MLP.forward"),
        "hidden_states = self.dropout(hidden_states)", "hidden_states = hidden_states", ".dropout: 2 -> 1",
    ),
    _in_layer(
        "the stream is dropped out too", GPT2, _of("gpt2", "GPT2Block.forward"),
        "hidden_states = residual + feed_forward_hidden_states",
        "hidden_states = self.mlp.dropout(residual + feed_forward_hidden_states)", ".dropout: 2 -> 3",
    ),
    _in_layer(
        "a dropout moves from its branch to the score kernel", GPT2, _of("gpt2", "GPT2Attention.forward"),
        "attn_output = self.resid_dropout(attn_output)", "attn_output = attn_output", "'dropout': (2, 1)",
        check="vector",
    ),
)  # fmt: skip

RECURRENCES = (
    _in_layer(
        "the recurrence is bypassed", QWEN35_MOE, _DELTA,
        _CALLS_THE_RULE, f"{_RULE} (lambda query, key, value, **_: (value, None))(",
        "UnknownPartError", "model.layers.0.linear_attn",
    ),
    _in_layer(
        "the recurrence runs twice", QWEN35_MOE, _DELTA, _CALLS_THE_RULE,
        f"{_RULE} (lambda *args, **others: (sum(\n"
        "        torch_chunk_gated_delta_rule(*args, **others)[0] for _ in range(2)), None))(",
        "ops.linear_attention.linrec: 1 -> 2",
    ),
    _in_layer(
        "the recurrence is a function that the table does not name", QWEN35_MOE, _DELTA, _CALLS_THE_RULE,
        "import inspect\n        from census.wrappers import functions_within\n"
        "        named = 'torch_chunk_gated_delta_rule'\n"
        "        rule = [f for f in functions_within(torch_chunk_gated_delta_rule) if f.__name__ == named][-1]\n"
        "        scope = dict(rule.__globals__)\n"
        "        exec(inspect.getsource(rule).replace(rule.__name__, 'renamed'), scope)\n"
        f"        {_RULE} scope['renamed'](",
        "UnknownPartError", "model.layers.0.linear_attn", "census/recurrences.py",
    ),
    _in_layer(
        "the convolution is longer by one", "mamba-small", _of("mamba", "MambaMixer.__init__"),
        "kernel_size=config.conv_kernel,", "kernel_size=config.conv_kernel + 1,",
        "linear_conv_kernel_dim: 4 -> 5", ".conv_kernel_dim: 4 -> 5",
    ),
    _in_layer(
        "the state is twice as large", "mamba-small", _of("mamba", "MambaMixer.__init__"),
        "self.ssm_state_size = config.state_size", "self.ssm_state_size = config.state_size * 2",
        " linear_key_head_dim: 8 -> 16", ".linear_state_size: 1024 -> 2048",
    ),
)  # fmt: skip

STACKS = (
    Mutant(
        "two layers' types are swapped", QWEN35_MOE,
        (
            Edit(_of("qwen3_5_moe", "Qwen3_5MoeDecoderLayer.__init__"),
                 "self.block_type = config.layer_types[layer_idx]",
                 "self.block_type = config.layer_types[{2: 3, 3: 2}.get(layer_idx, layer_idx)]"),
            Edit(_of("qwen3_5_moe", "Qwen3_5MoeTextModel.forward"), "causal_mask_mapping[self.config.layer_types[i]]",
                 "causal_mask_mapping[decoder_layer.block_type]"),
        ),
        ("layers[0].count: 3 -> 2", "layers[2].kind: absent -> linear_attention"),
    ),
    _in_layer(
        "a layer more is dense", DEEPSEEK, _of("deepseek_v3", "DeepseekV3DecoderLayer.__init__"),
        "layer_idx >= config.first_k_dense_replace", "layer_idx > config.first_k_dense_replace",
        "first_k_dense_replace: 3 -> 4", "layers[0].count: 3 -> 4", "layers[1].count: 58 -> 57",
    ),
    _in_layer(
        "the last layer is missing", LLAMA, _of("llama", "LlamaModel.__init__"),
        "range(config.num_hidden_layers)", "range(config.num_hidden_layers - 1)",
        "num_hidden_layers: 22 -> 21", "layers[0].count: 22 -> 21",
    ),
    _in_layer(
        "the stack runs twice", LLAMA, _of("llama", "LlamaModel.forward"),
        "self.layers[: self.config.num_hidden_layers]", "(*self.layers, *self.layers)",
        "num_hidden_layers: 22 -> 44", "layers[0].count: 22 -> 44",
    ),
    _in_layer(
        "a layer is idle", LLAMA, _of("llama", "LlamaModel.forward"),
        "self.layers[: self.config.num_hidden_layers]", "self.layers[1:]",
        "BuildError", "model.layers.0 idle",
    ),
    _in_layer(
        "the vocabulary is padded", LLAMA, _of("llama", "LlamaModel.__init__"),
        "nn.Embedding(config.vocab_size,", "nn.Embedding(config.vocab_size + 64,",
        "vocab_size: 32000 -> 32064",
    ),
    _in_layer(
        "one layer of 80 holds no first norm", "llama-3.1-70b", f"{_LLAMA_LAYER}.__init__",
        "self.input_layernorm = LlamaRMSNorm(config.hidden_size, eps=config.rms_norm_eps)",
        "self.input_layernorm = nn.Identity() if layer_idx == 59 else LlamaRMSNorm(config.hidden_size)",
        "KindError", "model.layers.59", "input_layernorm",
    ),
    _in_layer(
        "one layer of 80 has a bias more", "llama-3.1-70b", f"{_LLAMA_ATTENTION}.__init__",
        "self.head_dim, config.hidden_size, bias=config.attention_bias",
        "self.head_dim, config.hidden_size, bias=layer_idx == 59",
        "KindError", "model.layers.59", "self_attn.o_proj.bias",
    ),
    Mutant(
        "one layer of 80 runs no activation, by a flag of its own", "llama-3.1-70b",
        (
            Edit(f"{_LLAMA_LAYER}.__init__", "self.mlp = LlamaMLP(config)",
                 "self.mlp = LlamaMLP(config)\n    self.mlp.linear = layer_idx == 59"),
            Edit(_of("llama", "LlamaMLP.forward"), "self.act_fn(self.gate_proj(x))",
                 "(self.gate_proj(x) if self.linear else self.act_fn(self.gate_proj(x)))"),
        ),
        ("KindError", "model.layers.59", "ffAct"),
    ),
    _in_layer(
        "one layer tells by its own index that it norms nothing", "apertus-small",
        _of("apertus", "ApertusDecoderLayer.forward"),
        "hidden_states = self.attention_layernorm(hidden_states)",
        "hidden_states = hidden_states if self.self_attn.layer_idx == 1 else self.attention_layernorm(hidden_states)",
        "layer 1", "'normOp': (2, 1)", check="every layer",
    ),
)  # fmt: skip

LAYERS = (*NORMS, *ATTENTIONS, *FEED_FORWARDS, *DROPOUTS, *RECURRENCES, *STACKS)


def _in_profile(arch: str, old: str, new: str, name: str, case: str, *names: str, check: str = "audit") -> Mutant:
    return Mutant(name, case, (Edit(f"census/profiles/{arch}.yaml", old, new),), names, check)


PROFILES = (
    _in_profile("mixtral", "normOp: 2", "normOp: 5", "Mixtral has five norms", MIXTRAL,
                "('decoder', 'normOp'): (5, 2)"),
    _in_profile("mixtral", "softmax: 1", "softmax: 2", "Mixtral has two softmaxes", MIXTRAL,
                "('decoder', 'softmax'): (2, 1)"),
    _in_profile("mixtral", "attMM: 4", "attMM: 3", "Mixtral has three projections", MIXTRAL,
                "('decoder', 'attMM'): (3, 4)"),
    _in_profile("mixtral", "ffMM: 3", "ffMM: 24", "Mixtral's experts are summed up", MIXTRAL,
                "('decoder', 'ffMM'): (24, 3)"),
    Mutant("a parallel block has two regions", "cohere-small",
           (Edit("census/profiles/cohere.yaml", "gather: 2", "gather: 4", times=2),),
           ("('dense', 'gather'): (4, 2)",), "audit"),
    _in_profile("gpt2", "dropout: 2", "dropout: 3", "GPT-2 drops scores out too", GPT2,
                "'dropout'): (3, 2)"),
    _in_profile("qwen3_5", "headCast: 0, ffAct: 1, linrec: 1", "headCast: 1, ffAct: 1, linrec: 0",
                "a recurrence casts heads", "qwen3_5_text-small",
                "('linear_attention', 'headCast'): (1, 0)", "('linear_attention', 'linrec'): (0, 1)"),
    _in_profile("deepseek", "  dense:\n    ffn: dense", "  leading:\n    ffn: none", "DeepSeek has no dense kind",
                "deepseek_v2-small", "KindError", "family deepseek", "feed-forward dense, found none"),
    Mutant("DeepSeek's kinds are swapped", "deepseek_v2-small",
           (Edit("census/profiles/deepseek.yaml", "  dense:\n    ffn: dense", "  moe:\n    ffn: dense"),
            Edit("census/profiles/deepseek.yaml", "  moe:\n    ffn: moe", "  dense:\n    ffn: moe")),
           ("layers[0].kind: dense -> moe", "layers[1].kind: moe -> dense"), "golden"),
    _in_profile("qwen3_5", "    attention: linear\n", "", "a linear kind says it is full", "qwen3_5_text-small",
                "KindError", "family qwen3_5", "attention linear"),
    _in_profile("qwen3_5", "  full_attention:\n    ops: {attMM: 4,", "  full_attention:\n    ops: {",
                "an op is not stated", "qwen3_5_text-small", "ProfileError", "kinds.full_attention.ops", "attMM"),
    _in_profile("mixtral", "default: decoder", "default: moe", "the default is no kind", MIXTRAL,
                "ProfileError", "default", "'moe'"),
)  # fmt: skip


def _in_golden(path: str, old: str, new: str, name: str, case: str, *names: str, times: int = 1,
               check: str = "golden") -> Mutant:  # fmt: skip
    return Mutant(name, case, (Edit(f"golden_specs/{path}.yaml", old, new, times),), names, check)


_MIXTRAL_GOLDEN, _DEEPSEEK_GOLDEN, _DELTA_GOLDEN = (
    "mixtral/mixtral-8x7b", "deepseek_v2/deepseek_v2-small", "qwen3_5_moe_text/qwen3_5_moe_text-small",
)  # fmt: skip

GOLDENS = (
    _in_golden(_MIXTRAL_GOLDEN, "  num_key_value_heads: 8\n", "  num_key_value_heads: 32\n",
               "a golden pins expanded heads", MIXTRAL, " num_key_value_heads: 32 -> 8"),
    _in_golden(_MIXTRAL_GOLDEN, "normOp: 2", "normOp: 5", "a golden pins five norms", MIXTRAL,
               "ops.decoder.normOp: 5 -> 2  [input_layernorm; post_attention_layernorm]"),
    _in_golden(_MIXTRAL_GOLDEN, "branch_norms: [1, 1]", "branch_norms: [2, 0]", "a golden pins norms of one branch",
               MIXTRAL, "kinds.decoder.branch_norms[0]: 2 -> 1", "kinds.decoder.branch_norms[1]: 0 -> 1"),
    _in_golden(_MIXTRAL_GOLDEN, "  qk_norm: false\n", "", "a golden lacks a field", MIXTRAL,
               " qk_norm: absent -> false"),
    _in_golden(_MIXTRAL_GOLDEN, "mixers: [full_attention]", "mixers: [sliding_attention]", "a golden pins a window",
               MIXTRAL, "kinds.decoder.mixers[0]: sliding_attention -> full_attention"),
    _in_golden(_MIXTRAL_GOLDEN, "  o_bias: false\n", "  o_bias: 0\n", "a golden pins a number for a flag", MIXTRAL,
               "ModelSpecError", "o_bias"),
    _in_golden(_MIXTRAL_GOLDEN, "kind: decoder, count: 32", "kind: decoder, count: 31", "a golden's stack is short",
               MIXTRAL, "ModelSpecError", "layers", "31"),
    _in_golden(_MIXTRAL_GOLDEN, "headCast: 1, ", "", "a golden lacks an op", MIXTRAL,
               "ModelSpecError", "ops.decoder", "headCast"),
    _in_golden(_MIXTRAL_GOLDEN, "  head_dim: 128\n", "  head_dim: 128\n  head_dims: 128\n",
               "a golden has a field too many", MIXTRAL, "ModelSpecError", "head_dims"),
    _in_golden(_MIXTRAL_GOLDEN, "  o_bias: false\n", "  o_bias: false\n  o_bias: true\n", "a golden says it twice",
               MIXTRAL, "GoldenError", "o_bias"),
    _in_golden(_DELTA_GOLDEN,
               "    linear_attention: {attMM: 4, attBMM: 0, ffMM: 3, softmax: 0, dropout: 0, normOp: 2, gather: 4, "
               "headCast: 0, ffAct: 1, linrec: 1}\n", "",
               "a golden lacks a kind's vector", QWEN35_MOE, "ModelSpecError", "linear_attention"),
    _in_golden(_DELTA_GOLDEN, "linear_state_size: 512, ", "", "a golden lacks a kind's state", QWEN35_MOE,
               "kinds.linear_attention.linear_state_size: absent -> 512"),
    _in_golden("gemma2/gemma-2-2b", "sliding_window: 4096", "sliding_window: 4095", "a golden's window is shorter",
               GEMMA2, "kinds.decoder.sliding_window: 4095 -> 4096"),
    _in_golden(_MIXTRAL_GOLDEN, "case: mixtral-8x7b", "case: mixtral-8x22b", "a golden is of another case", MIXTRAL,
               "mixtral-8x22b", check="golden's names"),
    _in_golden(_MIXTRAL_GOLDEN, "layer_norms: 2, norm_bias", "norm_bias: false, layer_norms: 2, other",
               "a golden's text is not a golden's", MIXTRAL, "ModelSpecError", "kinds.decoder.other"),
    _in_golden("mixtral/mixtral-9x7b", "", "case: mixtral-9x7b\n", "a golden has no case", MIXTRAL,
               "goldens without a case", "mixtral-9x7b.yaml", times=0, check="no orphans"),
)  # fmt: skip


def _in_cases(group: str, old: str, new: str, name: str, case: str, *names: str, check: str = "golden") -> Mutant:
    return Mutant(name, case, (Edit(f"test_models/cases/{group}.yaml", old, new),), names, check)


_QWEN3_FACTS = (
    "{hidden_size: 1024, num_hidden_layers: 28, num_attention_heads: 16, num_key_value_heads: 8, head_dim: 128,\n"
    "    intermediate_size: 3072, vocab_size: 151936, tie_word_embeddings: true}"
)

CASES = (
    _in_cases("dense", _QWEN3_FACTS, _QWEN3_FACTS.replace("value_heads: 8", "value_heads: 4"),
              "a case has half the heads of keys", QWEN3, " num_key_value_heads: 8 -> 4"),
    _in_cases("dense", _QWEN3_FACTS, _QWEN3_FACTS.replace("layers: 28", "layers: 27"),
              "a case has a layer too few", QWEN3, "num_hidden_layers: 28 -> 27", "layers[0].count: 28 -> 27"),
    _in_cases("dense", _QWEN3_FACTS, _QWEN3_FACTS.replace("true", "false"), "a case's head is not tied", QWEN3,
              "tie_word_embeddings: true -> false"),
    _in_cases("dense", _QWEN3_FACTS, _QWEN3_FACTS.replace("3072", "3073"), "a case's width contradicts its total",
              QWEN3, "751632384", check="published"),
    _in_cases("dense", "model_type: qwen3\n  arch: qwen\n  config:\n    " + _QWEN3_FACTS,
              "model_type: qwen3\n  arch: gemma\n  config:\n    " + _QWEN3_FACTS, "a case's family is another",
              QWEN3, "arch: qwen -> gemma"),
    _in_cases("dense", "model_type: qwen3\n  arch: qwen\n  config:\n    " + _QWEN3_FACTS,
              "model_type: qwen3\n  arch: gemma\n  config:\n    " + _QWEN3_FACTS, "a case's family runs four norms",
              QWEN3, "'normOp'): (4, 2)", check="audit"),
    _in_cases("dense", "model_type: qwen3\n  arch: qwen\n  config:\n    " + _QWEN3_FACTS,
              "model_type: qwen2\n  arch: qwen\n  config:\n    " + _QWEN3_FACTS, "a case's type is another",
              QWEN3, "expected a golden at", "qwen2/qwen3-0.6b.yaml", "found none"),
    _in_cases("dense", "    published: 751632384\n", "    published: 751632385\n", "a published total is off by one",
              QWEN3, "751632384", "751632385", check="published"),
    _in_cases("dense", "32 x 64\", numel: 2048}", "32 x 64\", numel: 2049}", "a term of a total is off by one",
              "llama-2-7b", "6738417664", "self_attn.rotary_emb.inv_freq", check="published"),
    _in_cases("moe", "  parameters:\n    published: 46702792704\n",
              "  parameters:\n    counts: 1\n    published: 46702792704\n", "a total has a field too many", MIXTRAL,
              "CaseError", "mixtral-8x7b", "counts"),
    _in_cases("dense", "    counted: state dict\n\nqwen3-8b:", "    counted: everything\n\nqwen3-8b:",
              "a total counts what no total does", QWEN3, "CaseError", "parameters.counted", "everything"),
    _in_cases("dense", "\nqwen3-8b:", "\nqwen3-0.6b:", "a name stands twice in a file", QWEN3,
              "CaseError", "qwen3-0.6b"),
    Mutant("a name stands in two files", QWEN3,
           (Edit("test_models/cases/dense.yaml", "\nqwen3-8b:", "\nmixtral-8x7b:"),
            Edit("test_models/cases/moe.yaml", "    published: 46702792704\n", "    published: 46702792704\n")),
           ("CaseError", "mixtral-8x7b", "again")),
    _in_cases("dense", "\nqwen3-0.6b:\n  model:", "\nqwen3-0.6b:\n  modle:", "a case has an unknown field", QWEN3,
              "CaseError", "qwen3-0.6b", "modle"),
    _in_cases("types_causal", "moe: {layers: [1], vector: [4, 2, 3, 1, 0, 3, 4, 1, 1, 0]}",
              "moe: {layers: [1], vector: [4, 2, 3, 1, 0, 2, 4, 1, 1, 0]}", "a vector that was read lacks a norm",
              "axk1-small", "moe, layer 1", "'normOp': (2, 3)", "mlp.post_mlp_layernorm", check="types"),
    _in_cases("types_causal", "\nxglm-small:\n  model_type: xglm\n", "\nxglm-small:\n  model_type: llama\n",
              "a type has no case", "axk1-small", "new types: xglm;", check="every type"),
)  # fmt: skip

DATA = (*PROFILES, *GOLDENS, *CASES)


def _in_engine(where: str, old: str, new: str, name: str, case: str, *names: str, check: str = "golden") -> Mutant:
    return Mutant(name, case, (Edit(f"census.{where}", old, new),), names, check)


_SMALL_MOE = "glm4_moe-small"

ENGINE = (
    _in_engine("dims:_score_kernel", 'Fact(key[0], taken)', 'Fact(query[0], taken)', "heads of keys are read repeated",
               LLAMA, " num_key_value_heads: 4 -> 32"),
    _in_engine("attention_operators:repeats", "times *=", "times += 0 *", "repeated keys are heads of their own",
               "jetmoe-default", " num_key_value_heads: 16 -> 32"),
    _in_engine("dims:_score_kernel", "query, key, value = kernel.heads", "key, query, value = kernel.heads",
               "queries and keys are mixed up", LLAMA, "ModelSpecError",
               "num_attention_heads: expected a multiple of num_key_value_heads"),
    _in_engine("dims:_score_kernel", "query[1] if latent is None else value[1]", "query[1]",
               "a latent's head is as wide as its queries", DEEPSEEK,
               "ModelSpecError", "head_dim: expected v_head_dim = 128", "192"),
    _in_engine("dims:_latent_dims", "Fact(width - nope,", "Fact(width,", "the rotated width is the whole width",
               DEEPSEEK, "qk_rope_head_dim: 64 -> 192"),
    _in_engine("dims:_output_gate", "== 2 * heads * width", "== heads * width", "queries alone are a gate", LLAMA,
               "attn_output_gate: false -> true"),
    _in_engine("dataflow:DataFlow._projection", " if held_around(event.module, name)", "",
               "a residual's scale is a bias", "zaya1-base", " o_bias: false -> true"),
    _in_engine("dataflow:DataFlow._added_weights",
               "return [v for v in self.producer[value].inputs if self.source(v) is Source.WEIGHT]", "return []",
               "a bias added afterwards is none", "gpt_oss-small", "mlp_bias: true -> false"),
    _in_engine("kinds:read_layer", "    return KindCensus(",
               '    holding = [m for m in built.layers[index].modules() if "Norm" in type(m).__name__]\n'
               '    ops["normOp"] = Fact(len(holding), "held")\n    return KindCensus(',
               "norms are counted as held", QWEN3, "ops.decoder.normOp: 2 -> 4"),
    _in_engine("counts:op_facts", "for norm in parts.norms)", "for norm in parts.graph.norms.values())",
               "every norm is the layer's", QWEN3, "ops.decoder.normOp: 2 -> 4"),
    _in_engine("parts:LayerParts.norms", "not self._of_the_embedding(norm)", "True",
               "the embedding's norm is a layer's", "rwkv-small", "KindError", "normOp (3 against 2)"),
    _in_engine("parts:LayerParts.norms", "not self._belongs_to_low_rank(norm)", "True",
               "a low-rank map's norm is the layer's", "gemma3n_text-small", ".layer_norms: 5 -> 6"),
    _in_engine("graph:LayerGraph._norm", "event.op in _NORM_OPERATORS", "False", "a fused norm is none", GPT2,
               ".normOp: 2 -> 0"),
    _in_engine("recorder:FunctionListener.__torch_function__",
               "self._dropout(args, kwargs) if func in _DROPOUTS else func(*args, **kwargs)", "func(*args, **kwargs)",
               "dropouts are heard at their operator", GPT2, ".dropout: 2 -> 0"),
    _in_engine("recorder:FunctionListener._dropout", "training and probability > 0", "training",
               "a dropout of nothing counts", "gpt_neox-small", ".dropout: 0 -> 2"),
    _in_engine("parts:LayerParts.dropouts", " and event not in own", "", "a score kernel's dropout counts",
               "big_bird-small", ".dropout: 2 -> 3"),
    _in_engine("counts:op_facts", "Fact(2 * parts.regions,", "Fact(4,", "every layer has two regions", "cohere-small",
               ".gather: 2 -> 4"),
    _in_engine("counts:op_facts", '"softmax": _listed(scores)', '"softmax": _listed(scores * 2)',
               "a softmax counts twice", LLAMA, "ops.decoder.softmax: 1 -> 2"),
    _in_engine("counts:op_facts", '("QK^T", "AV")', '("QK^T",)', "the values are not weighed", LLAMA,
               "ops.decoder.attBMM: 2 -> 1"),
    _in_engine("counts:_attention_projections", "roles[role, projections] =", "roles[role, projections, kernel] =",
               "two kernels share no projection", "diffllama-small", "attMM: 4 -> "),
    _in_engine("counts:_attention_projections", "elif not kernel.scores:", "elif False:",
               "a recurrence's gates are no roles", "rwkv-small", "ops.decoder.attMM: 4 -> 3"),
    _in_engine("counts:_projection_units", "for projection in mlp.projections)",
               "for m in (mlp, *parts.feed_forward.shared) for projection in m.projections)",
               "shared experts are added to the routed", _SMALL_MOE, "ops.moe.ffMM: 3 -> 6"),
    _in_engine("feed_forwards:FeedForwards.activations", "tuple(modules + operators)", "tuple(modules)",
               "activations are modules alone", "gpt_oss-small", "ffAct: 1 -> 0"),
    _in_engine("feed_forwards:FeedForwards.activations", "event.activation is None", "True",
               "an activation counts as module and as operator", LLAMA, "ops.decoder.ffAct: 1 -> 2"),
    _in_engine("feed_forwards:FeedForwards._choice", "(choices or tables)[-1]", "(choices or tables)[0]",
               "the choice of groups is the choice of experts", DEEPSEEK, "the router chooses (2)", "8"),
    _in_engine("recurrences:recurrences", "return _TABLE",
               'return {n: entry for n, entry in _TABLE.items() if n != "torch_chunk_gated_delta_rule"}',
               "the table lacks a recurrence", QWEN35_MOE, "UnknownPartError", "linear_attn", "census/recurrences.py"),
    _in_engine("recurrences:Recurrence.of_state", "keys[1], values[1]", "values[1], values[1]",
               "a state has the values' width twice", "mamba-small", ".linear_state_size"),
    _in_engine("details:_around", "sum(shape[0]", "max(shape[0]", "one convolution of several is stated",
               "zaya1-base", "kinds.decoder.conv_dim: 2560 -> 1280"),
    _in_engine("details:_score_kernel", "Fact(window,", "Fact(window - 1,", "a window does not reach itself", GEMMA2,
               "kinds.decoder.sliding_window: 4096 -> 4095"),
    _in_engine("parts:LayerParts.positions", "return any(graph.source(value) is Source.EXTERNAL for value in made_of)",
               "return any(True for value in made_of)", "every key is moved by its position", "smollm3-default",
               "kinds.decoder.no_rope: true -> absent"),
    _in_engine("graph:LayerGraph.stream", "stream | self._side_stream(stream)", "stream",
               "a block beside the stream is none", "zamba2-small", "UnknownPartError", "mamba_decoder.mamba"),
    _in_engine("grouping:layer_signatures",
               "frozenset(item for item in own.items() if item[0] not in of_index[type(layer)])", "()",
               "layers with other flags are the same", "smollm3-default", "kinds.decoder.layers_with.no_rope"),
    _in_engine("grouping:layer_signatures", "for layer, held, own in zip(layers, modules, attributes, strict=True)",
               "for layer, held, own in [(layers[0], modules[0], attributes[0])] * len(layers)",
               "all layers are the same", _SMALL_MOE,
               "UnknownPartError: model.layers.", "expected the parameters of model.layers.0"),
    _in_engine("repeated_layers:_answers", "return type(again) is type(answered) and again == answered", "return True",
               "any index builds the same layer", "smollm3-default", "kinds.decoder.layers_with.no_rope"),
    _in_engine("kinds:_kinds", "if text is not None:", "if False:", "unlike layers are one kind", "qwen2_moe",
               "DID NOT RAISE", "KindError", check="one kind"),
    _in_engine("measurement:_model_facts", 'key=lambda kind: kind.shape.attention == "linear"',
               "key=lambda kind: False", "a linear kind states the model's widths", "zamba2-small",
               " layer_norms: 3 -> 1"),
    _in_engine("measurement:_leading_dense_layers", "if 0 < leading < len(ffns)", "if 0 < leading < 0",
               "no stack has leading dense layers", _SMALL_MOE, "first_k_dense_replace: 1 -> absent"),
    _in_engine("measurement:_intermediate_size", '("intermediate_size", "shared', '("shared',
               "a routed width goes before a dense one", _SMALL_MOE, " intermediate_size: "),
    _in_engine("build:_tied", "tied = heads[0] is embedding", "tied = False", "no head is tied", QWEN3,
               "tie_word_embeddings: true -> false"),
    _in_engine("dims:_chosen_experts", "Fact(chosen if top is None else top,", "Fact(chosen,",
               "as many experts are chosen as rows show", "dbrx-small", " num_experts_per_tok: 2 -> 1"),
    _in_engine("op_profile:OpProfile._matching", "_UNWINDOWED.get(attention, attention)", "attention",
               "a sliding layer finds no full kind", GEMMA2, "KindError", "attention sliding", "found none"),
)  # fmt: skip

MUTANTS = (*LAYERS, *DATA, *ENGINE)


def _equal(name: str, case: str, *edits: Edit) -> Mutant:
    return Mutant(name, case, edits, ())


EQUIVALENT = (
    _equal("the activation is a function", LLAMA,
           Edit(_of("llama", "LlamaMLP.forward"), "self.act_fn(self.gate_proj(x))",
                "nn.functional.silu(self.gate_proj(x))")),
    _equal("a projection is named otherwise", LLAMA,
           Edit(f"{_LLAMA_ATTENTION}.__init__", "self.q_proj", "self.query"),
           Edit(f"{_LLAMA_ATTENTION}.forward", "self.q_proj", "self.query")),
    _equal("a norm is named otherwise", LLAMA,
           Edit(f"{_LLAMA_LAYER}.__init__", "self.input_layernorm", "self.first"),
           Edit(f"{_LLAMA_LAYER}.forward", "self.input_layernorm", "self.first")),
    _equal("a dropout stands before the projection it followed", GPT2,
           Edit(_of("gpt2", "GPT2MLP.forward"),
                "hidden_states = self.c_proj(hidden_states)\n    hidden_states = self.dropout(hidden_states)",
                "hidden_states = self.c_proj(self.dropout(hidden_states))")),
    _equal("the recurrence is held by the module", QWEN35_MOE,
           Edit(_DELTA, _CALLS_THE_RULE, f"{_RULE} self.rule("),
           Edit(_of("qwen3_5_moe", "Qwen3_5MoeGatedDeltaNet.__init__"), "self.hidden_size = config.hidden_size",
                "self.hidden_size = config.hidden_size\n    self.rule = torch_chunk_gated_delta_rule")),
    _equal("parallel branches under two norms run one after the other", "gpt_neox-small",
           Edit(_of("gpt_neox", "GPTNeoXLayer.forward"), "if self.use_parallel_residual:",
                "if not self.use_parallel_residual:")),
    _equal("every layer runs itself", _SMALL_MOE,
           Edit("census.grouping:_index_attributes", "return {", "return set() and {")),
    _equal("the kernel takes keys that were repeated", LLAMA,
           Edit("census.kernels:attention_interface", "torch.ops.census.attention(query, key, value,",
                "torch.ops.census.attention(query, *(part.repeat_interleave(8, 1) for part in (key, value)),")),
    # The field is by its definition a width: whether the other half is multiplied in is not its word.
    _equal("a gate as wide as the queries is multiplied with nothing", QWEN35_MOE,
           Edit(_of("qwen3_5_moe", "Qwen3_5MoeAttention.forward"), "attn_output * torch.sigmoid(gate)", "attn_output")),
)  # fmt: skip
