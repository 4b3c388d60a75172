"""What a census costs beside building the same model, counting its FLOPs and sizing its memory, in one run.

    python -m pip install -c constraints.txt -e '.[bench]'
    python benchmarks/run.py            # writes results.md and results.json beside this file
    python benchmarks/run.py --guard    # measures census alone against its bounds; exit 1 where one is exceeded

Each model has a process of its own, warmed by one call of each tool; the tools then take turns, so that whatever else
the machine does hits all of them. A time is the median of the CPU seconds of its calls, which are single-threaded, and
only ratios of times are reported. Memory is the most a fresh process held for one call, imports included.
"""

from __future__ import annotations

import argparse
import copy
import json
import os
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
ROOT = HERE.parent
sys.path.insert(0, str(ROOT))
os.environ.update(OMP_NUM_THREADS="1", HF_HUB_OFFLINE="1", TRANSFORMERS_VERBOSITY="error")

MODELS = (
    "llama-3.1-8b", "qwen3-32b", "gemma-3-27b", "llama-3.1-405b",
    "mixtral-8x22b", "gpt-oss-120b", "qwen3-235b-a22b",
    "deepseek-v3", "kimi-k2",
    "qwen3-next-80b-a3b", "falcon-h1-34b", "nvidia-nemotron-3-nano-30b-a3b-bf16",
)  # fmt: skip
"""Dense, routed, latent attention, gated delta rule and Mamba hybrids, of 8 B to 1 T parameters."""

TOKENS = 4096
LIMIT_SECONDS = 180
"""What one call of another tool may take before it is given up."""


# What is timed. Each function takes a case's config, and returns what the tool says of the model.


def census(config: Any, **options: Any) -> dict[str, Any]:
    from census import measure
    from census.costs import flops, parameters

    spec = measure(config, **options).spec
    return {"parameters": parameters(spec)["total"], "flops": flops(spec, TOKENS)["total"]}


def meta_build(config: Any) -> dict[str, Any]:
    return {"parameters": sum(parameter.numel() for parameter in _model(config).parameters())}


def flop_counter(config: Any) -> dict[str, Any]:
    import torch
    from torch.utils.flop_counter import FlopCounterMode

    model = _model(config)
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        model(input_ids=_tokens())
    return {"flops": counter.get_total_flops()}


def accelerate(config: Any) -> dict[str, Any]:
    from accelerate.utils import calculate_maximum_sizes

    total, _ = calculate_maximum_sizes(_model(config))
    return {"bytes": total}


def calflops(config: Any) -> dict[str, Any]:
    from calflops import calculate_flops

    made = calculate_flops(
        model=_model(config),
        kwargs={"input_ids": _tokens()},
        print_results=False,
        output_as_string=False,
    )
    return {"flops": made[0], "parameters": made[2]}


def fvcore(config: Any) -> dict[str, Any]:
    from fvcore.nn import FlopCountAnalysis

    model = _model(config)
    # It traces, and a trace returns tensors alone. It counts a multiply-add once, all others here count it twice.
    model.forward = lambda tokens, run=model.forward: run(input_ids=tokens).logits
    return {"flops": 2 * FlopCountAnalysis(model, (_tokens(),)).total()}


OTHERS: tuple[Callable[[Any], dict[str, Any]], ...] = (flop_counter, accelerate, calflops, fvcore)
MISSES = {
    "meta_build": "anything but parameters",
    "flop_counter": "softmaxes, norms, activations, what a layer is; grouped matmuls of experts, without a word",
    "accelerate": "anything but bytes of parameters",
    "calflops": "which layer runs what; operators it has no rule for",
    "fvcore": "which layer runs what; operators it has no rule for",
}


def _model(config: Any) -> Any:
    import torch
    from transformers import AutoModelForCausalLM

    # Grouped matmuls of experts take no other type.
    with torch.device("meta"):
        return AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)


def _tokens() -> Any:
    import torch

    return torch.ones((1, TOKENS), dtype=torch.long, device="meta")


def _config(name: str) -> Any:
    """Return the config of a case's language model: what `AutoModelForCausalLM` takes, and census too."""
    import transformers  # noqa: F401  # what every tool imports is no part of its time

    from census.config import text_config
    from test_models.case_table import CASES

    return copy.deepcopy(text_config(CASES[name].config_object))


