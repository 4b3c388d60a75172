"""Only a hub id uses the network: all else is measured with every socket closed."""

import json
import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from census.cli import main
from census.config import load_config
from census.errors import ConfigError
from test_models.families import FAMILIES
from test_models.network import NetworkError, closed_network

ROOT = Path(__file__).parents[1]
LLAMA = {"model_type": "llama", **FAMILIES["llama"].config}


def test_a_socket_of_the_internet_is_refused_and_one_of_this_machine_is_not():
    for family in (socket.AF_INET, socket.AF_INET6):
        with pytest.raises(NetworkError, match="expected no use of the network"):
            socket.socket(family)
    with pytest.raises(NetworkError, match="a look-up of"):
        socket.getaddrinfo("example.org", 443)
    for end in socket.socketpair():
        end.close()


@pytest.mark.network
def test_a_test_that_says_so_may_open_a_socket():
    with socket.socket(socket.AF_INET) as opened:
        assert opened.family is socket.AF_INET
    with closed_network(), pytest.raises(NetworkError):
        socket.socket(socket.AF_INET)


def test_every_command_on_local_sources_runs_with_the_network_closed(tmp_path, monkeypatch, capsys):
    # Without this the hub's client would not even try.
    monkeypatch.setenv("HF_HUB_OFFLINE", "0")
    path = tmp_path / "config.json"
    path.write_text(json.dumps(LLAMA))
    for command in (
        ["show", str(path)],
        ["show", str(tmp_path), "--costs"],
        ["explain", str(path), "hidden_size"],
        ["resolve", str(path)],
        ["audit", str(path), "--profile", "default"],
        ["diff", str(path), str(path)],
    ):
        assert main([*command]) in (0, 1), capsys.readouterr().err


def test_a_hub_id_is_what_asks_for_the_network(monkeypatch):
    asked = []
    monkeypatch.setattr("huggingface_hub.hf_hub_download", lambda *what: asked.append(what) or 1 / 0)
    with pytest.raises(ConfigError):
        load_config("owner/name")
    assert asked == [("owner/name", "config.json")]


def no_network_of_its_own():
    """Return the command that runs another in a namespace without any network, where the machine lets one."""
    command = [shutil.which("unshare") or "unshare", "-r", "-n"]
    try:
        allowed = subprocess.run([*command, "true"], capture_output=True).returncode == 0
    except FileNotFoundError:
        allowed = False
    return command if allowed else None


ALONE = no_network_of_its_own()


@pytest.mark.skipif(ALONE is None, reason="this machine makes no namespace without a network (unshare -r -n)")
def test_show_runs_in_a_namespace_that_has_no_network(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(LLAMA))
    environment = {name: value for name, value in os.environ.items() if not name.startswith("HF_")}
    done = subprocess.run(
        [*ALONE, sys.executable, "-m", "census", "show", str(tmp_path), "--arch", "default"],
        cwd=ROOT, env={**environment, "HF_HOME": str(tmp_path / "home")}, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "num_hidden_layers: 2" in done.stdout
    assert not (tmp_path / "home").exists()
