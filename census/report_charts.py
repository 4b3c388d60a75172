"""Curves of a report as inline SVG that takes its colours from the page, drawn by pygal.

pygal is imported where a chart is drawn: it comes with `census[report]` alone.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import ModuleType
from xml.etree import ElementTree

from census.errors import ReportError
from census.report_numbers import tokens

_WIDTH, _HEIGHT = 480, 300
_DROPPED = {"defs", "title", "desc"}
"""What pygal writes beside the drawing: its styles and scripts, its own titles. The page has a style of its own."""

_EMPTY = {"titles", "plot overlay", "plot text-overlay", "plot tooltip-overlay", "background"}
"""Groups and rectangles of pygal's that draw nothing here."""

_FRACTION = re.compile(r"-?\d+\.\d+")


@dataclass(frozen=True)
class Curve:
    """One line of a chart: what it is called, and its value at each length."""

    name: str
    values: tuple[int, ...]


@dataclass(frozen=True)
class Chart:
    """A chart of curves over sequence lengths, both axes logarithmic.

    Attributes:
        key: what tells it from the other charts of its page.
        title: what is drawn.
        lengths: the sequence lengths, in tokens.
        curves: the lines, the total first.
        number: how a value is written.
        svg: the drawing.
    """

    key: str
    title: str
    lengths: tuple[int, ...]
    curves: tuple[Curve, ...]
    number: Callable[[int], str]
    svg: str


def pygal_here() -> ModuleType:
    """Return pygal.

    Raises:
        ReportError: it is not installed.
    """
    try:
        import pygal
    except ImportError as error:
        raise ReportError(
            f"census report: expected pygal, which draws its charts, found none ({error}); pip install 'census[report]'"
        ) from error
    module: ModuleType = pygal
    return module


def draw(
    key: str,
    title: str,
    lengths: Sequence[int],
    curves: Mapping[str, Sequence[int]],
    number: Callable[[int], str],
    unit: int,
) -> Chart:
    """Return a chart of curves by their names.

    Args:
        key: what tells it from the other charts of its page.
        title: what is drawn.
        lengths: the sequence lengths, in tokens.
        curves: by name, the values at these lengths, each above zero.
        number: how a value is written.
        unit: what the marks of the upright axis are powers of: 1000 or 1024.

    Raises:
        ReportError: pygal is not installed.
    """
    pygal = pygal_here()
    top = max(max(values) for values in curves.values())
    bottom = min(min(values) for values in curves.values())
    chart = pygal.XY(
        width=_WIDTH,
        height=_HEIGHT,
        logarithmic=True,
        range=(bottom, top),
        show_legend=False,
        show_dots=False,
        no_prefix=True,
        js=[],
        css=[],
        margin=4,
        margin_right=14,
        # The room that labels need where the page is narrow and writes them larger.
        style=pygal.style.Style(label_font_size=17, major_label_font_size=17, font_family="sans-serif"),
        x_labels=[{"label": tokens(length), "value": length} for length in lengths[::3]],
        y_labels=[{"label": number(mark).replace(".0", ""), "value": mark} for mark in _marks(bottom, top, unit)],
    )
    for name, values in curves.items():
        chart.add(name, list(zip(lengths, values, strict=True)))
    lines = tuple(Curve(name, tuple(values)) for name, values in curves.items())
    last = ", ".join(f"{line.name} {number(line.values[-1])}" for line in lines)
    description = f"Lines on logarithmic axes from {lengths[0]:,} to {lengths[-1]:,} tokens; at the last: {last}."
    svg = _bare(chart.render_tree(), key, title, description)
    return Chart(key, title, tuple(lengths), lines, number, svg)


def _marks(bottom: int, top: int, unit: int) -> list[int]:
    """Return the powers of a unit within the axis; those of ten or two between them where they are few."""
    for base in (unit, 10 if unit == 1000 else 32, 2):
        marks = list(_powers(base, bottom, top))
        if len(marks) > 1:
            return marks
    return [bottom, top]


def _powers(base: int, bottom: int, top: int) -> Iterator[int]:
    mark = 1
    while mark <= top:
        if mark >= bottom:
            yield mark
        mark *= base


def _bare(svg: ElementTree.Element, key: str, title: str, description: str) -> str:
    """Return pygal's drawing as inline SVG: named for screen readers, without its styles, scripts and comments."""
    for parent in list(svg.iter()):
        for child in list(parent):
            # A comment, whose tag is no text, holds the day on which it was drawn.
            if not isinstance(child.tag, str) or child.tag in _DROPPED or child.get("class") in _EMPTY:
                parent.remove(child)
    for element in svg.iter():
        element.attrib = {name: _short(name, value) for name, value in element.attrib.items() if value}
    for tag, text in (("desc", description), ("title", title)):
        named = ElementTree.Element(tag, {"id": f"{key}-{tag}"})
        named.text = text
        svg.insert(0, named)
    svg.attrib = {
        "viewBox": f"0 0 {_WIDTH} {_HEIGHT}",
        "class": "chart",
        "role": "img",
        "aria-labelledby": f"{key}-title {key}-desc",
    }
    return ElementTree.tostring(svg, encoding="unicode")


def _short(name: str, value: str) -> str:
    """Return an attribute with its numbers at a tenth of a unit, which is less than the eye sees."""
    if name not in ("d", "x", "y", "transform"):
        return value
    return _FRACTION.sub(lambda number: f"{float(number[0]):.1f}".removesuffix(".0"), value)
