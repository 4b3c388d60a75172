"""What a report says of one model: its golden, put as a page shows it."""

from __future__ import annotations

import functools
import itertools
import json
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import quote

from census.case_files import measured_entries
from census.costs import LAWS, PINNED_LENGTH, cache_bytes, flops
from census.errors import ReportError
from census.golden import Golden
from census.report_charts import Chart, draw
from census.report_history import Commit
from census.report_numbers import operations, places, share, size
from census.spec import ModelSpec
from census.table import folded_stack

LENGTHS = tuple(2**power for power in range(7, 21))
"""The sequence lengths of the curves: 128 tokens to 1,048,576, each twice the one before."""

ROUTES: Mapping[str, str] = {
    "published": "The parameters that Transformers builds are the published total, or every further term is named.",
    "arithmetic": "The parameters are those of the built modules by their names, part by part, and the FLOPs those of "
    "the operators of a forward on real tensors.",
    "real run": "A narrow copy of every kind of layer ran on real tensors under a counter that shares no code with "
    "census: the ops, how far a token's change reaches, and how work grows with the sequence are the same.",
    "cache": "What a narrow copy's forward leaves in Transformers' cache is what the spec says, value for value.",
    "resolver": "The reading of the published config's field names agrees with what is measured.",
    "peers": "The same model as other people built it (litgpt, torchtune, foundation-model-stack) has the same sizes.",
}
"""What each route that a golden can name means; `docs/proof.md` says how each is a test."""

_ACTIVE: Mapping[str, str] = {
    "total": "every parameter",
    "active": "what one token runs through, with both tables",
    "active_without_input_embedding": "the same without the looked-up tables; a tied one is still the head's",
    "active_without_embedding_and_head": "the same without the tables and the head",
}
"""The sums over parameters, which are no part of them."""

_MIXING = (*LAWS, "recurrence", "convolution")
"""The parts of a forward that mix tokens; all others are matmuls with weights, which grow alike."""

_WEIGHTS = ("projections", "other_parameters", "variants", "tied_parameters", "idle_parameters")
_NOT_IN_DIMENSIONS = {*_WEIGHTS, "layers_with"}


@dataclass(frozen=True)
class Facts:
    """What the case table states of a case.

    Attributes:
        model: the published model's name; empty for a small config or a type's default.
        source: where the config's facts are from.
        config: the Transformers config, by its fields; empty for a type's default.
        parameters: the published total with its source and terms, where there is one.
    """

    model: str
    source: str
    config: Mapping[str, Any]
    parameters: Mapping[str, Any] | None


@dataclass(frozen=True)
class Lane:
    """The layers of one kind in a stack.

    Attributes:
        kind: the kind.
        number: which of the stack's kinds it is, in the order of their first layers; it gives the colour.
        places: the layers' places in the stack.
    """

    kind: str
    number: int
    places: tuple[int, ...]

    @property
    def said(self) -> str:
        """Where the layers stand, in words."""
        return places(self.places)

    @property
    def runs(self) -> list[tuple[int, int]]:
        """Consecutive layers: the first one's place, and how many."""
        found: list[tuple[int, int]] = []
        for place in self.places:
            if found and sum(found[-1]) == place:
                found[-1] = (found[-1][0], found[-1][1] + 1)
            else:
                found.append((place, 1))
        return found


@dataclass(frozen=True)
class Tower:
    """A stack of layers with its kinds: the language model's, or a vision tower's.

    Attributes:
        spec: the part of the spec that states it.
    """

    spec: Mapping[str, Any]

    @functools.cached_property
    def stack(self) -> list[str]:
        """The kind of every layer."""
        return [group["kind"] for group in self.spec["layers"] for _ in range(group["count"])]

    @functools.cached_property
    def lanes(self) -> list[Lane]:
        """The layers of each kind, kinds in the order of their first layers."""
        return [
            Lane(kind, number, tuple(place for place, other in enumerate(self.stack) if other == kind))
            for number, kind in enumerate(dict.fromkeys(self.stack))
        ]

    @property
    def folded(self) -> str:
        """The stack as one line, its repeats folded."""
        return folded_stack(self.stack).replace(" x (", " \u00d7 (")

    @property
    def ticks(self) -> list[int]:
        """Places in the stack to be named below its picture: the first, the last, and round ones between them."""
        last = len(self.stack) - 1
        step = next(step for step in (1, 2, 5, 10, 20, 50, 100, 500) if last < 8 * step or step == 500)
        return [place for place in range(0, last + 1, step) if place == 0 or last - place > step // 2] + [last] * (
            last > 0
        )

    @property
    def ops(self) -> list[tuple[Lane, Mapping[str, int]]]:
        """The op vector of each kind that has layers."""
        return [(lane, self.spec["ops"][lane.kind]) for lane in self.lanes]

    @property
    def without_layers(self) -> list[str]:
        """Kinds of the family that the stack has no layer of."""
        return [kind for kind in self.spec["ops"] if kind not in set(self.stack)]

    @property
    def dimensions(self) -> list[tuple[str, list[str | None]]]:
        """Each field that a kind states, with what each of the kinds states of it."""
        kinds = [self.spec["kinds"].get(lane.kind, {}) for lane in self.lanes]
        fields = dict.fromkeys(field for kind in kinds for field in kind if field not in _NOT_IN_DIMENSIONS)
        return [(field, [_dimension(kind, field) for kind in kinds]) for field in fields]

    @property
    def weights(self) -> list[tuple[Lane, str, str]]:
        """The weights of each part of each kind, as text; of layers that have others, with their places."""
        return [
            (lane, name, text) for lane in self.lanes for name, text in _weights(self.spec["kinds"].get(lane.kind, {}))
        ]


