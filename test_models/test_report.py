"""A report shows what the goldens pin, escapes it, links to what is there, and is written whole or not at all."""

import dataclasses
import html
import os
import re
import shutil
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
import yaml

from census.cli import main
from census.errors import GoldenError, ReportError
from census.golden import golden_text, read_golden
from census.report import MARKER, build_report
from census.report_history import read_history
from census.report_model import ROUTES
from census.report_numbers import operations, places, rounded, share, size

ROOT = Path(__file__).parents[1]
SHOWN = (
    "deepseek_v3/deepseek-v3", "qwen3_next/qwen3-next-80b-a3b", "falcon_h1/falcon-h1-34b", "llama/llama-3.1-405b",
    "t5/t5-encoder-decoder", "glm4v/glm4v-language",
)  # fmt: skip
HOSTILE = """"><script>alert(1)</script>&'{{ 7*7 }}"""
HOSTILE_PAGE = "models/hostile/a b#?.html"


def goldens_in(folder):
    """Copy some goldens, and one whose case and file have hostile names, into a folder; return it."""
    root = folder / "golden_specs"
    for name in SHOWN:
        (root / name).parent.mkdir(parents=True)
        shutil.copyfile(ROOT / "golden_specs" / f"{name}.yaml", root / f"{name}.yaml")
    hostile = dataclasses.replace(read_golden(root / f"{SHOWN[0]}.yaml"), case=HOSTILE, vouched_for_by=["<b>", "cache"])
    (root / "hostile").mkdir()
    (root / "hostile" / "a b#?.yaml").write_text(golden_text(hostile))
    cases = folder / "test_models" / "cases"
    cases.mkdir(parents=True)
    shutil.copyfile(ROOT / "test_models" / "cases" / "mla.yaml", cases / "mla.yaml")
    return root


@pytest.fixture(scope="module")
def goldens(tmp_path_factory):
    return goldens_in(tmp_path_factory.mktemp("goldens"))


@pytest.fixture(scope="module")
def report(goldens, tmp_path_factory):
    folder = tmp_path_factory.mktemp("report") / "site"
    assert build_report(goldens, folder).models == len(SHOWN) + 1
    return folder


class Read(HTMLParser):
    """What a page holds: its elements' attributes, and the text of each cell of each table row."""

    def __init__(self, text):
        super().__init__()
        self.elements, self.rows, self.text, self._cell = [], [], "", False
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.elements.append((tag, dict(attributes)))
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th") and self.rows:
            self.rows[-1].append("")
            self._cell = True

    def handle_endtag(self, tag):
        if tag in ("td", "th"):
            self._cell = False

    def handle_data(self, data):
        self.text += data
        if self._cell:
            self.rows[-1][-1] += data.strip()

    def row(self, *first):
        """Return the one row that starts with these cells, without them."""
        [found] = [row[len(first) :] for row in self.rows if tuple(row[: len(first)]) == first]
        return found


def page(report, name):
    return Read((report / "models" / f"{name}.html").read_text())


def pinned(name):
    return yaml.safe_load((ROOT / "golden_specs" / f"{name}.yaml").read_text())


@pytest.mark.parametrize("name", SHOWN)
def test_a_page_shows_the_numbers_of_its_golden(report, name):
    golden, shown = pinned(name), page(report, name)
    for part, number in golden["costs"]["parameters"].items():
        assert f"{number:,}" in shown.row(part, rounded(number)), part
    for cost, unit in (("flops", operations), ("cache_bytes", size)):
        for part, number in golden["costs"][f"{cost}_at_4096"].items():
            assert f"{number:,}" in shown.row(part, unit(number)), part
    for group in golden["spec"]["layers"]:
        vector = [str(count) for count in golden["spec"]["ops"][group["kind"]].values()]
        assert vector in [row[1:] for row in shown.rows if row and row[0] == group["kind"]]


@pytest.mark.parametrize("name", SHOWN)
def test_the_curves_pass_through_what_the_golden_pins(report, name):
    golden, shown = pinned(name), (report / "models" / f"{name}.html").read_text()
    rows = re.findall(r'<th scope="row" class="num">4,096</th><td class="num"><data value="(\d+)"', shown)
    costs = golden["costs"]
    assert list(map(int, rows)) == [costs["flops_at_4096"]["total"], costs["cache_bytes_at_4096"]["total"]]


