"""A census as text to read: the stack, each kind's op vector with its evidence, the dimensions."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from contextvars import ContextVar
from typing import TYPE_CHECKING

from census.spec import fold_layers

if TYPE_CHECKING:
    from census.measurement import ModelCensus


def census_table(census: ModelCensus) -> str:
    """Return a census for reading, no line of it wider than its evidence is long."""
    spec = census.spec
    blocks = [[f"{spec['name']}: family {spec['arch']}, {len(census.stack)} layers"]]
    blocks.append([f"stack  {folded_stack(census.stack)}"])
    for name, kind in census.kinds.items():
        shape = kind.shape
        stated = {**kind.ops, **kind.details}
        rows = [(field, _text(value), kind.evidence[field]) for field, value in stated.items()]
        blocks.append([f"{name}  (attention {shape.attention}, feed-forward {shape.ffn})", *columns(rows)])
    unmeasured = [name for name in spec["ops"] if name not in census.kinds]
    if unmeasured:
        blocks.append([f"no layer of kind {', '.join(unmeasured)}: its ops are the family's profile's own"])
    rows = [(field, _text(spec[field]), census.evidence[field]) for field in spec if field in census.evidence]
    blocks.append(["dims", *columns(rows)])
    return "\n\n".join("\n".join(block) for block in blocks)


def folded_stack(stack: Sequence[str]) -> str:
    """Return a stack as one line, its repeats folded: `12 x (3 linear_attention + 1 full_attention)`."""
    groups = [(group.kind, group.count) for group in fold_layers(stack)]
    for start in range(len(groups)):
        tail = groups[start:]
        for period in range(1, len(tail) // 2 + 1):
            if len(tail) % period == 0 and tail == tail[:period] * (len(tail) // period):
                repeated = f"{len(tail) // period} x ({_sum(tail[:period])})"
                return " + ".join([_sum(groups[:start])] * bool(start) + [repeated])
    return _sum(groups)


def _sum(groups: Sequence[tuple[str, int]]) -> str:
    return " + ".join(f"{count} {kind}" for kind, count in groups)


def _text(value: object) -> str:
    if isinstance(value, tuple):
        return ", ".join(map(str, value))
    return str(value).lower() if isinstance(value, bool) else str(value)


def columns(rows: Sequence[tuple[str, ...]]) -> list[str]:
    """Return rows of cells as lines, indented, every column but the last padded to one width.

    Inside `laid_out_by` they are what that says.
    """
    return _LAYOUT.get()(rows)


@contextlib.contextmanager
def laid_out_by(layout: Callable[[Sequence[tuple[str, ...]]], list[str]]) -> Iterator[None]:
    """Lay out the columns made inside in another way."""
    before = _LAYOUT.set(layout)
    try:
        yield
    finally:
        _LAYOUT.reset(before)


def _plain_columns(rows: Sequence[tuple[str, ...]]) -> list[str]:
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]) - 1)]
    return [
        "  " + "  ".join([*(cell.ljust(width) for cell, width in zip(row[:-1], widths, strict=True)), row[-1]])
        for row in rows
    ]


_LAYOUT: ContextVar[Callable[[Sequence[tuple[str, ...]]], list[str]]] = ContextVar("layout", default=_plain_columns)


def markdown(rows: Sequence[tuple[str, ...]]) -> list[str]:
    """Return rows of cells, the first their header, as the lines of a Markdown table."""
    lines = [f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in row)} |" for row in rows]
    return [lines[0], f"|{' --- |' * len(rows[0])}", *lines[1:]]
