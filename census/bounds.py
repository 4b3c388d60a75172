"""The bounds of what census takes, all in one place, and the one way in which it reads a file that a user names.

They are far above what is published and far below what a process cannot hold: what is beyond them is refused before
anything is made of it. `docs/limits.md` says of each what holds it.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

from census.errors import CensusError

MAX_CONFIG_BYTES = 8 * 1024 * 1024
"""Bytes of a config.json."""

MAX_YAML_BYTES = 1024 * 1024
"""Bytes of a golden, a spec, an op profile or a file of cases."""

MAX_JSON_LEVELS = 64
"""Levels of a config."""

MAX_YAML_LEVELS = 32
"""Levels of a YAML document."""

MAX_YAML_NODES = 100_000
"""Mappings, lists and scalars of a YAML document, keys too: more is no faster to refuse than to read."""

MAX_DIGITS = 64
"""Digits of a whole number in YAML. What is computed of such numbers can still be printed."""

MAX_WHOLE_NUMBER = 2**40
"""The largest whole number in a config: no width, vocabulary or length is larger."""

MAX_SPEC_NUMBER = 2**63 - 1
"""The largest whole number in a spec."""

MAX_LAYERS = 4096
"""Layers of a stack: each is built."""

MAX_EXPERTS = 65536
"""Experts of a layer: some models build each."""

MAX_EXPERTS_IN_ALL = 2**20
"""Layers times experts of a layer. Doge, which keeps its experts in two tables, has half as many by default."""

MAX_QUOTED = 200
"""Characters of a file that a message quotes."""


def read_text(path: str | os.PathLike[str], most: int, error: type[CensusError], wanted: str, advice: str) -> str:
    """Return the text of a regular file; a pipe, a device and a file beyond the bound are never read.

    Args:
        path: the file.
        most: the most bytes it may have.
        error: the class of error to raise.
        wanted: what the file should be, for a message: `a golden`.
        advice: what to do where it is none.

    Raises:
        CensusError: of the class asked for: it is no file, cannot be read, is too large or no UTF-8 text.
    """
    where = quoted(os.fspath(path))

    def refusal(expected: str, found: object, then: str = advice) -> CensusError:
        return error(f"{where}: expected {expected}, found {found}; {then}")

    if os.path.islink(path) and not os.path.exists(path):
        raise refusal("a file", f"a link to {os.readlink(path)}, which is not there", "correct the link")
    try:
        # Opening a pipe waits for its other end unless told not to, so what it is, is asked of the open file.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(descriptor, "rb") as file:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise refusal("a file", "something else")
            data = file.read(most + 1)
    except IsADirectoryError:
        raise refusal("a file", "something else") from None
    except OSError as problem:
        raise refusal(f"{wanted} that can be read", problem.strerror) from problem
    except ValueError:
        raise refusal(f"{wanted} that can be read", "a path that no file can have") from None
    if len(data) > most:
        raise refusal(f"at most {most} bytes", "more")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise refusal("UTF-8 text", "other bytes") from None


def is_file(path: str | os.PathLike[str]) -> bool:
    """Return whether there is a regular file of this name, of whatever text the name is."""
    try:
        return Path(path).is_file()
    except (OSError, ValueError):
        return False


def quoted(text: str) -> str:
    """Return a text as a message quotes it: cut where it is long."""
    return text if len(text) <= MAX_QUOTED else f"{text[:MAX_QUOTED]}..."
