"""A config's fields under their aliases: overrides first, then the type's rule, then what is stated."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from census.errors import ConfigError
from census.resolver_fields import ALIASES, RULE_OF, TEXT_TOWERS, VISION_TOWERS, TypeRule


def read_field(config: object, name: str) -> object:
    """Return what a config states under one name, None where it states nothing.

    Args:
        config: a Transformers config, or a mapping as a config.json holds it.
        name: the field. One whose value differs between layers is read of the first layer.
    """
    if isinstance(config, Mapping):
        return config.get(name)
    try:
        return getattr(config, name, None)
    except RuntimeError:
        # Transformers refuses to give one value for a field that `per_layer_config` states layer by layer.
        value: object = getattr(config.per_layer_config[0], name, None)  # type: ignore[attr-defined]
        return value


def first_stated(config: object, names: Sequence[str]) -> object:
    """Return what the first of some names states that is there and not null, None where none does."""
    return next((value for name in names if (value := read_field(config, name)) is not None), None)


@dataclass(frozen=True)
class ConfigFields:
    """The fields of a config's language model, under the names of a ModelSpec.

    Attributes:
        name: the model's name.
        model_type: the type of the whole config.
        whole: the whole config.
        text: the language model's part of it, which is the whole where the config is not composite.
        overrides: spec fields that win over what the config states.
    """

    name: str
    model_type: str
    whole: object
    text: object
    overrides: Mapping[str, object] = field(default_factory=dict)

    @classmethod
    def of(cls, config: object, overrides: Mapping[str, object] | None = None) -> ConfigFields:
        """Return the fields of a config.

        Raises:
            ConfigError: the config has neither a name nor a model type.
        """
        stated = {name: value for name, value in (overrides or {}).items() if value is not None}
        model_type = str(read_field(config, "model_type") or "")
        # In a config.json `_name_or_path` is where somebody once kept the model.
        path = None if isinstance(config, Mapping) else read_field(config, "_name_or_path")
        name = str(stated.get("name") or path or model_type)
        if not name:
            raise ConfigError(
                "config: expected model_type, found none; pass a config.json's content, or overrides={'name': ...}"
            )
        text = config
        while (tower := first_stated(text, TEXT_TOWERS)) is not None:
            text = tower
        return cls(name, model_type, config, text, stated)

    @property
    def text_type(self) -> str:
        """The language model's type."""
        stated = read_field(self.text, "model_type")
        return str(stated) if stated else f"{self.model_type}_text"

    @property
    def rule(self) -> TypeRule:
        """What the language model's type fixes; nothing for a type without a row."""
        return RULE_OF.get(self.text_type, TypeRule((), ""))

    @property
    def vision(self) -> object:
        """The vision tower's config, None where the model has none."""
        return first_stated(self.whole, VISION_TOWERS)

    def get(self, name: str) -> object:
        """Return what is stated for a spec field, or under a config's own field, None where nothing is."""
        if name in self.overrides:
            return self.overrides[name]
        if name in self.rule.facts:
            return self.rule.facts[name]
        aliases = ALIASES.get(name, (name,))
        if name == "tie_word_embeddings":
            # Transformers ties a composite's embeddings by what the composite states, before its text config.
            stated = first_stated(self.whole, aliases)
            if stated is not None:
                return stated
        return first_stated(self.text, aliases)

    def states(self, name: str) -> bool:
        """Return whether anything is stated; null is nothing."""
        return self.get(name) is not None

    def number(self, name: str) -> int | None:
        """Return a whole number, None where nothing is stated.

        Raises:
            ConfigError: what is stated is none, or negative.
        """
        value = self.get(name)
        if value is None:
            return None
        if type(value) is not int or value < 0:
            raise self.error(name, "a whole number", repr(value), "correct the config")
        return value

    def needed(self, name: str, also: str = "") -> int:
        """Return a positive whole number.

        Raises:
            ConfigError: nothing is stated, or something else; the message names every alias.
        """
        value = self.number(name)
        if value:
            return value
        aliases = ", ".join(ALIASES.get(name, (name,)))
        found = "none of them" if value is None else "0"
        raise self.error(
            name,
            f"a positive number under one of {aliases}{also}",
            found,
            f"pass overrides={{'{name}': ...}}",
        )

    def sequence(self, name: str) -> Sequence[object]:
        """Return a list.

        Raises:
            ConfigError: what is stated is none.
        """
        value = self.get(name)
        if not isinstance(value, list | tuple):
            raise self.error(name, "a list", repr(value), "correct the config")
        return value

    def error(self, name: str, expected: str, found: object, advice: str) -> ConfigError:
        """Return the refusal of a field."""
        return ConfigError(f"{self.name}: {name}: expected {expected}, found {found}; {advice}")
