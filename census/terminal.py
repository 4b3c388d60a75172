"""What a person at a terminal sees more of: tables that wrap at its width, and a bar while work takes long.

Nothing here changes what a file or a pipe gets. rich is imported only where there is a terminal.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, TextIO, TypeVar

from census.table import laid_out_by

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

_Loaded = TypeVar("_Loaded")

PATIENCE = 2.0
"""Seconds of work after which a bar appears; shorter work is over before it could be read."""

_NARROWEST = 32
"""Columns that evidence needs to be read beside its row; where there are fewer it stands below it."""

_STYLES = {"DIFFERS": "bold red"}
"""Cells that stand out: by their own word too, for whoever sees no colour."""


def is_terminal(stream: TextIO) -> bool:
    """Return whether a stream is to be written to as to a terminal, as rich decides it.

    `FORCE_COLOR` says that it is, an empty one that it is not; `TERM=dumb` is a terminal that takes plain lines only.
    """
    if os.environ.get("TERM", "").lower() in ("dumb", "unknown"):
        return False
    forced = os.environ.get("FORCE_COLOR")
    return stream.isatty() if forced is None else forced != ""


@contextlib.contextmanager
def fitted_tables() -> Iterator[None]:
    """Lay out the tables made inside for the terminal that stdout is, if it is one."""
    if not is_terminal(sys.stdout):
        yield
        return
    with laid_out_by(_fitted):
        yield


def _fitted(rows: Sequence[tuple[str, ...]]) -> list[str]:
    """Return rows as lines no wider than the terminal: the last cell wraps in its column, or below its row."""
    from rich.console import Console
    from rich.table import Table

    console = Console(highlight=False)
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]) - 1)]
    left = console.width - sum(width + 2 for width in widths) - 2
    if left < min(_NARROWEST, max(len(row[-1]) for row in rows)):
        return _stacked(console, rows, widths)
    grid = Table.grid(padding=(0, 2, 0, 0))
    grid.add_column(width=0)
    for width in widths:
        grid.add_column(width=width)
    grid.add_column(width=left, overflow="fold")
    for row in rows:
        grid.add_row("", *map(_styled, row))
    return _lines(console, grid)


def _stacked(console: Console, rows: Sequence[tuple[str, ...]], widths: Sequence[int]) -> list[str]:
    from rich.padding import Padding
    from rich.text import Text

    lines = []
    for row in rows:
        cells = [_styled(cell.ljust(width)) for cell, width in zip(row[:-1], widths, strict=True)]
        lines += _lines(console, Padding(Text("  ", overflow="fold").join(cells), (0, 0, 0, 2)))
        if row[-1]:
            lines += _lines(console, Padding(Text(row[-1], overflow="fold"), (0, 0, 0, 6)))
    return lines


def _styled(cell: str) -> Text:
    from rich.text import Text

    return Text(cell, _STYLES.get(cell.strip(), ""))


def _lines(console: Console, drawn: object) -> list[str]:
    with console.capture() as captured:
        console.print(drawn)
    return [line.rstrip() for line in captured.get().splitlines()]


@contextlib.contextmanager
def progress(
    sources: Mapping[str, Callable[[], _Loaded]], shown: bool
) -> Iterator[Mapping[str, Callable[[], _Loaded]]]:
    """Show on a terminal which of several sources is being worked on, once that takes long.

    Args:
        sources: by the name of each, what loads it, which is when work on it begins.
        shown: whether a bar is wanted at all.

    Yields:
        The sources, which move the bar as they are loaded.
    """
    if not shown or not is_terminal(sys.stderr):
        yield sources
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (BarColumn(20), MofNCompleteColumn(), TimeElapsedColumn(), TextColumn("{task.description}", markup=False))
    # Output goes where it always goes: rich would wrap what it takes over.
    bar = Progress(*columns, console=Console(stderr=True), transient=True, redirect_stdout=False)
    task = bar.add_task("", total=len(sources))
    begun = iter(range(len(sources)))

    def moving(name: str, load: Callable[[], _Loaded]) -> Callable[[], _Loaded]:
        def loaded() -> _Loaded:
            # At once, since a short measurement is over before the bar is drawn again.
            bar.update(task, completed=next(begun), description=name, refresh=True)
            return load()

        return loaded

    # A timer, since no code of the bar's own runs while one source is measured.
    timer = threading.Timer(PATIENCE, bar.start)
    timer.daemon = True
    timer.start()
    try:
        yield {name: moving(name, load) for name, load in sources.items()}
    finally:
        timer.cancel()
        timer.join()
        bar.stop()