def _dimension(kind: Mapping[str, Any], field: str) -> str | None:
    if field not in kind:
        return None
    within = kind.get("layers_with", {}).get(field)
    return _text(kind[field]) + (f" (layers {places(within)})" if within else "")


def _text(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return ", ".join(map(_text, value))
    return f"{value:,}" if isinstance(value, int) else str(value)


def _weights(kind: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for part, matrices in kind.get("projections", {}).items():
        yield part, ", ".join(map(_matrix, matrices))
    for part, elements in kind.get("other_parameters", {}).items():
        yield f"{part}, in no matmul", f"{elements:,}"
    for variant in kind.get("variants", ()):
        for part, text in _weights(variant):
            yield f"{part}, layers {places(variant['layers'])}", text
    for part, elements in kind.get("tied_parameters", {}).items():
        yield f"{part}, held by an earlier layer", f"{elements:,}"
    if kind.get("idle_parameters"):
        yield "never used", f"{kind['idle_parameters']:,}"


def _matrix(matrix: Sequence[int]) -> str:
    """Return a weight: `4,096 x 14,336`, and of several how many are held and run."""
    width = f"{matrix[0]:,}\u00a0\u00d7\u00a0{matrix[1]:,}"
    if len(matrix) == 2:
        return width
    held, run = matrix[2:]
    return f"{width} ({run:,} of {held:,} run)" if held else f"{width} (one that ran before)"


@dataclass(frozen=True)
class Part:
    """A part of a cost: its name, its number, its share of the whole, and what is to be said of it."""

    name: str
    number: int
    share: float
    said: str


@dataclass(frozen=True)
class Page:
    """One model's page.

    Attributes:
        golden: what it shows.
        file: the golden's path below the goldens' folder.
        facts: what the case table states of the case, where there is one.
        history: the golden's commits, the newest first.
        history_absent: why no golden has a history, in words; empty where git was read.
    """

    golden: Golden
    file: PurePosixPath
    facts: Facts | None = None
    history: tuple[Commit, ...] = ()
    history_absent: str = ""

    @property
    def path(self) -> PurePosixPath:
        """Where the page lies below the report's folder."""
        return PurePosixPath("models") / f"{self.file.with_suffix('')}.html"

    @property
    def href(self) -> str:
        """The page's address from the report's folder."""
        return quote(str(self.path))

    @property
    def root(self) -> str:
        """The way from the page to the report's folder."""
        return "../" * (len(self.path.parts) - 1)

    @functools.cached_property
    def tower(self) -> Tower:
        """The language model's stack."""
        return Tower(self.golden.spec)

    @functools.cached_property
    def vision(self) -> Tower | None:
        """The vision tower's stack, where the spec states one."""
        stated = self.golden.spec.get("vision")
        return Tower(stated) if stated and stated.get("layers") and stated.get("kinds") and stated.get("ops") else None

    @functools.cached_property
    def parameters(self) -> Mapping[str, int]:
        """The golden's parameters, by part, with their sums."""
        found: Mapping[str, int] = self.golden.costs["parameters"]
        return found

    @property
    def is_routed(self) -> bool:
        """Whether a layer routes its tokens to experts."""
        return any("num_experts" in kind for kind in self.golden.spec["kinds"].values())

    @property
    def mixers(self) -> list[str]:
        """What mixes the tokens of its layers."""
        kinds = self.golden.spec["kinds"].values()
        return list(dict.fromkeys(mixer for kind in kinds for mixer in kind.get("mixers", ())))

    @property
    def parameter_parts(self) -> list[Part]:
        """The parameters of each part."""
        total = self.parameters["total"]
        return [
            Part(name, number, 100 * number / total, share(number, total))
            for name, number in self.parameters.items()
            if name not in _ACTIVE
        ]

    @property
    def parameter_sums(self) -> list[tuple[str, int, str]]:
        """The sums over parameters, with their meaning."""
        return [(name, self.parameters[name], said) for name, said in _ACTIVE.items()]

    @property
    def flop_parts(self) -> list[Part]:
        """The FLOPs of a forward at the pinned length, by part."""
        return _parts(self.golden.costs[f"flops_at_{PINNED_LENGTH}"], LAWS)

    @property
    def cache_parts(self) -> list[Part]:
        """The bytes of the cache at the pinned length, by part."""
        found = self.golden.costs[f"cache_bytes_at_{PINNED_LENGTH}"]
        return _parts(found, {"expanded": "not in the total: latent attention kept as the kernel takes it"})

    @property
    def flops(self) -> int:
        """The FLOPs of a forward at the pinned length."""
        total: int = self.golden.costs[f"flops_at_{PINNED_LENGTH}"]["total"]
        return total

    @property
    def cache(self) -> int:
        """The bytes of the cache at the pinned length."""
        total: int = self.golden.costs[f"cache_bytes_at_{PINNED_LENGTH}"]["total"]
        return total

    @property
    def charts(self) -> list[Chart]:
        """The curves of FLOPs and of the cache."""
        spec = ModelSpec.from_dict(self.golden.spec)
        flop_curves = _curves([_by_what_grows(flops(spec, length)) for length in LENGTHS])
        cache_curves = _curves([cache_bytes(spec, length) for length in LENGTHS])
        charts = [draw("flops", "FLOPs of a forward over one sequence", LENGTHS, flop_curves, operations, 1000)]
        if cache_curves:
            charts.append(draw("cache", "Bytes of the cache after one sequence", LENGTHS, cache_curves, size, 1024))
        return charts

    @property
    def scalars(self) -> list[tuple[str, str]]:
        """The model's own fields: those that no kind states."""
        kinds = self.golden.spec["kinds"].values()
        stated = {field for kind in kinds for field in kind} | {"name", "arch", "ops", "layers", "kinds", "outside"}
        return [
            (field, _text(value))
            for field, value in self.golden.spec.items()
            if field not in stated and not isinstance(value, Mapping)
        ]

    @property
    def outside(self) -> list[tuple[str, str]]:
        """The weights outside the layers, as text."""
        outside = self.golden.spec["outside"]
        tables = [("tables", ", ".join(map(_matrix, outside["tables"])))] if "tables" in outside else []
        return [*tables, *_weights(outside)]

    @property
    def command(self) -> str:
        """The command that prints the evidence of every number."""
        default = self.facts is not None and not self.facts.config
        source = self.golden.model_type if default else "./config.json"
        return shlex.join(["census", "explain", source, "--arch", self.golden.spec["arch"]])

    @property
    def config(self) -> str | None:
        """The case's config as a config.json, where the case table states one."""
        if self.facts is None or not self.facts.config:
            return None
        return json.dumps({"model_type": self.golden.model_type, **self.facts.config}, indent=2)

    @property
    def routes(self) -> list[tuple[str, str, bool]]:
        """Every route with its meaning, and whether it vouches for the golden."""
        named = self.golden.vouched_for_by
        unknown = [(route, "", True) for route in named if route not in ROUTES]
        return [*((route, meaning, route in named) for route, meaning in ROUTES.items()), *unknown]

    @property
    def found_by(self) -> str:
        """What the index's search looks in."""
        kinds = [lane.kind for lane in self.tower.lanes]
        published = [self.facts.model] if self.facts else []
        words = [self.golden.case, self.golden.model_type, self.golden.spec["arch"], *published, *kinds, *self.mixers]
        return " ".join(filter(None, words)).lower()


def _parts(costs: Mapping[str, int], said: Mapping[str, str]) -> list[Part]:
    total = costs["total"] or 1
    return [Part(name, number, 100 * number / total, said.get(name, "")) for name, number in costs.items()]


def _by_what_grows(costs: Mapping[str, int]) -> dict[str, int]:
    """Return FLOPs with the matmuls with weights as one part: all grow alike."""
    apart = {part: number for part, number in costs.items() if part in _MIXING}
    weights = costs["total"] - sum(apart.values())
    return {"weights": weights, **apart, "total": costs["total"]}


def _curves(costs: Sequence[Mapping[str, int]]) -> dict[str, tuple[int, ...]]:
    """Return the values of each part at each length, the total first; parts that are always zero are left out."""
    names = dict.fromkeys(itertools.chain(["total"], *costs))
    curves = {name: tuple(cost.get(name, 0) for cost in costs) for name in names}
    shown = {name: values for name, values in curves.items() if min(values) > 0}
    return {name: values for name, values in shown.items() if name == "total" or values != shown.get("total")}


def read_facts(root: Path) -> dict[str, Facts]:
    """Return what the case table beside a folder of goldens states, by the cases' names; nothing where there is none.

    Raises:
        ReportError: a file of the table is none.
    """
    return {
        name: Facts(entry.get("model", ""), entry.get("source", ""), entry.get("config", {}), entry.get("parameters"))
        for name, entry in measured_entries(root.absolute().parent, ReportError).items()
    }
