"""A case's measurement beside its golden, with the routes that vouch for it."""

from __future__ import annotations

from pathlib import Path

from census import ModelCensus
from census.golden_check import Pin
from test_models.case_table import Case
from test_models.routes import routes_of


def pin_of(case: Case, census: ModelCensus, golden_root: Path) -> Pin:
    """Return what was measured of a case and the golden that pins it."""
    return Pin.of(golden_root, case.model_type, case.name, census, routes_of(case))
