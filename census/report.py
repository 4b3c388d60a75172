"""A static site of the goldens: an index, a page a model, the profiles beside them. Read without server or network."""

from __future__ import annotations

import importlib.metadata
import os
import re
import shutil
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

from census.errors import GoldenError, ReportError
from census.golden import read_golden
from census.op_counts import OPS, OpCounts
from census.report_audit import audited_families
from census.report_charts import pygal_here
from census.report_history import read_history
from census.report_model import ROUTES, Page, read_facts
from census.report_numbers import exact, operations, rounded, size

if TYPE_CHECKING:
    from jinja2 import Environment
    from markupsafe import Markup

_TEMPLATES = Path(__file__).parent / "site"
_COPIED = ("style.css", "index.js")

MARKER = ".census-report"
"""The file by which a folder is known as a report, which another may take the place of."""

_SHOWN = ("arch", "ops", "layers", "kinds", "outside")
_COSTS = ("parameters", "flops_at_4096", "cache_bytes_at_4096")


@dataclass(frozen=True)
class Report:
    """A report that was written: where it starts, and how many models it shows."""

    index: Path
    models: int


def build_report(root: Path, folder: Path) -> Report:
    """Write the report of a folder of goldens: whole, or not at all.

    It is built beside the folder and then takes its place, also that of a report which is there already.

    Raises:
        ReportError: there are no goldens, nothing to draw with, or the folder is there and is no report.
        GoldenError: a golden is broken.
    """
    folder = folder.resolve()
    if os.path.lexists(folder) and not (folder / MARKER).is_file():
        raise ReportError(
            f"{folder}: expected a report that census wrote before, or nothing, found something else; "
            f"pass another folder with -o, or remove it"
        )
    pygal_here()
    pages = read_pages(root)
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        built = Path(tempfile.mkdtemp(dir=folder.parent, prefix=f".{folder.name}."))
        try:
            _write(pages, built)
            # mkdtemp keeps others out, whom a report is for.
            built.chmod(0o755)
            _take_place(built, folder)
        finally:
            shutil.rmtree(built, ignore_errors=True)
    except OSError as error:
        raise ReportError(f"{folder}: expected to write the report, found {error}; nothing was changed") from error
    return Report(folder / "index.html", len(pages))


def _take_place(built: Path, folder: Path) -> None:
    """Move a report to where it belongs; what was there is removed, or still there where that fails."""
    if not folder.exists():
        built.rename(folder)
        return
    old = Path(tempfile.mkdtemp(dir=folder.parent, prefix=f".{folder.name}."))
    try:
        folder.rename(old)
    except BaseException:
        old.rmdir()
        raise
    try:
        built.rename(folder)
    except BaseException:
        old.rename(folder)
        raise
    shutil.rmtree(old, ignore_errors=True)


def read_pages(root: Path) -> list[Page]:
    """Return a page for every golden below a folder, by their cases' names.

    Raises:
        ReportError: there is none.
        GoldenError: one is broken.
    """
    files = sorted(root.rglob("*.yaml"))
    if not files:
        raise ReportError(
            f"{root}: expected goldens (*.yaml) in it, found none; run census report in a checkout of the repository, "
            f"or pass their folder with --golden-specs"
        )
    facts, history = read_facts(root), read_history(root)
    pages = []
    for file in files:
        golden = read_golden(file)
        lacking = [part for part in _SHOWN if part not in golden.spec]
        lacking += [part for part in _COSTS if "total" not in (golden.costs or {}).get(part, {})]
        if lacking:
            raise GoldenError(
                f"{file}: expected a whole spec and its costs, found none of {', '.join(lacking)}; "
                f"pytest --update-golden rewrites it"
            )
        below = PurePosixPath(file.relative_to(root).as_posix())
        commits = history.commits.get(str(below), ())
        pages.append(Page(golden, below, facts.get(golden.case), commits, history.absent))
    return sorted(pages, key=lambda page: (_by_number(page.golden.case), page.file))


def _by_number(name: str) -> list[tuple[str, float]]:
    """Return a name such that it sorts as a person does: Qwen3 before Qwen10."""
    return [(text, float(number or -1)) for text, number in re.findall(r"(\D*)(\d*)", name.lower())]


def _write(pages: Sequence[Page], folder: Path) -> None:
    site = _site()
    families = audited_families(pages)
    _page(site, folder, "index.html", "index.html", root="", pages=pages, filters=_filters(pages))
    _page(site, folder, "audit.html", "audit.html", root="", families=families, pages=pages)
    for page in pages:
        _page(site, folder, str(page.path), "model.html", root=page.root, page=page)
    for name in _COPIED:
        shutil.copyfile(_TEMPLATES / name, folder / name)
    (folder / MARKER).write_text("Written by census report, which replaces this folder.\n", encoding="utf-8")


def _page(site: Environment, folder: Path, name: str, template: str, **shown: object) -> None:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(site.get_template(template).render(**shown), encoding="utf-8")


def _site() -> Environment:
    """Return the templates, which escape whatever they show."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    site = Environment(
        loader=FileSystemLoader(_TEMPLATES), autoescape=True, undefined=StrictUndefined, trim_blocks=True,
        lstrip_blocks=True,
    )  # fmt: skip
    site.filters |= {
        "rounded": rounded, "exact": exact, "size": size, "operations": operations, "breakable": _breakable,
    }  # fmt: skip
    site.globals |= {
        "OPS": OPS, "OP_MEANINGS": _op_meanings(), "ROUTES": ROUTES, "versions": _versions(),
        "operations": operations, "size": size,
    }  # fmt: skip
    return site


def _op_meanings() -> Mapping[str, str]:
    """Return what each op counts, as `OpCounts` says it; nothing where Python strips its documentation."""
    return dict(re.findall(r"^ +(\w+): (.+)\.$", OpCounts.__doc__ or "", re.MULTILINE))


def _breakable(name: str) -> Markup:
    """Return a field's name such that a narrow page breaks it after its underscores."""
    from markupsafe import Markup, escape

    return escape(name).replace("_", Markup("_<wbr>"))


def _versions() -> str:
    return f"census {importlib.metadata.version('census')}"


def _filters(pages: Sequence[Page]) -> Mapping[str, Mapping[str, int]]:
    """Return what the index can be filtered by: each choice with its number of models, the choices sorted."""
    counted: dict[str, Counter[Any]] = {
        "family": Counter(page.golden.spec["arch"] for page in pages),
        "mixer": Counter(mixer for page in pages for mixer in page.mixers),
        "route": Counter(route for page in pages for route in page.golden.vouched_for_by),
    }
    return {name: dict(sorted(counter.items())) for name, counter in counted.items()}
