"""The private names of torch and Transformers: each is used in one file, and a release that lacks it is refused."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest
from transformers import AutoModelForCausalLM
from transformers.modeling_utils import AttentionInterface

import census
from census import ReleaseError, measure
from test_models.families import FAMILIES

OF_TORCH, OF_TRANSFORMERS = "torch_private.py", "releases.py"
HELD = ("_cdata", "_schema", "_parameters", "_buffers", "_apply", "_make_subclass", "_grouped_mm",
        "_model_mapping", "_from_config", "_global_mapping")  # fmt: skip
"""Private names of objects, which no import tells."""


def private_names(file):
    """Yield the private names of torch and Transformers that a file of census uses."""
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] in ("torch", "transformers"):
            names = (*node.module.split("."), *(imported.name for imported in node.names))
            yield from (name for name in names if name.startswith("_") and name != "__version__")
        elif isinstance(node, ast.Attribute) and node.attr.startswith("_") and not node.attr.startswith("__"):
            if node.attr in HELD or (isinstance(node.value, ast.Name) and node.value.id in ("torch", "transformers")):
                yield node.attr
        elif isinstance(node, ast.Constant) and node.value in HELD:
            yield node.value


def test_private_names_of_torch_and_transformers_stand_in_one_place_each():
    files = sorted(Path(census.__file__).parent.rglob("*.py"))
    used = {file.name: names for file in files if (names := set(private_names(file)))}
    assert used.keys() == {OF_TORCH, OF_TRANSFORMERS}
    assert used[OF_TORCH] | used[OF_TRANSFORMERS] >= set(HELD)


@pytest.mark.parametrize(
    "lacking",
    ["del torch._grouped_mm", "import torch._subclasses.fake_tensor as fake; del fake.in_kernel_invocation_manager"],
)
def test_a_torch_that_lacks_a_name_is_refused_with_one_line(lacking):
    program = f"import torch; {lacking}\nfrom census.cli import main\nraise SystemExit(main(['show', 'llama']))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    assert "expected the names that census uses of it, found" in done.stderr
    assert "install a release that census is known to work with" in done.stderr


@pytest.mark.parametrize(
    ("holder", "name"), [(AttentionInterface, "_global_mapping"), (AutoModelForCausalLM, "_model_mapping")]
)
def test_a_transformers_that_lacks_a_name_is_refused(monkeypatch, holder, name):
    for base in holder.__mro__:
        if name in vars(base):
            monkeypatch.delattr(base, name)
    with pytest.raises(ReleaseError, match=f"^transformers .*, found no {name} of {holder.__name__}; install"):
        measure(FAMILIES["mixtral"].new_config(), "mixtral")
