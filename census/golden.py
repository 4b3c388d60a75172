"""Goldens: the YAML files that pin what was measured of each case, one file a case.

A golden is written for a person to review and is compared by its data, never by its text. Writing is atomic:
a run that is killed leaves the old file or the new one.
"""

from __future__ import annotations

import importlib.metadata
import os
import re
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from census import strict_yaml
from census.bounds import MAX_YAML_BYTES, quoted, read_text
from census.costs import pinned_costs
from census.errors import GoldenError, ModelSpecError
from census.spec import ModelSpec, readable_spec
from census.spec_rules import check_at_least, check_text, read_list, read_mapping

_HEADER = "# Measured by census, for a person to review. Never edited by hand: pytest --update-golden\n"
_KEYS = ("case", "model_type", "measured_with", "vouched_for_by", "costs", "spec")
_FILE_NAME = re.compile(r"(?!\.)[\w.+-]{1,100}")
"""A case or a model type: what is no path, so that no golden lies outside its folder."""


@dataclass(frozen=True)
class Golden:
    """What one golden file pins.

    Attributes:
        case: the case's name.
        model_type: the Transformers model type it was measured of.
        measured_with: the versions it was measured with when its content last changed.
        vouched_for_by: the routes that state the same and share no code with what was measured.
        costs: what the spec says the model costs, as `census.costs.pinned_costs` returns it.
        spec: the ModelSpec, as a mapping.
    """

    case: str
    model_type: str
    measured_with: Mapping[str, str]
    vouched_for_by: Sequence[str]
    costs: Mapping[str, Any]
    spec: Mapping[str, Any]

    @property
    def pinned(self) -> dict[str, Any]:
        """Everything that a new measurement is compared with: the spec's fields, and the other two by their names."""
        return {**self.spec, "costs": self.costs, "vouched_for_by": list(self.vouched_for_by)}


def golden_path(root: Path, model_type: str, case: str) -> Path:
    """Return where a case's golden lies: a folder of its model type below the root.

    Raises:
        GoldenError: the model type or the case is no name of a file.
    """
    for name in (model_type, case):
        if not _FILE_NAME.fullmatch(name):
            raise GoldenError(
                f"{quoted(repr(name))}: expected a name of letters, digits, dots, pluses and dashes for a golden's "
                f"file, found another; rename the case"
            )
    return root / model_type / f"{case}.yaml"


def new_golden(case: str, model_type: str, spec: Mapping[str, Any], vouched_for_by: Sequence[str] = ()) -> Golden:
    """Return a golden of what was just measured, with the versions that are installed."""
    versions = {name: importlib.metadata.version(name) for name in ("transformers", "torch")}
    return Golden(case, model_type, versions, vouched_for_by, pinned_costs(spec), spec)


def read_golden(path: Path) -> Golden:
    """Return the golden a file holds.

    Raises:
        GoldenError: the file is missing or is no golden.
    """
    text = read_text(path, MAX_YAML_BYTES, GoldenError, "a golden", "pytest --update-golden makes it")
    data = strict_yaml.load(text, where=str(path), error=GoldenError)
    if not isinstance(data, dict) or tuple(data) != _KEYS:
        found = ", ".join(map(str, data)) if isinstance(data, dict) else type(data).__name__
        raise GoldenError(
            f"{path}: expected the keys {', '.join(_KEYS)}, found {found}; pytest --update-golden rewrites it"
        )
    _check(data, path)
    spec = ModelSpec.from_dict(data["spec"], where=f"{path}: spec").to_dict()
    return Golden(**{**data, "spec": spec})


def _check(data: Mapping[str, Any], path: Path) -> None:
    """Refuse what stands beside the spec and is not of its type."""
    try:
        for field in ("case", "model_type"):
            check_text(field, data[field])
        for name, version in read_mapping(data["measured_with"], "measured_with").items():
            check_text(f"measured_with.{name}", version)
        for place, route in enumerate(read_list(data["vouched_for_by"], "vouched_for_by")):
            check_text(f"vouched_for_by[{place}]", route)
        for name, parts in read_mapping(data["costs"], "costs").items():
            for part, cost in read_mapping(parts, f"costs.{name}").items():
                check_at_least(0, f"costs.{name}.{part}", cost)
    except ModelSpecError as error:
        raise GoldenError(f"{path}: {error}; pytest --update-golden rewrites it") from None


def write_golden(path: Path, golden: Golden) -> None:
    """Write a golden: whole, or not at all.

    Raises:
        GoldenError: the file could not be written; what was there before is still there.
    """
    try:
        write_atomically(path, golden_text(golden))
    except OSError as error:
        raise GoldenError(f"{path}: expected to write the golden, found {error}; nothing was changed") from error


def write_atomically(path: Path, text: str) -> None:
    """Write a text file such that a run that is killed leaves the old file or the new one.

    Raises:
        OSError: the file could not be written; what was there before is still there.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.stem}.", suffix=".tmp")
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        Path(name).chmod(0o644)
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def golden_text(golden: Golden) -> str:
    """Return a golden as its file holds it: op vectors, layer groups and versions one line each."""
    return _HEADER + strict_yaml.dump(
        {
            "case": golden.case,
            "model_type": golden.model_type,
            "measured_with": strict_yaml.Flow(golden.measured_with),
            "vouched_for_by": list(golden.vouched_for_by),
            "costs": {name: strict_yaml.Flow(parts) for name, parts in golden.costs.items()},
            "spec": readable_spec(golden.spec),
        }
    )
