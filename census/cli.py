"""The command `census` and its subcommands. Data goes to stdout, all else to stderr."""

from __future__ import annotations

import argparse
import gc
import importlib.metadata
import json
import os
import sys
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn, TextIO

from census.errors import CensusError, ConfigError
from census.terminal import fitted_tables, progress

AGREES, DIFFERS, FAILED = 0, 1, 2
"""Exit codes: stated and measured agree; they differ; something could not be read or measured."""

_SOURCE = "a model type, a config.json, a folder that holds one, or a hub id (the only one to use the network)"


def run() -> NoReturn:
    """Run the command as a process of its own, which ends without the second that torch takes to be unloaded."""
    # What a short process imports and measures is not worth collecting.
    gc.disable()
    try:
        code = main()
    except SystemExit as stop:
        # argparse stops so, its message already written.
        code = stop.code if isinstance(stop.code, int) else FAILED
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; return its exit code."""
    options = _parser().parse_args(arguments)
    try:
        with warnings.catch_warnings(), fitted_tables():
            _quiet(options.debug, options.quiet)
            code: int = options.run(options)
        sys.stdout.flush()
    except CensusError as error:
        if options.debug:
            raise
        print(f"census: {' '.join(str(error).split())}", file=sys.stderr)
        return FAILED
    except BrokenPipeError:
        # The reader closed its end; without this Python complains once more on its way out.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILED
    return code


def _quiet(debug: bool, quiet: bool) -> None:
    """Let through census's own warnings, one line each, unless quiet, and what libraries say only in debugging."""
    if debug:
        return
    warnings.simplefilter("ignore")
    if not quiet:
        warnings.filterwarnings("default", module=r"census\.")
    warnings.showwarning = _show_warning
    # Both libraries set their level by these when they are imported, which has not happened yet.
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    os.environ.setdefault("HF_HUB_VERBOSITY", "error")


def _show_warning(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,
    line: str | None = None,
) -> None:
    print(f"census: warning: {' '.join(str(message).split())}", file=sys.stderr)


def _note(options: argparse.Namespace, text: str) -> None:
    """Say on stderr what is worth knowing and no error."""
    if not options.quiet:
        print(f"census: {text}", file=sys.stderr)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="census",
        description="State what a language model really runs, measured from the modules Transformers builds "
        "of its config: no weights, no network, fake tensors only.",
        epilog="example: census show qwen3_next --format table",
    )
    parser.add_argument("--version", action=_Version, help="print the versions of census, transformers, torch")
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")
    _add_show(commands)
    _add_explain(commands)
    _add_audit(commands)
    _add_diff(commands)
    _add_drift(commands)
    _add_resolve(commands)
    _add_list(commands)
    _add_draft(commands)
    _add_report(commands)
    _add_completion(commands)
    _add_schema(commands)
    return parser


class _Version(argparse.Action):
    def __init__(self, option_strings: Sequence[str], dest: str, help: str | None = None) -> None:
        super().__init__(option_strings, dest, nargs=0, help=help)

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        print(*(f"{name} {importlib.metadata.version(name)}" for name in ("census", "transformers", "torch")))
        parser.exit()


def _command(
    commands: argparse._SubParsersAction[argparse.ArgumentParser], name: str, summary: str, example: str
) -> argparse.ArgumentParser:
    parser = commands.add_parser(
        name,
        help=summary,
        description=f"{summary[0].upper()}{summary[1:]}.",
        epilog=f"example: {example}",
    )
    parser.add_argument("--debug", action="store_true", help="show tracebacks and what the libraries say")
    parser.add_argument("--quiet", action="store_true", help="say nothing on stderr but errors")
    return parser


