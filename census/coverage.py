"""What census knows of each model type of Transformers: the table `model_types.yaml`, made of the suite's cases.

Nothing here imports torch or Transformers, so that the list prints at once.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from census import strict_yaml
from census.errors import ProfileError

TABLE = Path(__file__).parent / "model_types.yaml"

HEADER = """\
# What census knows of each model type. Made of the suite's cases and goldens: pytest --update-golden
# maps: which of Transformers' auto classes has it; families: the op profiles its cases take; mixers: what mixes tokens
# in its layers; cases: how many goldens pin it; refused: why census does not state it.
"""


@dataclass(frozen=True)
class ModelType:
    """One model type of Transformers, as the suite holds it.

    Attributes:
        name: the model type.
        maps: `causal-lm`, `image-text-to-text` (its language model is what is stated) and `seq2seq-lm`, as it has them.
        families: the families of its cases, the most frequent first.
        mixers: what mixes tokens in the layers of its cases.
        cases: how many goldens pin it.
        refused: part of the reason why it is not stated; empty where it is.
    """

    name: str
    maps: tuple[str, ...]
    families: tuple[str, ...] = ()
    mixers: tuple[str, ...] = ()
    cases: int = 0
    refused: str = ""

    @property
    def state(self) -> str:
        """`measured`, or `refused` with the reason."""
        return f"refused: {self.refused}" if self.refused else "measured"

    def to_dict(self) -> dict[str, Any]:
        """Return what is stated of the type, without its name."""
        stated = {
            "maps": list(self.maps),
            "families": list(self.families),
            "mixers": list(self.mixers),
            "cases": self.cases,
            "refused": self.refused,
        }
        return {field: value for field, value in stated.items() if value}


@functools.cache
def model_types() -> Mapping[str, ModelType]:
    """Return every model type the suite has a case of, by name, sorted."""
    table = strict_yaml.load(TABLE.read_text(encoding="utf-8"), str(TABLE), ProfileError)
    assert isinstance(table, dict), "the table of model types is a mapping"
    return {name: _model_type(name, row) for name, row in table.items()}


def _model_type(name: str, row: Mapping[str, Any]) -> ModelType:
    texts = {field: tuple(row.get(field, ())) for field in ("maps", "families", "mixers")}
    return ModelType(name, **texts, cases=row.get("cases", 0), refused=row.get("refused", ""))


def table_text(types: Mapping[str, ModelType]) -> str:
    """Return the table's text, a type a line."""
    return HEADER + strict_yaml.dump({name: strict_yaml.Flow(types[name].to_dict()) for name in sorted(types)})


def totals(types: Mapping[str, ModelType]) -> dict[str, tuple[int, int]]:
    """Return for each map that the table holds whole how many of its types are measured, and how many it has."""
    held = {
        name: [kind for kind in types.values() if name in kind.maps] for name in ("causal-lm", "image-text-to-text")
    }
    return {name: (sum(not kind.refused for kind in kinds), len(kinds)) for name, kinds in held.items()}
