"""The pin of a case: what was measured of it, and what its golden says of the Transformers that is installed."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from census import ModelCensus
from census.costs import pinned_costs
from census.golden import Golden, read_golden
from census.golden_check import Pin
from test_models.case_table import Case, census_of
from test_models.older_releases import OlderRow, older_row
from test_models.routes import routes_of


def pin_of(case: Case, census: ModelCensus, golden_root: Path) -> Pin:
    """Return what was measured of a case and the golden that pins it."""

    def read(path: Path) -> Golden:
        pinned, row = read_golden(path), older_row(case.name)
        if row is None:
            return pinned
        spec = row.as_built(pinned.spec)
        return dataclasses.replace(pinned, spec=spec, costs=pinned_costs(spec))

    return Pin.of(golden_root, case.model_type, case.name, census, routes_of(case), read)


def require_refusal(case: Case, row: OlderRow) -> None:
    """Fail unless an older Transformers cannot build the case, or census cannot state what it builds, as its row says.

    Whatever stops a case is taken, since each config class and model of an older release refuses in its own way.
    """
    with pytest.raises(Exception) as refusal:  # noqa: PT011
        census_of(case.name)
    assert row.refused in " ".join(str(refusal.value).split())
