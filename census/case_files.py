"""The suite's case table, where the command runs in a checkout of the repository that has it."""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from census import strict_yaml
from census.bounds import MAX_YAML_BYTES, read_text
from census.errors import AuditError

if TYPE_CHECKING:
    from transformers import PretrainedConfig

_FOLDER = Path("test_models") / "cases"


def cases_here(archs: set[str]) -> dict[str, Callable[[], PretrainedConfig]]:
    """Return what makes the config of every measured case of some families, by the cases' names.

    Raises:
        AuditError: there is no case table below the current folder, or no case of these families in it.
    """
    files = sorted(_FOLDER.glob("*.yaml"))
    if not files:
        raise AuditError(
            f"--all-cases: expected the case table in {_FOLDER}, found none below the current folder; "
            f"run it in a checkout of the repository, or name the sources"
        )
    cases: dict[str, Callable[[], PretrainedConfig]] = {}
    for file in files:
        text = read_text(file, MAX_YAML_BYTES, AuditError, "cases", "correct the file")
        entries = strict_yaml.load(text, str(file), AuditError)
        if not isinstance(entries, dict) or not all(isinstance(entry, dict) for entry in entries.values()):
            raise AuditError(f"{file}: expected a mapping of cases, found another form; correct the file")
        cases |= {name: functools.partial(_config, entry) for name, entry in entries.items() if _is_of(archs, entry)}
    if not cases:
        raise AuditError(
            f"--all-cases: expected cases of family {', '.join(sorted(archs))}, found none in {_FOLDER}; "
            f"name the sources"
        )
    return cases


def _is_of(archs: set[str], entry: dict[str, Any]) -> bool:
    return entry.get("arch") in archs and not entry.get("refused")


def _config(entry: dict[str, Any]) -> PretrainedConfig:
    from transformers import CONFIG_MAPPING

    config: PretrainedConfig = CONFIG_MAPPING[entry["model_type"]](**copy.deepcopy(entry["config"]))
    return config
