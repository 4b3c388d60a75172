"""Which routes vouch for a case: measurements and statements that share no code with the engine.

Each is a test of its own that runs over the cases it vouches for; `docs/proof.md` says what each compares.
"""

from __future__ import annotations

from test_models.case_table import Case


def routes_of(case: Case) -> list[str]:
    """Return the routes that vouch for a case, in the order of `docs/proof.md`."""
    routes = {
        # The case's parameters as published, to the unit or with every term named.
        "published": case.parameters is not None,
        # The spec's parameters, part by part, against those of the modules by their names.
        "arithmetic": True,
        # The reading of the config's field names.
        "resolver": bool(case.model) and "refused" not in case.resolver_differs,
    }
    return [route for route, vouches in routes.items() if vouches]
