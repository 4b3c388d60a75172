"""A config.json as data: read strictly, within bounds, before anything is made of it."""

from __future__ import annotations

import json
import math
import os
import re
from typing import Any, NoReturn

from census.errors import ConfigError

_MAX_BYTES = 8 * 1024 * 1024
_MAX_DEPTH = 64
_MAX_WHOLE_NUMBER = 2**40

_BOUNDS = (
    (re.compile(r"(^|_)((n|num)(_\w+)?|hidden|encoder|decoder)_layers?$|^depth$"), 4096, "layers"),
    (re.compile(r"(^|_)(n|num)(_\w+)?_experts$"), 65536, "experts"),
)
"""Fields that multiply what is built: what their names look like, the most that is taken, of what."""

_WIDTH = re.compile(r"(?<!window)(?<!chunk)(^|_)(size|dim|heads|layers?|experts|rank|width)$")
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
    if os.path.islink(path) and not os.path.exists(path):
        _refuse(path, "a file", f"a link to {os.readlink(path)}, which is not there", "correct the link")
    if not os.path.isfile(path):
        _refuse(path, "a file", "something else", "pass a model's config.json")
    try:
        with open(path, "rb") as file:
            data = file.read(_MAX_BYTES + 1)
        if len(data) > _MAX_BYTES:
            _refuse(path, f"at most {_MAX_BYTES} bytes", "more", "pass a model's config.json, not its weights")
        text = data.decode("utf-8-sig")
    except OSError as error:
        _refuse(path, "a file that can be read", error.strerror, "correct its permissions, or pass a copy")
    except UnicodeDecodeError:
        _refuse(path, "UTF-8 text", "other bytes", "pass a model's config.json, not its weights")
    if not text.strip():
        _refuse(path, "a JSON object", "an empty file", "download the config.json again")
    return text


def _parsed(text: str, path: str) -> object:
    try:
        return json.loads(text, object_pairs_hook=_object, parse_constant=_FLOATS.__getitem__)
    except RecursionError:
        _refuse(path, f"at most {_MAX_DEPTH} levels", "more", "pass a model's config.json")
    except json.JSONDecodeError as error:
        _refuse(path, "JSON", f"{error.msg} at character {error.pos}", "download the config.json again")
    except ValueError as error:
        _refuse(path, "JSON", error, "correct the file")


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
    while pending:
        above, key, value, depth = pending.pop()
        where = f"{path}: {above}{key}"
        if depth > _MAX_DEPTH:
            _refuse(where, f"at most {_MAX_DEPTH} levels", "more", "pass a model's config.json")
        if isinstance(value, dict):
            pending += [(f"{above}{key}.", name, part, depth + 1) for name, part in value.items()]
        elif isinstance(value, list):
            pending += [(above, key, part, depth + 1) for part in value]
        elif isinstance(value, float):
            _check_finite(where, key, value)
        elif type(value) is int:
            _check_whole_number(where, key, value)


def _check_finite(where: str, key: str, value: float) -> None:
    if math.isnan(value) or (math.isinf(value) and key not in _OPEN_LIMITS):
        _refuse(where, "a finite number", value, "correct the file")


def _check_whole_number(where: str, key: str, value: int) -> None:
    for name, most, of in _BOUNDS:
        if name.search(key) and value > most:
            _refuse(where, f"at most {most} {of}", value, "correct the file; census builds each of them")
    if value > _MAX_WHOLE_NUMBER:
        _refuse(where, f"at most {_MAX_WHOLE_NUMBER}", value, "correct the file")
    if value < 0 and _WIDTH.search(key):
        _refuse(where, "no negative number", value, "correct the file")
