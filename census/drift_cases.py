"""What a drift is measured of: the case table in a checkout, elsewhere every model type's default config."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from typing import Any

from census.case_files import measured_entries
from census.coverage import model_types
from census.errors import DriftError


def drift_cases(types: Sequence[str] = ()) -> dict[str, dict[str, Any]]:
    """Return cases by name: `model_type`, `config` and `arch`, the family whose profile names their kinds.

    Args:
        types: the model types whose cases are returned; all of them if left out.

    Raises:
        DriftError: there is no case of a type.
    """
    named = measured_entries()
    cases = {
        name: {"model_type": entry["model_type"], "config": entry["config"], "arch": entry["arch"]}
        for name, entry in named.items()
    } or {
        name: {"model_type": name, "config": {}, "arch": None}
        for name, known in model_types().items()
        if not known.refused
    }  # fmt: skip
    known = {case["model_type"] for case in cases.values()}
    for wanted in types:
        if wanted not in known:
            near = ", ".join(difflib.get_close_matches(wanted, sorted(known), 3))
            raise DriftError(
                f"{wanted}: expected a model type that census measures, found none of that name"
                f"{f' (near: {near})' if near else ''}; `census list` prints them"
            )
    return {name: case for name, case in cases.items() if not types or case["model_type"] in types}
