"""After any number of censuses, failing ones among them, the process is as it was, and holds no more memory."""

import gc
import locale
import logging
import os
import random
import sys
import threading
import warnings

import numpy
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import AutoConfig, AutoModel, AutoModelForCausalLM
from transformers.integrations.moe import ExpertsInterface
from transformers.masking_utils import AttentionMaskInterface
from transformers.modeling_utils import AttentionInterface
from transformers.utils import logging as transformers_logging

from census import CensusError
from census.measurement import forward
from test_models.families import FAMILIES

DEEP = settings().max_examples > 100

FAILING = {
    "more experts for a token than there are": ("mixtral", {"num_experts_per_tok": 9}),
    "a width that heads do not divide": ("gpt2", {"n_head": 7}),
    "an activation that there is none of": ("llama", {"hidden_act": "no such"}),
}


def refuse(model_type, changes):
    with pytest.raises(CensusError):
        FAMILIES[model_type].measure(**changes)


MEASURED = tuple(FAMILIES) if DEEP else ("llama", "gpt2", "qwen3_next")

CALLS = {
    **{name: (lambda family=family: family.measure()) for name, family in FAMILIES.items() if name in MEASURED},
    **{name: (lambda row=row: refuse(*row)) for name, row in FAILING.items()},
}


def open_files():
    return sorted(filter(None, map(target_of, os.listdir("/proc/self/fd"))))


def target_of(descriptor):
    try:
        return os.readlink(f"/proc/self/fd/{descriptor}")
    except OSError:
        # The descriptor of the listing itself.
        return None


def functions_of_models():
    """Return every function and class attribute of the modeling modules by its place."""
    found = {}
    for name, module in list(sys.modules.items()):
        if not (name.startswith("transformers.models.") and ".modeling_" in name):
            continue
        for attribute, value in vars(module).items():
            if callable(value):
                found[name, attribute] = id(value)
            if isinstance(value, type):
                found |= {(name, attribute, own): id(held) for own, held in vars(value).items() if callable(held)}
    return found


def state_of_the_process():
    return {
        "default dtype": torch.get_default_dtype(),
        "default device": torch.get_default_device(),
        "threads of torch": (torch.get_num_threads(), torch.get_num_interop_threads()),
        "gradients": (torch.is_grad_enabled(), torch.is_inference_mode_enabled()),
        "anomaly": torch.is_anomaly_enabled(),
        "deterministic": (
            torch.are_deterministic_algorithms_enabled(),
            torch.is_deterministic_algorithms_warn_only_enabled(),
            torch.backends.cudnn.deterministic,
        ),
        "autocast": torch.is_autocast_enabled(),
        "modes": (
            torch.utils._python_dispatch._get_current_dispatch_mode(),
            torch.overrides._get_current_function_mode_stack(),
        ),
        "attention backends": (torch.backends.cuda.flash_sdp_enabled(), torch.backends.cuda.math_sdp_enabled()),
        "random of torch": torch.get_rng_state().tolist(),
        "random of Python": random.getstate(),
        "random of numpy": str(numpy.random.get_state()),
        "registries": [dict(r._global_mapping) for r in (AttentionInterface, AttentionMaskInterface, ExpertsInterface)],
        "auto maps": [
            dict(auto._model_mapping._extra_content) for auto in (AutoModel, AutoModelForCausalLM)
        ] + [type(AutoConfig)],
        "torch.nn": {name: id(held) for name, held in vars(torch.nn.Module).items() if callable(held)},
        "torch.nn.functional": {name: id(held) for name, held in vars(torch.nn.functional).items() if callable(held)},
        "torch.nn.init": {name: id(held) for name, held in vars(torch.nn.init).items() if callable(held)},
        "torch": {name: id(held) for name, held in vars(torch).items() if callable(held)},
        "models": functions_of_models(),
        "hooks of every module": (
            len(torch.nn.modules.module._global_forward_hooks),
            len(torch.nn.modules.module._global_forward_pre_hooks),
        ),
        "threads": sorted(thread.name for thread in threading.enumerate()),
        "open files": open_files(),
        "warnings": (list(warnings.filters), warnings.showwarning),
        "logging": (
            transformers_logging.get_verbosity(),
            logging.root.level,
            [(name, log.level, len(log.filters), len(log.handlers)) for name, log in sorted(loggers())],
        ),
        "environment": dict(os.environ),
        "folder": os.getcwd(),
        "locale": locale.setlocale(locale.LC_ALL),
        "recursion limit": sys.getrecursionlimit(),
        "path": list(sys.path),
        "hooks of imports": (len(sys.meta_path), len(sys.path_hooks)),
        "modules": set(sys.modules),
        "excepthook": sys.excepthook,
        "collector": (gc.isenabled(), gc.get_threshold(), len(gc.callbacks)),
    }  # fmt: skip


