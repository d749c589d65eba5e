"""The report in a real browser: on a phone, printed, in light and dark, by keyboard and by screen reader."""

import itertools
import pickle
from collections.abc import Iterator
from contextlib import redirect_stdout
from pathlib import Path

import pytest

from moedsl.cli.main import main
from tests.helpers import rotation
from tests.helpers.browser import UNLIKE, Page, browser, unlike
from tests.helpers.nsight_export import write
from tests.helpers.paths import ROOT
from tests.helpers.readable import FAINT, SHUT, themed, unnamed
from tests.profile.test_budget import three_steps
from tests.snapshot.test_memory import known

RUN = "deepseek_v3; gb200 x 256; throughput first; pin pp=4 vpp=4 ep=64 recompute=[mla_up_proj]"
"""A plan with a pipeline, whose front has many points."""
LETTERS = """() => Math.min(...[...document.querySelectorAll("svg text")].map((e) =>
  parseFloat(getComputedStyle(e).fontSize) * e.ownerSVGElement.getScreenCTM().a))"""
"""The smallest letters of a chart, in CSS pixels."""
PRINTED = 794
"""The CSS pixels of a sheet of A4."""


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("report")
    (folder / "run.moe").write_text(RUN.replace("; ", "\n"), encoding="utf-8")
    (folder / "a.pickle").write_bytes(pickle.dumps(known().snapshot()))
    trace = write(folder / "known.sqlite", [three_steps()])
    for command, file in (("profile", trace), ("memory", folder / "a.pickle")):
        with (folder / f"{command}.json").open("w", encoding="utf-8") as out, redirect_stdout(out):
            assert main([command, str(file), "--run", str(folder / "run.moe"), "--json"]) == 0
    words = ["--profile", str(folder / "profile.json"), "--memory", str(folder / "memory.json"), "--pareto"]
    assert main(["report", str(folder / "run.moe"), *words, "-o", str(folder / "r.html")]) == 0
    return (folder / "r.html").as_uri()


@pytest.fixture(scope="module")
def tab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    with browser(tmp_path_factory.mktemp("chromium")) as made:
        yield made


def opened(tab: Page, url: str, width: int = 1200, scheme: str = "light", media: str = "") -> Page:
    tab.open(url, width)
    themed(tab, scheme, media)
    tab.until("document.readyState == 'complete' && document.querySelector('details pre') !== null")
    tab.js("document.querySelectorAll('details').forEach((d) => d.open = true)")
    return tab


@pytest.mark.parametrize(("width", "media"), [(360, ""), (390, ""), (1200, ""), (PRINTED, "print")])
def test_nothing_is_wider_than_the_page(tab: Page, url: str, width: int, media: str) -> None:
    page = opened(tab, url, width, media=media)
    assert page.js("document.documentElement.scrollWidth") <= width
    assert page.js("[...document.querySelectorAll('.lined td, .lined th')].filter(e => e.scrollWidth > e.clientWidth + 1).length") == 0  # fmt: skip


@pytest.mark.parametrize(("name", "width", "scheme"), [("report", 1000, "light"), ("report_phone", 360, "dark")])
def test_its_picture_is_in_the_documents(
    tab: Page, url: str, name: str, width: int, scheme: str, tmp_path: Path
) -> None:
    opened(tab, url, width, scheme).picture(name, tmp_path)


def test_a_picture_of_another_page_is_told_apart() -> None:
    pictures = [ROOT / "docs/images" / f"{name}.webp" for name in ("report", "serve_light", "serve_dark")]
    assert min(unlike(a, b) for a, b in itertools.pairwise(pictures)) > 4 * UNLIKE


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("media", ["", "print"])
def test_every_text_stands_out(tab: Page, url: str, scheme: str, media: str) -> None:
    page = opened(tab, url, PRINTED, scheme, media)
    assert page.js(FAINT) == []
    paper = "rgb(22, 24, 28)" if (scheme, media) == ("dark", "") else "rgb(255, 255, 255)"
    assert page.js("getComputedStyle(document.body).backgroundColor") == paper


def test_a_screen_reader_has_a_name_for_each_picture_and_table(tab: Page, url: str) -> None:
    page = opened(tab, url)
    assert unnamed(page) == []
    levels = page.js("[...document.querySelectorAll('h1, h2, h3, h4')].map(h => +h.tagName[1])")
    assert levels[0] == 1 and all(b <= a + 1 for a, b in itertools.pairwise(levels))
    assert page.js("document.querySelectorAll('main').length") == 1
    assert page.js("[...document.querySelectorAll('table')].every(t => t.querySelector('th[scope]'))")


@pytest.mark.parametrize("width", [360, 1200])
def test_the_keyboard_reaches_what_scrolls_and_each_point(tab: Page, url: str, width: int) -> None:
    page = opened(tab, url, width)
    assert page.js(SHUT) == []
    points = page.js("document.querySelectorAll('circle').length")
    seen = set[str]()
    for _ in range(points + 20):
        page.press("Tab")
        seen.add(page.js("document.activeElement.getAttribute('aria-label') ?? ''"))
    assert points > 2 and sum("s a step" in label for label in seen) >= points - 1  # two points may be one layout


def test_each_mark_has_its_value_under_the_pointer(tab: Page, url: str) -> None:
    page = opened(tab, url)
    bare = "[...document.querySelectorAll('.bar i, .bar u, .gpu')].filter(e => !e.title)"
    assert page.js(f"{bare}.length") == 0
    assert page.js("[...document.querySelectorAll('rect, circle')].filter(e => !e.querySelector('title')).length") == 0


@pytest.mark.parametrize("width", rotation.some("charts", [360, 1200], 1))
def test_charts_have_ticks_and_the_worst_case(tab: Page, url: str, width: int) -> None:
    page = opened(tab, url, width)
    assert page.js("document.querySelector('.bar i.worst').getBoundingClientRect().width") > 1
    assert page.js("[...document.querySelectorAll('.ticks')].every(t => t.querySelectorAll('span').length > 2)")
    assert page.js("[...document.querySelectorAll('svg')].every(s => s.querySelectorAll('text').length > 2)")
    assert page.js(f"({LETTERS})()") >= 9
    size = "parseFloat(getComputedStyle(document.querySelector('{}')).fontSize)"
    assert page.js(size.format(".verdict")) >= 2 * page.js(size.format("body"))
