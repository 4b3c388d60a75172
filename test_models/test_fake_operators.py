"""Operators run once return what torch's own fake tensor mode returns, each time."""

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode

from census.fake_operators import FakeOperators


class Through(TorchDispatchMode):
    """Runs each operator by the census' memory, and notes what it was."""

    def __init__(self, operators):
        super().__init__()
        self.operators, self.heard = operators, []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.heard.append(func)
        return self.operators.run(func, args, kwargs or {})


def described(result):
    if isinstance(result, torch.Tensor):
        return (
            type(result),
            tuple(result.shape),
            result.stride(),
            result.storage_offset(),
            result.dtype,
            result.device,
        )
    return (type(result), *map(described, result)) if isinstance(result, (list, tuple)) else result


def x(*shape, **options):
    return torch.empty(shape or (2, 3, 4), **options)


# What is done to fake tensors. Each is done twice, so that what is remembered is used.
CALLS = {
    "matmul": lambda: x(5, 6) @ x(6, 7),
    "matmul of a batch": lambda: x() @ x(4, 5),
    "view": lambda: x().view(6, 4),
    "transposed": lambda: x().transpose(0, 2),
    "a view of a view": lambda: x().transpose(0, 1)[1:, :, 2:],
    "a copy of what no view shows": lambda: x().transpose(0, 1).reshape(6, 4),
    "split": lambda: torch.split(x(), [1, 2], 1),
    "chunk": lambda: x().chunk(2, -1),
    "unbind": lambda: x().unbind(0),
    "top of": lambda: x().topk(2),
    "a number added": lambda: x(3, dtype=torch.long) + 1,
    "a fraction added": lambda: x(3, dtype=torch.long) + 1.0,
    "a truth added": lambda: x(3, dtype=torch.bool) + True,
    "compared": lambda: x() > 0,
    "cast": lambda: x().to(torch.bfloat16),
    "cast to what it is": lambda: x().float(),
    "made like": lambda: torch.zeros_like(x(), dtype=torch.int32),
    "counted up": lambda: torch.arange(5, dtype=torch.long),
    "index by positions": lambda: x()[:, torch.empty(7, dtype=torch.long)],
    "written": lambda: x().add_(1),
    "written at": lambda: x().index_put_((torch.empty(1, dtype=torch.long),), torch.empty(())),
    "filled where": lambda: x().masked_fill(x(2, 3, 4, dtype=torch.bool), 0.5),
    "concatenated": lambda: torch.cat([x(), x(2, 1, 4)], 1),
    "normed": lambda: torch.nn.functional.layer_norm(x(), (4,)),
    "convolved": lambda: torch.nn.functional.conv1d(x(1, 4, 9), x(4, 1, 3), groups=4),
    "complex": lambda: torch.view_as_real(torch.view_as_complex(x(3, 2)) * 2),
    "as a type of the same size": lambda: x(4, dtype=torch.float32).view(torch.int32),
}


@pytest.mark.parametrize("call", CALLS.values(), ids=list(CALLS))
def test_what_is_remembered_is_what_torch_returns(call):
    with FakeTensorMode(allow_non_fake_inputs=False) as mode:
        operators = FakeOperators(mode)
        expected = described(call())
        for _ in range(3):
            with Through(operators) as through:
                assert described(call()) == expected
            assert through.heard


def test_a_view_is_on_the_memory_of_what_it_shows_and_a_result_on_its_own():
    with FakeTensorMode() as mode, Through(FakeOperators(mode)):
        for _ in range(2):
            held = x()
            storage = held.untyped_storage()._cdata
            assert held.transpose(0, 1).untyped_storage()._cdata == storage
            assert all(part.untyped_storage()._cdata == storage for part in held.split(1))
            assert (held + 1).untyped_storage()._cdata != storage
            assert held.mul_(2) is held


def test_known_values_stay_known():
    with FakeTensorMode() as mode, Through(FakeOperators(mode)):
        for number in (3, 4):
            assert torch.tensor(number).item() == number
            assert (torch.tensor(number) + 1).item() == number + 1


def test_what_hangs_on_values_is_asked_of_torch_each_time():
    with FakeTensorMode() as mode, Through(FakeOperators(mode)):
        for _ in range(2):
            with pytest.raises(torch._subclasses.fake_tensor.DynamicOutputShapeException):
                x(3).nonzero()
            with pytest.raises(torch._subclasses.fake_tensor.DynamicOutputShapeException):
                x(3)[torch.empty(3, dtype=torch.bool)]


def test_a_type_that_the_process_takes_for_granted_is_part_of_what_is_given():
    with FakeTensorMode() as mode, Through(FakeOperators(mode)):
        own = torch.get_default_dtype()
        try:
            for dtype in (torch.float32, torch.float64, torch.float32):
                torch.set_default_dtype(dtype)
                assert torch.full((2,), 0.5).dtype == dtype
        finally:
            torch.set_default_dtype(own)


def test_a_wrong_call_is_refused_as_torch_does():
    with FakeTensorMode() as mode, Through(FakeOperators(mode)):
        for _ in range(2):
            with pytest.raises(RuntimeError, match="same reduction dim"):
                x(2, 3) @ x(4, 5)
