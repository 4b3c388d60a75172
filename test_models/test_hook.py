"""The pre-commit hook audits as its entry and a user's arguments say."""

import shlex
from pathlib import Path

import yaml

from census.cli import main

ROOT = Path(__file__).parents[1]
[HOOK] = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text(encoding="utf-8"))


def as_pre_commit_runs_it(*arguments):
    program, *command = shlex.split(HOOK["entry"])
    assert (program, HOOK["pass_filenames"]) == ("census", False)
    return main([*command, *arguments])


def test_a_wrong_profile_stops_a_commit_and_a_right_one_does_not(capsys):
    assert as_pre_commit_runs_it("mixtral", "--profile", str(ROOT / "docs" / "mixtral_old.yaml")) == 1
    assert "DIFFERS" in capsys.readouterr().out
    assert as_pre_commit_runs_it("mixtral", "--profile", str(ROOT / "census" / "profiles" / "mixtral.yaml")) == 0
