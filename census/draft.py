"""A case of the table for a model type that has none yet, for a person to review."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from census import strict_yaml
from census.config import load_config
from census.errors import CensusError, KindError
from census.measurement import ModelCensus, measure
from census.op_profile import known_archs

if TYPE_CHECKING:
    from transformers import PretrainedConfig


def draft_case(model_type: str) -> str:
    """Return a table entry for a model type's default config, as YAML: measured, or refused with the reason.

    The measured vectors stand above it as comments, to be held against the model's source before the entry states them.

    Raises:
        ConfigError: Transformers has no such type, or no default config of it.
    """
    import transformers

    config = load_config(model_type)
    entry: dict[str, Any] = {"model_type": model_type}
    comments = []
    try:
        census = _measure_under_any_family(config)
    except CensusError as error:
        entry |= {"config": strict_yaml.Flow({}), "refused": " ".join(str(error).split())}
    else:
        entry |= {"arch": census.spec["arch"], "config": strict_yaml.Flow({})}
        comments = [
            f"# {name}, layer {census.stack.index(name)}: attention {kind.shape.attention}, ffn {kind.shape.ffn}, "
            f"vector {list(kind.ops.to_vector())}"
            for name, kind in census.kinds.items()
        ]
        comments.append("# Read each kind in the modeling file; then state it under kinds, by its layers.")
    entry["source"] = f"Transformers {transformers.__version__}'s own config"
    return "\n".join([*comments, strict_yaml.dump({f"{model_type}-default": entry}).rstrip("\n")])


def _measure_under_any_family(config: PretrainedConfig) -> ModelCensus:
    """Measure a config under the family that is inferred for it, or the first that has kinds for its layers."""
    try:
        return measure(config)
    except KindError as inferred:
        for arch in known_archs():
            try:
                return measure(config, arch)
            except KindError:
                continue
        raise inferred from None
