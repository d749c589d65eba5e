"""The site that `make site` builds, in a real browser: its links, its search, on a phone, without any other host."""

import functools
import threading
from collections.abc import Iterator
from html.parser import HTMLParser
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from itertools import product
from pathlib import Path

import make_site
import pytest

from tests.helpers import rotation
from tests.helpers.browser import Page, browser


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    assert make_site.main(folder) == 0, "MkDocs names a broken link above"
    return folder


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


@pytest.fixture(scope="module")
def url(site: Path) -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(_Quiet, directory=str(site)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()


@pytest.fixture(scope="module")
def tab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    with browser(tmp_path_factory.mktemp("chromium")) as made:
        yield made


class _Links(HTMLParser):
    """Collects what a page links to, and its anchors."""

    def __init__(self, page: Path) -> None:
        super().__init__()
        self.targets: list[str] = []
        self.anchors: set[str] = set()
        self.feed(page.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        self.anchors.add(values.get("id") or "")
        self.targets += [v for v in (values.get("href"), values.get("src")) if v]


def test_every_link_leads_to_a_page_and_an_anchor(site: Path) -> None:
    pages = {p.name: _Links(p) for p in site.glob("*.html") if p.name != "404.html"}
    assert len(pages) > 40
    for name, page in pages.items():
        for target in page.targets:
            path, _, anchor = target.partition("#")
            if target.startswith(("https:", "http:", "data:")) or path == ".":
                continue
            assert not path or (site / path).is_file(), f"{name} links to {target}"
            if anchor and path.endswith((".html", "")) and (path or name) in pages:
                assert anchor in pages[path or name].anchors, f"{name} links to {target}"


def test_programs_are_coloured_and_errors_have_anchors(site: Path) -> None:
    assert '<span class="k">model</span>' in (site / "language.html").read_text(encoding="utf-8")
    assert "solve.does_not_fit" in _Links(site / "errors.html").anchors


SEEN = [*product(("index", "tutorial_pretrain", "language", "rules", "errors"), (360, 1280))]


@pytest.mark.parametrize(("name", "width"), rotation.some("site", SEEN, 2))
def test_a_page_fits_its_window_and_asks_no_other_host(tab: Page, url: str, name: str, width: int) -> None:
    tab.errors.clear()
    tab.asked.clear()
    tab.open(f"{url}/{name}.html", width=width)
    tab.until("document.readyState == 'complete' && document.querySelector('article h1') !== null")
    assert tab.js("document.documentElement.scrollWidth") <= width
    assert tab.errors == []
    assert all(asked.startswith((url, "about:", "data:", "blob:")) for asked in tab.asked), tab.asked


FOUND = (("mxfp8_gpu", "rules"), ("does_not_fit", "errors"), ("tutorial", "tutorial"))


@pytest.mark.parametrize(("words", "page"), rotation.some("found", FOUND, 1))
def test_the_search_finds(tab: Page, url: str, words: str, page: str) -> None:
    tab.open(f"{url}/index.html")
    tab.until("document.readyState == 'complete' && document.querySelector('.md-search__input') !== null")
    tab.js("document.querySelector('.md-search__input').focus()")
    tab.type(words)
    found = "[...document.querySelectorAll('.md-search-result__link')].map((a) => a.href).join(' ')"
    tab.until(found, lambda links: f"/{page}" in links)
