"""One side of a drift, run as a script in its environment: cases on stdin, what each measured as on stdout.

Both are JSON, a case a line. A case is a model type, fields of its config, the family it is measured under, and whether
to say what stated each field; what comes back is its spec, or why there is none.
"""

from __future__ import annotations

import gc
import json
import os
import sys
import warnings
from collections.abc import Iterator, Mapping
from typing import Any

from census.build import one_line
from census.errors import CensusError
from census.explain import explanations
from census.measurement import measurement_of


def result(case: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a case measured as: `spec` and `explanations`, or `absent`, or `failed` with the reason."""
    from transformers import CONFIG_MAPPING

    if case["model_type"] not in CONFIG_MAPPING:
        return {"absent": f"no model type {case['model_type']}"}
    try:
        config = CONFIG_MAPPING[case["model_type"]](**case["config"])
    except Exception as error:  # each config class validates in its own way, often by simply failing
        return {"failed": f"its config class refuses the case's config ({one_line(error)})"}
    try:
        measured = measurement_of(config, case["arch"], case["case"])
        found = [one.to_dict() for one in explanations(measured)] if case["explain"] else []
    except CensusError as error:
        return {"failed": " ".join(str(error).split())}
    except Exception as error:  # of a release that the engine was not written for, one case must not stop the others
        return {"failed": f"census itself failed ({one_line(error)}); report it with the release"}
    left_out = {part: " ".join(reason.split()) for part, reason in measured.census.left_out.items()}
    return {"spec": measured.census.spec, "explanations": found, "left_out": left_out}


def results(lines: Iterator[str]) -> Iterator[str]:
    """Yield the line of each case's result, after a line that names what measured it."""
    import torch
    import transformers

    yield json.dumps({"transformers": transformers.__version__, "torch": str(torch.__version__)})
    for line in lines:
        case = json.loads(line)
        yield json.dumps({"case": case["case"], **result(case)})


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    # What a library prints goes to stderr: stdout is for results alone.
    with os.fdopen(os.dup(1), "w", encoding="utf-8") as output:
        os.dup2(2, 1)
        # What was imported stays; looking through it again and again would take a sixth of the time.
        gc.freeze()
        gc.set_threshold(200_000)
        for text in results(iter(sys.stdin)):
            print(text, file=output, flush=True)
