"""Where code stands: the file, line and name of what ran, with the file relative to where its package is installed."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import CodeType
from typing import Any

from torch import nn

from census.wrappers import functions_within


def forward_place(module: nn.Module) -> str:
    """Return where a module's forward is written: `transformers/models/llama/modeling_llama.py:234 LlamaMLP.forward`.

    A forward that a class inherits stands with the class that wrote it.
    """
    return _place(type(module).forward)


def class_place(cls: type) -> str:
    """Return where a class is written, in the same form."""
    lines, first = inspect.getsourcelines(cls)
    return f"{_relative(inspect.getfile(cls), cls.__module__)}:{first + _decorators(lines)} {cls.__qualname__}"


def function_place(name: str) -> str:
    """Return where a function is written that a recurrence's event names: `module:function` or `module:Class.method`.

    A function that was made while the model was built has no place to look up, and is named alone.
    """
    module, _, path = name.partition(":")
    found: Any = sys.modules[module]
    for part in path.split("."):
        found = getattr(found, part, None)
    # The file may hold it wrapped, by its own decorator or by a package.
    written = (function for function in functions_within(found) if function.__qualname__ == path)
    return next((_place(function) for function in written if function.__module__ == module), name)


def _place(function: Callable[..., object]) -> str:
    written = inspect.unwrap(function)
    code: CodeType = written.__code__
    lines, first = inspect.getsourcelines(code)
    return f"{_relative(code.co_filename, written.__module__)}:{first + _decorators(lines)} {written.__qualname__}"


def _decorators(lines: Sequence[str]) -> int:
    """Return how many lines of a definition stand before the one that names it."""
    heads = ("def ", "async def ", "class ")
    return next((number for number, line in enumerate(lines) if line.lstrip().startswith(heads)), 0)


def _relative(file: str, module: str) -> str:
    """Return a file's path from the folder that its top-level package lies in."""
    package = sys.modules[module.partition(".")[0]].__file__
    assert package is not None, "the package has been imported of a file"
    folder = Path(package).parent.parent
    path = Path(file)
    return path.relative_to(folder).as_posix() if path.is_relative_to(folder) else path.name
