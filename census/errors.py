"""The errors a user of census can meet: one base, a typed child per cause.

Every message reads *where: what was expected, what was found; what to do next*.
"""

from __future__ import annotations

from collections.abc import Sequence


class CensusError(Exception):
    """The base of every error census raises on purpose."""


class ConfigError(CensusError):
    """A config could not be read, is not one, or names a model Transformers does not build."""


class BuildError(CensusError):
    """Transformers could not build or run the model a config states, or its layer stack was not found."""


class ReleaseError(CensusError):
    """An installed torch or Transformers lacks a name that census uses of it."""

    @classmethod
    def of(cls, package: str, release: str, missing: str) -> ReleaseError:
        """Return the error of a release that lacks a name."""
        return cls(
            f"{package} {release}: expected the names that census uses of it, found {missing}; "
            f"install a release that census is known to work with (README.md, Versions)"
        )


class UnknownPartError(CensusError):
    """A layer runs a part that no rule of the engine recognises; nothing was counted in its place."""


class KindError(CensusError):
    """A family's op profile has no kind, several kinds, or one kind for two differently built layers."""


class ProfileError(CensusError):
    """An op profile is unknown, broken or incomplete."""


class ModelSpecError(CensusError, ValueError):
    """A model spec is incomplete, contradicts itself or holds something that is no spec field."""


class FieldError(CensusError):
    """A field was asked for that the spec of a model does not have."""


class AuditError(CensusError):
    """An audit cannot be done as it was asked for: nothing to audit, or nothing that could be written."""


class ComparisonError(CensusError):
    """Two things cannot be compared, or one of them is nothing census compares."""


class GoldenError(CensusError):
    """A golden file is broken, missing, or has no case."""


class ReportError(CensusError):
    """A report cannot be built: no goldens, nothing to draw with, or a folder that is none of its own."""


class GoldenDiffersError(GoldenError):
    """A golden pins something else than was measured, or nothing.

    Attributes:
        differences: what differs, a field each; empty where there is no golden.
    """

    def __init__(self, message: str, differences: Sequence[object] = ()) -> None:
        super().__init__(message)
        self.differences = tuple(differences)


class DriftError(CensusError):
    """Two releases of a package cannot be compared: one is missing, or does not run the census at all."""
