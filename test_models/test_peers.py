"""Models that others wrote, of configs of their own, have the sizes that the census states."""

import os
from collections import Counter

import pytest

from test_models import peers
from test_models.case_table import PUBLISHED
from test_models.peers import CAUSES, DIFFERENCES, PAIRS, PEERS, Differences, unexplained, vouched_by_peers

# One worker imports the peers, and builds a model of several of them once with Transformers.
pytestmark = pytest.mark.xdist_group("peers")


def need(*names):
    missing = [name for name in names if not PEERS[name].installed]
    if not missing:
        return
    reason = f"not installed: {', '.join(missing)}; docs/proof.md, Peers, says how"
    if os.environ.get("CENSUS_PEERS") == "required":
        pytest.fail(reason)
    pytest.skip(reason)


@pytest.mark.parametrize(("peer", "name"), [pytest.param(*pair, id="-".join(pair)) for pair in PAIRS])
def test_a_peer_builds_what_the_census_states_or_the_table_says_why_not(peer, name):
    need(peer)
    assert unexplained(peer, name) == []


def test_litgpt_is_asked_for_every_published_model_that_it_knows():
    need("litgpt")
    from litgpt.config import configs

    theirs = {f"{held['hf_config']['org']}/{held['hf_config']['name']}": held["name"] for held in configs}
    known = {name: theirs[case.model] for name, case in PUBLISHED.items() if case.model in theirs}
    assert known.items() <= PEERS["litgpt"].models.items()


def test_the_differences_are_of_pairs_that_are_compared_and_their_causes_are_named():
    assert set(DIFFERENCES) <= set(PAIRS)
    assert set().union(*(known.causes for known in DIFFERENCES.values())) == set(CAUSES)


def test_peers_vouch_for_47_goldens_and_two_or_more_of_them_for_17():
    need(*PEERS)
    vouched = vouched_by_peers()
    assert len(vouched) >= 47
    assert sum(len(by) >= 2 for by in vouched.values()) >= 17


def test_each_of_three_peers_knows_ten_published_models():
    known = Counter(peer for peer, name in PAIRS if name in PUBLISHED)
    assert len(known) >= 3
    assert min(known.values()) >= 10


def test_a_peer_does_not_vouch_for_sizes_that_were_taken_over_from_it_alone():
    borrowed = {pair for pair in PAIRS if peers.sizes_are_the_peers(*pair)}
    assert borrowed == {
        ("litgpt", "codellama-34b"),
        ("litgpt", "falcon-180b"),
        ("litgpt", "mistral-large-instruct-2407"),
    }


HELD = ("litgpt", "gemma-3-4b")


@pytest.mark.parametrize(
    ("fields", "terms", "says"),
    [
        pytest.param({}, {}, "parameters: the peer has 670924800 more", id="no row"),
        pytest.param({"layer_norms": (4, "c")}, {}, "layer_norms: the table lists", id="a row of what agrees"),
        pytest.param({"vocab_size": (262145, "c")}, {}, "vocab_size: expected 262145", id="a row of another value"),
        pytest.param({}, {"c": 671088640}, "parameters: the peer has 670924800", id="a term short"),
        pytest.param({"no_such": (1, "c")}, {}, "no_such: ", id="a row of no field"),
    ],
)
def test_a_row_that_does_not_hold_fails(monkeypatch, fields, terms, says):
    need(HELD[0])
    monkeypatch.setitem(peers.DIFFERENCES, HELD, Differences(fields, terms))
    assert any(line.startswith(says) for line in unexplained(*HELD))


@pytest.mark.parametrize("field", sorted({"parameters", "qkv_bias", "layer_norms", "num_key_value_heads", "head_dim"}))
def test_a_golden_that_is_off_in_one_field_is_no_peers_model(monkeypatch, field):
    need("torchtune")
    census = peers.census_model

    def off(case):
        stated = census(case)
        return {**stated, field: stated[field] + 1}

    monkeypatch.setattr(peers, "census_model", off)
    assert [line.partition(":")[0] for line in unexplained("torchtune", "llama-3.1-8b")] == [field]
