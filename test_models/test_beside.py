"""What is installed beside Transformers changes no number and is never called."""

import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from test_models.case_table import MEASURED

# How a release's own code runs: with an older one the goldens' check alone says what is built.
pytestmark = pytest.mark.pinned

ROOT = Path(__file__).parents[1]

PACKAGES = (
    "fla", "mamba_ssm", "causal_conv1d", "flash_attn", "xformers", "apex", "liger_kernel", "accelerate", "bitsandbytes",
    "peft",
)  # fmt: skip
"""Packages that Transformers, or a user of it, runs a layer's functions from."""

STAND_IN = '''
import importlib.abc, importlib.machinery, os, sys


class Left(type):
    """Of what a stand-in holds: any name, each of which leaves a mark when it is called."""

    def __getattr__(cls, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return cls

    def __call__(cls, *args, **kwargs):
        with open(os.environ["CENSUS_MARKS"], "a") as marks:
            marks.write(f"{__name__}\\n")
        raise AssertionError(f"{__name__} was called")


class Anything(metaclass=Left):
    pass


def __getattr__(name):
    if name.startswith("__"):
        raise AttributeError(name)
    return Anything


class Inside(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Makes every module of the package the package's own."""

    def find_spec(self, name, path=None, target=None):
        return importlib.machinery.ModuleSpec(name, self) if name.startswith(f"{__name__}.") else None

    def create_module(self, spec):
        module = type(sys)(spec.name)
        module.__path__, module.__getattr__ = [], __getattr__
        return module

    def exec_module(self, module):
        pass


sys.meta_path.insert(0, Inside())
'''

PROGRAM = """
import json, sys
names, hidden, cuda = json.loads(sys.argv[1])
sys.modules.update(dict.fromkeys(hidden))
import torch
if cuda:
    torch.cuda.is_available = lambda: True
from pathlib import Path
from census import CensusError
from test_models.case_table import CASES, census_of
from test_models.golden_check import pin_of
differs = {}
for name in names:
    try:
        pin_of(CASES[name], census_of(name), Path("golden_specs")).require(name)
    except CensusError as found:
        differs[name] = str(found)
print(json.dumps([differs, [name for name in sys.modules if sys.modules[name] is not None]]))
"""


def one_of_each_type(*groups):
    cases = [case for case in MEASURED.values() if case.group in groups]
    return sorted({case.model_type: case.name for case in reversed(cases)}.values())


RECURRENT, OTHERS = ("gated_delta", "published_hybrid"), ("dense", "moe", "mla")


def measured_beside(names, environment, hidden=(), cuda=False):
    """Return how cases differ from their goldens, or why they are refused, and what was imported beside.

    Measured in a process of its own.
    """
    kept = {name: os.environ[name] for name in ("PATH", "HOME", "COVERAGE_PROCESS_CONFIG") if name in os.environ}
    path = os.pathsep.join([environment.get("CENSUS_STAND_INS", ""), str(ROOT)])
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", PROGRAM, json.dumps([names, hidden, cuda])],
        cwd=ROOT,
        env={**kept, "PYTHONPATH": path, "OMP_NUM_THREADS": "1", **environment},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


@pytest.fixture
def stand_ins(tmp_path):
    """A folder of packages that leave a mark where they are called, and where the marks are left."""
    for name in PACKAGES:
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text(f"__version__ = '99.0.0'\n{STAND_IN}")
        (tmp_path / f"{name}-99.0.0.dist-info").mkdir()
        (tmp_path / f"{name}-99.0.0.dist-info" / "METADATA").write_text(f"Name: {name}\nVersion: 99.0.0\n")
    return {"CENSUS_STAND_INS": str(tmp_path), "CENSUS_MARKS": str(tmp_path / "marks")}


@pytest.mark.parametrize(
    ("groups", "cuda"), [(RECURRENT + OTHERS, False), (RECURRENT, True)], ids=["without CUDA", "with CUDA"]
)
def test_packages_that_transformers_would_run_change_no_golden_and_are_never_called(stand_ins, tmp_path, groups, cuda):
    differing, imported = measured_beside(one_of_each_type(*groups), stand_ins, cuda=cuda)
    assert differing == {}
    assert {"fla", "mamba_ssm", "causal_conv1d", "accelerate"} <= set(imported)
    assert not (tmp_path / "marks").exists(), (tmp_path / "marks").read_text()


def test_a_stand_in_leaves_a_mark_where_it_is_called(stand_ins, tmp_path):
    call = "from fla.ops.gated_delta_rule import chunk_gated_delta_rule; chunk_gated_delta_rule()"
    environment = {"PYTHONPATH": str(tmp_path), "CENSUS_MARKS": stand_ins["CENSUS_MARKS"]}
    done = subprocess.run([sys.executable, "-c", call], env=environment, capture_output=True, text=True)
    assert "fla was called" in done.stderr
    assert (tmp_path / "marks").read_text() == "fla\n"


def test_the_goldens_are_the_same_without_kernels():
    if find_spec("kernels") is None:
        pytest.skip("not installed: kernels, which Transformers asks for since 5.25")
    differing, imported = measured_beside(one_of_each_type(*RECURRENT), {}, hidden=["kernels"])
    assert differing == {}
    assert "kernels" not in imported
