"""An update of goldens that is cut short anywhere leaves every golden whole, and says that it failed."""

import multiprocessing
import os
import resource
import signal
from pathlib import Path

import pytest

from census.errors import GoldenError
from census.golden import golden_path, golden_text, read_golden, write_atomically, write_golden

ROOT = Path(__file__).parents[1]
OLD = (ROOT / "golden_specs" / "llama" / "llama-3.1-8b.yaml").read_text()

WRITING = ("open", "write", "fsync", "chmod", "replace", "rename")
"""System calls of a write, as Python offers them."""

ERRORS = {"ENOSPC": 28, "EACCES": 13, "EIO": 5}


@pytest.fixture
def old_and_new(tmp_path):
    """Write a golden into a folder of its own; return its path and another golden to be written over it."""
    path = golden_path(tmp_path, "llama", "llama-3.1-8b")
    path.parent.mkdir()
    path.write_text(OLD)
    return path, changed(path)


def changed(path):
    golden = read_golden(path)
    return type(golden)(**{**vars(golden), "measured_with": {"transformers": "9"}})


class Faults:
    """Counts the writing system calls, and at the one of a number does something else."""

    def __init__(self, at=None, fault=None):
        self.at, self.fault, self.calls = at, fault, 0

    def install(self, monkeypatch):
        for name in WRITING:
            monkeypatch.setattr(os, name, self._counted(getattr(os, name)))

    def _counted(self, call):
        def counted(*args, **kwargs):
            self.calls += 1
            if self.calls == self.at:
                self.fault()
            return call(*args, **kwargs)

        return counted


def calls_of_a_clean_write(path, golden, monkeypatch):
    with monkeypatch.context() as patch:
        faults = Faults()
        faults.install(patch)
        write_golden(path, golden)
    return faults.calls


def whole(path, *goldens):
    """Return which of the texts a file holds; it holds one of them to the byte."""
    return goldens.index(path.read_text())


@pytest.mark.parametrize("error", ERRORS)
def test_a_write_that_fails_at_any_call_leaves_the_old_golden_and_nothing_beside_it(old_and_new, monkeypatch, error):
    path, golden = old_and_new

    def fail():
        raise OSError(ERRORS[error], os.strerror(ERRORS[error]))

    places = calls_of_a_clean_write(path, golden, monkeypatch)
    assert places >= 4, "a temporary file is opened, synced, given its mode and put in place"
    for place in range(1, places + 1):
        path.write_text(OLD)
        with monkeypatch.context() as patch:
            Faults(place, fail).install(patch)
            with pytest.raises(GoldenError, match="nothing was changed"):
                write_golden(path, golden)
        assert path.read_text() == OLD
        assert list(path.parent.iterdir()) == [path]


def test_a_new_folder_that_cannot_be_made_is_refused(tmp_path, old_and_new, monkeypatch):
    _, golden = old_and_new

    def fail(*_):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(os, "mkdir", fail)
    with pytest.raises(GoldenError, match="Permission denied; nothing was changed"):
        write_golden(golden_path(tmp_path, "mixtral", "mine"), golden)
    assert not (tmp_path / "mixtral").exists()


def killed_at(place, path, golden):
    monkeypatch = pytest.MonkeyPatch()
    Faults(place, lambda: os.kill(os.getpid(), signal.SIGKILL)).install(monkeypatch)
    write_golden(path, golden)
    os._exit(0)


def test_a_write_that_is_killed_at_any_call_leaves_the_old_golden_or_the_new_one(old_and_new, monkeypatch):
    path, golden = old_and_new
    fork = multiprocessing.get_context("fork")
    places = calls_of_a_clean_write(path, golden, monkeypatch)
    found = []
    for place in range(1, places + 2):
        path.write_text(OLD)
        child = fork.Process(target=killed_at, args=(place, path, golden))
        child.start()
        child.join(20)
        assert child.exitcode == (-signal.SIGKILL if place <= places else 0)
        found.append(whole(path, OLD, golden_text(golden)))
    assert found == sorted(found)
    assert (found[0], found[-1]) == (0, 1)
    write_golden(path, golden)
    assert [path.name] == sorted(p.name for p in path.parent.glob("*.yaml")), "what a kill leaves behind is no golden"


def written_with_little_room(path, golden):
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
    try:
        write_golden(path, golden)
    except GoldenError as error:
        os._exit(3 if "nothing was changed" in str(error) else 4)
    os._exit(0)