def _add_show(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = _command(
        commands,
        "show",
        "print the spec measured of a config",
        "census show mixtral --format table",
    )
    parser.add_argument("source", metavar="SOURCE", help=_SOURCE)
    parser.add_argument("--arch", help="the family whose profile names the kinds; inferred from the name if left out")
    parser.add_argument("--name", help="the model's name in the spec")
    parser.add_argument(
        "--format",
        choices=("yaml", "json", "train-yaml", "table"),
        default="yaml",
        help="yaml (default), json, train-yaml (a model section with config_overrides), table (for reading)",
    )
    parser.add_argument(
        "--costs",
        action="store_true",
        help="print instead the parameters, the FLOPs of a forward and the bytes of the cache, by part",
    )
    parser.add_argument(
        "--seq-length", type=int, metavar="TOKENS", help="the forward that --costs prices; 4096 tokens if left out"
    )
    parser.set_defaults(run=_show)


def _add_explain(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = _command(
        commands,
        "explain",
        "print what stated each number of a spec: evidence, modules that ran, shapes, file and line of their code",
        "census explain mixtral decoder.attMM",
    )
    parser.add_argument("source", metavar="SOURCE", help=_SOURCE)
    parser.add_argument(
        "field",
        metavar="FIELD",
        nargs="?",
        help="one field alone: qk_norm, kinds.moe.num_experts, vision.hidden_size, or a kind and an op: moe.attMM",
    )
    parser.add_argument("--arch", help="the family whose profile names the kinds; inferred from the name if left out")
    parser.add_argument("--format", choices=("table", "json"), default="table", help="table by default")
    parser.set_defaults(run=_explain)


def _add_audit(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = _command(
        commands,
        "audit",
        "compare an op profile with what is measured, kind by kind and op by op; exit 0 where they agree, "
        "1 where they differ, 2 where something could not be measured",
        "census audit mixtral qwen3_moe --profile mixtral",
    )
    parser.add_argument("sources", metavar="SOURCE", nargs="*", help=_SOURCE)
    parser.add_argument(
        "--profile",
        help="a profile's file, a folder of them, or a family's name; inferred from the source if left out",
    )
    parser.add_argument(
        "--all-cases",
        action="store_true",
        help="every case of the profile's family in the case table, in a checkout of the repository",
    )
    parser.add_argument(
        "--format",
        choices=("table", "json", "markdown", "junit", "github"),
        default="table",
        help="table by default; junit is a test report, github are annotations on the profile's lines",
    )
    parser.add_argument("--fix", action="store_true", help="write the measured counts into the profile's file")
    parser.add_argument("--draft", action="store_true", help="print a new profile, measured of the one source")
    parser.set_defaults(run=_audit)


def _add_diff(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = _command(
        commands,
        "diff",
        "print the fields, kinds and ops in which two models, goldens, specs or profiles differ; exit 0 where they are "
        "equal, 1 where they differ, 2 where they cannot be compared",
        "census diff mixtral qwen3_moe",
    )
    for name in ("a", "b"):
        parser.add_argument(name, metavar=name.upper(), help=f"a golden, a spec, an op profile, or a model: {_SOURCE}")
    parser.add_argument("--format", choices=("table", "json", "markdown"), default="table", help="table by default")
    parser.set_defaults(run=_diff)


def _add_drift(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = _command(
        commands,
        "drift",
        "measure every case with two releases of Transformers or torch and print what differs, with what stated it in "
        "either; exit 0 where nothing does, 1 where something does, 2 where something could not be measured",
        "census drift --from 5.20.2 --to 5.25.0 --types qwen3_next mixtral",
    )
    release = "a version that pip finds, or a folder that holds the package"
    parser.add_argument("--from", dest="one", metavar="RELEASE", required=True, help=f"the earlier: {release}")
    parser.add_argument("--to", dest="other", metavar="RELEASE", required=True, help=f"the later: {release}")
    parser.add_argument("--package", choices=("transformers", "torch"), default="transformers", help="of what package")
    parser.add_argument("--types", metavar="TYPE", nargs="+", default=[], help="these model types alone")
    parser.add_argument("--bisect", action="store_true", help="find the release in which each change first appears")
    parser.add_argument("--format", choices=("table", "json", "markdown"), default="table", help="table by default")
    parser.set_defaults(run=_drift)


def _add_resolve(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = _command(
        commands,
        "resolve",
        "print the spec read from a config's field names, the second opinion",
        "census resolve deepseek_v3 --against-census",
    )
    parser.add_argument("source", metavar="SOURCE", help=_SOURCE)
    parser.add_argument(
        "--against-census",
        action="store_true",
        help="print the fields in which it differs from what is measured; exit 1 where it does",
    )
    parser.set_defaults(run=_resolve)


def _add_list(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = _command(
        commands,
        "list",
        "print every model type: whether it is measured, its families, what mixes its tokens",
        "census list --format markdown",
    )
    parser.add_argument("--format", choices=("table", "json", "markdown"), default="table", help="table by default")
    parser.set_defaults(run=_list)


def _add_draft(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = _command(
        commands,
        "draft",
        "print a case of the suite's table for a model type that has none, to be reviewed",
        "census draft qwen3_next",
    )
    parser.add_argument("model_type", metavar="TYPE", help="a model type of Transformers")
    parser.set_defaults(run=_draft)


def _add_report(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = _command(
        commands,
        "report",
        "write a static site of the goldens: an index, a page a model, the profiles beside them",
        "census report -o census-report",
    )
    parser.add_argument(
        "-o", "--output", type=Path, default=Path("census-report"), metavar="DIR",
        help="the folder to write, new or a former report; census-report if left out",
    )  # fmt: skip
    parser.add_argument(
        "--golden-specs", type=Path, default=Path("golden_specs"), metavar="DIR",
        help="the goldens' folder; golden_specs if left out",
    )  # fmt: skip
    parser.set_defaults(run=_report)


def _add_completion(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = _command(
        commands,
        "completion",
        "print the script by which a shell completes census's commands, options, model types and families",
        "census completion bash > ~/.local/share/bash-completion/completions/census",
    )
    parser.add_argument("shell", choices=("bash", "zsh", "fish"), help="the shell")
    parser.set_defaults(run=_completion)


def _add_schema(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = _command(
        commands,
        "schema",
        "print the JSON Schema of a spec, a golden or an op profile, for editors and other languages",
        "census schema profile > profile.schema.json",
    )
    parser.add_argument("form", choices=("spec", "golden", "profile"), help="what the schema is of")
    parser.set_defaults(run=_schema)


def _show(options: argparse.Namespace) -> int:
    from census.config import load_config
    from census.costs import PINNED_LENGTH
    from census.measurement import measure
    from census.table import census_table

    if options.seq_length is not None and not options.costs:
        raise ConfigError("--seq-length: expected --costs beside it, found none; add --costs, or leave both out")
    census = measure(load_config(options.source), options.arch, options.name or _name(options.source))
    for part, reason in census.left_out.items():
        _note(options, f"{part} is left out: {' '.join(reason.split())}")
    if options.costs:
        tokens = PINNED_LENGTH if options.seq_length is None else options.seq_length
        print(_costs(census.spec, tokens, options.format))
    else:
        print(census_table(census) if options.format == "table" else _document(census.spec, options.format))
    return AGREES


def _costs(spec: Mapping[str, Any], seq_length: int, form: str) -> str:
    from census import strict_yaml
    from census.costs import LAWS, cache_bytes, flops, parameters
    from census.table import columns

    costs = {
        "parameters": parameters(spec),
        "flops": flops(spec, seq_length),
        "cache_bytes": cache_bytes(spec, seq_length),
    }
    document = {"name": spec["name"], "seq_length": seq_length, **costs}
    if form == "json":
        return json.dumps(document, indent=2)
    if form != "table":
        return strict_yaml.dump(document).rstrip("\n")
    blocks = [[f"{spec['name']}: {seq_length:,} tokens, a multiply-add is 2 FLOPs, the cache at 2 bytes a value"]]
    for name, parts in costs.items():
        width = max(len(f"{value:,}") for value in parts.values())
        laws = LAWS if name == "flops" else {}
        rows = [(part, f"{value:>{width},}", laws.get(part, "")) for part, value in parts.items()]
        blocks.append([name, *(line.rstrip() for line in columns(rows))])
    return "\n\n".join("\n".join(block) for block in blocks)


def _document(spec: Mapping[str, Any], form: str) -> str:
    from census import strict_yaml
    from census.spec import readable_spec

    if form == "json":
        return json.dumps(spec, indent=2)
    readable = readable_spec(spec)
    document = {"model": {"name": spec["name"], "config_overrides": readable}} if form == "train-yaml" else readable
    return strict_yaml.dump(document).rstrip("\n")


def _name(source: str) -> str | None:
    """Return a name for what a path leads to: that of the folder or the file; None for other sources."""
    path = Path(source)
    if not path.exists():
        return None
    path = path.resolve()
    if path.is_dir():
        return path.name
    return path.parent.name if path.stem == "config" else path.stem.removesuffix("_config")


def _explain(options: argparse.Namespace) -> int:
    from census.config import load_config
    from census.explain import explain, explanations_text

    found = explain(load_config(options.source), options.arch, _name(options.source), options.field)
    as_json = options.format == "json"
    print(json.dumps([one.to_dict() for one in found], indent=2) if as_json else explanations_text(found))
    return AGREES


def _audit(options: argparse.Namespace) -> int:
    from census.audit import audit_sources
    from census.audit_report import audit_text
    from census.config import load_config
    from census.profile_draft import draft_profile
    from census.profile_file import audited_sources, fix_profiles, profile_files, require_one_source, require_own_files

    if options.draft:
        source = require_one_source(options.sources)
        print(draft_profile(load_config(source), _name(source) or source))
        return AGREES
    if options.fix:
        require_own_files(options.profile)
    code = AGREES

    def failed(source: str, error: CensusError) -> None:
        nonlocal code
        if options.debug:
            raise error
        print(f"census: {source}: could not be measured: {' '.join(str(error).split())}", file=sys.stderr)
        code = FAILED

    files = profile_files(options.profile) if options.profile else []
    named = {source: _name(source) or source for source in options.sources}
    sources = audited_sources(named, files, options.all_cases)
    # What is measured and printed for a debugger is not to be drawn over.
    with progress(sources, shown=not options.quiet and not options.debug) as moving:
        audits = audit_sources(moving, files, failed)
    text = audit_text(audits, options.format)
    if text:
        print(text)
    if options.fix:
        for path, counts in fix_profiles(audits).items():
            _note(options, f"{path}: {counts} counts written")
        return code
    return code or (DIFFERS if any(audit.differing for audit in audits) else AGREES)


def _diff(options: argparse.Namespace) -> int:
    from census.compare import compare, comparison_text, read_compared

    found = compare(read_compared(options.a), read_compared(options.b))
    text = comparison_text(options.a, options.b, found, options.format)
    if text:
        print(text)
    return DIFFERS if any(found.values()) else AGREES


def _drift(options: argparse.Namespace) -> int:
    from census.drift import drift
    from census.drift_cases import drift_cases
    from census.drift_report import drift_text

    def tell(line: str) -> None:
        _note(options, line)

    found = drift(options.package, options.one, options.other, drift_cases(options.types), tell, options.bisect)
    print(drift_text(found, options.format))
    if found.of("failed"):
        return FAILED
    return DIFFERS if any(case.state != "equal" for case in found.cases) else AGREES


def _resolve(options: argparse.Namespace) -> int:
    from census.config import load_config
    from census.measurement import measure
    from census.resolver import resolve_model_spec
    from census.spec import diff_specs

    config = load_config(options.source)
    name = _name(options.source)
    resolved = resolve_model_spec(config, {"name": name} if name else None)
    if not options.against_census:
        print(_document(resolved, "yaml"))
        return AGREES
    census = measure(config, resolved["arch"], resolved["name"])
    # Field names alone do not say what each kind states of itself.
    differences = diff_specs({**census.spec, "kinds": {}, "outside": {}}, {**resolved, "kinds": {}, "outside": {}})
    for difference in differences:
        evidence = census.evidence.get(difference.path, "")
        print(f"{difference.path}: measured {difference.expected}, config says {difference.found}  {evidence}".rstrip())
    return DIFFERS if differences else AGREES


def _list(options: argparse.Namespace) -> int:
    from census.coverage import model_types, totals
    from census.table import columns, markdown

    types = model_types()
    if options.format == "json":
        print(json.dumps({name: kind.to_dict() for name, kind in types.items()}, indent=2))
        return AGREES
    header = ("type", "of", "families", "mixers", "state")
    rows = [
        (name, ", ".join(kind.maps), ", ".join(kind.families), ", ".join(kind.mixers), kind.state)
        for name, kind in types.items()
    ]
    print("\n".join((markdown if options.format == "markdown" else columns)([header, *rows])))
    for name, (measured, known) in totals(types).items():
        _note(options, f"{name}: {measured} of {known} types measured")
    return AGREES


def _draft(options: argparse.Namespace) -> int:
    from census.draft import draft_case

    print(draft_case(options.model_type))
    return AGREES


def _report(options: argparse.Namespace) -> int:
    from census.report import build_report

    report = build_report(options.golden_specs, options.output)
    print(report.index)
    _note(options, f"{report.models} models")
    return AGREES


def _completion(options: argparse.Namespace) -> int:
    from census.completion import completion_script

    print(completion_script(_parser(), options.shell))
    return AGREES


def _schema(options: argparse.Namespace) -> int:
    from census.schema import schemas

    print(json.dumps(schemas()[options.form], indent=1))
    return AGREES
