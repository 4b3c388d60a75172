"""YAML read strictly and written for a person: what is read is what a reader of the text would say it is.

One document of mappings, lists, strings, whole numbers, decimals, `true`, `false` and `null`. What readers of
YAML 1.1 and 1.2 would disagree on is either text to both (`no`, `1:30`, a date) or refused until it is quoted
(`012`, `~`, `True`). Tags, anchors and aliases are refused, and with them every document that grows as it is
read.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from typing import Any

import yaml

from census.bounds import MAX_DIGITS, MAX_YAML_BYTES, MAX_YAML_LEVELS, MAX_YAML_NODES, quoted
from census.errors import CensusError

_WORDS = {"null": None, "true": True, "false": False}
_WHOLE = re.compile(r"0|-?[1-9][0-9]*")
_DECIMAL = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+([eE][-+]?[0-9]+)?|[eE][-+]?[0-9]+)")
_NO_TEXT_IN_YAML_1_2 = re.compile(
    r"""|~|[Nn]ull|NULL|[Tt]rue|TRUE|[Ff]alse|FALSE
    |[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+
    |[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)""",
    re.VERBOSE,
)
_BOOLEAN_LETTERS = frozenset("yYnN")
"""Booleans of YAML 1.1 that PyYAML itself leaves alone but other readers of it do not."""

_PARSER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class Flow(dict[str, Any]):
    """A mapping that is dumped on one line: `{kind: decoder, count: 32}`."""


def load(text: str, where: str, error: type[CensusError]) -> object:
    """Return the data of one YAML document.

    Args:
        text: the document.
        where: what to call it in a message.
        error: the class of error to raise.

    Raises:
        CensusError: of the class asked for: the text is no strict YAML.
    """
    if len(text) > MAX_YAML_BYTES:
        raise error(f"{where}: expected at most {MAX_YAML_BYTES} characters, found {len(text)}; pass the right file")
    try:
        return _document(_bounded(yaml.parse(text, Loader=_PARSER)))
    except _NotStrictError as problem:
        raise error(f"{where}: {problem}") from None
    except (yaml.YAMLError, UnicodeError) as problem:
        reason = getattr(problem, "problem", None) or getattr(problem, "reason", None) or "unreadable text"
        raise error(f"{where}: expected YAML, found a fault in it ({reason}); correct the file") from problem


def dump(data: object) -> str:
    """Return data as YAML: keys as they stand, no aliases, `Flow` mappings on one line."""
    return yaml.dump(
        data,
        Dumper=_Dumper,
        default_flow_style=False,
        sort_keys=False,
        allow_unicode=True,
        width=math.inf,
    )


class _NotStrictError(Exception):
    """What is wrong with a document, without saying which document."""


def _bounded(events: Iterator[Any]) -> Iterator[Any]:
    """Yield the events of a document, up to as many nodes as one may have."""
    nodes = 0
    for event in events:
        nodes += isinstance(event, yaml.NodeEvent)
        if nodes > MAX_YAML_NODES:
            raise _NotStrictError(f"expected at most {MAX_YAML_NODES} values, found more; pass the right file")
        yield event


def _document(events: Iterator[Any]) -> object:
    for event in events:
        if isinstance(event, yaml.DocumentStartEvent):
            break
    else:
        raise _NotStrictError("expected a document, found nothing; fill the file")
    data = _node(events, next(events), 1)
    for event in events:
        if isinstance(event, yaml.DocumentStartEvent):
            raise _NotStrictError("expected one document, found several; leave out what follows `---`")
    return data


def _node(events: Iterator[Any], event: Any, depth: int) -> object:
    """Return the data of the node that begins with an event."""
    if isinstance(event, yaml.AliasEvent) or event.anchor is not None:
        name = event.anchor
        raise _NotStrictError(f"expected plain data, found the anchor or alias {quoted(name)!r}; write the data out")
    if event.tag is not None:
        raise _NotStrictError(f"expected plain data, found the tag {quoted(event.tag)!r}; leave the tag out")
    if isinstance(event, yaml.ScalarEvent):
        return _plain(event.value) if event.style in (None, "") else event.value
    if depth > MAX_YAML_LEVELS:
        raise _NotStrictError(f"expected at most {MAX_YAML_LEVELS} levels, found more; flatten the data")
    if isinstance(event, yaml.SequenceStartEvent):
        return _list(events, depth)
    return _mapping(events, depth)


def _list(events: Iterator[Any], depth: int) -> list[object]:
    data: list[object] = []
    while not isinstance(event := next(events), yaml.SequenceEndEvent):
        data.append(_node(events, event, depth + 1))
    return data


def _mapping(events: Iterator[Any], depth: int) -> dict[str, object]:
    data: dict[str, object] = {}
    while not isinstance(event := next(events), yaml.MappingEndEvent):
        key = _node(events, event, depth + 1)
        if not isinstance(key, str):
            raise _NotStrictError(f"expected text for a key, found {quoted(repr(key))}; quote it")
        if key in data:
            raise _NotStrictError(f"expected each key once, found {quoted(key)!r} twice in one mapping; keep one")
        data[key] = _node(events, next(events), depth + 1)
    return data


def _plain(text: str) -> object:
    """Return what a scalar without quotes says."""
    if text in _WORDS:
        return _WORDS[text]
    if _WHOLE.fullmatch(text) and len(text) <= MAX_DIGITS:
        return int(text)
    if _DECIMAL.fullmatch(text) and math.isfinite(float(text)):
        return float(text)
    if _NO_TEXT_IN_YAML_1_2.fullmatch(text):
        raise _NotStrictError(
            f"expected null, true, false, a number in its plain form or text, "
            f"found {text[:40] or 'nothing'}; write it in that form, or quote it where text is meant"
        )
    return text


class _Dumper(yaml.SafeDumper):
    """PyYAML's safe dumper, which quotes what YAML 1.1 would misread, and more strings than that."""

    def ignore_aliases(self, data: object) -> bool:
        return True


def _represent_text(dumper: _Dumper, text: str) -> yaml.ScalarNode:
    style = None
    if any(not character.isprintable() for character in text):
        style = '"'
    elif text in _BOOLEAN_LETTERS or text in _WORDS or _NO_TEXT_IN_YAML_1_2.fullmatch(text):
        style = "'"
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


def _represent_flow(dumper: _Dumper, data: Flow) -> yaml.MappingNode:
    return dumper.represent_mapping("tag:yaml.org,2002:map", data, flow_style=True)


_Dumper.add_representer(str, _represent_text)
_Dumper.add_representer(Flow, _represent_flow)
