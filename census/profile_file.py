"""An op profile as its author's file: the line of each count, and counts written into it with all else kept."""

from __future__ import annotations

import io
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from census.errors import AuditError
from census.golden import write_atomically
from census.op_profile import load_op_profile, parse_op_profile


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


def profile_files(path: str | os.PathLike[str]) -> list[str]:
    """Return the profiles of a folder, sorted; of a file or a family's name, that alone.

    Raises:
        AuditError: the folder holds none.
    """
    if not os.path.isdir(path):
        return [os.fspath(path)]
    found = sorted(str(file) for file in Path(path).glob("*.yaml"))
    if not found:
        raise AuditError(f"{path}: expected profiles, found no .yaml file in the folder; pass a profile's file")
    return found


def write_counts(path: str, counts: Mapping[tuple[str, str], int]) -> None:
    """Write counts into a profile's file. Comments, order and style stay; the file changes whole, or not at all.

    A kind that says how many norms its layers have is kept in step with its `normOp`.

    Args:
        path: the file.
        counts: the new counts, by kind and op.

    Raises:
        AuditError: the file could not be written; nothing was changed.
        ProfileError: the counts would make it no profile; nothing was changed.
    """
    from ruamel.yaml import YAML

    text = Path(path).read_text(encoding="utf-8")
    document = YAML()
    document.width = 4096
    document.preserve_quotes = True
    profile = document.load(text)
    first = next(iter(profile["kinds"]))
    if not profile["kinds"].fa.flow_style():
        document.map_indent = profile["kinds"].lc.key(first)[1] or None
    for (kind, op), count in counts.items():
        stated = profile["kinds"][kind]
        stated["ops"][op] = count
        if op == "normOp" and "norms" in stated:
            stated["norms"] = count
    written = io.StringIO()
    document.dump(profile, written)
    parse_op_profile(written.getvalue(), load_op_profile(path).arch, path)
    try:
        write_atomically(Path(path), written.getvalue())
    except OSError as error:
        raise AuditError(f"{path}: expected to write the counts, found {error}; nothing was changed") from error
