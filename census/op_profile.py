"""Op profiles: what a family's kinds of layers are, and how often each is said to run each op.

A profile is written by a person and audited by measurement. A layer takes its kind by its flavours alone.
"""

from __future__ import annotations

import difflib
import functools
import os
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from census import strict_yaml
from census.bounds import MAX_YAML_BYTES, is_file, quoted, read_text
from census.errors import KindError, ModelSpecError, ProfileError
from census.op_counts import OpCounts

ATTENTIONS = (
    "full", "full_nope", "linear", "sliding", "chunked", "full_shared", "sliding_shared",
    "cross", "full_cross", "sliding_cross", "hybrid", "none",
)  # fmt: skip
"""The attention flavours of a layer.

A `nope` one takes no position in a stack whose other layers do, a `shared` one takes keys and values from another
layer, `cross` takes them from what came from outside the stack, `full_cross` and `sliding_cross` are self-attention
and cross-attention, `hybrid` is attention beside a recurrence.
"""

FFNS = ("dense", "sparse", "moe", "none")
"""The feed-forward flavours of a layer; a `sparse` one is dense and cuts most of its activations to zero."""

_UNWINDOWED = {
    "full_nope": "full",
    "sliding": "full",
    "chunked": "full",
    "sliding_shared": "full_shared",
    "sliding_cross": "full_cross",
}
"""What a family without a kind for an attention of shorter reach counts it as."""

_FOLDER = Path(__file__).parent / "profiles"
_NAME_ORDER = Path(__file__).parent / "name_order.yaml"


@dataclass(frozen=True)
class LayerKind:
    """A named kind of layers of a family.

    Attributes:
        name: the kind's name.
        ops: the op vector the profile states.
        attention: the attention flavour; full where it is None.
        ffn: the feed-forward flavour; any where it is None.
        norms: how many norms of its own a layer of the kind has, where that alone tells it from another kind.
        optional: names of modules or parameters that not every layer of the kind holds, or holds in one shape: what
            no count and no field of the spec depends on, as a relative position bias in the first layer alone.
    """

    name: str
    ops: OpCounts
    attention: str | None = None
    ffn: str | None = None
    norms: int | None = None
    optional: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.name} (attention {self.attention or 'full'}, feed-forward {self.ffn or 'any'})"


@dataclass(frozen=True)
class OpProfile:
    """A family's kinds of layers.

    Attributes:
        arch: the family's name.
        kinds: the kinds by name, as the profile lists them.
        default: the kind of a layer of which nothing is known.
        source: the file that states the profile.
    """

    arch: str
    kinds: Mapping[str, LayerKind]
    default: str
    source: str

    def kind_for(self, attention: str, ffn: str, norms: int | None = None) -> LayerKind:
        """Return the kind that a layer of these flavours takes.

        It is the kind of the exact flavours; a kind that states no feed-forward flavour comes after one that
        states it. A sliding or chunked layer of a family without such a kind takes the full one. Of kinds of one
        flavour that state how many norms they have, a layer takes the one that states as many as it has.

        Raises:
            KindError: the family has no such kind, or several.
        """
        matching = self._matching(attention, ffn)
        if len(matching) > 1:
            matching = [kind for kind in matching if kind.norms == norms] or matching
        if len(matching) != 1:
            found = f"several: {', '.join(kind.name for kind in matching)}" if matching else "none"
            own = ", ".join(map(str, self.kinds.values()))
            fitting = [arch for arch in known_archs() if load_op_profile(arch)._fits(attention, ffn)]
            raise KindError(
                f"family {self.arch}: expected one kind for a layer of attention {attention} and "
                f"feed-forward {ffn}, found {found} among {own}; pass --arch (arch=) with a family that "
                f"has one ({', '.join(fitting) or 'none has'}), or the file of a profile of your own"
            )
        return matching[0]

    def _fits(self, attention: str, ffn: str) -> bool:
        return len(self._matching(attention, ffn)) == 1

    def _matching(self, attention: str, ffn: str) -> list[LayerKind]:
        """Return the kinds that match best: one, or several, or none."""
        for reach in dict.fromkeys((attention, _UNWINDOWED.get(attention, attention))):
            for stated in (ffn, None):
                matching = [
                    kind for kind in self.kinds.values() if (kind.attention or "full") == reach and kind.ffn == stated
                ]
                if matching:
                    return matching
        return []


def known_archs() -> tuple[str, ...]:
    """Return the names of the families census has profiles of, sorted."""
    return tuple(sorted(path.stem for path in _FOLDER.glob("*.yaml")))


def load_op_profile(arch_or_path: str | os.PathLike[str]) -> OpProfile:
    """Return the profile of a family, or the one a file states.

    Args:
        arch_or_path: the name of a known family, or the path of a profile's YAML file.

    Raises:
        ProfileError: there is no such family or file, or the file states no whole profile.
    """
    if arch_or_path in known_archs():
        return _shipped(str(arch_or_path))
    path = Path(arch_or_path)
    if not is_file(path):
        near = difflib.get_close_matches(quoted(str(arch_or_path)), known_archs(), 1)
        meant = f"; {near[0]} may be meant, else" if near else ";"
        raise ProfileError(
            f"{quoted(str(arch_or_path))}: expected a known family or the file of a profile, found neither{meant} "
            f"pass one of {', '.join(known_archs())} or a path"
        )
    return _profile(path.stem, _read_yaml(path), str(path))


