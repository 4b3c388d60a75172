"""Config in: from what a user names to the Transformers config. Code that comes with a model is never run."""

from __future__ import annotations

import copy
import difflib
import inspect
import os
import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from census.bounds import quoted
from census.config_file import read_config_file
from census.errors import ConfigError
from census.releases import own_fields, text_class

if TYPE_CHECKING:
    from transformers import PreTrainedConfig

_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")

_NO_STRUCTURE = frozenset({"auto_map", "quantization_config", "compression_config", "_name_or_path", "name_or_path"})
"""Fields that state remote code, storage, or where somebody once kept the model: nothing of what is built."""

_TEXT_TYPES_REREAD = {"kimi_k25": "kimi_k2", "exaone4_5": "exaone4_5_text"}
"""Composite types whose own config class renames a text model type of their first release."""


def load_config(source: str | os.PathLike[str]) -> PreTrainedConfig:
    """Return the Transformers config that a source names.

    Args:
        source: a config.json or a folder that holds one; else a model type Transformers knows, which gives
            its default config; else a hub id `owner/name`, the only one for which the network is used.

    Raises:
        ConfigError: there is no such source, or Transformers makes no config of it.
    """
    from transformers import CONFIG_MAPPING

    name = os.fsdecode(source)
    if os.path.lexists(name):
        return _from_fields(read_config_file(name), name)
    if name in CONFIG_MAPPING:
        return _made(CONFIG_MAPPING[name], {}, name)
    if _HUB_ID.fullmatch(name) and not name.endswith(".json"):
        config = _from_fields(read_config_file(_downloaded(name)), name)
        config.name_or_path = name
        return config
    raise ConfigError(
        f"{quoted(name) or 'source'}: expected a config.json, a folder that holds one, a model type or a hub id "
        f"(owner/name), found none of them{_near(name, CONFIG_MAPPING)}; pass the path of a config.json"
    )


def text_config(config: PreTrainedConfig) -> PreTrainedConfig:
    """Return the language model's config: the text config of a composite one, the config itself otherwise.

    Transformers ties a composite model's embeddings by what the composite states, whatever its text config
    says; the text config returned states the same. The argument stays as it is.

    Raises:
        ConfigError: the config holds several language models.
    """
    try:
        text = config.get_text_config(decoder=True)
    except ValueError as error:
        raise ConfigError(
            f"{config.model_type}: expected one language model, found several "
            f"({_one_line(error)}); pass the config of one of them"
        ) from error
    if type(text) is type(config):
        # Of a flat encoder-decoder config Transformers returns a copy with the decoder's fields renamed.
        return config
    own = getattr(text, "tie_word_embeddings", None)
    effective = getattr(config, "tie_word_embeddings", own)
    if effective == own:
        return text
    text = copy.deepcopy(text)
    text.tie_word_embeddings = bool(effective)
    return text


def _downloaded(hub_id: str) -> str:
    from huggingface_hub import hf_hub_download

    try:
        return hf_hub_download(hub_id, "config.json")
    except Exception as error:  # whatever the hub's client and its network raise: there is no file
        raise ConfigError(
            f"{hub_id}: expected its config.json from the hub, found {_one_line(error)}; "
            f"download the config.json yourself and pass its path"
        ) from error


def _from_fields(fields: dict[str, Any], where: str) -> PreTrainedConfig:
    from transformers import CONFIG_MAPPING

    remote = "auto_map" in fields
    fields = _structure(fields)
    model_type = fields.pop("model_type", None)
    if not isinstance(model_type, str) or not model_type:
        found = "nothing" if model_type is None else quoted(repr(model_type))
        raise ConfigError(f"{where}: model_type: expected a model type, found {found}; state it in the file")
    if model_type == "mistral" and "layer_types" in fields:
        # Transformers' AutoConfig reads it so: Mistral's own class has no windowed layers among full ones.
        model_type = "ministral"
    if model_type not in CONFIG_MAPPING:
        raise _unknown_type(model_type, fields, remote, where)
    config_class = CONFIG_MAPPING[model_type]
    _check_text_type(config_class, fields.get("text_config"), where)
    config = _made(config_class, fields, where)
    flat = _unread_text_fields(config, fields)
    return _made(config_class, _nested(config_class, fields, flat, where), where) if flat else config


