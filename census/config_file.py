"""A config.json as data: read strictly, within bounds, before anything is made of it."""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Mapping
from typing import Any, NoReturn

from census.bounds import (
    MAX_CONFIG_BYTES,
    MAX_EXPERTS,
    MAX_EXPERTS_IN_ALL,
    MAX_JSON_LEVELS,
    MAX_LAYERS,
    MAX_WHOLE_NUMBER,
    quoted,
    read_text,
)
from census.errors import ConfigError

_BOUNDS = (
    (re.compile(r"(^|_)((n|num)(_\w+)?|hidden|encoder|decoder)_layers?$|^depth$"), MAX_LAYERS, "layers"),
    (re.compile(r"(^|_)(n|num)(_\w+)?_experts$"), MAX_EXPERTS, "experts"),
)
"""Fields that multiply what is built: what their names look like, the most that is taken, of what."""

_WIDTH = re.compile(r"(?<!window)(?<!chunk)(?<!feature)(^|_)(size|dim|heads|layers?|experts|rank|width)$")
_OPEN_LIMITS = frozenset({"time_step_limit"})
"""Fields whose published values hold Infinity, which is no JSON: a clamp without an upper end."""

_FLOATS = {"Infinity": math.inf, "-Infinity": -math.inf, "NaN": math.nan}


def read_config_file(path: str) -> dict[str, Any]:
    """Return the fields a config.json states.

    Args:
        path: the file, or a folder that holds a `config.json`.

    Raises:
        ConfigError: there is no such file, it is no JSON object, or a number in it is out of bounds.
    """
    if os.path.isdir(path):
        path = os.path.join(path, "config.json")
        if not os.path.lexists(path):
            _refuse(os.path.dirname(path), "a folder that holds a config.json", "none in it", "pass the file")
    fields = _parsed(_text(path), path)
    if not isinstance(fields, dict):
        _refuse(path, "a JSON object", type(fields).__name__, "pass a model's config.json")
    _check(fields, path)
    return fields


def _refuse(where: str, expected: str, found: object, advice: str) -> NoReturn:
    raise ConfigError(f"{where}: expected {expected}, found {found}; {advice}")


def _text(path: str) -> str:
    text = read_text(path, MAX_CONFIG_BYTES, ConfigError, "a config", "pass a model's config.json, not its weights")
    if not text.strip():
        _refuse(path, "a JSON object", "an empty file", "download the config.json again")
    return text


def _parsed(text: str, path: str) -> object:
    try:
        return json_data(text)
    except RecursionError:
        _refuse(path, f"at most {MAX_JSON_LEVELS} levels", "more", "pass a model's config.json")
    except json.JSONDecodeError as error:
        _refuse(path, "JSON", f"{error.msg} at character {error.pos}", "download the config.json again")
    except ValueError as error:
        _refuse(path, "JSON", error, "correct the file")


def json_data(text: str) -> object:
    """Return the data of a JSON text, Infinity and NaN read as Transformers writes them.

    Raises:
        ValueError: it is no JSON, or states a key twice in one object.
        RecursionError: it has too many levels.
    """
    return json.loads(text, object_pairs_hook=_object, parse_constant=_FLOATS.__getitem__)


def _object(pairs: list[tuple[str, Any]]) -> object:
    """Return one object, refusing a key stated twice; Transformers writes Infinity as an object."""
    fields = dict(pairs)
    if len(fields) != len(pairs):
        keys = [key for key, _ in pairs]
        raise ValueError(f"the key {next(key for key in keys if keys.count(key) > 1)!r} twice in one object")
    if fields.keys() == {"__float__"} and fields["__float__"] in _FLOATS:
        return _FLOATS[fields["__float__"]]
    return fields


def _check(fields: dict[str, Any], path: str) -> None:
    pending: list[tuple[str, str, Any, int]] = [("", key, value, 1) for key, value in fields.items()]
    _check_experts_in_all(path, fields)
    while pending:
        above, key, value, depth = pending.pop()
        where = f"{path}: {quoted(above + key)}"
        if depth > MAX_JSON_LEVELS:
            _refuse(where, f"at most {MAX_JSON_LEVELS} levels", "more", "pass a model's config.json")
        if isinstance(value, dict):
            pending += [(f"{above}{key}.", name, part, depth + 1) for name, part in value.items()]
            _check_experts_in_all(where, value)
        elif isinstance(value, list):
            pending += [(above, key, part, depth + 1) for part in value]
        elif isinstance(value, float):
            _check_finite(where, key, value)
        elif type(value) is int:
            check_size(where, key, value)
            if value < 0 and _WIDTH.search(key):
                _refuse(where, "no negative number", value, "correct the file")


def _check_finite(where: str, key: str, value: float) -> None:
    if math.isnan(value) or (math.isinf(value) and key not in _OPEN_LIMITS):
        _refuse(where, "a finite number", value, "correct the file")


def check_sizes(fields: Mapping[str, Any], where: str) -> None:
    """Refuse the fields of a config, those of the configs in it included, that are too large to build.

    Raises:
        ConfigError: a number of layers or of experts, or any other whole number, is out of bounds.
    """
    _check_experts_in_all(where, fields)
    for key, value in fields.items():
        if type(value) is int:
            check_size(f"{where}: {key}", key, value)
        elif hasattr(value, "sub_configs"):
            check_sizes(vars(value), f"{where}: {key}")


def check_size(where: str, key: str, value: int) -> None:
    """Refuse a whole number that is out of its field's bounds.

    Raises:
        ConfigError: it is.
    """
    for name, most, of in _BOUNDS:
        if name.search(key) and value > most:
            _refuse(where, f"at most {most} {of}", _written(value), "correct the config; census builds each of them")
    if abs(value) > MAX_WHOLE_NUMBER:
        _refuse(where, f"at most {MAX_WHOLE_NUMBER}", _written(value), "correct the config")


def _check_experts_in_all(where: str, fields: Mapping[str, Any]) -> None:
    layers, experts = (
        max((value for key, value in fields.items() if type(value) is int and name.search(key)), default=1)
        for name, _, _ in _BOUNDS
    )
    if 1 <= layers <= MAX_LAYERS and 1 <= experts <= MAX_EXPERTS and layers * experts > MAX_EXPERTS_IN_ALL:
        found = f"{layers} layers of {experts}"
        _refuse(where, f"at most {MAX_EXPERTS_IN_ALL} experts in all layers", found, "correct the config")


def _written(value: int) -> str:
    """Return a number as a message holds it; Python writes none of more than 4300 digits."""
    return str(value) if value.bit_length() <= 128 else f"one of {value.bit_length()} bits"
