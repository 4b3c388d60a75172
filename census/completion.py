"""Completion of the command for shells: a script made of the parser, with the model types and families it knew then.

A static script completes at once; one that asks census at every key would start Python each time.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import Any

from census.coverage import model_types
from census.op_profile import known_archs

_MODEL_TYPES, _FAMILIES = "_census_model_types", "_census_families"
_WORDS = {"source": _MODEL_TYPES, "sources": _MODEL_TYPES, "a": _MODEL_TYPES, "b": _MODEL_TYPES,
          "model_type": _MODEL_TYPES, "arch": _FAMILIES, "profile": _FAMILIES}  # fmt: skip
"""Which words an argument takes, by the argument's name."""

_FILES_TOO = frozenset(_WORDS) - {"model_type"}
"""Arguments that take a file as well."""

_FUNCTIONS = {
    "bash": '{name}() {{ compgen -W \'{words}\' -- "$1"; }}\n{name}_or_files() {{ {name} "$1"; compgen -f -- "$1"; }}',
    "zsh": "{name}() {{ compadd -- {words} }}\n{name}_or_files() {{ {name}; _files }}",
    "fish": "function {name}\n  printf '%s\\n' {words}\nend\n"
    "function {name}_or_files\n  {name}\n  __fish_complete_path (commandline -ct)\nend",
}
"""What defines, in each shell, the words under a name, and the words or files."""


def completion_script(parser: argparse.ArgumentParser, shell: str) -> str:
    """Return the script by which bash, zsh or fish completes the command that a parser reads."""
    import shtab

    for action in _actions(parser):
        if action.dest in _WORDS:
            function = _WORDS[action.dest] + "_or_files" * (action.dest in _FILES_TOO)
            action.complete = {"bash": function, "zsh": function, "fish": f"({function})"}  # type: ignore[attr-defined]
    words = {_MODEL_TYPES: model_types(), _FAMILIES: known_archs()}
    functions = [_FUNCTIONS[shell].format(name=name, words=" ".join(found)) for name, found in words.items()]
    # shtab takes the text of each shell and annotates that of one.
    preamble: Any = {shell: "\n".join(functions)}
    return str(shtab.complete(parser, shell, preamble=preamble)).rstrip("\n")


def _actions(parser: argparse.ArgumentParser) -> Iterator[argparse.Action]:
    for action in parser._actions:
        yield action
        if isinstance(action, argparse._SubParsersAction):
            for command in action.choices.values():
                yield from _actions(command)
