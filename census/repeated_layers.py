"""Layers of a stack that are built once: what a layer's class would do again for another index is not done again.

While a model is built, a layer's class is handed each whole number of its call (its index among them) as a `_Number`,
which notes every question that the building asks of it: `index >= first_k_dense_replace`, `layer_types[index]`,
`(index + 1) % step == 0`. A later call that is given the same otherwise, and whose numbers answer every question alike,
would build the same layer; it becomes a repeat of the first one, of the same modules. A number that is used in any way
that is not noted must be equal, so what is not understood is built.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

from torch import nn
from transformers import PretrainedConfig
from transformers.modeling_layers import GradientCheckpointingLayer

from census.grouping import layer_signatures, own_attributes

_PLAIN = (bool, float, str, type(None))

_KNOWN = 8
"""Layers of one call of which none is a repeat, after which the rest of the stack is built: all may be different."""

Answer = Callable[[int], object]
"""Answers one question that was asked of a number, of any number."""


class NotRepeatsError(Exception):
    """Layers that were taken for repeats are not; the model is to be built in full."""


class _Number:
    """A whole number that notes what it is asked, as far as it is settled by the answers.

    Sums, remainders and the like of it are numbers of the same kind. It is no `int`, so that torch and Python's own
    containers have to ask for its value (`__index__`), which is noted like any other question.
    """

    def __init__(self, given: int, asked: list[tuple[Answer, object]], made_by: Answer | None = None) -> None:
        self.given, self.asked, self.made_by = given, asked, made_by

    def of(self, given: int) -> Any:
        """Return what this number would be, had another one been given."""
        return self.made_by(given) if self.made_by is not None else given

    def ask(self, question: Callable[[Any], Any]) -> Any:
        """Return the answer to a question of its value, and note both."""

        def answer(given: int) -> object:
            return question(self.of(given))

        answered = answer(self.given)
        self.asked.append((answer, answered))
        return answered

    @property  # type: ignore[misc]
    def __class__(self) -> type:  # what a layer may check
        return int

    def __deepcopy__(self, _: object) -> _Number:
        return self

    def __getattr__(self, name: str) -> Any:
        return getattr(self.ask(int), name)


def _asks(question: Callable[..., Any]) -> Callable[..., Any]:
    def asked(self: _Number, *others: Any) -> Any:
        plain = [other.ask(int) if type(other) is _Number else other for other in others]
        return self.ask(lambda value: question(value, *plain))

    return asked


def _makes(operation: Callable[..., Any]) -> Callable[..., Any]:
    def made(self: _Number, *others: Any) -> Any:
        if any(type(other) is not int for other in others):
            return operation(self.ask(int), *(other.ask(int) if type(other) is _Number else other for other in others))
        return _Number(self.given, self.asked, lambda given: operation(self.of(given), *others))

    return made


for _name in ("lt", "le", "gt", "ge", "eq", "ne", "index"):
    setattr(_Number, f"__{_name}__", _asks(getattr(operator, _name)))
for _name, _question in (
    ("int", int), ("float", float), ("bool", bool), ("hash", hash), ("str", str), ("repr", repr), ("format", format),
    ("round", round), ("divmod", divmod), ("rdivmod", lambda value, other: divmod(other, value)),
):  # fmt: skip
    setattr(_Number, f"__{_name}__", _asks(_question))
for _name in ("add", "sub", "mul", "mod", "floordiv", "truediv", "pow", "and_", "or_", "xor", "lshift", "rshift"):
    _operation = getattr(operator, _name)
    setattr(_Number, f"__{_name.rstrip('_')}__", _makes(_operation))
    setattr(_Number, f"__r{_name.rstrip('_')}__", _makes(lambda value, other, act=_operation: act(other, value)))
for _name in ("neg", "pos", "abs", "invert"):
    setattr(_Number, f"__{_name}__", _makes(getattr(operator, _name)))


class _Asked(list[Any]):
    """A list of a config that is asked for its entry at a number, or whether it has it, without telling its value."""

    def __getitem__(self, place: Any) -> Any:
        if type(place) is not _Number:
            return super().__getitem__(place)
        found = super().__getitem__(place.of(place.given))
        if type(found) is not int and not isinstance(found, _PLAIN):
            return super().__getitem__(place.ask(int))
        return place.ask(super().__getitem__)

    def __contains__(self, entry: Any) -> bool:
        return bool(entry.ask(super().__contains__) if type(entry) is _Number else super().__contains__(entry))


@dataclass(frozen=True)
class Repeat:
    """A layer of which another one's modules are shown.

    Attributes:
        of: the index of the layer that was built.
        own: what it would hold otherwise had it been built: modules, with the attribute and the number that is its own.
    """

    of: int
    own: tuple[tuple[nn.Module, str, int], ...]

    @contextmanager
    def by_itself(self) -> Iterator[None]:
        """Let the modules hold this layer's numbers meanwhile, since a layer may take its place in a cache by them."""
        shown = [(module, name, vars(module)[name]) for module, name, _ in self.own]
        _hold(self.own)
        try:
            yield
        finally:
            _hold(shown)


