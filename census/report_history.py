"""When and why a golden was changed: the commits of its file, where git knows them."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

_GIT_SECONDS = 60
"""Git needs a tenth of a second for 504 goldens over 44 commits; one that hangs is no reason to hang with it."""


@dataclass(frozen=True)
class Commit:
    """A commit that changed a golden: its day (YYYY-MM-DD) and the first line of its message."""

    date: str
    subject: str


@dataclass(frozen=True)
class History:
    """The commits of every golden.

    Attributes:
        commits: of each golden, by its path below the goldens' folder, the newest first.
        absent: why there are none, in words; empty where git was read.
    """

    commits: Mapping[str, tuple[Commit, ...]] = field(default_factory=dict)
    absent: str = ""


def read_history(root: Path) -> History:
    """Return the commits of the goldens below a folder, asking git once for all of them."""
    shallow = _git(root, "rev-parse", "--is-shallow-repository")
    if shallow is None:
        return History(
            absent="The goldens do not stand in a checkout that git can read, so their history is not known."
        )
    if shallow.strip() == "true":
        return History(absent="The checkout holds only the newest commits, so the history of its goldens is not known.")
    log = _git(root, "log", "--format=%x1e%cs%x1f%s", "--name-only", "--no-renames", "--relative", "-z", "--", ".")
    if log is None:
        return History(absent="The checkout has no commit yet, so its goldens have no history.")
    commits: dict[str, tuple[Commit, ...]] = {}
    for entry in log.split("\x1e")[1:]:
        header, _, files = entry.partition("\0")
        date, _, subject = header.partition("\x1f")
        for name in filter(None, (file.strip("\n") for file in files.split("\0"))):
            commits[name] = (*commits.get(name, ()), Commit(date, subject))
    return History(commits)


def _git(root: Path, *arguments: str) -> str | None:
    """Return what git says in a folder, None where there is no git, no checkout, or no answer."""
    try:
        ran = subprocess.run(
            ["git", "-C", str(root), *arguments], capture_output=True, check=True, timeout=_GIT_SECONDS
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return ran.stdout.decode("utf-8", "replace")
