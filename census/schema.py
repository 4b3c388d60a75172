"""JSON Schemas of specs, goldens and profiles, for editors and other languages: made of the classes that read them.

Readers refuse more than a schema can say (fields that contradict each other) and say it better, so a document is not
validated twice. A field stands in its class alone; what a whole number or a list may hold beyond its type is a row of
the tables here. A schema takes 1.0 for a whole number; census does not.
"""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from census.kind_spec import KindSpec, OutsideSpec, WeightVariant
from census.op_counts import OpCounts
from census.op_profile import ATTENTIONS, FFNS
from census.spec import LayerGroup, ModelSpec, VisionSpec
from census.spec_rules import MAY_BE_ZERO

FOLDER = Path(__file__).parent / "schemas"
"""Where the schemas lie as files, `<name>.json`."""

_DIALECT = "https://json-schema.org/draft/2020-12/schema"
_CLASSES = (ModelSpec, LayerGroup, VisionSpec, KindSpec, WeightVariant, OutsideSpec, OpCounts)

_COUNT = {"type": "integer", "minimum": 0}
_POSITIVE = {"type": "integer", "minimum": 1}
_TEXT = {"type": "string", "minLength": 1}
_PLACES = {"type": "array", "items": _COUNT, "minItems": 1, "uniqueItems": True}


def _row(*numbers: Mapping[str, Any]) -> dict[str, Any]:
    return {"type": "array", "prefixItems": list(numbers), "minItems": len(numbers), "items": False}


_MATRIX = {"oneOf": [_row(_POSITIVE, _POSITIVE), _row(_POSITIVE, _POSITIVE, _COUNT, _POSITIVE)]}

_FIELDS: dict[str, dict[str, Any]] = {
    "branch_norms": {"type": "array", "items": _COUNT},
    "layers_with": {"type": "object", "additionalProperties": _PLACES},
    "WeightVariant.layers": _PLACES,
    "LayerGroup.mtp": {"const": True},
    "tables": {"type": "array", "items": _row(_POSITIVE, _POSITIVE)},
    "projections": {"type": "object", "additionalProperties": {"type": "array", "items": _MATRIX}},
    "ops": {"type": "object", "minProperties": 1, "propertyNames": _TEXT,
            "additionalProperties": {"$ref": "#/$defs/OpCounts"}},
}  # fmt: skip
"""Fields that say more than their type: by name, or by class and name."""


def schemas() -> dict[str, dict[str, Any]]:
    """Return the schema of a spec, a golden and a profile, by these names."""
    definitions = {cls.__name__: _class(cls) for cls in _CLASSES}
    of_spec = {"$ref": "#/$defs/ModelSpec"}
    versions = {"type": "object", "additionalProperties": _TEXT}
    parts = {"type": "object", "additionalProperties": _COUNT}
    golden = {
        "case": _TEXT,
        "model_type": _TEXT,
        "measured_with": versions,
        "vouched_for_by": {"type": "array", "items": _TEXT},
        "costs": {"type": "object", "additionalProperties": parts},
        "spec": of_spec,
    }
    kind = {
        "ops": {"$ref": "#/$defs/OpCounts"},
        "attention": {"enum": list(ATTENTIONS)},
        "ffn": {"enum": list(FFNS)},
        "norms": _COUNT,
        "optional": {"type": "array", "items": _TEXT},
    }
    kinds = {"type": "object", "minProperties": 1, "additionalProperties": _object(kind, ["ops"])}
    profile = _object({"kinds": kinds, "default": {"type": "string"}}, ["kinds", "default"])
    return {
        "spec": {"$schema": _DIALECT, "title": "A census spec", **of_spec, "$defs": definitions},
        "golden": {"$schema": _DIALECT, "title": "A census golden", **_object(golden, list(golden)),
                   "$defs": definitions},
        "profile": {"$schema": _DIALECT, "title": "A census op profile", **profile,
                    "$defs": {"OpCounts": definitions["OpCounts"]}},
    }  # fmt: skip


def _object(fields: Mapping[str, Any], needed: list[str]) -> dict[str, Any]:
    return {"type": "object", "properties": dict(fields), "required": needed, "additionalProperties": False}


def _class(cls: type[Any]) -> dict[str, Any]:
    hints = typing.get_type_hints(cls)
    fields = dataclasses.fields(cls)
    stated = {field.name: _field(cls, field.name, hints[field.name]) for field in fields}
    return _object(stated, [field.name for field in fields if field.default is dataclasses.MISSING])


def _field(cls: type[Any], name: str, hint: Any) -> dict[str, Any]:
    for key in (f"{cls.__name__}.{name}", name):
        if key in _FIELDS:
            return _FIELDS[key]
    return _type(hint, may_be_zero=cls is OpCounts or name in MAY_BE_ZERO)


def _type(hint: Any, may_be_zero: bool = False) -> dict[str, Any]:
    if isinstance(hint, types.UnionType):
        # A field that nobody stated is absent, never null.
        [hint] = [part for part in typing.get_args(hint) if part is not type(None)]
    scalars: dict[Any, dict[str, Any]] = {
        str: _TEXT,
        bool: {"type": "boolean"},
        int: _COUNT if may_be_zero else _POSITIVE,
        float: {"type": "number", "exclusiveMinimum": 0},
    }
    if hint in scalars:
        return scalars[hint]
    if hint in _CLASSES:
        return {"$ref": f"#/$defs/{hint.__name__}"}
    inner = typing.get_args(hint)
    if typing.get_origin(hint) is tuple:
        return {"type": "array", "items": _type(inner[0])}
    return {"type": "object", "additionalProperties": _type(inner[1])}
