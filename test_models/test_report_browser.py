"""A report in a browser: read from disk, by keyboard and by screen reader, in light and dark, on a phone.

The browser is the machine's own Chromium. Without one the tests skip and say so; with `CENSUS_BROWSER=required` they
fail.
"""

import os
import re
import shutil

import pytest

from census.report import build_report
from test_models.test_report import HOSTILE, HOSTILE_PAGE, SHOWN, goldens_in, pinned

pytestmark = pytest.mark.xdist_group("browser")

ARGUMENTS = [
    "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update", "--disable-sync",
    "--no-first-run",
]  # fmt: skip
PHONE = {"width": 390, "height": 844}
DESK = {"width": 1280, "height": 900}
PAGES = ("index.html", "audit.html", HOSTILE_PAGE, *(f"models/{name}.html" for name in SHOWN[1:]))

# The sum of all shifts of a page's layout since it began to load (https://web.dev/articles/cls).
SHIFTS = """() => new Promise(done => {
  let sum = 0;
  new PerformanceObserver(list => { for (const entry of list.getEntries()) sum += entry.value })
    .observe({type: "layout-shift", buffered: true});
  requestAnimationFrame(() => setTimeout(() => done(sum), 50));
})"""


@pytest.fixture(scope="module")
def browser():
    path = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if path is None:
        said = "no Chromium on the path (chromium, chromium-browser, google-chrome); apt-get install chromium"
        (pytest.fail if os.environ.get("CENSUS_BROWSER") == "required" else pytest.skip)(said)
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        launched = playwright.chromium.launch(executable_path=path, args=ARGUMENTS)
        yield launched
        launched.close()


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    folder = tmp_path_factory.mktemp("browser")
    build_report(goldens_in(folder), folder / "site")
    return folder / "site"


@pytest.fixture
def opened(browser, site):
    """Open pages of the report; at the end, none has said anything on the console or asked for anything but files."""
    contexts, said, asked = [], [], []

    def open_page(name, fragment="", viewport=DESK, scheme="light"):
        context = browser.new_context(viewport=viewport, color_scheme=scheme)
        contexts.append(context)
        page = context.new_page()
        page.on("console", lambda message: said.append(message.text))
        page.on("pageerror", lambda error: said.append(str(error)))
        page.on("dialog", lambda dialog: (said.append(dialog.message), dialog.dismiss()))
        page.on("request", lambda request: asked.append(request.url))
        page.goto((site / name).as_uri() + fragment)
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert said == []
    assert [url for url in asked if not url.startswith((site.as_uri(), "data:,"))] == []
    assert asked


def shown(page):
    return page.locator("table.models tbody tr:visible th a").all_inner_texts()


def focused(page, name):
    return page.evaluate(f"document.activeElement.{name}")


@pytest.mark.parametrize("name", PAGES)
def test_a_page_does_not_shift_and_fits_a_phone_with_all_it_hides_open(opened, name):
    for viewport in (DESK, PHONE):
        page = opened(name, viewport=viewport)
        assert page.evaluate(SHIFTS) == 0
        page.evaluate("document.querySelectorAll('details').forEach(one => one.open = true)")
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), viewport
    # What is cut off is scrolled to in a box of its own, by keyboard too.
    boxes = page.locator(".scroll, pre")
    assert all(box.get_attribute("tabindex") == "0" and box.get_attribute("aria-label") for box in boxes.all())


@pytest.mark.parametrize(
    ("name", "scheme"),
    [
        ("index.html", "light"),
        ("index.html", "dark"),
        ("audit.html", "light"),
        ("models/qwen3_next/qwen3-next-80b-a3b.html", "light"),
        ("models/qwen3_next/qwen3-next-80b-a3b.html", "dark"),
        ("models/glm4v/glm4v-language.html", "light"),
    ],
)
def test_axe_finds_no_fault_and_all_text_has_contrast(opened, name, scheme):
    from axe_playwright_python.sync_playwright import Axe

    page = opened(name, scheme=scheme)
    page.evaluate("document.querySelectorAll('details').forEach(one => one.open = true)")
    # axe would load the styles once more, which a page from disk may not.
    found = Axe().run(page, options={"resultTypes": ["violations"], "preload": False}).response
    assert [(fault["id"], fault["nodes"][0]["html"]) for fault in found["violations"]] == []
    assert "color-contrast" in {passed["id"] for passed in found["passes"]}


def luminance(colour):
    """Return the relative luminance of `rgb(r, g, b)` (WCAG 2.2)."""
    parts = [int(part) / 255 for part in re.findall(r"\d+", colour)[:3]]
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one, other):
    brighter, darker = sorted((luminance(one), luminance(other)), reverse=True)
    return (brighter + 0.05) / (darker + 0.05)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_bands_lines_and_labels_of_pictures_stand_out_from_the_ground(opened, scheme):
    page = opened("models/qwen3_next/qwen3-next-80b-a3b.html", scheme=scheme)
    ground = page.evaluate("getComputedStyle(document.documentElement).backgroundColor")
    for selector, style, least in ((".band", "fill", 3), (".series .line", "stroke", 3), (".chart text", "fill", 4.5)):
        colours = page.eval_on_selector_all(selector, f"all => all.map(one => getComputedStyle(one).{style})")
        assert colours
        assert min(contrast(colour, ground) for colour in colours) >= least, selector


