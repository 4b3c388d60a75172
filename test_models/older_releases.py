"""The suite on a Transformers older than the goldens: cases it has no type for, and what it builds otherwise.

`first_releases.yaml` says since when a type exists, `older_releases.yaml` what a case measures as before some release.
The goldens' check holds each case that differs to its row; all other tests of it are skipped, and say so.
"""

from __future__ import annotations

import copy
import functools
import importlib.metadata
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from census import strict_yaml
from census.errors import CensusError
from census.spec import ABSENT
from test_models.case_table import CASES, Case
from test_models.first_releases import first_releases, numbers

TABLE = Path(__file__).parent / "older_releases.yaml"


@dataclass(frozen=True)
class OlderRow:
    """What a case measures as with an older Transformers.

    Attributes:
        before: the first release of which this is no longer so.
        differs: by the path of a field, what the older release builds; `absent` where it builds nothing of it.
        refused: part of the error with which the case cannot be measured; empty where it can.
    """

    before: str
    differs: Mapping[str, Any] = field(default_factory=dict)
    refused: str = ""

    def as_built(self, spec: Mapping[str, Any]) -> dict[str, Any]:
        """Return a golden's spec as the older release builds it."""
        built = copy.deepcopy(dict(spec))
        for path, value in self.differs.items():
            *parts, last = path.split(".")
            held = built
            for part in parts:
                held = held[part]
            if value == ABSENT:
                del held[last]
            else:
                held[last] = copy.deepcopy(value)
        return built


@functools.cache
def older_rows() -> Mapping[str, tuple[OlderRow, ...]]:
    """Return the rows of each case, the oldest first."""
    table = strict_yaml.load(TABLE.read_text(encoding="utf-8"), str(TABLE), CensusError)
    assert isinstance(table, dict), "the table is a mapping"
    return {case: tuple(OlderRow(**row) for row in rows) for case, rows in table.items()}


@functools.cache
def installed() -> tuple[int, ...]:
    """Return the installed Transformers' release."""
    return numbers(importlib.metadata.version("transformers"))


def goldens_release() -> tuple[int, ...]:
    """Return the release from which on no row holds: that of the goldens."""
    return max(numbers(row.before) for rows in older_rows().values() for row in rows)


def older_row(case: str, release: tuple[int, ...] | None = None) -> OlderRow | None:
    """Return what a case measures as with a release, the installed one if left out; None where its golden holds."""
    return next((row for row in older_rows().get(case, ()) if (release or installed()) < numbers(row.before)), None)


def is_older() -> bool:
    """Tell whether the installed Transformers is older than the goldens."""
    return installed() < goldens_release()


def release() -> str:
    """Return the installed Transformers' release as it is written."""
    return ".".join(map(str, installed()))


def not_as_pinned(value: object, rows_are_held: bool = False) -> str:
    """Return why the installed Transformers does not build what a test is of as its golden says; nothing where it does.

    Args:
        value: a case or its name, a family of `families.py`, a model type; of all else nothing is said.
        rows_are_held: whether the test holds a case to its row, so that only a type that is missing is a reason.
    """
    named = CASES.get(value, value) if isinstance(value, str) else value
    lacking = missing(getattr(named, "model_type", named if isinstance(named, str) else ""))
    row = older_row(named.name) if isinstance(named, Case) else None
    if lacking or row is None or rows_are_held:
        return lacking
    built = f"refused ({row.refused})" if row.refused else f"built otherwise ({', '.join(row.differs)})"
    return f"with Transformers {release()} {named} is {built}, which the goldens' check holds"


def missing(model_type: str) -> str:
    """Return why the installed Transformers has no such model type; nothing where it has."""
    first = first_releases().get(model_type, "5.0.0")
    if installed() >= numbers(first):
        return ""
    return f"{model_type} exists since Transformers {first}, installed is {release()}"
