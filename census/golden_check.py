"""A measurement beside its golden: what differs, on which line of the file, and what to do next."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from census.errors import GoldenDiffersError, GoldenError
from census.golden import Golden, golden_path, new_golden, read_golden, write_golden
from census.profile_lines import line_of
from census.spec import FieldDifference, diff_specs

if TYPE_CHECKING:
    from census.measurement import ModelCensus

_CAUSES = ("ops", "layers", "kinds")
_FOLLOWS = ("costs", "vouched_for_by")


@dataclass(frozen=True)
class Pin:
    """What was measured of a model, and the file that pins it.

    Attributes:
        path: the golden's file.
        measured: the golden as it would be written now.
        census: the measurement, which holds the evidence of every number.
        read: what reads the file.
    """

    path: Path
    measured: Golden
    census: ModelCensus
    read: Callable[[Path], Golden] = read_golden

    @classmethod
    def of(
        cls,
        root: Path,
        model_type: str,
        name: str,
        census: ModelCensus,
        vouched_for_by: Sequence[str] = (),
        read: Callable[[Path], Golden] = read_golden,
    ) -> Pin:
        """Return the pin of a model whose golden lies at `<root>/<model_type>/<name>.yaml`."""
        golden = new_golden(name, model_type, census.spec, vouched_for_by)
        return cls(golden_path(root, model_type, name), golden, census, read)

    def require(self, select: str) -> None:
        """Refuse a measurement that its golden does not pin.

        Args:
            select: what `pytest -k` takes to run the test of this model alone.

        Raises:
            GoldenDiffersError: it has no golden, or fields differ from it: all of them are named.
            GoldenError: its golden cannot be read.
        """
        command = f"pytest --update-golden -k {select}"
        if not self.path.exists():
            raise GoldenDiffersError(
                f"{self.measured.case}: expected a golden at {self.path}, found none; "
                f"review the model, then run {command}"
            )
        differences = self._differences(self.read(self.path))
        if differences:
            lines = [f"  {d}  [{self._evidence(d.path)}]" for d in differences]
            raise GoldenDiffersError(
                "\n".join(
                    [
                        f"{self.measured.case}: {len(differences)} fields differ from {self.path}: "
                        f"expected -> measured [evidence]",
                        *lines,
                        f"find out who is right in the model's source; then {command}",
                    ]
                ),
                differences,
            )

    def update(self) -> list[str]:
        """Write the golden where its content changed, or it is none; return a text for each change.

        Raises:
            GoldenError: the file could not be written; what was there before is still there.
        """
        try:
            pinned = self.read(self.path) if self.path.exists() else None
        except GoldenError:
            pinned = None
        differences = [] if pinned is None else self._differences(pinned)
        if pinned is not None and not differences:
            return []
        write_golden(self.path, self.measured)
        return [str(difference) for difference in differences] or ["new"]

    def _differences(self, pinned: Golden) -> list[FieldDifference]:
        """Return what differs, causes first: what runs, what the model states, then what is computed of that."""

        def rank(difference: FieldDifference) -> int:
            field = difference.path.partition(".")[0].partition("[")[0]
            return _CAUSES.index(field) if field in _CAUSES else len(_CAUSES) + (field in _FOLLOWS)

        return sorted(diff_specs(pinned.pinned, self.measured.pinned), key=rank)

    def _evidence(self, path: str) -> str:
        parts = path.split(".")
        if parts[0] == "ops" and len(parts) == 3 and parts[1] in self.census.kinds:
            return str(self.census.kinds[parts[1]].evidence.get(parts[2], "the family's profile"))
        return str(self.census.evidence.get(path, "the stack as it ran"))


def golden_line(path: Path, field: str) -> int:
    """Return the line, from 1, of a golden's field; of one that it lacks, that of what would hold it; 1 of no file."""
    if not path.exists():
        return 1
    beside = field.startswith(("costs", "vouched_for_by"))
    return line_of(path.read_text(encoding="utf-8"), field if beside else f"spec.{field}")