def test_a_full_disk_in_the_midst_of_a_golden_leaves_the_old_one(old_and_new):
    path, golden = old_and_new
    assert len(golden_text(golden)) > 1000
    child = multiprocessing.get_context("fork").Process(target=written_with_little_room, args=(path, golden))
    child.start()
    child.join(20)
    assert child.exitcode == 3
    assert path.read_text() == OLD
    assert list(path.parent.iterdir()) == [path]


def test_a_file_where_the_folder_should_be_is_refused(tmp_path, old_and_new):
    _, golden = old_and_new
    (tmp_path / "mixtral").write_text("a file")
    with pytest.raises(GoldenError, match="nothing was changed"):
        write_golden(golden_path(tmp_path, "mixtral", "mine"), golden)
    assert (tmp_path / "mixtral").read_text() == "a file"


def test_a_golden_that_is_a_link_is_replaced_and_what_it_led_to_stays(tmp_path, old_and_new):
    path, golden = old_and_new
    outside = tmp_path / "outside.yaml"
    outside.write_text("mine")
    path.unlink()
    path.symlink_to(outside)
    write_golden(path, golden)
    assert not path.is_symlink()
    assert outside.read_text() == "mine"


def write_often(path, text, times):
    for _ in range(times):
        write_atomically(path, text)


def test_two_updates_at_once_leave_one_of_the_two_and_a_reader_never_sees_a_part(old_and_new):
    path, golden = old_and_new
    texts = [OLD, golden_text(golden)]
    fork = multiprocessing.get_context("fork")
    writers = [fork.Process(target=write_often, args=(path, text, 30)) for text in texts]
    for writer in writers:
        writer.start()
    while any(writer.is_alive() for writer in writers):
        whole(path, *texts)
    assert [writer.exitcode for writer in writers] == [0, 0]
    assert list(path.parent.iterdir()) == [path]


UPDATE = """
from pathlib import Path
import os, sys
sys.path.insert(0, {root!r})
from census import golden_check
from census.golden import golden_path

calls = 0
def counted(call):
    def wrapped(*args, **kwargs):
        global calls
        calls += 1
        if calls == int(os.environ["FAIL_AT"]):
            if os.environ["HOW"] == "kill":
                os._exit(137)
            raise OSError(28, "No space left on device")
        return call(*args, **kwargs)
    return wrapped

def pinned(case):
    from census.golden import read_golden
    golden = read_golden(Path({golden!r}))
    return type(golden)(**{{**vars(golden), "case": case.name, "vouched_for_by": ["another"]}})

class Case:
    model_type = "llama"
    def __init__(self, name): self.name = name
    def __str__(self): return self.name

import pytest

@pytest.mark.parametrize("name", ["a", "b", "c"])
def test_a_golden_is_updated(name, monkeypatch):
    for call in ("fsync", "replace"):
        monkeypatch.setattr(os, call, counted(getattr(os, call)))
    golden_check.Pin(golden_path(Path({folder!r}), "llama", name), pinned(Case(name)), None).update()
"""


def run_pytest(folder, how, at):
    os.environ.update({"HOW": how, "FAIL_AT": str(at)})
    os.chdir(folder)
    # Which golden the fault meets follows from the order of the three, whatever order the suite itself is run in.
    without = [option for plugin in ("cacheprovider", "xdist", "randomly") for option in ("-p", f"no:{plugin}")]
    os._exit(pytest.main(["-q", *without, "-c", str(folder / "pytest.ini"), str(folder)]))


@pytest.mark.parametrize(("how", "at"), [("fail", 3), ("kill", 4)])
def test_an_update_of_three_goldens_cut_short_exits_with_a_failure_and_leaves_each_whole(tmp_path, how, at):
    goldens = tmp_path / "goldens"
    (goldens / "llama").mkdir(parents=True)
    for name in "abc":
        (goldens / "llama" / f"{name}.yaml").write_text(OLD)
    source = ROOT / "golden_specs" / "llama" / "llama-3.1-8b.yaml"
    program = UPDATE.format(root=str(ROOT), golden=str(source), folder=str(goldens))
    (tmp_path / "test_updates.py").write_text(program)
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    # A fork has torch imported already, which takes a process of its own most of its time.
    child = multiprocessing.get_context("fork").Process(target=run_pytest, args=(tmp_path, how, at))
    child.start()
    child.join(60)
    assert child.exitcode == (137 if how == "kill" else 1)
    goldens_now = [read_golden(goldens / "llama" / f"{name}.yaml") for name in "abc"]
    updated = [list(golden.vouched_for_by) == ["another"] for golden in goldens_now]
    # Each golden takes two of the counted calls, the second of which puts it in place.
    assert updated == ([True, False, True] if how == "fail" else [True, False, False])
