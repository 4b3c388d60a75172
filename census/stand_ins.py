"""Stand-ins for recurrences: a function of the table is heard and not computed, however a layer comes to call it.

What is swapped is the function's own code, not the name it is held under: a decorator, a partial, a method, or a
module that a package puts around the function runs as it is, and what it calls in the end is heard.
"""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import CodeType, FunctionType, ModuleType
from typing import Any

from torch import nn

from census.errors import BuildError, UnknownPartError
from census.events import RECURRENCE
from census.grouping import own_attributes
from census.recorder import Recorder, pause, tensors_of
from census.recurrences import Recurrence, recurrences
from census.wrappers import functions_within


class StandIns:
    """The functions whose code stands for their entry of the table while a forward is heard."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._table = recurrences()
        self._swapped: dict[FunctionType, CodeType] = {}
        self._signatures: dict[object, inspect.Signature] = {}
        self._seen: set[type[nn.Module]] = set()
        self._put_back: list[tuple[ModuleType | nn.Module, str, object]] = []

    @contextmanager
    def of(self, model: nn.Module) -> Iterator[None]:
        """Stand in for what a model's files hold, and for what any imported file holds under a name of the table.

        All that was swapped, also by `held_by`, is put back on the way out.

        Raises:
            BuildError: a modeling file is not imported, so what a class of it calls cannot be stood in for.
        """
        try:
            for file in _files(model):
                for name, held in list(vars(file).items()):
                    self._stand_in(file, name, held)
            for file in list(sys.modules.values()):
                # A lazy module is asked for what it holds already, and never made to import.
                for name in self._table.keys() & getattr(file, "__dict__", {}).keys():
                    self._stand_in(file, name, vars(file)[name])
            yield
        finally:
            for function, code in self._swapped.items():
                function.__code__ = code
            for holder, name, held in self._put_back:
                setattr(holder, name, held)

    def held_by(self, module: nn.Module) -> None:
        """Stand in for what a module holds, for the methods of its class, and for what its forward closes over."""
        for name in own_attributes(module):
            self._stand_in(module, name, vars(module)[name])
        if type(module) not in self._seen:
            self._seen.add(type(module))
            self._stand_in(module, "forward", type(module).forward)
        for name in self._table:
            if hasattr(type(module), name):
                self._stand_in(module, name, getattr(module, name))

    def _stand_in(self, holder: ModuleType | nn.Module, name: str, held: object) -> None:
        found = [function for function in functions_within(held) if function.__name__ in self._table]
        for function in found:
            entry = self._table[function.__name__]
            # One that names no argument hands all to what it wraps, which is asked instead.
            if function in self._swapped or (function is not found[-1] and not self._names_roles(entry, function)):
                continue
            signature = self._signatures[function] = self._signature(function)
            code = _calling(_heard(entry, function, signature, self._recorder), function.__code__)
            self._swapped[function] = function.__code__
            function.__code__ = code
        if callable(held) and not found and not isinstance(held, type):
            entry_of_name = self._table.get(_name(held))
            if entry_of_name is not None:
                # It has no code to swap: a function of C, or compiled.
                self._put_back.append((holder, name, held))
                setattr(holder, name, _heard(entry_of_name, held, self._signature(held), self._recorder))

    def _signature(self, function: Callable[..., Any]) -> inspect.Signature:
        """Return what a function takes as it is written, also where what it wraps is swapped already."""
        return self._signatures.get(inspect.unwrap(function)) or inspect.signature(function)

    def _names_roles(self, entry: Recurrence, function: FunctionType) -> bool:
        return any(role in self._signature(function).parameters for role in _expected(entry))


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


def _name(held: object) -> str:
    """Return the name a callable is defined under, also where it says any object as its name."""
    name = getattr(held, "__name__", "")
    return name if isinstance(name, str) else ""


def _calling(heard: Callable[..., Any], code: CodeType) -> CodeType:
    """Return code that calls what is given, in the place of a function's own: its file, line and free names stay."""

    def template(*args: Any, **kwargs: Any) -> Any:
        called: Any = "what is called"
        return called(*args, **kwargs)

    constants = tuple(heard if constant == "what is called" else constant for constant in template.__code__.co_consts)
    return template.__code__.replace(
        co_consts=constants,
        co_freevars=code.co_freevars,
        co_filename=code.co_filename,
        co_firstlineno=code.co_firstlineno,
        co_name=code.co_name,
    )


def _heard(entry: Recurrence, function: Any, signature: inspect.Signature, recorder: Recorder) -> Callable[..., Any]:
    """Return what is called in a function's place: one event, and outputs of the shape its entry says.

    Raises:
        UnknownPartError: when called, where the function does not take what its entry expects.
    """
    written = inspect.unwrap(function)
    name = f"{written.__module__}:{written.__qualname__}"
    kinds = {name: parameter.kind for name, parameter in signature.parameters.items()}

    @functools.wraps(function)
    def called(*args: Any, **kwargs: Any) -> Any:
        bound = signature.bind_partial(*args, **kwargs)
        bound.apply_defaults()
        further = next((name for name, kind in kinds.items() if kind is inspect.Parameter.VAR_KEYWORD), "")
        arguments = {**bound.arguments, **bound.arguments.get(further, {})}
        missing = _missing(entry, arguments)
        if missing:
            raise UnknownPartError(
                f"{recorder.where()}: expected {entry.name} of {name} ({_place(written)}) to take "
                f"{', '.join(_expected(entry))}, found no {', '.join(missing)} in {written.__name__}{signature}; "
                f"if it computes {entry.name}, call it with these arguments, else give the function another name"
            )
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


def _expected(entry: Recurrence) -> list[str]:
    return [role for role in entry.roles if role is not None]


def _missing(entry: Recurrence, arguments: Mapping[str, object]) -> list[str]:
    """Return the arguments that an entry expects as tensors and a call does not have."""
    return [role for role in _expected(entry) if not any(True for _ in tensors_of(arguments.get(role)))]


def _place(function: Any) -> str:
    code = getattr(function, "__code__", None)
    return "no Python source" if code is None else f"{code.co_filename}:{code.co_firstlineno}"