# What one process measures.


def seconds_of(calls: Mapping[str, Callable[[], object]], rounds: int) -> dict[str, float]:
    """Return the median CPU seconds of each call, the calls taking turns, the first round left out."""
    taken: dict[str, list[float]] = {name: [] for name in calls}
    for turn in range(rounds + 1):
        for name, call in calls.items():
            start = time.process_time()
            call()
            if turn:
                taken[name].append(time.process_time() - start)
    return {name: statistics.median(times) for name, times in taken.items()}


def time_model(name: str, rounds: int) -> dict[str, float]:
    config = _config(name)
    return seconds_of({tool.__name__: lambda tool=tool: tool(config) for tool in (census, meta_build)}, rounds)


def call_once(tool: str, name: str) -> dict[str, Any]:
    """Return what a tool says of a model, how long a warm call takes it, and the memory of this process."""
    config = _config(name)
    function = globals()[tool]
    said = function(config)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    start = time.process_time()
    function(config)
    return {"said": said, "megabytes": peak, "seconds": time.process_time() - start}


def flatness(rounds: int) -> dict[str, float]:
    """Return the largest ratio of a census' time as one number of its config or its forward grows."""
    dense, routed = _config("llama-3.1-8b"), _config("mixtral-8x22b")

    def with_(config: Any, **fields: Any) -> Any:
        made = copy.deepcopy(config)
        for field, value in fields.items():
            setattr(made, field, value)
        return made

    sweeps: dict[str, dict[str, Callable[[], object]]] = {
        "sequence length, 64 to 1 M": {str(n): lambda n=n: census(dense, seq_length=n) for n in (64, 4096, 1 << 20)},
        "width, 1 to 16 times": {
            str(n): lambda n=n: census(with_(dense, hidden_size=4096 * n, head_dim=128 * n)) for n in (1, 4, 16)
        },
        "experts, 8 to 512": {str(n): lambda n=n: census(with_(routed, num_local_experts=n)) for n in (8, 64, 512)},
        "layers, 16 to 128, per layer": {
            str(n): lambda n=n: census(with_(dense, num_hidden_layers=n)) for n in (16, 128)
        },
    }
    ratios = {}
    for name, calls in sweeps.items():
        # A census of these takes a few hundredths of a second, so that it takes more of them to tell a tenth.
        first, *rest = seconds_of(calls, 5 * rounds).values()
        ratios[name] = max(rest) / first / (8 if "per layer" in name else 1)
    return ratios


