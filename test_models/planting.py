"""How a fault is planted: a text of a source reads otherwise for as long as a test runs.

A fault in code is planted by compiling a function's source anew, with the text replaced, and lending the function that
code: whoever holds the function, under whatever decorator, runs the fault, and handing the old code back undoes it. A
fault in data is planted in a copy of the folder that holds the file.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import shutil
import textwrap
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import CodeType
from unittest.mock import patch

from census import op_profile
from census.wrappers import functions_within
from test_models.case_table import CASES, Case, load_cases

ROOT = Path(__file__).parents[1]

CASE_TABLE, GOLDENS, PROFILES = "test_models/cases", "golden_specs", "census/profiles"


@dataclass(frozen=True)
class Edit:
    """One text of one source, and what stands in its place.

    Attributes:
        where: a function as `module:Class.function`, or a file below the repository's root.
        old: the text, dedented as its function is; empty for a new file.
        new: what stands in its place.
        times: how often the text stands there.
    """

    where: str
    old: str
    new: str
    times: int = 1

    def of(self, text: str) -> str:
        """Return a source with the text replaced, which must stand there as often as stated."""
        found = text.count(self.old)
        if found != self.times:
            raise ValueError(f"{self.where}: expected {self.times} of {self.old!r}, found {found}")
        return text.replace(self.old, self.new)


@dataclass(frozen=True)
class Tables:
    """The case table and the goldens with faults planted in them."""

    cases: dict[str, Case]
    golden_root: Path


@contextmanager
def planted(edits: Sequence[Edit], folder: Path) -> Iterator[Tables]:
    """Plant faults, those in data in copies below a folder, and undo them on the way out.

    Raises:
        CaseError: the case table cannot be read with its faults.
        ValueError: a text does not stand where it is said to.
    """
    files = [edit for edit in edits if ":" not in edit.where]
    with ExitStack() as stack:
        for edit in edits:
            if edit not in files:
                stack.enter_context(_in_a_function(edit))
        if edited := [edit for edit in files if edit.where.startswith(PROFILES)]:
            shutil.copytree(ROOT / PROFILES, folder / PROFILES)
            _edit_files(edited, folder)
            stack.enter_context(patch.object(op_profile, "_FOLDER", folder / PROFILES))
            op_profile._shipped.cache_clear()
            stack.callback(op_profile._shipped.cache_clear)
        golden_root = ROOT / GOLDENS
        if edited := [edit for edit in files if edit.where.startswith(GOLDENS)]:
            golden_root = folder / GOLDENS
            _copy_and_edit(edited, folder)
        yield Tables(_cases([edit for edit in files if edit.where.startswith(CASE_TABLE)], folder), golden_root)


def _copy_and_edit(edits: Sequence[Edit], folder: Path) -> None:
    """Copy the files that have a fault, and no other, and plant it."""
    for file in {edit.where for edit in edits}:
        (folder / file).parent.mkdir(parents=True, exist_ok=True)
        if (ROOT / file).exists():
            shutil.copyfile(ROOT / file, folder / file)
    _edit_files(edits, folder)


def _edit_files(edits: Sequence[Edit], folder: Path) -> None:
    for edit in edits:
        path = folder / edit.where
        path.write_text(edit.of(path.read_text(encoding="utf-8")) if edit.old else edit.new, encoding="utf-8")


def _cases(edits: Sequence[Edit], folder: Path) -> dict[str, Case]:
    """Return the case table, of which the files with a fault alone are read anew."""
    if not edits:
        return CASES
    _copy_and_edit(edits, folder)
    groups = {Path(edit.where).stem for edit in edits}
    others = {name: case for name, case in CASES.items() if case.group not in groups}
    return others | load_cases(folder / CASE_TABLE)


@contextmanager
def _in_a_function(edit: Edit) -> Iterator[None]:
    module_name, _, path = edit.where.partition(":")
    module = importlib.import_module(module_name)
    *outer, name = path.split(".")
    held = vars(functools.reduce(getattr, outer, module))[name]
    held = held.func if isinstance(held, functools.cached_property) else held
    # A class's decorator, or a package's, may stand around what the file says.
    written = [function for function in functions_within(held) if function.__qualname__ == path]
    assert written, f"{edit.where}: expected a function, found {held!r}"
    function = written[-1]
    own = function.__code__
    function.__code__ = _compiled(edit.of(_source(own)), own)
    try:
        yield
    finally:
        function.__code__ = own


_SOURCES: dict[CodeType, str] = {}


def _source(code: CodeType) -> str:
    """Return a function's source; kept of an edited one, whose file does not hold it, for a further edit."""
    return _SOURCES.get(code) or textwrap.dedent(inspect.getsource(code))


def _compiled(source: str, own: CodeType) -> CodeType:
    """Return the code of a function's source, in a scope that holds what `super()` looks for."""
    scope = f"def scope(__class__):\n{textwrap.indent(source, '    ')}"
    made = compile(scope, f"<{own.co_name} with a fault>", "exec", flags=annotations.compiler_flag)
    codes = [part for part in _nested(made) if part.co_name == own.co_name and part.co_freevars == own.co_freevars]
    _SOURCES[codes[0]] = source
    return codes[0]


def _nested(code: CodeType) -> Iterator[CodeType]:
    for part in code.co_consts:
        if isinstance(part, CodeType):
            yield part
            yield from _nested(part)
