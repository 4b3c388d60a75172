"""Which routes vouch for a case: measurements and statements that share no code with the engine.

Each is a test of its own that runs over the cases it vouches for; `docs/proof.md` says what each compares.
"""

from __future__ import annotations

from test_models.case_table import Case
from test_models.differences import NO_CACHE, OTHER_CACHE, OTHER_FLOPS, OWN_REACH
from test_models.peers import vouched_by_peers


def routes_of(case: Case) -> list[str]:
    """Return the routes that vouch for a case, in the order of `docs/proof.md`."""
    routes = {
        # The case's parameters as published, to the unit or with every term named.
        "published": case.parameters is not None,
        # The spec's parameters, part by part, against those of the modules by their names, which all agree; and its
        # FLOPs against those of the operators that run, or with what runs more.
        "arithmetic": case.keys.isdisjoint(OTHER_FLOPS),
        # A narrow copy of every kind, on real tensors: `copied_cases` leaves none out.
        "real run": case.keys.isdisjoint(OWN_REACH),
        # What a narrow copy's forward leaves in the cache.
        "cache": case.keys.isdisjoint({**NO_CACHE, **OTHER_CACHE}),
        # The reading of the config's field names.
        "resolver": bool(case.model) and "refused" not in case.resolver_differs,
        # The same model as other people built it.
        "peers": case.name in vouched_by_peers(),
    }
    return [route for route, vouches in routes.items() if vouches]