def _hold(held: Sequence[tuple[nn.Module, str, int]]) -> None:
    for module, name, number in held:
        vars(module)[name] = number


@dataclass
class _Built:
    """A layer that was built.

    Attributes:
        layer: the layer.
        given: what its class was given, and what the configs among that held.
        asked: for each whole number given, what the building asked of it.
        kept: the attributes of modules in it that hold a number as it was given: which number that is.
        own: the same of the layer's own attributes.
        state: the layer's attributes when it was built.
        inside: what it was built of then.
        numbers: the whole numbers that its class was given.
        repeats: the layers that repeat it, each with the numbers it was given.
    """

    layer: nn.Module
    given: Sequence[object]
    asked: Sequence[Sequence[tuple[Answer, object]]]
    kept: Sequence[tuple[nn.Module, str, int]]
    own: Mapping[str, int]
    state: Mapping[str, object]
    inside: object
    numbers: Sequence[int]
    repeats: list[tuple[nn.Module, Sequence[int]]] = field(default_factory=list)

    def would_be(self, given: Sequence[object], numbers: Sequence[int]) -> bool:
        """Tell whether another call would have built the same layer."""
        return (
            len(given) == len(self.given)
            and all(map(operator.is_, given, self.given))
            and all(
                _answers(answer, number, answered)
                for asked, number in zip(self.asked, numbers, strict=True)
                for answer, answered in asked
            )
        )

    def show(self, layer: nn.Module, numbers: Sequence[int]) -> None:
        """Let a layer that was not built be one of the same modules, with its own numbers."""
        vars(layer).update(self._state_with(numbers))
        self.repeats.append((layer, numbers))

    def _state_with(self, numbers: Sequence[int]) -> dict[str, object]:
        return {**self.state, **{name: numbers[place] for name, place in self.own.items()}}

    def require_as_built(self, places: Mapping[nn.Module, int]) -> None:
        """Require that the rest of the model's building left it and its repeats alone.

        Args:
            places: the place of each layer in its list.

        Raises:
            NotRepeatsError: a layer was changed, or stands elsewhere than the number that it keeps says.
        """
        if self.repeats and _inside(self.layer) != self.inside:
            raise NotRepeatsError
        for layer, numbers in ((self.layer, self.numbers), *self.repeats) if self.repeats else ():
            state, held = self._state_with(numbers), vars(layer)
            if layer not in places or held.keys() != state.keys():
                raise NotRepeatsError
            if any(held[name] is not value and name not in self.own for name, value in state.items()):
                raise NotRepeatsError
            held_numbers = {*self.own.values(), *(number for _, _, number in self.kept)}
            if any(numbers[number] not in (self.numbers[number], places[layer]) for number in held_numbers):
                raise NotRepeatsError


def _answers(answer: Answer, number: int, answered: object) -> bool:
    try:
        again = answer(number)
    except (IndexError, ArithmeticError, ValueError):
        return False
    return type(again) is type(answered) and again == answered


def _inside(layer: nn.Module) -> object:
    """Return what tells whether a layer was changed: its signature, and its parameters by identity."""
    tensors = (*layer.named_parameters(remove_duplicate=False), *layer.named_buffers(remove_duplicate=False))
    return layer_signatures([layer], [-1]), [(name, id(tensor)) for name, tensor in tensors]


