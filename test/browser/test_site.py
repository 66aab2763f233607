"""The documentation site, which `make site` has built, on a narrow and a wide screen."""

from __future__ import annotations

import functools
import subprocess
import threading
from collections.abc import Iterator
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from chromium import Browser, Page

ROOT = Path(__file__).resolve().parents[2]
SITE = ROOT / "build" / "site"
PICTURES = SITE.parent / "pictures"
PAGES = (
    "index",
    "tutorial",
    "answers",
    "compatibility",
    "settings",
    "reference/c",
    "reference/horovod.torch",
)


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    if not (SITE / "index.html").exists():
        pytest.skip("there is no site: make site")
    with ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(SITE))) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


@pytest.mark.parametrize(("name", "width", "height"), [("narrow", 390, 844), ("wide", 1400, 900)])
def test_pages_fit_and_search_finds(
    browser: Browser, address: str, name: str, width: int, height: int
) -> None:
    PICTURES.mkdir(exist_ok=True)
    page = Page(browser, width, height)
    for path in PAGES:
        page.open(f"{address}/{path}.html")
        page.screenshot(PICTURES / f"site-{path.replace('/', '-')}-{name}.png", whole=False)
        sizes = page.evaluate("[document.documentElement.scrollWidth, innerWidth]")
        assert sizes[0] <= sizes[1], f"{path} is wider than the screen"
    page.evaluate("document.querySelector('label.md-header__button[for=__search]').click()")
    page.evaluate("document.querySelector('input.md-search__input').focus()")
    page.call("Input.insertText", text="hvd_submit")
    page.wait("document.querySelector('.md-search-result__list').innerText.includes('hvd_submit')")
    page.screenshot(PICTURES / f"site-search-{name}.png", whole=False)
    assert page.problems() == []


@pytest.mark.parametrize(
    ("link", "wrong"),
    [("other.md#there", ""), ("nowhere.md", "nowhere.md"), ("other.md#elsewhere", "#elsewhere")],
)
def test_a_link_that_leads_nowhere_is_an_error(link: str, wrong: str, tmp_path: Path) -> None:
    python = ROOT / "build/site-venv/bin/python"
    if not python.exists():
        pytest.skip("mkdocs is not installed: make site")
    pages = tmp_path / "pages"
    pages.mkdir()
    (pages / "index.md").write_text(f"# Start\n\n[A link]({link})\n")
    (pages / "other.md").write_text("# Other\n\n## There\n")
    (pages / "style.css").write_text("")
    settings = (ROOT / "docs/site/mkdocs.yml").read_text().partition("nav:\n")[0]
    (tmp_path / "mkdocs.yml").write_text(settings.replace("../../build/site-pages", "pages"))
    code = "import sys, pathlib, build; sys.exit(build.render(*map(pathlib.Path, sys.argv[1:])))"
    words = [python, "-c", code, tmp_path / "mkdocs.yml", tmp_path / "site"]
    done = subprocess.run(words, cwd=ROOT / "docs/site", capture_output=True, text=True, timeout=300)
    assert done.returncode == (1 if wrong else 0) and wrong in done.stderr, done.stdout + done.stderr
