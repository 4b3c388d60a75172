"""The same goldens, to the byte, in every environment: hash seeds, locales, time zones, settings of the libraries."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
MODELS = ("gemma3_text", "gpt2", "deepseek_v3", "gpt_oss", "qwen3_next")

PROGRAM = f"""
import sys
from census.golden import golden_text, new_golden
from test_models.families import FAMILIES
for name in {MODELS!r}:
    family = FAMILIES[name]
    sys.stdout.buffer.write(golden_text(new_golden(name, name, family.measure().spec)).encode())
"""

ENVIRONMENTS = {
    "a hash seed, the C locale, the hub offline": {
        "PYTHONHASHSEED": "1",
        "LC_ALL": "C",
        "TZ": "Pacific/Kiritimati",
        "HF_HUB_OFFLINE": "1",
        "TRANSFORMERS_VERBOSITY": "error",
    },
    "another seed, Turkish, threads, a home of junk, debugging": {
        "PYTHONHASHSEED": "4294967295",
        "LC_ALL": "tr_TR.UTF-8",
        "TZ": "America/St_Johns",
        "HF_HUB_OFFLINE": "0",
        "HF_HOME": "/dev/null/junk",
        "TRANSFORMERS_CACHE": "/dev/null/junk",
        "TRANSFORMERS_VERBOSITY": "debug",
        "OMP_NUM_THREADS": "2",
        "TOKENIZERS_PARALLELISM": "maybe",
    },
}
"""A locale that the machine lacks is the C locale to Python; Turkish is the one whose `i` has a capital of its own."""


def goldens_in(environment):
    kept = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", PROGRAM],
        cwd=ROOT, env={**kept, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", **environment}, capture_output=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr.decode()[-2000:]
    return done.stdout


@pytest.mark.parametrize("environment", ENVIRONMENTS)
def test_goldens_are_the_same_to_the_byte_in_every_environment(environment):
    from census.golden import golden_text, new_golden
    from test_models.families import FAMILIES

    here = "".join(golden_text(new_golden(name, name, FAMILIES[name].base.spec)) for name in MODELS)
    assert goldens_in(ENVIRONMENTS[environment]) == here.encode()
