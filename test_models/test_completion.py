"""What shells complete, asked of the shells."""

import shutil
import subprocess

import pytest

from census.cli import main

ASK = """
source ./script
COMP_WORDS=(census {words}); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1))
{function}
printf '%s\\n' "${{COMPREPLY[@]}}"
"""


@pytest.fixture
def script(tmp_path, capsys):
    """Write a shell's script into a folder with one file of a user's; return its path."""

    def write(shell):
        assert main(["completion", shell]) == 0
        (tmp_path / "my_config.json").touch()
        path = tmp_path / "script"
        path.write_text(capsys.readouterr().out)
        return path

    return write


@pytest.mark.parametrize(
    ("words", "completed"),
    [
        ("sh", {"show"}),
        ("completion z", {"zsh"}),
        ("show qwen3_ne", {"qwen3_next"}),
        ("show my_", {"my_config.json"}),
        ("audit mixtral my_", {"my_config.json"}),
        ("diff mixtral qwen3_ne", {"qwen3_next"}),
        ("show --arch falcon_", {"falcon_h1"}),
        ("show --format tr", {"train-yaml"}),
        ("show --qu", {"--quiet"}),
        ("draft my_", {""}),
    ],
)
def test_bash_completes(words, completed, script):
    folder = script("bash").parent
    asked = ASK.format(words=words, function="_shtab_census")
    done = subprocess.run(["bash", "-c", asked], cwd=folder, capture_output=True, text=True)
    assert set(done.stdout.rstrip("\n").split("\n")) == completed, done.stderr


def test_fish_completes_types_files_and_families(script):
    if shutil.which("fish") is None:
        pytest.skip("fish is not installed")
    folder = script("fish").parent
    for words, completed in (
        ("show qwen3_ne", "qwen3_next"),
        ("show my_", "my_config.json"),
        ("show --arch falcon_", "falcon_h1"),
    ):
        asked = f"source ./script; complete -C 'census {words}'"
        done = subprocess.run(["fish", "--no-config", "-c", asked], cwd=folder, capture_output=True, text=True)
        assert [line.split("\t")[0] for line in done.stdout.splitlines()] == [completed], done.stderr


def test_zsh_reads_the_script(script):
    if shutil.which("zsh") is None:
        pytest.skip("zsh is not installed")
    done = subprocess.run(["zsh", "-n", str(script("zsh"))], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
