"""Published figures of active parameters, under the definition that each publisher uses, to the digits published."""

import pytest

from census.costs import parameters
from test_models.case_table import census_of, in_group

ALL, NO_INPUT, NEITHER = "active", "active_without_input_embedding", "active_without_embedding_and_head"

# Case, billions as published, definition, source.
PUBLISHED = [
    ("mixtral-8x7b", "12.9", ALL, "Mixtral model card"),
    ("phi-3.5-moe", "6.6", ALL, "Phi-3.5-MoE, abstract of its report"),
    ("olmoe-1b-7b", "1.3", ALL, "OLMoE paper, abstract"),
    ("granite-3.0-1b-a400m", "0.4", ALL, "granite-3.0-1b-a400m-instruct card"),
    ("granite-3.1-3b-a800m", "0.8", NEITHER, "granite-3.1 model card, table of sizes"),
    ("jamba-v0.1", "12", ALL, "Jamba 1.5 Mini card, the same architecture"),
    ("ai21-jamba-large-1.5", "94", ALL, "Jamba 1.5 card"),
    ("minimax-text-01", "45.9", NEITHER, "MiniMax-01 README, section 2"),
    ("glm-4.5-air", "12", NEITHER, "GLM-4.5 README"),
    ("hunyuan-a13b", "13", ALL, "Hunyuan-A13B README"),
    ("dots.llm1.inst", "14", ALL, "dots.llm1 report, abstract"),
    ("trinity-mini", "3", NEITHER, "Trinity-Mini card"),
    ("deepseek-v2", "21", ALL, "DeepSeek-V2 README"),
    ("qwen3-next-80b-a3b", "3", NEITHER, "Qwen3-Next model card"),
    ("trinity-large-thinking", "13", ALL, "Trinity-Large-Preview card"),
    ("hy3", "21", ALL, "Hy3 announcement"),
    ("minimax-m2.7", "10", NO_INPUT, "MiniMax-M2 model card"),
    ("mimo-v2-flash", "15", ALL, "MiMo-V2-Flash report, abstract"),
    ("gpt-oss-20b", "3.61", NO_INPUT, "gpt-oss model card, arXiv:2508.10925, table 1"),
    ("glm-5", "40", NEITHER, "GLM-5 model card"),
    ("nvidia-nemotron-3-nano-30b-a3b-bf16", "3.2", NO_INPUT, "Nemotron 3 Nano report"),
    ("nvidia-nemotron-3-nano-30b-a3b-bf16", "3.6", ALL, "Nemotron 3 Nano report, with embeddings"),
]

# The figure is cut off, not rounded.
TRUNCATED = [
    ("lfm2-8b-a1b", "1.5", ALL, "LFM2-8B-A1B card"),
    ("deepseek-v2-lite", "2.4", NO_INPUT, "DeepSeek-V2 README"),
]


def decimals(figure: str) -> int:
    return len(figure.partition(".")[2])


@pytest.mark.parametrize(
    ("name", "figure", "definition", "source"),
    [pytest.param(*row, id=f"{row[0]}-{row[1]}", marks=in_group(row[0])) for row in PUBLISHED],
)
def test_the_active_parameters_round_to_the_published_figure(name, figure, definition, source):
    active = parameters(census_of(name).spec)[definition]
    assert f"{active / 1e9:.{decimals(figure)}f}" == figure, source


@pytest.mark.parametrize(
    ("name", "figure", "definition", "source"),
    [pytest.param(*row, id=f"{row[0]}-{row[1]}", marks=in_group(row[0])) for row in TRUNCATED],
)
def test_the_active_parameters_begin_with_the_published_figure(name, figure, definition, source):
    active = parameters(census_of(name).spec)[definition]
    unit = 10 ** (9 - decimals(figure))
    assert active // unit * unit == round(float(figure) * 1e9), source


def test_a_token_does_not_use_the_biases_of_experts_it_did_not_choose():
    """gpt-oss-20b: 24 layers of 32 experts, 4 chosen, biases of 2 x 2880 and 2880 an expert."""
    stated = parameters(census_of("gpt-oss-20b").spec)
    weights = 24 * 28 * (2880 * 5760 + 2880 * 2880)
    assert stated["total"] - stated["active"] == weights + 24 * 28 * (5760 + 2880)
