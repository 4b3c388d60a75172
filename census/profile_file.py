"""An op profile as its author's file: which files are meant, and counts written into one with all else kept."""

from __future__ import annotations

import functools
import io
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from census.audit import Audit
from census.case_files import cases_here
from census.config import load_config
from census.errors import AuditError
from census.golden import write_atomically
from census.op_profile import load_op_profile, parse_op_profile

if TYPE_CHECKING:
    from transformers import PretrainedConfig


def profile_files(path: str | os.PathLike[str]) -> list[str]:
    """Return the profiles of a folder, sorted; of a file or a family's name, that alone.

    Raises:
        AuditError: the folder holds none.
    """
    if not os.path.isdir(path):
        return [os.fspath(path)]
    found = sorted(str(file) for file in Path(path).glob("*.yaml"))
    if not found:
        raise AuditError(f"{path}: expected profiles, found no .yaml file in the folder; pass a profile's file")
    return found


def require_own_files(profile: str | None) -> None:
    """Refuse to write counts where no file was named: a family's own profile belongs to census.

    Raises:
        AuditError: there is no file or folder of this name.
    """
    if profile is None or not os.path.exists(profile):
        raise AuditError(
            f"--fix: expected --profile with the file of a profile to write to, found "
            f"{'none' if profile is None else repr(profile)}; pass the path of the file"
        )


def require_one_source(sources: Sequence[str]) -> str:
    """Return the only source of a draft.

    Raises:
        AuditError: there is none, or there are several.
    """
    if len(sources) != 1:
        raise AuditError(f"--draft: expected one source to measure, found {len(sources)}; name one")
    return sources[0]


def audited_sources(
    named: Mapping[str, str], files: Sequence[str], all_cases: bool
) -> dict[str, Callable[[], PretrainedConfig]]:
    """Return what makes the config of each source of an audit, by the source's name.

    Args:
        named: the sources that were given, and a name for each; of those with one name each keeps its own text.
        files: the profiles.
        all_cases: whether every case of the profiles' families is one too.

    Raises:
        AuditError: there is nothing to audit, or no case table.
    """
    if all_cases and not files:
        raise AuditError("--all-cases: expected --profile, whose family's cases are meant, found none; name a profile")
    if not named and not all_cases:
        raise AuditError("audit: expected a source to hold the profile against, found none; name one")
    names = list(named.values())
    sources: dict[str, Callable[[], PretrainedConfig]] = {
        source if names.count(name) > 1 else name: functools.partial(load_config, source)
        for source, name in named.items()
    }
    return {**sources, **(cases_here({load_op_profile(file).arch for file in files}) if all_cases else {})}


def fix_profiles(audits: Sequence[Audit]) -> dict[str, int]:
    """Write what audits measured into the files of their profiles; return how many counts each file had changed.

    Raises:
        AuditError: sources measure differently what one profile states for both, or a file could not be written.
    """
    fixes = {audit.profile.source: audit.measured_counts() for audit in audits}
    for path, counts in fixes.items():
        if counts:
            write_counts(path, counts)
    return {path: len(counts) for path, counts in fixes.items() if counts}


def write_counts(path: str, counts: Mapping[tuple[str, str], int]) -> None:
    """Write counts into a profile's file: whole, or not at all. Comments, order, indentation and quotes stay.

    A kind that says how many norms its layers have is kept in step with its `normOp`.

    Args:
        path: the file.
        counts: the new counts, by kind and op.

    Raises:
        AuditError: the file could not be written; nothing was changed.
        ProfileError: the counts would make it no profile; nothing was changed.
    """
    from ruamel.yaml import YAML

    text = Path(path).read_text(encoding="utf-8")
    document = YAML()
    document.width = 4096
    document.preserve_quotes = True
    profile = document.load(text)
    first = next(iter(profile["kinds"]))
    if not profile["kinds"].fa.flow_style():
        document.map_indent = profile["kinds"].lc.key(first)[1] or None
    for (kind, op), count in counts.items():
        stated = profile["kinds"][kind]
        stated["ops"][op] = count
        if op == "normOp" and "norms" in stated:
            stated["norms"] = count
    written = io.StringIO()
    document.dump(profile, written)
    parse_op_profile(written.getvalue(), load_op_profile(path).arch, path)
    try:
        write_atomically(Path(path).resolve(), written.getvalue())
    except OSError as error:
        raise AuditError(f"{path}: expected to write the counts, found {error}; nothing was changed") from error
