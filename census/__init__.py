"""census: what a language model really runs, measured from the modules Transformers builds of its config.

The public names are loaded when they are first used, so that importing the package imports no torch.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from census.audit import AuditRow, audit_rows
    from census.config import load_config
    from census.costs import cache_bytes, flops, parameters
    from census.errors import (
        AuditError,
        BuildError,
        CensusError,
        ComparisonError,
        ConfigError,
        FieldError,
        GoldenError,
        KindError,
        ModelSpecError,
        ProfileError,
        ReleaseError,
        ReportError,
        UnknownPartError,
    )
    from census.kinds import KindCensus
    from census.measurement import ModelCensus, census_kind, census_model_spec, measure
    from census.op_profile import LayerKind, OpProfile, infer_arch, known_archs, load_op_profile
    from census.own_model import OwnModel
    from census.resolver import resolve_model_spec
    from census.shapes import LayerShape, layer_shape
    from census.spec import KindSpec, LayerGroup, ModelSpec, OpCounts, OutsideSpec, VisionSpec

_MODULES = {
    "audit": ("AuditRow", "audit_rows"),
    "config": ("load_config",),
    "costs": ("cache_bytes", "flops", "parameters"),
    "errors": (
        "AuditError", "BuildError", "CensusError", "ComparisonError", "ConfigError", "FieldError", "GoldenError",
        "KindError", "ModelSpecError", "ProfileError", "ReleaseError", "ReportError", "UnknownPartError",
    ),
    "shapes": ("LayerShape", "layer_shape"),
    "kinds": ("KindCensus",),
    "measurement": ("ModelCensus", "census_kind", "census_model_spec", "measure"),
    "op_profile": ("LayerKind", "OpProfile", "infer_arch", "known_archs", "load_op_profile"),
    "own_model": ("OwnModel",),
    "resolver": ("resolve_model_spec",),
    "spec": ("KindSpec", "LayerGroup", "ModelSpec", "OpCounts", "OutsideSpec", "VisionSpec"),
}  # fmt: skip
_HOME = {name: module for module, names in _MODULES.items() for name in names}

__all__ = [
    "AuditError",
    "AuditRow",
    "BuildError",
    "CensusError",
    "ComparisonError",
    "ConfigError",
    "FieldError",
    "GoldenError",
    "KindCensus",
    "KindError",
    "KindSpec",
    "LayerGroup",
    "LayerKind",
    "LayerShape",
    "ModelCensus",
    "ModelSpec",
    "ModelSpecError",
    "OpCounts",
    "OpProfile",
    "OutsideSpec",
    "OwnModel",
    "ProfileError",
    "ReleaseError",
    "ReportError",
    "UnknownPartError",
    "VisionSpec",
    "audit_rows",
    "cache_bytes",
    "census_kind",
    "census_model_spec",
    "flops",
    "infer_arch",
    "known_archs",
    "layer_shape",
    "load_config",
    "load_op_profile",
    "measure",
    "parameters",
    "resolve_model_spec",
]


def __getattr__(name: str) -> object:
    if name not in _HOME:
        raise AttributeError(f"module 'census' has no attribute {name!r}")
    return getattr(importlib.import_module(f"census.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return __all__
