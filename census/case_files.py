"""The suite's case table, where the command runs in a checkout of the repository that has it."""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from census import strict_yaml
from census.bounds import MAX_YAML_BYTES, read_text
from census.errors import AuditError, CensusError

if TYPE_CHECKING:
    from transformers import PretrainedConfig

_FOLDER = Path("test_models") / "cases"


def cases_here(archs: set[str]) -> dict[str, Callable[[], PretrainedConfig]]:
    """Return what makes the config of every measured case of some families, by the cases' names.

    Raises:
        AuditError: there is no case table below the current folder, or no case of these families in it.
    """
    entries = measured_entries()
    if not entries:
        raise AuditError(
            f"--all-cases: expected the case table in {_FOLDER}, found none below the current folder; "
            f"run it in a checkout of the repository, or name the sources"
        )
    cases: dict[str, Callable[[], PretrainedConfig]] = {
        name: functools.partial(_config, entry) for name, entry in entries.items() if entry.get("arch") in archs
    }
    if not cases:
        raise AuditError(
            f"--all-cases: expected cases of family {', '.join(sorted(archs))}, found none in {_FOLDER}; "
            f"name the sources"
        )
    return cases


def measured_entries(root: Path = Path(), error: type[CensusError] = AuditError) -> dict[str, dict[str, Any]]:
    """Return every case that is measured, by name, as the table of a checkout has it; none without one.

    Args:
        root: the checkout, the current folder if left out.
        error: the class of error to raise.

    Raises:
        CensusError: of the class asked for: a file of the table cannot be read, or is none.
    """
    entries: dict[str, dict[str, Any]] = {}
    for file in sorted((root / _FOLDER).glob("*.yaml")):
        text = read_text(file, MAX_YAML_BYTES, error, "a file of cases", "correct the file")
        held = strict_yaml.load(text, str(file), error)
        if not isinstance(held, dict) or not all(isinstance(entry, dict) for entry in held.values()):
            raise error(f"{file}: expected a mapping of cases, found another form; correct the file")
        entries |= {name: entry for name, entry in held.items() if not entry.get("refused")}
    return entries


def _config(entry: dict[str, Any]) -> PretrainedConfig:
    from transformers import CONFIG_MAPPING

    config: PretrainedConfig = CONFIG_MAPPING[entry["model_type"]](**copy.deepcopy(entry["config"]))
    return config
