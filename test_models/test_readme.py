"""The console examples of README and `docs/` print what they show, README's Python example runs, and so does help's."""

import argparse
import os
import re
import shlex
import shutil
import sys
from pathlib import Path

import pytest

from census.cli import AGREES, DIFFERS, _parser, main

ROOT = Path(__file__).parents[1]
TEXT = (ROOT / "README.md").read_text(encoding="utf-8")
PAGES = "".join([TEXT, *(page.read_text(encoding="utf-8") for page in sorted((ROOT / "docs").glob("*.md")))])
EXAMPLES = {
    command: re.sub(rf"^{indent}", "", output, flags=re.MULTILINE)
    for indent, command, output in re.findall(
        r"^( *)```console\n *\$ (.*?)\n(.*?)^ *```", PAGES, re.DOTALL | re.MULTILINE
    )
}

[COMMANDS] = [action.choices for action in _parser()._actions if isinstance(action, argparse._SubParsersAction)]
EXIT_CODES = {"diff": DIFFERS, "resolve": DIFFERS}
"""Of the examples in the commands' help, those that find a difference."""


@pytest.mark.pinned
@pytest.mark.parametrize(("command", "output"), EXAMPLES.items(), ids=EXAMPLES)
def test_a_console_example_prints_what_is_shown(command, output, capsys, monkeypatch):
    monkeypatch.chdir(ROOT)
    program, *arguments = shlex.split(command)
    assert program == "census"
    main(arguments)
    assert capsys.readouterr().out == output


def test_the_python_example_runs(monkeypatch):
    monkeypatch.chdir(ROOT)
    [program] = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)
    exec(program, {})


@pytest.mark.pinned
@pytest.mark.parametrize("name", [name for name in COMMANDS if name != "drift"])
def test_the_example_in_a_commands_help_runs_in_an_empty_folder(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    if name == "report":
        # What it shows is a checkout's.
        shutil.copytree(ROOT / "golden_specs" / "mixtral", tmp_path / "golden_specs" / "mixtral")
    program, *arguments = shlex.split(COMMANDS[name].epilog.removeprefix("example: ").split(" > ")[0])
    assert program == "census"
    assert main(arguments) == EXIT_CODES.get(name, AGREES)


def test_the_example_in_the_help_of_drift_is_understood_which_would_fetch_two_releases_to_run():
    _, *arguments = shlex.split(COMMANDS["drift"].epilog.removeprefix("example: "))
    assert _parser().parse_args(arguments).run.__name__ == "_drift"


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
