"""The Pythons that a drift is measured in: the running one's packages, with another release of one of them before.

An environment of a release is a virtual environment in the user's cache. A `.pth` file puts the running Python's own
folders of packages after its own, so it holds what that release needs otherwise and nothing else: torch, several
hundred megabytes, is never fetched or copied for a release of Transformers.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from census.errors import DriftError

PACKAGES = ("transformers", "torch")
"""What a drift can be measured between two releases of."""

_VERSION = re.compile(r"\d+(\.\d+)*(\+[a-z0-9.]+)?")
_FINAL = re.compile(r"\d+(\.\d+)*")


@dataclass(frozen=True)
class Environment:
    """A Python that measures with one release of a package.

    Attributes:
        label: the release, or the folder the package was taken from.
        python: its interpreter.
        variables: what is added to its environment's variables.
    """

    label: str
    python: str
    variables: Mapping[str, str] = field(default_factory=dict)

    def run(self, module: str, text: str) -> subprocess.CompletedProcess[str]:
        """Run a module as a script with a text as its input, and return how it ended."""
        variables = {**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", **self.variables}
        return subprocess.run(
            # Safe path: nothing that lies in the current folder is imported in place of a package.
            [self.python, "-P", "-m", module], input=text, capture_output=True, text=True, env=variables, check=False
        )  # fmt: skip


def environment(package: str, release: str) -> Environment:
    """Return the environment of a release, made if the cache has none.

    Args:
        package: `transformers` or `torch`.
        release: a version that pip finds, or a folder that holds the package, such as the `src` of a checkout.

    Raises:
        DriftError: there is no such release, or pip could not install it.
    """
    if os.path.isdir(release):
        return _of_folder(package, Path(release))
    if not _VERSION.fullmatch(release):
        raise DriftError(
            f"{release}: expected a version of {package}, such as {importlib.metadata.version(package)}, or a folder "
            f"that holds it, found neither; `pip index versions {package}` lists its versions"
        )
    if release == importlib.metadata.version(package).partition("+")[0]:
        return Environment(release, sys.executable)
    folder = cache_folder() / _key(package, release)
    python = folder / "bin" / "python"
    if not python.exists():
        _make(folder, package, release)
    return Environment(release, str(python))


def cache_folder() -> Path:
    """Return where environments are kept: `census/environments` in the user's cache folder."""
    own = os.environ.get("XDG_CACHE_HOME", "")
    # A relative path is to be ignored (XDG Base Directory Specification 0.8).
    root = Path(own) if os.path.isabs(own) else Path.home() / ".cache"
    return root / "census" / "environments"


def releases_between(package: str, one: str, other: str) -> list[str]:
    """Return the final releases of a package from one to another, both included, as pip knows them.

    Raises:
        DriftError: pip could not list them, or one of the two is none of them.
    """
    listed = _pip(["index", "versions", package])
    found = re.search(r"^Available versions: (.*)$", listed.stdout, re.MULTILINE)
    if listed.returncode or found is None:
        raise DriftError(f"{package}: expected pip to list its versions, found {_last_line(listed)}; try again")
    known = sorted({name for name in found[1].split(", ") if _FINAL.fullmatch(name)} | {one, other}, key=_numbers)
    between = known[known.index(one) : known.index(other) + 1]
    if not between:
        raise DriftError(f"{package}: expected --from to be older than --to, found {one} and {other}; swap them")
    return between


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.partition("+")[0].split(".")))


def _of_folder(package: str, folder: Path) -> Environment:
    if not (folder / package / "__init__.py").exists():
        raise DriftError(
            f"{folder}: expected a folder that holds {package}, found no {package}/__init__.py in it; "
            f"pass a version, or the folder above the package, such as a checkout's src"
        )
    return Environment(str(folder), sys.executable, {"PYTHONPATH": str(folder.resolve())})


def _base_folders() -> list[str]:
    """Return the running Python's folders of packages, and the one that census lies in."""
    packages = [path for path in sys.path if Path(path).name in ("site-packages", "dist-packages")]
    return list(dict.fromkeys([*packages, str(Path(__file__).resolve().parents[1])]))


def _kept() -> str:
    """Return the requirement that keeps the running torch in the environment of a release of Transformers."""
    return f"torch=={importlib.metadata.version('torch')}"


def _key(package: str, release: str) -> str:
    base = "\n".join([sys.version, _kept(), *_base_folders()])
    return f"{package}-{release}-{hashlib.sha256(base.encode()).hexdigest()[:12]}"


def _make(folder: Path, package: str, release: str) -> None:
    """Make an environment: whole, or not at all."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    made = Path(tempfile.mkdtemp(dir=folder.parent, prefix=f".{folder.name}."))
    try:
        _called([sys.executable, "-m", "venv", "--without-pip", str(made)], f"{package} {release}")
        [own] = made.glob("lib/python*/site-packages")
        (own / "zz_census_base.pth").write_text("\n".join(_base_folders()) + "\n", encoding="utf-8")
        wanted = [f"{package}=={release}", *([_kept()] if package != "torch" else [])]
        installed = _pip(["install", "--quiet", "--no-input", *wanted], made / "bin" / "python")
        if installed.returncode:
            raise DriftError(
                f"{package} {release}: expected pip to install it, found {_last_line(installed)}; "
                f"`pip index versions {package}` lists its versions"
            )
        try:
            made.rename(folder)
        except OSError:
            # Another run made the same one meanwhile.
            if not folder.is_dir():
                raise
    finally:
        shutil.rmtree(made, ignore_errors=True)


def _pip(arguments: Sequence[str], python: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Run the running Python's pip, on another environment if one is named."""
    onto = ["--python", str(python)] if python else []
    command = [sys.executable, "-m", "pip", *onto, "--disable-pip-version-check", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def _called(command: Sequence[str], what: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise DriftError(f"{what}: expected a virtual environment, found {_last_line(done)}; install Python's venv")


def _last_line(done: subprocess.CompletedProcess[str]) -> str:
    lines = (done.stderr.strip() or done.stdout.strip() or f"exit code {done.returncode}").splitlines()
    errors = [line for line in lines if line.startswith("ERROR: ")]
    return (errors or lines)[-1]