class RepeatedLayers:
    """The layers that a model's classes build, each once for what its building asks."""

    def __init__(self) -> None:
        self._built: dict[object, list[_Built]] = {}
        self._building = False

    @contextmanager
    def built_once(self, file: ModuleType, config: PretrainedConfig) -> Iterator[None]:
        """Build each layer of a modeling file's classes once meanwhile.

        The classes are put back on the way out, and the config's lists too.
        """
        own = {
            held: vars(held)["__init__"]
            for held in vars(file).values()
            if isinstance(held, type) and issubclass(held, GradientCheckpointingLayer) and "__init__" in vars(held)
        }
        asked = {name: _Asked(held) for name, held in vars(config).items() if type(held) is list}
        vars(config).update(asked)
        try:
            for layer_class, init in own.items():
                type.__setattr__(layer_class, "__init__", self._once(layer_class, init))
            yield
        finally:
            for layer_class, init in own.items():
                type.__setattr__(layer_class, "__init__", init)
            # A model may have changed one while it was built.
            vars(config).update({name: list(held) for name, held in asked.items() if vars(config).get(name) is held})

    def repeats(self, layers: Mapping[str, nn.Module], tied: Sequence[str]) -> dict[int, Repeat]:
        """Return by their indices the layers that were not built.

        Args:
            layers: the layers by their paths.
            tied: the names of the parameters that the model ties.

        Raises:
            NotRepeatsError: a layer that was taken for a repeat may not be one.
        """
        known = [built for call in self._built.values() for built in call]
        index = {layer: place for place, layer in enumerate(layers.values())}
        places = {layer: int(path.rpartition(".")[2]) for path, layer in layers.items()}
        for built in known:
            built.require_as_built(places)
        repeats = {
            index[layer]: Repeat(
                index[built.layer], tuple((module, name, numbers[number]) for module, name, number in built.kept)
            )
            for built in known
            for layer, numbers in built.repeats
        }
        # What is tied inside a layer is another parameter in each. What is run may stand inside what names it.
        if repeats and any(f".{path}." in f".{name}" for path in layers for name in tied):
            raise NotRepeatsError
        return repeats

    def _once(self, layer_class: type, init: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(init)
        def once(layer: nn.Module, *args: Any, **kwargs: Any) -> None:
            values = [*args, *kwargs.values()]
            # What else it may be given could be shared with other layers, as a module is.
            if type(layer) is not layer_class or self._building or not all(map(_is_settled, values)):
                init(layer, *args, **kwargs)
                return
            numbers = [value for value in values if type(value) is int]
            given = [held for value in values for held in _held(value)]
            plain = ((type(value), value) for value in values if isinstance(value, _PLAIN))
            call = (layer_class, len(args), tuple(kwargs), *map(type, values), *plain)
            known = self._built.setdefault(call, [])
            for built in known:
                if built.would_be(given, numbers):
                    built.show(layer, numbers)
                    return
            if len(known) < _KNOWN:
                known.append(self._build(layer, init, args, kwargs, given))
            else:
                init(layer, *args, **kwargs)

        return once

    def _build(
        self,
        layer: nn.Module,
        init: Callable[..., None],
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        given: Sequence[object],
    ) -> _Built:
        numbers: list[_Number] = []

        def asking(value: Any) -> Any:
            if type(value) is not int:
                return value
            numbers.append(_Number(value, []))
            return numbers[-1]

        self._building = True
        try:
            init(layer, *map(asking, args), **{name: asking(value) for name, value in kwargs.items()})
        finally:
            self._building = False
        place_of = {id(number): place for place, number in enumerate(numbers)}
        kept: list[tuple[nn.Module, str, int]] = []
        own: dict[str, int] = {}
        for module in layer.modules():
            for name in own_attributes(module):
                value = vars(module)[name]
                if id(value) in place_of:
                    if module is layer:
                        own[name] = place_of[id(value)]
                    else:
                        kept.append((module, name, place_of[id(value)]))
                    vars(module)[name] = value.given
                else:
                    vars(module)[name] = _told(value)
        return _Built(
            layer, given, [number.asked for number in numbers], kept, own, dict(vars(layer)),
            _inside(layer), [number.given for number in numbers],
        )  # fmt: skip


def _is_settled(value: object) -> bool:
    return type(value) is int or isinstance(value, (*_PLAIN, PretrainedConfig))


def _held(value: object) -> Sequence[object]:
    """Return a config that a layer's class is given, with what it holds: a model may change it from layer to layer."""
    return (value, *vars(value).values()) if isinstance(value, PretrainedConfig) else ()


def _told(value: Any) -> Any:
    """Return an attribute with the values of the numbers in it, which are thereby asked for."""
    if type(value) is _Number:
        return value.ask(int)
    if type(value) in (list, tuple) and any(type(entry) is _Number for entry in value):
        return type(value)(map(_told, value))
    if type(value) is dict and any(type(entry) is _Number for entry in value.values()):
        return {name: _told(entry) for name, entry in value.items()}
    return value