@pytest.mark.parametrize("name", SHOWN)
def test_a_stack_has_a_band_a_layer_in_a_row_for_its_kind(report, name):
    golden, shown = pinned(name), (report / "models" / f"{name}.html").read_text()
    own = shown.partition('<h2 id="vision">')[0]
    stack = [group["kind"] for group in golden["spec"]["layers"] for _ in range(group["count"])]
    bands = re.findall(r"<title>layer (\d+): (\w+)</title>", own)
    assert sorted((int(place), kind) for place, kind in bands) == list(enumerate(stack))


def test_a_model_with_a_vision_tower_shows_the_towers_stack(report):
    golden, shown = pinned("glm4v/glm4v-language"), (report / "models/glm4v/glm4v-language.html").read_text()
    bands = re.findall(r"<title>layer \d+: \w+</title>", shown.partition('<h2 id="vision">')[2])
    assert len(bands) == golden["spec"]["vision"]["num_hidden_layers"]


def test_every_model_is_in_the_index_with_its_numbers(report):
    index = Read((report / "index.html").read_text())
    rows = [attributes for tag, attributes in index.elements if tag == "tr" and "data-total" in attributes]
    assert len(rows) == len(SHOWN) + 1
    golden = pinned("deepseek_v3/deepseek-v3")
    [row] = [row for row in rows if row["data-text"].startswith("deepseek-v3 ")]
    assert (row["data-total"], row["data-active"]) == ("671026404352", "37552282624")
    assert (row["data-layers"], row["data-kinds"], row["data-routed"]) == ("61", "2", "routed")
    assert row["data-route"].split("|") == golden["vouched_for_by"]


def test_what_a_golden_says_is_escaped_wherever_it_is_shown(report):
    for file in [report / "index.html", report / "audit.html", report / HOSTILE_PAGE]:
        text = file.read_text()
        assert "<script>alert" not in text
        assert "49" not in re.findall(r"<h1>(.*)</h1>", text)[0], "a name is no template"
    shown = (report / HOSTILE_PAGE).read_text()
    assert f"<h1>{html.escape(HOSTILE).replace('&quot;', '&#34;').replace('&#x27;', '&#39;')}</h1>" in shown
    assert "<b>&lt;b&gt;</b>" in shown


def test_every_link_leads_to_what_is_there_and_none_leaves_the_report(report):
    files = sorted(report.rglob("*.html"))
    read = {file: Read(file.read_text()) for file in files}
    ids = {file: {value["id"] for _, value in page.elements if value.get("id")} for file, page in read.items()}
    followed = 0
    for file, shown in read.items():
        assert len(ids[file]) == sum(1 for _, attributes in shown.elements if attributes.get("id")), (
            f"{file}: an id twice"
        )
        for _, attributes in shown.elements:
            for address in (attributes.get("href"), attributes.get("src")):
                if address is None or address == "data:,":
                    continue
                to = urlsplit(address)
                assert not to.scheme and not to.netloc and not to.path.startswith("/"), address
                target = (file.parent / unquote(to.path)).resolve() if to.path else file
                assert target.is_file(), f"{file}: {address}"
                if to.fragment and "=" not in to.fragment:
                    assert to.fragment in ids[target], f"{file}: {address}"
                followed += 1
    assert followed > 60


def test_nothing_in_it_is_loaded_from_elsewhere(report):
    for file in report.rglob("*.*"):
        text = file.read_text()
        assert not re.search(r"@import|url\(|\bfetch\(|XMLHttpRequest|<iframe", text), file
        assert not re.search(r"(src|href)\s*=\s*[\"']?(https?:)?//", text), file