def _structure(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return fields, those of nested configs included, without what states nothing of what is built."""
    return {
        name: _structure(value) if isinstance(value, dict) else value
        for name, value in fields.items()
        if name not in _NO_STRUCTURE
    }


def _made(config_class: type[PreTrainedConfig], fields: Mapping[str, Any], where: str) -> PreTrainedConfig:
    import transformers

    for name in fields:
        if name.startswith("__") or inspect.isroutine(getattr(config_class, name, None)):
            raise ConfigError(
                f"{where}: {quoted(name)}: expected a config's field, found the name of a method; leave it out"
            )
    try:
        return config_class(**copy.deepcopy(dict(fields)))
    except Exception as error:  # each config class validates in its own way, often by simply failing
        raise ConfigError(
            f"{where}: expected a config, found one refused by transformers {transformers.__version__} "
            f"({_one_line(error)}); correct the file"
        ) from error


def _unknown_type(model_type: str, fields: Mapping[str, Any], remote: bool, where: str) -> ConfigError:
    import transformers
    from transformers import CONFIG_MAPPING

    known = f"a model type of transformers {transformers.__version__}"
    found = f"{quoted(model_type)!r}{_near(model_type, CONFIG_MAPPING)}"
    code = "it needs remote code (auto_map), which census never runs; " if remote else ""
    text = fields.get("text_config")
    text_type = text.get("model_type") if isinstance(text, dict) else None
    built = _built_class(fields.get("architectures"))
    if built is not None:
        name, built_type = built
        advice = (
            f"its architectures name {name}, which Transformers builds as model type {built_type!r}: "
            f"if the model is that, set model_type to it in a copy of the file"
        )
    elif isinstance(text_type, str) and text_type in CONFIG_MAPPING:
        advice = (
            f"its text_config names model type {text_type!r}, which Transformers builds: "
            f"if that describes the language model, save text_config as a file of its own and pass that"
        )
    else:
        advice = "pass the config of a model Transformers builds, or upgrade transformers if a later one does"
    return ConfigError(f"{where}: model_type: expected {known}, found {found}; {code}{advice}")


def _built_class(architectures: object) -> tuple[str, str] | None:
    """Return the first class named that Transformers builds, with its model type; None if it builds none."""
    from transformers.models.auto import modeling_auto

    types: dict[str, list[str]] = {}
    for mapping in (
        modeling_auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES,
        modeling_auto.MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES,
    ):
        for model_type, classes in mapping.items():
            for name in (classes,) if isinstance(classes, str) else classes:
                types.setdefault(name, []).append(model_type)
    for name in architectures if isinstance(architectures, list) else ():
        if isinstance(name, str) and name in types:
            # A class can serve several types: its own is the one it is named after.
            return name, max(types[name], key=lambda t: name.lower().startswith(t.replace("_", "")))
    return None


def _fixed_text_type(config_class: type[PreTrainedConfig]) -> str | None:
    """Return the one model type a composite's language model can have, None where its file chooses it."""
    return getattr(text_class(config_class), "model_type", None)


def _check_text_type(config_class: type[PreTrainedConfig], text: object, where: str) -> None:
    """Refuse a text config of a type the composite does not hold; Transformers would read it as its own."""
    from transformers import CONFIG_MAPPING

    held = text_class(config_class)
    if held is None or not isinstance(text, dict) or "model_type" not in text:
        return
    stated, own = text["model_type"], config_class.model_type
    fixed = _fixed_text_type(config_class)
    if isinstance(stated, str) and (
        stated == _TEXT_TYPES_REREAD.get(own)
        or (stated in CONFIG_MAPPING and (not fixed or CONFIG_MAPPING[stated] is held))
    ):
        return
    expected = repr(fixed) if fixed else "one that Transformers knows"
    raise ConfigError(
        f"{where}: text_config.model_type: expected {expected} in a {own!r} config, found "
        f"{quoted(repr(stated))}{_near(str(stated), CONFIG_MAPPING)}; if the language model is such a one, "
        f"set it in a copy of the file"
    )


def _unread_text_fields(config: PreTrainedConfig, fields: Mapping[str, Any]) -> list[str]:
    """Return the language model's fields that a composite states flat and Transformers did not read."""
    if text_class(type(config)) is None or fields.get("text_config") is not None:
        return []
    text = config.text_config
    own = own_fields(type(config))
    read = vars(text)
    return [
        name for name in own_fields(type(text)) if name in fields and name not in own and read.get(name) != fields[name]
    ]


def _nested(
    config_class: type[PreTrainedConfig], fields: Mapping[str, Any], flat: list[str], where: str
) -> dict[str, Any]:
    """Return a composite's fields, those of the language model moved from beside them to text_config."""
    if not _fixed_text_type(config_class):
        raise ConfigError(
            f"{where}: text_config: expected the language model's fields and its model_type, found "
            f"{', '.join(flat)} beside it; put them there in a copy of the file"
        )
    own = {*own_fields(config_class), "tie_word_embeddings"}
    text = {name: value for name, value in fields.items() if name not in own}
    return {**{name: value for name, value in fields.items() if name in own}, "text_config": text}


def _near(name: str, known: Iterable[str]) -> str:
    near = difflib.get_close_matches(quoted(name), list(known), 3)
    return f" (near: {', '.join(near)})" if near else ""


def _one_line(error: BaseException) -> str:
    text = " ".join(str(error).split()) or type(error).__name__
    return text if len(text) <= 200 else f"{text[:200]}..."
