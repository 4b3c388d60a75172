"""The console examples of README and `docs/commands.md` print what they show, and README's Python example runs."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from census.cli import main

ROOT = Path(__file__).parents[1]
TEXT = (ROOT / "README.md").read_text(encoding="utf-8")
COMMANDS = (ROOT / "docs" / "commands.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"```console\n\$ (.*?)\n(.*?)```", TEXT + COMMANDS, re.DOTALL)


@pytest.mark.parametrize(("command", "output"), EXAMPLES, ids=[command for command, _ in EXAMPLES])
def test_a_console_example_prints_what_is_shown(command, output, capsys, monkeypatch):
    monkeypatch.chdir(ROOT)
    program, *arguments = shlex.split(command)
    assert program == "census"
    main(arguments)
    assert capsys.readouterr().out == output


def test_the_python_example_runs():
    [program] = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)
    subprocess.run([sys.executable, "-c", program], cwd=ROOT, check=True)


def test_every_module_is_in_the_map_and_the_map_holds_no_other():
    named = {name for row in re.findall(r"^\| (`.*?`) \|", TEXT, re.MULTILINE) for name in re.findall(r"`(\w+)`", row)}
    modules = {path.stem for path in (ROOT / "census").glob("*.py")} - {"__init__", "__main__"}
    assert named == modules


def test_no_module_imports_one_that_stands_after_it():
    rows = re.findall(r"^\| (`.*?`) \|", TEXT, re.MULTILINE)
    place = {name: number for number, row in enumerate(rows) for name in re.findall(r"`(\w+)`", row)}
    for name in place:
        source = (ROOT / "census" / f"{name}.py").read_text(encoding="utf-8")
        imported = re.findall(r"^\s*from census\.(\w+) import", source, re.MULTILINE)
        imported += re.findall(r"^\s*from census import (\w+)", source, re.MULTILINE)
        later = [other for other in imported if place[other] > place[name]]
        assert not later, f"{name} imports {later}"


def test_the_environment_of_the_tests_has_the_command():
    assert os.access(Path(sys.executable).parent / "census", os.X_OK)