def parse_op_profile(text: str, arch: str, where: str) -> OpProfile:
    """Return the profile that a text states, for a family of this name.

    Raises:
        ProfileError: the text states no whole profile.
    """
    return _profile(arch, strict_yaml.load(text, where, ProfileError), where)


@functools.cache
def _shipped(arch: str) -> OpProfile:
    path = _FOLDER / f"{arch}.yaml"
    return _profile(arch, _read_yaml(path), str(path))


def infer_arch(name: str) -> str:
    """Return the family a model's name points to: that of the first row whose text the name holds.

    A name that no row matches gives `default`, with a warning: a rule by name is a guess.
    """
    named = named_arch(name)
    if named is not None:
        return named
    warnings.warn(
        f"{name}: expected a name that points to a family, found none; taken as 'default': "
        f"pass --arch (arch=) to say which family it is",
        UserWarning,
        stacklevel=2,
    )
    return "default"


def named_arch(name: str) -> str | None:
    """Return the family of the first row whose text a name holds, None where none does."""
    lowered = name.lower()
    return next((arch for text, arch in _name_order() if text in lowered), None)


@functools.cache
def _name_order() -> list[tuple[str, str]]:
    rows = _read_yaml(_NAME_ORDER)
    assert isinstance(rows, list), "the name order is a list of rows, each a text and the family it points to"
    return [(text, arch) for text, arch in rows]


def _read_yaml(path: Path) -> object:
    text = read_text(path, MAX_YAML_BYTES, ProfileError, "a profile", "pass a profile's file")
    return strict_yaml.load(text, str(path), ProfileError)


def _profile(arch: str, data: object, source: str) -> OpProfile:
    stated = _fields(data, source, needed=("kinds", "default"))
    kinds = {name: _kind(name, kind, f"{source}: kinds.{name}") for name, kind in _named(stated, source).items()}
    default = stated["default"]
    if not isinstance(default, str) or default not in kinds:
        raise ProfileError(
            f"{source}: default: expected one of the kinds {', '.join(kinds)}, found {quoted(repr(default))}; name one"
        )
    _refuse_twins(kinds, source)
    return OpProfile(arch, kinds, default, source)


def _named(stated: Mapping[str, object], source: str) -> Mapping[str, object]:
    kinds = stated["kinds"]
    if not isinstance(kinds, dict) or not kinds:
        raise ProfileError(f"{source}: kinds: expected a mapping of at least one kind, found none; state one")
    return kinds


def _kind(name: str, data: object, where: str) -> LayerKind:
    stated = _fields(
        data, where, needed=("ops",), optional={"attention": ATTENTIONS, "ffn": FFNS, "norms": None, "optional": None}
    )
    try:
        ops = OpCounts.from_dict(stated["ops"], where=f"{where}.ops")  # type: ignore[arg-type]  # it checks
    except ModelSpecError as error:
        raise ProfileError(str(error)) from error
    flavours = {field: str(stated[field]) for field in ("attention", "ffn") if field in stated}
    norms = stated.get("norms")
    # A bool equals a number and is no count.
    if "norms" in stated and (type(norms) is not int or norms != ops["normOp"]):
        raise ProfileError(
            f"{where}: norms: expected the kind's normOp, {ops['normOp']}, found {quoted(repr(norms))}; correct one"
        )
    return LayerKind(
        name,
        ops,
        **flavours,
        norms=ops["normOp"] if "norms" in stated else None,
        optional=_names(stated.get("optional", []), f"{where}: optional"),
    )


def _names(data: object, where: str) -> tuple[str, ...]:
    if not isinstance(data, list) or not all(isinstance(name, str) and name for name in data):
        raise ProfileError(
            f"{where}: expected a list of names of modules or parameters, found {quoted(repr(data))}; state it so"
        )
    return tuple(data)


def _fields(
    data: object, where: str, needed: tuple[str, ...], optional: Mapping[str, tuple[str, ...] | None] | None = None
) -> dict[str, object]:
    """Return a mapping's fields, refusing what is missing, unknown, or none of the choices it has."""
    choices = optional or {}
    known = (*needed, *choices)
    if not isinstance(data, dict):
        raise ProfileError(
            f"{where}: expected a mapping of {', '.join(known)}, found {quoted(repr(data))}; state it so"
        )
    for field in needed:
        if field not in data:
            raise ProfileError(f"{where}: {field}: expected a value, found nothing; state it")
    for field, value in data.items():
        if field not in known:
            raise ProfileError(
                f"{where}: {field}: expected one of {', '.join(known)}, found an unknown field; leave it out"
            )
        allowed = choices.get(field)
        if allowed is not None and value not in allowed:
            raise ProfileError(
                f"{where}: {field}: expected one of {', '.join(allowed)}, found {quoted(repr(value))}; "
                f"correct it, or leave it out"
            )
    return data


def _refuse_twins(kinds: Mapping[str, LayerKind], source: str) -> None:
    """Refuse two kinds that state one flavour. Kinds that state none are told apart by name alone."""
    seen: dict[tuple[str, str | None, int | None], str] = {}
    for kind in kinds.values():
        if kind.attention is None and kind.ffn is None:
            continue
        twin = seen.setdefault((kind.attention or "full", kind.ffn, kind.norms), kind.name)
        if twin != kind.name:
            raise ProfileError(
                f"{source}: kinds.{kind.name}: expected a flavour of its own, found that of {twin}; "
                f"no layer could tell them apart: state another, or leave one out"
            )
