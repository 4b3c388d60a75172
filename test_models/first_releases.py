"""The first Transformers release of each model type of the case table, read from the releases' wheels.

    pip download --no-deps --dest WHEELS transformers==5.0.0     # and every later final release
    python -m test_models.first_releases WHEELS

writes `first_releases.yaml`: the types that 5.0.0, the first release census runs on, does not have. A test holds the
table against whatever release is installed.
"""

from __future__ import annotations

import re
import sys
import zipfile
from collections.abc import Iterable, Mapping
from pathlib import Path

from census import strict_yaml
from census.errors import CensusError
from census.golden import write_atomically

TABLE = Path(__file__).parent / "first_releases.yaml"

_HEADER = """\
# The first Transformers release that has a model type, where that is not 5.0.0: python -m test_models.first_releases
"""
_NAMED = re.compile(r"""["']([\w.-]+)["'][,:]\s*["']\w+Config["']""")
"""An entry of Transformers' table of config classes: a pair before 5.6, an entry of a mapping since."""


def first_releases() -> dict[str, str]:
    """Return the table: model type to release."""
    held = strict_yaml.load(TABLE.read_text(encoding="utf-8"), str(TABLE), CensusError)
    assert isinstance(held, dict), "the table is a mapping"
    return held


def numbers(version: str) -> tuple[int, ...]:
    """Return a release's numbers, such that releases compare as they follow each other; a development's count."""
    return tuple(int(number) for number in re.findall(r"\d+", version)[:3])


def _types(wheel: Path) -> set[str]:
    """Return the model types that a release's table of config classes names."""
    found: set[str] = set()
    with zipfile.ZipFile(wheel) as files:
        for name in ("configuration_auto.py", "auto_mappings.py"):
            path = f"transformers/models/auto/{name}"
            if path in files.namelist():
                found.update(_NAMED.findall(files.read(path).decode()))
    return found


def read_wheels(wheels: Iterable[Path]) -> Mapping[str, str]:
    """Return the first release that has each model type, of all releases whose wheels are given."""
    first: dict[str, str] = {}
    by_release = {wheel.name.split("-")[1]: wheel for wheel in wheels}
    for release in sorted(by_release, key=numbers):
        for model_type in _types(by_release[release]):
            first.setdefault(model_type, release)
    return first


if __name__ == "__main__":
    from test_models.case_table import CASES

    first = read_wheels(Path(sys.argv[1]).glob("transformers-*.whl"))
    types = sorted({case.model_type for case in CASES.values()})
    write_atomically(TABLE, _HEADER + strict_yaml.dump({name: first[name] for name in types if first[name] != "5.0.0"}))
