"""The lines of an op profile's file: where each kind and each count stands."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml


@dataclass(frozen=True)
class ProfileLines:
    """The lines, from 1, that a profile's nodes begin on.

    Attributes:
        first: that of `kinds`.
        kinds: for every kind, that of its name.
        ops: for every kind, those of its counts, by op.
    """

    first: int
    kinds: Mapping[str, int]
    ops: Mapping[str, Mapping[str, int]]

    @classmethod
    def of(cls, path: str | os.PathLike[str]) -> ProfileLines:
        """Return the lines of a profile that has been loaded from a file."""
        root = _entries(yaml.compose(Path(path).read_text(encoding="utf-8"), Loader=yaml.SafeLoader))
        key, held = root["kinds"]
        kinds = _entries(held)
        ops = {kind: _entries(_entries(node)["ops"][1]) for kind, (_, node) in kinds.items()}
        return cls(
            _line(key),
            {kind: _line(name) for kind, (name, _) in kinds.items()},
            {kind: {op: _line(count) for op, (_, count) in counts.items()} for kind, counts in ops.items()},
        )

    def of_op(self, kind: str, op: str) -> int:
        """Return the line of one count."""
        return self.ops[kind][op]


def _entries(node: Any) -> dict[str, tuple[Any, Any]]:
    return {key.value: (key, value) for key, value in node.value}


def _line(node: Any) -> int:
    return int(node.start_mark.line) + 1
