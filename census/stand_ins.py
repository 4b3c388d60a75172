"""Stand-ins for recurrences: a function of the table, wherever it is held, is heard and not computed."""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import ModuleType
from typing import Any

from torch import nn

from census.errors import BuildError
from census.events import RECURRENCE
from census.grouping import own_attributes
from census.recorder import Recorder, pause, tensors_of
from census.recurrences import Recurrence, recurrences


@contextmanager
def standing_in(model: nn.Module, recorder: Recorder) -> Iterator[None]:
    """Let every recurrence of the table that is a global of the model's modeling files be stood in for by its entry.

    The globals are put back on the way out.

    Raises:
        BuildError: a modeling file is not imported, so what a class of it calls cannot be stood in for.
    """
    table = recurrences()
    files = _files(model)
    put_back: list[tuple[ModuleType, str, object]] = []
    try:
        for file in files:
            for name, held in list(vars(file).items()):
                stand_in = _stand_in_for(table, held, recorder)
                if stand_in is not None:
                    put_back.append((file, name, held))
                    setattr(file, name, stand_in)
        yield
    finally:
        for file, name, held in put_back:
            setattr(file, name, held)


def stand_in_held(module: nn.Module, recorder: Recorder) -> None:
    """Let every recurrence of the table that a module or its class holds be stood in for by its entry.

    They stay: the module belongs to the census.
    """
    table = recurrences()
    for name in own_attributes(module) | {name for name in table if hasattr(type(module), name)}:
        stand_in = _stand_in_for(table, getattr(module, name), recorder)
        if stand_in is not None:
            setattr(module, name, stand_in)


def _files(model: nn.Module) -> set[ModuleType]:
    """Return the modules that a model's classes are written in, whose globals its code calls."""
    written_in = {type(module).__module__: type(module).__name__ for module in model.modules()}
    for name, class_name in written_in.items():
        if name not in sys.modules:
            raise BuildError(
                f"{class_name}: expected its module {name} to be imported, found it gone from sys.modules; "
                f"import the model's file again"
            )
    return {sys.modules[name] for name in written_in}


def _stand_in_for(table: Mapping[str, Recurrence], held: object, recorder: Recorder) -> Callable[..., Any] | None:
    """Return what stands in for a function of the table, arguments bound to it included; None for all else."""
    if isinstance(held, functools.partial):
        inner = _stand_in_for(table, held.func, recorder)
        return None if inner is None else functools.partial(inner, *held.args, **held.keywords)
    entry = table.get(getattr(held, "__name__", "")) if callable(held) else None
    return None if entry is None else _stand_in(entry, held, recorder)


def _stand_in(entry: Recurrence, function: Any, recorder: Recorder) -> Callable[..., Any]:
    signature = inspect.signature(function)
    written = inspect.unwrap(function)
    name = f"{written.__module__}:{written.__qualname__}"

    @functools.wraps(function)
    def called(*args: Any, **kwargs: Any) -> Any:
        bound = signature.bind_partial(*args, **kwargs)
        bound.apply_defaults()
        arguments = {**bound.arguments, **bound.arguments.get("kwargs", {})}
        with pause(recorder):
            result = entry.outputs(**arguments)
        parts = [None if role is None else arguments[role] for role in entry.roles]
        taken = [part for part in parts if part is not None]
        rest = [
            tensor
            for name, argument in bound.arguments.items()
            if name not in entry.roles
            for tensor in tensors_of(argument)
        ]
        # Some releases of Transformers repeat a key's heads for the values' before the function, some in it.
        queries, keys, values = (
            None if part is None else heads(tuple(recorder.unrepeated(part).shape))
            for part, heads in zip(parts, entry.heads, strict=True)
        )
        heads = (queries, keys, values)
        attributes = {"heads": heads, **entry.of_state(heads), "function": name}
        recorder.hear(RECURRENCE + entry.name, taken + rest, list(tensors_of(result)), attributes)
        return result

    return called