def cold_start(rounds: int) -> dict[str, float]:
    """Return wall times of whole processes: ratios to importing torch and transformers, and seconds where so named."""
    python, command = sys.executable, str(Path(sys.executable).parent / "census")
    calls = {
        "imports": [python, "-c", "import torch, transformers"],
        "show": [command, "show", str(ROOT / "docs" / "qwen3-next-80b-a3b.json")],
        "help": [command, "--help"],
        "list": [command, "list"],
    }
    taken: dict[str, list[float]] = {name: [] for name in calls}
    for turn in range(2 * rounds + 1):
        for name, call in calls.items():
            start = time.perf_counter()
            subprocess.run(call, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            if turn:
                taken[name].append(time.perf_counter() - start)
    # Of wall times the two that were taken after one another are compared, since machines slow down for a while.
    pairs = zip(taken["show"], taken["imports"], strict=True)
    return {
        "show / imports": statistics.median(show / imports for show, imports in pairs),
        "help, seconds": statistics.median(taken["help"]),
        "list, seconds": statistics.median(taken["list"]),
    }


# What is reported of all of them.

BOUNDS = {
    "census / meta build, median": 1.0,
    "census / FlopCounterMode, median": 1 / 20,
    "peak megabytes at 1 T parameters": 450.0,
    "sequence length, 64 to 1 M": 1.1,
    "width, 1 to 16 times": 1.1,
    "experts, 8 to 512": 1.1,
    "layers, 16 to 128, per layer": 1.0,
    "show / imports": 1.3,
    "help, seconds": 0.3,
    "list, seconds": 0.3,
}
"""What the guard holds a census to."""


def _child(*arguments: object) -> dict[str, Any]:
    """Run one measurement in a process of its own; return what it says, or why it says nothing."""
    command = [sys.executable, __file__, "--child", *map(str, arguments)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_SECONDS)
    except subprocess.TimeoutExpired:
        return {"failed": f"gave no answer in {LIMIT_SECONDS} s"}
    if done.returncode:
        return {"failed": (done.stderr.strip().splitlines() or ["no message"])[-1][:160]}
    return json.loads(done.stdout.splitlines()[-1])


def run(rounds: int, guard: bool) -> dict[str, Any]:
    """Measure everything that is reported, or of a guard's run what is bounded."""
    models = {}
    for name in MODELS:
        _tell(name)
        times = _child("time_model", name, rounds)
        once = {} if guard else {tool.__name__: _child("call_once", tool.__name__, name) for tool in OTHERS}
        once["flop_counter"] = once.get("flop_counter") or _child("call_once", "flop_counter", name)
        once["census"] = _child("call_once", "census", name)
        models[name] = {"seconds": times, **once}
    measured = [model for model in models.values() if "seconds" in model["flop_counter"]]
    found = {
        "census / meta build, median": statistics.median(
            model["seconds"]["census"] / model["seconds"]["meta_build"] for model in models.values()
        ),
        "census / FlopCounterMode, median": statistics.median(
            model["seconds"]["census"] / model["flop_counter"]["seconds"] for model in measured
        ),
        "peak megabytes at 1 T parameters": models["kimi-k2"]["census"]["megabytes"],
        **_child("flatness", rounds),
        **_child("cold_start", rounds),
    }
    return {"models": models, "found": found}


def _tell(what: str) -> None:
    print(what, file=sys.stderr)


def report(result: Mapping[str, Any]) -> str:
    """Return the results as Markdown."""
    from importlib.metadata import version

    lines = [
        "# What a census costs",
        "",
        f"Written by `python benchmarks/run.py`; transformers {version('transformers')}, torch {version('torch')}.",
        "Times are ratios of CPU seconds taken in one run; memory is a fresh process's peak, imports included.",
        "",
        "| bound | found | at most |",
        "| --- | ---: | ---: |",
        *(f"| {name} | {value:.3g} | {BOUNDS[name]:.3g} |" for name, value in result["found"].items()),
        "",
        "| model | meta build | FlopCounterMode | accelerate | calflops | fvcore | census, MB |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    for name, model in result["models"].items():
        own = model["seconds"]["census"]
        ratios = [model["seconds"]["meta_build"] / own]
        ratios += [model[tool.__name__].get("seconds", 0) / own for tool in OTHERS]
        cells = [f"{ratio:.2g}" if ratio else "fails" for ratio in ratios]
        lines.append(f"| {name} | {' | '.join(cells)} | {model['census']['megabytes']:.0f} |")
    lines += [
        "",
        "Each tool's time as a multiple of the census'. What the others say of the forward at 4,096 tokens:",
        "",
    ]
    lines += ["| model | census | FlopCounterMode | calflops | fvcore |", "| --- | ---: | ---: | ---: | ---: |"]
    for name, model in result["models"].items():
        own = model["census"]["said"]["flops"]
        cells = []
        for tool in ("flop_counter", "calflops", "fvcore"):
            said = model[tool].get("said")
            cells.append(f"{said['flops'] / own:.1%}" if said else model[tool]["failed"].replace("|", " "))
        lines.append(f"| {name} | {own / 1e12:.1f} TFLOP | {' | '.join(cells)} |")
    lines += ["", "| tool | does not count |", "| --- | --- |"]
    lines += [f"| {tool} | {misses} |" for tool, misses in MISSES.items()]
    return "\n".join(lines) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5, help="calls of each tool (5)")
    parser.add_argument("--guard", action="store_true", help="measure census alone; exit 1 where a bound is exceeded")
    parser.add_argument("--child", nargs="+", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        function, *arguments = options.child
        print(json.dumps(globals()[function](*(int(text) if text.isdigit() else text for text in arguments))))
        return 0
    result = run(options.rounds, options.guard)
    over = {name: value for name, value in result["found"].items() if value > BOUNDS[name]}
    for name, value in result["found"].items():
        print(f"{'OVER' if name in over else 'within':6}  {name}: {value:.3g}, at most {BOUNDS[name]:.3g}")
    if options.guard:
        return 1 if over else 0
    (HERE / "results.json").write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    (HERE / "results.md").write_text(report(result), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
