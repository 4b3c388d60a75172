"""The parameters that a spec states are the built model's, part by part, told by another measurement."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from torch import nn

from census.build import BuiltModel, build
from census.costs import parameters
from census.grouping import layer_signatures
from test_models.case_table import census_of, in_group
from test_models.parameter_names import parts_by_name

_TOWERS = re.compile(
    r"(^|\.)(vision_tower|visual|audio_tower|vqmodel|image_encoder|img_processor|audio_embed\.encoder)\."
)
"""Towers that stand inside the model that is run; others are not built with a language model."""

LAYER_PARTS = ("attention", "indexer", "norm", "dense", "routed", "shared", "router", "stream")


def language_parameters(built: BuiltModel) -> Iterator[nn.Parameter]:
    """Yield the parameters of a language model and its head, each once, those of other modalities' towers apart."""
    seen: set[int] = set()
    head = built.whole.get_output_embeddings()
    for name, parameter in [*built.model.named_parameters(), *(head.named_parameters() if head is not None else ())]:
        if id(parameter) not in seen and not _TOWERS.search(name):
            seen.add(id(parameter))
            yield parameter


def test_the_parameters_and_the_repeated_layers_are_those_of_a_model_built_in_full(case):
    spec = census_of(case.name).spec
    stated = parameters(spec)
    built = build(case.config_object, in_full=True)
    held = {id(parameter): parameter.numel() for parameter in language_parameters(built)}
    assert stated["total"] == sum(held.values())

    signatures = layer_signatures(built.layers, [built.place_of(index) for index in range(len(built.layers))])
    assert [signatures[index] for index in build(case.config_object).built_as] == list(signatures)

    layers = [layer for layer in built.layers if any(id(parameter) in held for parameter in layer.parameters())]
    by_name = dict(parts_by_name(layers, case.model_type))
    outside_norms = (spec["outside"].get("other_parameters") or {}).get("norm", 0)
    parts = {part: stated.get(part, 0) - (outside_norms if part == "norm" else 0) for part in LAYER_PARTS}
    idle = sum(kind.get("idle_parameters", 0) for kind in spec["kinds"].values())
    short = {part: by_name.get(part, 0) - number for part, number in parts.items()}
    # What never runs has a name and no part: names say more, by that much, and never less.
    assert sum(short.values()) == idle and min(short.values()) >= 0, {p: n for p, n in short.items() if n}


BY_HAND = {
    # Touvron et al. 2023, Llama 2, table 1 and section 2.2; modeling_llama: no biases, two norms a layer.
    "llama-2-7b": {
        "attention": 32 * 4 * 4096 * 4096,
        "norm": (2 * 32 + 1) * 4096,
        "dense": 32 * 3 * 4096 * 11008,
        "embedding": 32000 * 4096,
        "head": 32000 * 4096,
    },
    # DeepSeek-V3 report, section 4.2: 61 layers of 7168, 3 dense, 256 experts of 2048 and one shared, 8 chosen.
    "deepseek-v3": {
        "attention": 61
        * (7168 * 1536 + 1536 + 1536 * 128 * 192 + 7168 * 576 + 512 + 512 * 128 * 256 + 128 * 128 * 7168),
        "norm": (2 * 61 + 1) * 7168,
        "dense": 3 * 3 * 7168 * 18432,
        "routed": 58 * 256 * 3 * 7168 * 2048,
        "shared": 58 * 3 * 7168 * 2048,
        "router": 58 * 256 * 7168,
        "embedding": 129280 * 7168,
        "head": 129280 * 7168,
    },
    # Jiang et al. 2024, Mixtral, table 1: 8 experts of 14336, 2 chosen, 8 KV heads of 128.
    "mixtral-8x7b": {
        "attention": 32 * (2 * 4096 * 4096 + 2 * 4096 * 1024),
        "norm": (2 * 32 + 1) * 4096,
        "routed": 32 * 8 * 3 * 4096 * 14336,
        "router": 32 * 8 * 4096,
        "embedding": 32000 * 4096,
        "head": 32000 * 4096,
    },
}


@pytest.mark.parametrize("name", [pytest.param(name, marks=in_group(name)) for name in BY_HAND])
def test_the_parts_are_those_of_the_published_table(name):
    stated = parameters(census_of(name).spec)
    assert {part: stated[part] for part in BY_HAND[name]} == BY_HAND[name]
    assert stated["total"] == sum(BY_HAND[name].values())
