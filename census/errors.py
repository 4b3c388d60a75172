"""The errors a user of census can meet: one base, a typed child per cause.

Every message reads *where: what was expected, what was found; what to do next*.
"""

from __future__ import annotations


class CensusError(Exception):
    """The base of every error census raises on purpose."""


class ConfigError(CensusError):
    """A config could not be read, is not one, or names a model Transformers does not build."""


class BuildError(CensusError):
    """Transformers could not build or run the model a config states, or its layer stack was not found."""


class UnknownPartError(CensusError):
    """A layer runs a part that no rule of the engine recognises; nothing was counted in its place."""


class KindError(CensusError):
    """A family's op profile has no kind, several kinds, or one kind for two differently built layers."""


class ProfileError(CensusError):
    """An op profile is unknown, broken or incomplete."""


class ModelSpecError(CensusError, ValueError):
    """A model spec is incomplete, contradicts itself or holds something that is no spec field."""


class GoldenError(CensusError):
    """A golden file is broken, missing, or has no case."""