def loggers():
    for name, log in list(logging.root.manager.loggerDict.items()):
        if isinstance(log, logging.Logger):
            yield name, log


@pytest.fixture(scope="module")
def warmed():
    """Run every call once: what is imported and cached the first time is no leak."""
    for call in CALLS.values():
        call()


def differing(before, after):
    return {name: (before[name], after[name]) for name in before if before[name] != after[name]}


@settings(max_examples=4 if not DEEP else 200)
@given(st.lists(st.sampled_from(sorted(CALLS)), min_size=5, max_size=5))
def test_after_any_calls_the_process_is_as_before(warmed, names):
    before = state_of_the_process()
    for name in names:
        CALLS[name]()
        assert not differing(before, state_of_the_process()), name


PLANTED = {
    "default dtype": lambda: torch.set_default_dtype(torch.float64),
    "random of torch": lambda: torch.rand(1),
    "random of numpy": lambda: numpy.random.rand(1),
    "gradients": lambda: torch.set_grad_enabled(False),
    "environment": lambda: os.environ.update(CENSUS_PLANTED="1"),
    "warnings": lambda: warnings.simplefilter("ignore", ResourceWarning),
    "registries": lambda: AttentionInterface._global_mapping.update(planted=print),
    "logging": lambda: logging.getLogger("transformers").setLevel(1),
    "models": lambda: setattr(sys.modules["transformers.models.llama.modeling_llama"].LlamaMLP, "forward", print),
    "open files": lambda: os.open(os.devnull, os.O_RDONLY),
    "path": lambda: sys.path.append("/planted"),
}


@pytest.mark.parametrize("place", PLANTED)
def test_a_change_left_behind_is_noticed(warmed, place):
    from transformers.models.llama.modeling_llama import LlamaMLP

    before, forward = state_of_the_process(), LlamaMLP.forward
    level = logging.getLogger("transformers").level
    states = torch.get_rng_state(), numpy.random.get_state()
    left = None
    with warnings.catch_warnings():
        try:
            left = PLANTED[place]()
            assert place in differing(before, state_of_the_process())
        finally:
            torch.set_default_dtype(torch.float32)
            torch.set_grad_enabled(True)
            torch.set_rng_state(states[0])
            numpy.random.set_state(states[1])
            os.environ.pop("CENSUS_PLANTED", None)
            AttentionInterface._global_mapping.pop("planted", None)
            logging.getLogger("transformers").setLevel(level)
            LlamaMLP.forward = forward
            if "/planted" in sys.path:
                sys.path.remove("/planted")
            if type(left) is int:
                os.close(left)
    assert not differing(before, state_of_the_process())


CENSUSES = 500 if DEEP else 10
OBJECTS_A_CALL = 5
"""What a call may leave behind on average. Once it has run some times it leaves none, over 120 calls measured; what
came before was up to 9 a call. One recording that is kept is thousands of objects.
"""


def growth(call, times):
    """Return how many objects a call keeps on average, after some calls to fill what is cached."""
    for _ in range(5):
        call()
    gc.collect()
    before = len(gc.get_objects())
    for _ in range(times):
        call()
    gc.collect()
    return (len(gc.get_objects()) - before) / times


def right_and_wrong():
    FAMILIES["llama"].measure()
    refuse(*FAILING["more experts for a token than there are"])


def test_memory_does_not_grow_with_the_number_of_censuses(warmed):
    assert growth(right_and_wrong, CENSUSES) < OBJECTS_A_CALL


def test_a_recording_that_is_kept_is_noticed_as_growth(warmed):
    kept = []
    assert growth(lambda: kept.append(forward(FAMILIES["llama"].new_config(), 8)), 2) > 100 * OBJECTS_A_CALL
