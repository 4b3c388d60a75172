"""Annotations of a workflow on GitHub: an error or a notice on one line of a file of the repository."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

_SHOWN = 10
"""How many annotations of one level of one step GitHub shows; it drops the others without a word."""


def annotation(level: str, path: str | os.PathLike[str], line: int, text: str) -> str:
    """Return one workflow command; its file is named from where the command runs, as GitHub looks for it."""
    file = os.path.relpath(path)
    file = os.fspath(path) if file.startswith("..") else Path(file).as_posix()
    escaped = file.replace("%", "%25").replace(":", "%3A").replace(",", "%2C")
    return f"::{level} file={escaped},line={line}::{' '.join(text.split()).replace('%', '%25')}"


def shown_errors(errors: Sequence[str]) -> list[str]:
    """Return as many annotations as GitHub shows, and a line that counts the others."""
    more = len(errors) - _SHOWN
    return [*shown(errors), *([f"census: {more} errors more, of {len(errors)}"] if more > 0 else [])]


def shown(annotations: Sequence[str]) -> list[str]:
    """Return as many annotations of one level as GitHub shows."""
    return list(annotations[:_SHOWN])
