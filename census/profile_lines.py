"""The lines of an op profile's file, where each kind and each count stands, and of a field of any YAML file."""

from __future__ import annotations

import os
import re
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


def line_of(text: str, field: str) -> int:
    """Return the line, from 1, of a field of a YAML text: `ops.decoder.attMM`, `layers[1].count`.

    Of a field that it lacks it is the line of the innermost one that would hold it.
    """
    node = yaml.compose(text, Loader=yaml.SafeLoader)
    line, rest = 1, field
    while rest:
        if isinstance(node, yaml.MappingNode):
            # A key may have dots of its own: the longest that fits is meant.
            fitting = [key for key in _entries(node) if re.match(rf"{re.escape(key)}($|[.\[])", rest)]
            if not fitting:
                break
            name = max(fitting, key=len)
            key, node = _entries(node)[name]
            line, rest = _line(key), rest[len(name) :].removeprefix(".")
        elif isinstance(node, yaml.SequenceNode) and (place := re.match(r"\[(\d+)\]\.?", rest)):
            if int(place[1]) >= len(node.value):
                break
            node = node.value[int(place[1])]
            line, rest = _line(node), rest[place.end() :]
        else:
            break
    return line


def _entries(node: Any) -> dict[str, tuple[Any, Any]]:
    return {key.value: (key, value) for key, value in node.value}


def _line(node: Any) -> int:
    return int(node.start_mark.line) + 1
