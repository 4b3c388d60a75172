"""The suite in parts: `pytest --splits N --group K` runs the K-th of N, the others are for other machines.

A part is made of whole groups of pytest-xdist, and of whole files where tests have none, so that a case is measured in
one part alone: a library that splits a suite by the time of each test would measure most cases in every part.
"""

from __future__ import annotations

from collections.abc import Sequence

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    options = parser.getgroup("sharding", "a part of the suite")
    options.addoption("--splits", type=int, default=1, metavar="N", help="split the suite into N parts")
    options.addoption("--group", type=int, default=1, metavar="K", help="run part K of them, from 1")


def pytest_configure(config: pytest.Config) -> None:
    splits, group = config.getoption("--splits"), config.getoption("--group")
    if not 1 <= group <= splits:
        raise pytest.UsageError(
            f"--splits {splits} --group {group}: expected a part from 1 to {splits}, found {group}; "
            f"start one run for each, as: pytest --splits 2 --group 1, and pytest --splits 2 --group 2"
        )


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    part = part_of(items, config.getoption("--splits"), config.getoption("--group"))
    chosen = set(part)
    config.hook.pytest_deselected(items=[item for item in items if item not in chosen])
    items[:] = part


def part_of(items: Sequence[pytest.Item], splits: int, group: int) -> list[pytest.Item]:
    """Return the tests of one part, in their order: the largest units first, each to the part that has the fewest."""
    units: dict[str, list[pytest.Item]] = {}
    for item in items:
        units.setdefault(unit_of(item), []).append(item)
    sizes = [0] * splits
    chosen: set[pytest.Item] = set()
    for _, held in sorted(units.items(), key=lambda unit: (-len(unit[1]), unit[0])):
        fewest = sizes.index(min(sizes))
        sizes[fewest] += len(held)
        if fewest == group - 1:
            chosen.update(held)
    return [item for item in items if item in chosen]


def unit_of(item: pytest.Item) -> str:
    """Return what a test shares its work with: its group of pytest-xdist, or its file."""
    marker = item.get_closest_marker("xdist_group")
    return str(marker.args[0]) if marker is not None else item.nodeid.partition("::")[0]
