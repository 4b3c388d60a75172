"""YAML is read as its text says, or refused; what is written reads back as it was."""

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from census import strict_yaml
from census.errors import GoldenError


def load(text):
    return strict_yaml.load(text, "file", GoldenError)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("no", "no"),
        ("on", "on"),
        ("1:30", "1:30"),
        ("2026-12-01", "2026-12-01"),
        ("1_000", "1_000"),
        ("'012'", "012"),
        ('"true"', "true"),
        ("true", True),
        ("null", None),
        ("-7", -7),
        ("64.0", 64.0),
        ("1e-05", 1e-05),
        ("1e10", 1e10),
    ],
)
def test_a_scalar_is_what_it_looks_like(text, value):
    found = load(f"a: {text}")["a"]
    assert (found, type(found)) == (value, type(value))


@pytest.mark.parametrize("text", ["", "~", "True", "FALSE", "012", "+5", "0x1F", "0o17", ".5", ".inf", "1e999"])
def test_what_readers_disagree_on_is_refused_until_it_is_quoted(text):
    with pytest.raises(GoldenError, match=r"file: expected null, true, false, .*; write it in that form, or quote"):
        load(f"a: {text}")
    assert load(f"a: '{text}'") == {"a": text}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: 1\na: 2", "found 'a' twice in one mapping"),
        ("a: {b: {c: 1, c: 2}}", "found 'c' twice in one mapping"),
        ("a: &x [1]\nb: *x", "found the anchor or alias 'x'"),
        ("a: !!python/object:os.system x", "found the tag"),
        ("1: one", "expected text for a key, found 1"),
        ("? [a]\n: 1", "expected text for a key"),
        ("a: 1\n---\nb: 2", "expected one document, found several"),
        ("", "expected a document, found nothing"),
        ("[" * 40 + "]" * 40, "expected at most 32 levels"),
        pytest.param("[" + "1," * 100_000 + "1]", "at most 100000 values, found more", id="many values"),
        ("a: [", "expected YAML, found a fault in it"),
        ("a: \x00", "expected YAML, found a fault in it"),
        ("a: \ud800", "expected YAML, found a fault in it"),
        ("#" * 5_000_000, "expected at most 1048576 characters, found 5000000"),
    ],
)
def test_what_is_no_strict_yaml_is_refused_in_one_line(text, message):
    with pytest.raises(GoldenError) as caught:
        load(text)
    assert message in str(caught.value)
    assert str(caught.value).startswith("file: ")
    assert "\n" not in str(caught.value)


TEXTS = st.text() | st.sampled_from(["no", "y", "1e10", "012", "0o7", "~", "true", "1:30", "<<", "=", "2026-12-01"])
SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXTS
DATA = st.recursive(
    SCALARS,
    lambda part: st.lists(part) | st.dictionaries(TEXTS, part) | st.dictionaries(TEXTS, part).map(strict_yaml.Flow),
    max_leaves=12,
)


@given(DATA)
def test_what_is_dumped_loads_as_it_was(data):
    assert load(strict_yaml.dump(data)) == data


@given(TEXTS)
def test_a_reader_of_yaml_1_1_takes_dumped_text_for_the_same_text(text):
    assert yaml.safe_load(strict_yaml.dump({"a": text})) == {"a": text}


def test_a_flow_mapping_stands_on_one_line_however_long():
    ops = {f"op{place}": place for place in range(60)}
    assert strict_yaml.dump({"z": strict_yaml.Flow(ops), "a": 1}).count("\n") == 2


def test_keys_keep_their_order_and_nothing_becomes_an_alias():
    shared = [1]
    assert strict_yaml.dump({"z": shared, "a": shared}) == "z:\n- 1\na:\n- 1\n"