@pytest.mark.parametrize("viewport", [DESK, PHONE], ids=["desk", "phone"])
@pytest.mark.parametrize("name", SHOWN)
def test_a_picture_has_a_visible_band_for_each_layer_and_a_line_for_each_curve(opened, name, viewport):
    page = opened(f"models/{name}.html", viewport=viewport)
    boxes = "all => all.map(one => one.getBoundingClientRect()).map(box => [box.left, box.width, box.height])"
    bands = page.eval_on_selector_all("section[aria-labelledby=stack] .band", boxes)
    layers = pinned(name)["spec"]["num_hidden_layers"]
    assert len({left for left, _, _ in bands}) == len(bands) == layers
    assert all(width >= 2 and height >= 16 for _, width, height in bands), "a band of two pixels can still be seen"
    for chart in page.locator("figure.curve").all():
        lines = chart.locator(".series .line")
        assert lines.count() == chart.locator(".legend li").count()
        assert all(box["width"] > 200 for box in (line.bounding_box() for line in lines.all()))
        assert chart.locator("svg[role=img] > title").inner_html() == chart.locator("h3").inner_text()
        dashes = [line.evaluate("one => getComputedStyle(one).strokeDasharray") for line in lines.all()]
        assert len(set(dashes)) == len(dashes), "lines are told apart without their colours"


def test_the_index_is_searched_filtered_and_sorted_by_keyboard_and_its_address_opens_the_same_view(opened):
    page = opened("index.html")
    everything = shown(page)
    assert len(everything) == len(SHOWN) + 1
    page.keyboard.press("Tab")
    assert focused(page, "className") == "skip"
    page.keyboard.press("Enter")
    assert focused(page, "id") == "main"
    page.keyboard.press("Tab")
    assert focused(page, "id") == "q"
    page.keyboard.type("MOE deepseek")
    assert shown(page) == [HOSTILE, "deepseek-v3"]
    assert page.get_by_role("status").inner_text() == f"2 of {len(everything)} models"

    page.keyboard.press("Control+A")
    page.keyboard.press("Delete")
    for _ in range(3):
        page.keyboard.press("Tab")
    assert focused(page, "id") == "routed"
    page.keyboard.type("routed (")
    page.wait_for_function("location.hash.includes('routed=routed')")
    routed = shown(page)
    assert "qwen3-next-80b-a3b" in routed
    assert "llama-3.1-405b" not in routed
    for _ in range(10):
        page.keyboard.press("Tab")
        if focused(page, "dataset.key") == "total":
            break
    page.keyboard.press("Enter")
    assert page.locator("th.c-total").first.get_attribute("aria-sort") == "descending"
    down = shown(page)
    # Both have the same parameters, and stand by name.
    assert down[:3] == [HOSTILE, "deepseek-v3", "qwen3-next-80b-a3b"]
    page.keyboard.press("Space")
    assert page.locator("th.c-total").first.get_attribute("aria-sort") == "ascending"
    assert shown(page)[0] == down[-1]
    assert focused(page, "dataset.key") == "total", "the focus stays where it was"

    linked = opened("index.html", page.evaluate("location.hash"))
    assert shown(linked) == shown(page)
    assert linked.locator("#routed").input_value() == "routed"
    assert linked.locator("th.c-total").first.get_attribute("aria-sort") == "ascending"


def test_a_search_that_finds_nothing_says_so_and_is_cleared(opened):
    page = opened("index.html", "#q=no+such+model")
    assert shown(page) == []
    assert page.get_by_role("status").inner_text() == f"0 of {len(SHOWN) + 1} models"
    page.locator("#clear").click()
    page.wait_for_function("document.querySelector('#none').hidden")
    assert len(shown(page)) == len(SHOWN) + 1
    assert page.evaluate("location.hash") == ""
    assert focused(page, "id") == "q"


def test_each_filter_keeps_the_models_that_have_what_is_chosen(opened):
    page = opened("index.html")
    for name, choice, kept in (
        ("family", "falcon_h1", ["falcon-h1-34b"]),
        ("mixer", "gated_delta_rule", ["qwen3-next-80b-a3b"]),
        ("route", "peers", ["llama-3.1-405b"]),
    ):
        page.locator(f"#{name}").select_option(choice)
        assert shown(page) == kept
        page.get_by_role("button", name="Clear").first.click()
        page.wait_for_function("!location.hash")


def test_a_model_is_reached_from_the_index_and_the_index_from_its_family(opened):
    page = opened("index.html")
    page.get_by_role("link", name=HOSTILE).click()
    assert page.locator("h1").inner_text() == HOSTILE
    page.locator(".crumbs a").nth(1).click()
    assert shown(page) == [HOSTILE, "deepseek-v3"]


def test_the_table_is_still_a_table_to_a_screen_reader_where_a_phone_shows_cards(opened):
    page = opened("index.html", viewport=PHONE)
    table = page.get_by_role("table", name="Models")
    assert table.get_by_role("row").count() == len(SHOWN) + 2
    assert table.get_by_role("columnheader", name="Parameters").count() == 1
    assert table.get_by_role("rowheader").count() == len(SHOWN) + 1