def test_two_builds_are_equal_byte_for_byte_and_no_torch_is_imported(report, goldens, tmp_path):
    program = (
        "import sys; from census.cli import main; "
        "code = main(sys.argv[1:]); assert not {'torch', 'transformers'} & set(sys.modules); sys.exit(code)"
    )
    again = tmp_path / "again"
    arguments = ["report", "-o", str(again), "--golden-specs", str(goldens)]
    # Another seed of hashes: no order of a set may reach a page.
    environment = {**os.environ, "PYTHONHASHSEED": "7"}
    ran = subprocess.run(
        [sys.executable, "-c", program, *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        env=environment,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout == f"{again}/index.html\n"
    files = {file.relative_to(report) for file in report.rglob("*") if file.is_file()}
    assert files == {file.relative_to(again) for file in again.rglob("*") if file.is_file()}
    for file in files:
        assert (report / file).read_bytes() == (again / file).read_bytes(), file


def test_a_folder_that_is_no_report_is_left_as_it_is(goldens, tmp_path, capsys):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("years")
    assert main(["report", "-o", str(tmp_path / "mine"), "--golden-specs", str(goldens)]) == 2
    assert capsys.readouterr().err == (
        f"census: {tmp_path}/mine: expected a report that census wrote before, or nothing, found something else; "
        f"pass another folder with -o, or remove it\n"
    )
    assert [file.name for file in tmp_path.rglob("*")] == ["mine", "thesis.txt"]


def test_a_former_report_is_replaced_as_a_whole(goldens, tmp_path):
    folder = tmp_path / "site"
    folder.mkdir()
    (folder / MARKER).touch()
    (folder / "old.html").touch()
    build_report(goldens, folder)
    assert (folder / "index.html").is_file()
    assert not (folder / "old.html").exists()
    assert [file.name for file in tmp_path.iterdir()] == ["site"]
    assert folder.stat().st_mode & 0o777 == 0o755


def test_a_build_that_fails_leaves_the_former_report(goldens, tmp_path, monkeypatch):
    folder = tmp_path / "site"
    folder.mkdir()
    (folder / MARKER).touch()

    def broken(*_):
        raise OSError("the disk is full")

    monkeypatch.setattr("shutil.copyfile", broken)
    with pytest.raises(ReportError, match="the disk is full; nothing was changed"):
        build_report(goldens, folder)
    assert [str(file.relative_to(tmp_path)) for file in tmp_path.rglob("*")] == ["site", f"site/{MARKER}"]


def test_where_the_new_report_cannot_take_its_place_the_former_one_keeps_it(goldens, tmp_path, monkeypatch):
    folder = tmp_path / "site"
    build_report(goldens, folder)
    before = sorted(tmp_path.rglob("*"))
    rename = Path.rename

    def refused(path, target):
        if target == folder and not moved:
            moved.append(folder)
            raise OSError("no")
        return rename(path, target)

    moved = []
    monkeypatch.setattr(Path, "rename", refused)
    with pytest.raises(ReportError, match="nothing was changed"):
        build_report(goldens, folder)
    assert moved
    assert sorted(tmp_path.rglob("*")) == before


def test_a_folder_without_goldens_is_refused_with_what_to_type(tmp_path, capsys):
    assert main(["report", "-o", str(tmp_path / "site"), "--golden-specs", str(tmp_path)]) == 2
    assert capsys.readouterr().err == (
        f"census: {tmp_path}: expected goldens (*.yaml) in it, found none; run census report in a checkout of the "
        f"repository, or pass their folder with --golden-specs\n"
    )
    assert not (tmp_path / "site").exists()


def test_a_broken_golden_is_named(tmp_path):
    (tmp_path / "goldens").mkdir()
    (tmp_path / "goldens" / "one.yaml").write_text("case: one\n")
    with pytest.raises(GoldenError, match=r"one\.yaml: expected the keys"):
        build_report(tmp_path / "goldens", tmp_path / "site")


def test_without_pygal_the_command_says_what_to_install(goldens, tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "pygal", None)
    assert main(["report", "-o", str(tmp_path / "site"), "--golden-specs", str(goldens)]) == 2
    assert capsys.readouterr().err.endswith("pip install 'census[report]'\n")


def test_a_page_gives_the_command_and_the_config_that_explain_it(report, goldens):
    shown = page(report, "deepseek_v3/deepseek-v3").text
    assert "census explain ./config.json --arch deepseek" in shown
    assert '"model_type": "deepseek_v3"' in shown
    assert "684,531,386,000" in shown, "the published total, of the case table"
    # The tables beside these goldens do not have the case.
    assert "With the model's own config.json" in page(report, "llama/llama-3.1-405b").text


def test_the_commits_of_a_golden_are_those_that_git_has(goldens, tmp_path):
    def git(*arguments):
        who = ("-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false")
        when = {**os.environ, "GIT_COMMITTER_DATE": "2026-01-02T03:04:05Z", "GIT_AUTHOR_DATE": "2026-01-02T03:04:05Z"}
        subprocess.run(["git", *who, *arguments], cwd=tmp_path, check=True, capture_output=True, env=when)

    root = tmp_path / "golden_specs"
    shutil.copytree(goldens, root)
    git("init", "-q")
    git("add", "golden_specs/t5", "golden_specs/hostile")
    git("commit", "-qm", "Pin T5 <and> one with a hostile name\n\nNot shown.")
    build_report(root, tmp_path / "site")
    for name in ("t5/t5-encoder-decoder", "hostile/a b#?"):
        text = (tmp_path / "site" / "models" / f"{name}.html").read_text()
        assert '<time datetime="2026-01-02">2026-01-02</time> Pin T5 &lt;and&gt; one with a hostile name</li>' in text
        assert "Not shown" not in text
    assert "Git knows no commit of this golden yet." in page(tmp_path / "site", "llama/llama-3.1-405b").text


def test_a_checkout_of_the_newest_commits_alone_has_no_history(tmp_path):
    def git(*arguments):
        who = ("-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false")
        subprocess.run(["git", *who, *arguments], cwd=tmp_path, check=True, capture_output=True)

    git("init", "-q", "whole")
    for subject in ("one", "two"):
        git("-C", "whole", "commit", "-q", "--allow-empty", "-m", subject)
    git("clone", "-q", "--depth", "1", (tmp_path / "whole").as_uri(), "newest")
    assert "holds only the newest commits" in read_history(tmp_path / "newest").absent
    assert read_history(tmp_path / "whole").absent == ""


def test_goldens_outside_of_a_checkout_have_no_history_and_the_page_says_so(report):
    assert "do not stand in a checkout that git can read" in page(report, "t5/t5-encoder-decoder").text


def test_the_audit_shows_a_count_that_a_golden_measures_otherwise(goldens, tmp_path):
    root = tmp_path / "golden_specs"
    shutil.copytree(goldens, root)
    path = root / "t5" / "t5-encoder-decoder.yaml"
    vector = "encoder: {attMM: 4, attBMM: 2, ffMM: 2, softmax: 1, dropout: 3, normOp: 2"
    assert vector in path.read_text()
    path.write_text(path.read_text().replace(vector, vector.replace("normOp: 2", "normOp: 5")))
    build_report(root, tmp_path / "site")
    audit = Read((tmp_path / "site" / "audit.html").read_text())
    assert audit.row("t5.encoder") == ["normOp", "2", "5", "t5-encoder-decoder"]
    assert audit.row("encoder", "full, dense", "4", "2", "2", "1", "3", "2 ≠ 5") == ["4", "1", "1", "0", "1"]


def test_the_audit_names_the_kinds_that_none_of_the_models_has(report):
    text = (report / "audit.html").read_text()
    listed = re.findall(r'<li><a href="#(\w+)">\w+</a>\.(\w+)</li>', text)
    assert ("mixtral", "decoder") in listed
    assert ("deepseek", "moe") not in listed


def test_every_route_that_a_golden_names_has_its_meaning_and_is_a_heading_of_the_proof():
    lists = re.compile(r"vouched_for_by:\n((?:- .*\n)*)")
    files = (ROOT / "golden_specs").rglob("*.yaml")
    named = {line[2:] for file in files for line in lists.search(file.read_text())[1].splitlines()}
    assert named <= set(ROUTES)
    headings = re.findall(r"^## (.+)$", (ROOT / "docs" / "proof.md").read_text(), re.MULTILINE)
    assert set(ROUTES) <= {heading.lower() for heading in headings}


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        (rounded(671_026_404_352), "671.0 B"),
        (rounded(999), "999"),
        (rounded(999_960), "1.0 M"),
        (rounded(1_000), "1.0 K"),
        (operations(383_866_460_176_384), "383.9 TFLOP"),
        (operations(12), "12 FLOP"),
        (size(287_834_112), "274.5 MiB"),
        (size(1023), "1023 B"),
        (share(1, 10_000), "< 0.1 %"),
        (share(1, 2), "50.0 %"),
        (places([0, 1, 2, 5]), "0 to 2, 5"),
        (places([3, 7, 11]), "every 4th, 3 to 11"),
        (places([4]), "4"),
    ],
)
def test_a_number_is_said_as_a_reader_takes_it_in(said, expected):
    assert said.replace("\u00a0", " ") == expected
