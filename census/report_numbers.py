"""Numbers as a reader takes them in: rounded, with a unit; and exact, in groups of three digits."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

_NARROW = "\u00a0"
"""Keeps a number and its unit on one line."""

_DECIMAL = ("", "K", "M", "B", "T")
"""Powers of a thousand, as the sizes of models are told: 671.0 B is 671 thousand millions."""

_BINARY = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")

_SI = ("", "K", "M", "G", "T", "P", "E", "Z")


def rounded(count: int) -> str:
    """Return a count with one decimal and its unit: `671.0 B`; below a thousand as it is."""
    return _with_unit(count, 1000, _DECIMAL)


def operations(count: int) -> str:
    """Return FLOPs with one decimal and a prefix: `383.9 TFLOP`."""
    number, _, prefix = _with_unit(count, 1000, _SI).partition(_NARROW)
    return f"{number}{_NARROW}{prefix}FLOP"


def size(count: int) -> str:
    """Return bytes with one decimal and a binary unit: `274.5 MiB`."""
    return _with_unit(count, 1024, _BINARY)


def tokens(count: int) -> str:
    """Return a sequence's length, a power of two in units of 1,024 and 1,048,576: `128`, `4K`, `1M`."""
    for unit, name in ((1024 * 1024, "M"), (1024, "K")):
        if count >= unit and count % unit == 0:
            return f"{count // unit}{name}"
    return str(count)


def exact(count: int) -> str:
    """Return a count with all of its digits: `671,026,404,352`."""
    return f"{count:,}"


def share(part: int, whole: int) -> str:
    """Return a part of a whole in per cent with one decimal, `< 0.1 %` where that would be none."""
    if part * 1000 < whole:
        return f"<{_NARROW}0.1{_NARROW}%"
    return f"{100 * part / whole:.1f}{_NARROW}%"


def places(numbers: Sequence[int]) -> str:
    """Return places in a stack, consecutive ones merged: `0 to 2, 5`; `every 4th, 3 to 47` where one step leads on."""
    steps = {after - before for before, after in itertools.pairwise(numbers)}
    if len(numbers) > 2 and len(steps) == 1 and steps != {1}:
        step = steps.pop()
        return f"every {step}{ {2: 'nd', 3: 'rd'}.get(step, 'th') }, {numbers[0]} to {numbers[-1]}"
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return ", ".join(f"{run[0]} to {run[-1]}" if len(run) > 1 else str(run[0]) for run in runs)


def _with_unit(count: int, base: int, units: Sequence[str]) -> str:
    if count < base:
        return f"{count}{_NARROW}{units[0]}".rstrip(_NARROW)
    value, place = float(count), 0
    # 999.95 would be written as 1000.0 of its unit.
    while round(value, 1) >= base and place < len(units) - 1:
        value /= base
        place += 1
    return f"{value:.1f}{_NARROW}{units[place]}"
