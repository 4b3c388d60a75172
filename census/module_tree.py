"""Every module of a model with its path, by one walk.

`nn.Module.named_modules` hands each module through a generator for every level above it, which for a model of a hundred
layers costs more than building some of them.
"""

from __future__ import annotations

from collections.abc import Set

from torch import nn

_STATE = frozenset(vars(nn.Module()))
"""What every module carries for torch's own sake: parameters, hooks and the like."""


def named_modules(root: nn.Module, every_path: bool = False) -> list[tuple[str, nn.Module]]:
    """Return a module and all inside it with their paths, in the order of `nn.Module.named_modules`.

    Args:
        root: the module; its own path is empty.
        every_path: name a module that is held in several places once for each, instead of by its first path.
    """
    found: list[tuple[str, nn.Module]] = []
    seen: set[nn.Module] = set()

    def walk(path: str, module: nn.Module) -> None:
        if not every_path:
            if module in seen:
                return
            seen.add(module)
        found.append((path, module))
        for name, child in module._modules.items():
            if child is not None:
                walk(f"{path}.{name}" if path else name, child)

    walk("", root)
    return found


def named_parameters(root: nn.Module) -> list[tuple[str, nn.Parameter]]:
    """Return every parameter inside a module by each of its names."""
    return [
        (f"{path}.{name}" if path else name, parameter)
        for path, module in named_modules(root, every_path=True)
        for name, parameter in module._parameters.items()
        if parameter is not None
    ]


def own_attributes(module: nn.Module) -> Set[str]:
    """Return the names of what a module carries beside its parameters, buffers, children and torch's own state."""
    return vars(module).keys() - _STATE
