"""Two models of a team: an architecture registered with Transformers, and a module built by hand."""

from __future__ import annotations

import torch
import torch.nn.functional as F  # noqa: N812
from torch import nn
from transformers import AutoConfig, AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM


class OurConfig(LlamaConfig):
    """The config of our architecture."""

    model_type = "ours"


class OurForCausalLM(LlamaForCausalLM):
    """Llama's layers, as far as this example goes; a team writes its own."""

    config_class = OurConfig


AutoConfig.register("ours", OurConfig, exist_ok=True)
AutoModelForCausalLM.register(OurConfig, OurForCausalLM, exist_ok=True)


class Layer(nn.Module):
    """Attention of four heads, and a feed-forward without a gate."""

    def __init__(self, width: int = 64, heads: int = 4) -> None:
        super().__init__()
        self.heads = heads
        self.before_attention, self.before_mlp = nn.RMSNorm(width), nn.RMSNorm(width)
        self.query, self.key, self.value, self.out = (nn.Linear(width, width, bias=False) for _ in range(4))
        self.up, self.down = nn.Linear(width, 4 * width, bias=False), nn.Linear(4 * width, width, bias=False)

    def forward(self, stream: torch.Tensor) -> torch.Tensor:
        """Return the residual stream after the layer."""
        taken = self.before_attention(stream)
        heads = (
            made(taken).unflatten(-1, (self.heads, -1)).transpose(1, 2) for made in (self.query, self.key, self.value)
        )
        attended = F.scaled_dot_product_attention(*heads, is_causal=True)
        stream = stream + self.out(attended.transpose(1, 2).flatten(2))
        return stream + self.down(F.gelu(self.up(self.before_mlp(stream))))


class ByHand(nn.Module):
    """Two such layers between a table of tokens and a head."""

    def __init__(self, vocabulary: int = 128, width: int = 64) -> None:
        super().__init__()
        self.table = nn.Embedding(vocabulary, width)
        self.layers = nn.ModuleList(Layer(width) for _ in range(2))
        self.norm, self.head = nn.RMSNorm(width), nn.Linear(width, vocabulary, bias=False)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Return logits."""
        stream = self.table(tokens)
        for layer in self.layers:
            stream = layer(stream)
        return self.head(self.norm(stream))
