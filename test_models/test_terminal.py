"""What a person at a terminal sees, by a terminal: tables of its width, a bar for long work; a pipe gets neither."""

import fcntl
import functools
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from pathlib import Path

import pytest

from census.cli import main

pytestmark = pytest.mark.xdist_group("terminal")

ROOT = Path(__file__).parents[1]
AUDIT = ["audit", "mixtral", "--profile", "docs/mixtral_old.yaml"]
ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
A_TABLE = """
from census.table import columns
from census.terminal import fitted_tables
with fitted_tables():
    print("\\n".join(columns([("op", "verdict", "evidence"), ("normOp", "DIFFERS", "input_layernorm")])))
"""
NO_WAIT = "import census.terminal; census.terminal.PATIENCE = 0; from census.cli import run; run()"


@functools.cache
def audited():
    """Return what a terminal shows of an audit that finds a difference; it takes seconds, and several tests read it."""
    return at_terminal(AUDIT)[0]


def at_terminal(arguments, width=80, on="stdout", program=("-m", "census"), **environment):
    """Run the command with one of its streams a terminal; return what it wrote to that, and to the other one."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, width, 0, 0))
    unset = {"NO_COLOR", "FORCE_COLOR", "COLUMNS", "LINES", "COLORTERM"}
    env = {**{name: value for name, value in os.environ.items() if name not in unset}, "TERM": "xterm", **environment}
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, on: theirs}
    command = [sys.executable, *program, *arguments]
    with subprocess.Popen(command, cwd=ROOT, env=env, stdin=theirs, **streams) as process:
        os.close(theirs)
        seen = b""
        while True:
            try:
                chunk = os.read(ours, 65536)
            except OSError:  # Linux ends a terminal that nobody holds any more so
                break
            if not chunk:
                break
            seen += chunk
        other = (process.stderr if on == "stdout" else process.stdout).read()
    os.close(ours)
    return seen.decode().replace("\r\n", "\n"), other.decode()


# A comparison of goldens measures nothing, and is there at once.
DIFF = ["diff", "golden_specs/mixtral/mixtral-8x7b.yaml", "golden_specs/mixtral/mixtral-8x22b.yaml"]


@pytest.mark.parametrize(("arguments", "width"), [(AUDIT, 80), (DIFF, 80), (DIFF, 100), (DIFF, 160)])
def test_no_line_of_a_table_is_wider_than_the_terminal_and_no_word_of_it_is_lost(arguments, width, monkeypatch, capsys):
    monkeypatch.chdir(ROOT)
    main(arguments)
    piped = capsys.readouterr().out
    seen = audited() if arguments is AUDIT else at_terminal(arguments, width)[0]
    piped = subprocess.run(
        [sys.executable, "-m", "census", *arguments], cwd=ROOT, capture_output=True, text=True
    ).stdout
    lines = ESCAPES.sub("", seen).splitlines()
    assert max(map(len, lines)) <= width
    assert sorted("".join(lines).replace(" ", "")) == sorted(piped.replace(" ", "").replace("\n", ""))


def test_what_differs_is_said_in_words_and_in_colour():
    seen = audited()
    assert len(re.findall(r"\x1b\[1;31mDIFFERS *\x1b\[0m", seen)) == 2


def test_no_color_leaves_the_words():
    seen, _ = at_terminal([], program=("-c", A_TABLE), NO_COLOR="1")
    assert seen.count("DIFFERS") == 1
    assert "\x1b[1;31m" not in seen
    assert "\x1b[1;31mDIFFERS" in at_terminal([], program=("-c", A_TABLE))[0]


def test_a_dumb_terminal_gets_what_a_pipe_gets():
    seen, _ = at_terminal(["list"], TERM="dumb")
    piped = subprocess.run([sys.executable, "-m", "census", "list"], capture_output=True, text=True).stdout
    assert seen == piped


def test_force_color_makes_a_terminal_of_a_pipe():
    env = {**os.environ, "FORCE_COLOR": "1", "TERM": "xterm", "COLUMNS": "80"}
    command = [sys.executable, "-c", A_TABLE]
    assert "\x1b[1;31mDIFFERS" in subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True).stdout


def test_a_bar_names_the_source_that_is_measured_and_leaves_stdout_alone():
    seen, out = at_terminal(["audit", "mixtral", "llama", "--profile", "default"], 80, "stderr", ("-c", NO_WAIT))
    assert re.search(r"0/2.*mixtral", ESCAPES.sub("", seen))
    assert "\x1b" not in out


def test_quiet_draws_no_bar_and_gives_no_warning_or_note():
    seen, _ = at_terminal(["audit", "mixtral", "--profile", "default", "--quiet"], 80, "stderr", ("-c", NO_WAIT))
    assert seen == ""
    assert at_terminal(["list", "--quiet"], 80, "stderr")[0] == ""


def test_quiet_says_what_is_refused():
    assert at_terminal(["show", "no_such_type", "--quiet"], 80, "stderr")[0].startswith("census: no_such_type")


def test_what_measures_nothing_imports_neither_torch_nor_transformers_nor_rich():
    program = (
        "import sys\nfrom census.cli import main\n"
        "for line in ('--help', 'show --help', 'list', 'completion bash', 'show', 'nonsense', 'list --nonsense'):\n"
        "    try:\n        main(line.split())\n    except SystemExit:\n        pass\n"
        "print(sorted({'torch', 'transformers', 'rich', 'numpy'} & set(sys.modules)), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, stdin=subprocess.DEVNULL)
    assert done.stderr.splitlines()[-1] == "[]"
