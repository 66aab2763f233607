"""The live page and the report in a real browser, on a narrow and a wide screen."""

from __future__ import annotations

import http.server
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fixtures
import pytest
from chromium import Browser, Page

SIZES = {"narrow": (360, 800), "wide": (1440, 900)}


class Server(http.server.ThreadingHTTPServer):
    """Serves the live page as launch/live.c does; `data` None: the connection is lost."""

    def __init__(self, data: dict[str, Any]) -> None:
        self.data: dict[str, Any] | None = data
        self.asked = 0
        super().__init__(("127.0.0.1", 0), Handler)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/"


class Handler(http.server.BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        text = fixtures.document(None)
        policy = fixtures.policy(text)
        if self.path != "/":
            self.server.asked += 1
            if self.server.data is None:
                self.close_connection = True
                return
            text = json.dumps(self.server.data[self.path.strip("/").removesuffix(".json")])
        self.send_response(200)
        self.send_header(
            "Content-Type", "text/html; charset=utf-8" if self.path == "/" else "application/json"
        )
        self.send_header("Content-Security-Policy", policy)
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def server() -> Iterator[Server]:
    with Server(fixtures.make("late", 2)) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def open_report(
    browser: Browser, folder: Path, data: dict[str, Any], width: int = 1440, height: int = 900
) -> Page:
    path = folder / "report.html"
    path.write_text(fixtures.document(data))
    page = Page(browser, width, height)
    page.open(path.as_uri())
    return page


def text_of(page: Page, selector: str) -> str:
    return str(page.evaluate(f"document.querySelector({json.dumps(selector)}).innerText"))


@pytest.mark.parametrize("screen", SIZES)
@pytest.mark.parametrize("size", [2, 256])
@pytest.mark.parametrize("case", fixtures.CASES)
def test_every_case_fits_on_every_screen(
    browser: Browser, tmp_path: Path, case: str, size: int, screen: str
) -> None:
    data = fixtures.make(case, size)
    page = open_report(browser, tmp_path, data, *SIZES[screen])
    assert page.problems() == []
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert page.evaluate(
        "[...document.querySelectorAll('section, td, dd, .say')]"
        ".every(e => e.scrollWidth <= e.clientWidth + 1)"
    )
    verdict = data["outcome"]["text"] if data["outcome"] else data["status"]["verdict"]["text"]
    assert verdict in text_of(page, "#verdict")
    assert page.evaluate("document.querySelector('#verdict').getBoundingClientRect().bottom < innerHeight")


def test_foreign_text_stays_text(browser: Browser, tmp_path: Path) -> None:
    page = open_report(browser, tmp_path, fixtures.make("late", 2))
    assert fixtures.FOREIGN in text_of(page, "#waiting")
    assert '# <b>"quoted" & marked</b>' in text_of(page, "#stacks")
    page = open_report(browser, tmp_path, fixtures.make("failed", 2))
    assert "KeyError: '<b>label</b>'" in text_of(page, "#failures")
    assert page.evaluate("document.querySelectorAll('img, section b:not(.bar b):not(h2 b)').length") == 0
    assert page.problems() == []


def test_the_policy_allows_no_other_script(browser: Browser, tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    path.write_text(
        fixtures.document(fixtures.make("late", 2)).replace(
            "<footer>", "<script>var bad = 1</script><footer>"
        )
    )
    page = Page(browser, 1440, 900)
    page.open(path.as_uri())
    assert page.evaluate("typeof bad") == "undefined"
    assert len(page.problems()) == 1


def test_equal_ranks_are_one_row_and_outliers_come_first(browser: Browser, tmp_path: Path) -> None:
    page = open_report(browser, tmp_path, fixtures.make("late", 256))
    rows = page.evaluate("[...document.querySelectorAll('#ranks tbody tr')].map(row => row.innerText)")
    assert len(rows) == 2
    assert rows[0].startswith("137\t") and "! late" in rows[0]
    assert rows[1].startswith("0-136, 138-255 (255)") and "32 hosts" in rows[1]


def test_nothing_acts_on_the_job(browser: Browser, tmp_path: Path) -> None:
    page = open_report(browser, tmp_path, fixtures.make("late", 256))
    assert (
        page.evaluate(
            "document.querySelectorAll('button, form, a, select, textarea, input:not([type=range])').length"
        )
        == 0
    )


def test_keyboard_moves_along_the_curve(browser: Browser, tmp_path: Path) -> None:
    page = open_report(browser, tmp_path, fixtures.make("healthy", 2))
    page.press("Tab", 9)
    assert page.evaluate("document.activeElement.type") == "range"
    before = page.evaluate("document.activeElement.getAttribute('aria-valuetext')")
    for _ in range(85):
        page.press("ArrowLeft", 37)
    after = page.evaluate("document.activeElement.getAttribute('aria-valuetext')")
    assert before != after and "rank 1 late 28 %" in after


def test_time_in_which_nobody_looked_is_a_gap(browser: Browser, tmp_path: Path) -> None:
    data = fixtures.make("healthy", 2)
    points = data["course"]["points"]
    del points[100:160]
    points[100].append(True)
    page = open_report(browser, tmp_path, data)
    starts = "document.querySelector('#rate path.%s').getAttribute('d').split('M').length - 1"
    assert page.evaluate(starts % "rate") == page.evaluate(starts % "area") == 2
    assert "gaps: nobody watched" in text_of(page, "#rate")
    page.evaluate("document.querySelector('#rate input').focus()")
    for _ in range(len(points) - 1 - 100):
        page.press("ArrowLeft", 37)
    moment = page.evaluate("document.activeElement.getAttribute('aria-valuetext')")
    assert "on average since 6 min 41 s, while nobody watched" in moment
    assert page.problems() == []


def test_a_screen_reader_gets_the_verdict_and_tables(browser: Browser, tmp_path: Path) -> None:
    page = open_report(browser, tmp_path, fixtures.make("late", 256), 360, 800)
    nodes = page.call("Accessibility.getFullAXTree")["nodes"]
    roles = [node["role"]["value"] for node in nodes if not node["ignored"]]
    assert "status" in roles and "main" in roles
    assert roles.count("table") >= 2 and "columnheader" in roles  # narrow rows are still rows of a table
    names = [node.get("name", {}).get("value", "") for node in nodes if not node["ignored"]]
    assert any(name.startswith("1 late, 255 waiting in Horovod") for name in names)
    unnamed = [
        n
        for n in nodes
        if not n["ignored"] and n["role"]["value"] in ("slider", "image") and not n["name"]["value"]
    ]
    assert unnamed == []


def test_contrast_of_all_texts(browser: Browser, tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    for dark in (False, True):
        for case in fixtures.CASES:
            path.write_text(fixtures.document(fixtures.make(case, 2)))
            page = Page(browser, 1440, 900, dark)
            page.open(path.as_uri())
            assert page.evaluate(CONTRAST) == []


# The texts with less contrast to what is behind them than 4.5 (WCAG AA).
CONTRAST = """(() => {
  const light = color => color.match(/[\\d.]+/g).slice(0, 3).map(c => c / 255)
    .map(c => c <= .04045 ? c / 12.92 : ((c + .055) / 1.055) ** 2.4)
    .reduce((sum, c, i) => sum + c * [.2126, .7152, .0722][i], 0);
  const behind = e => { const b = getComputedStyle(e).backgroundColor;
    return b === 'rgba(0, 0, 0, 0)' ? behind(e.parentElement) : b; };
  const poor = [];
  for (const e of document.querySelectorAll('body *')) {
    const text = [...e.childNodes].some(n => n.nodeType === 3 && n.data.trim());
    if (!text || !e.getClientRects().length) continue;
    const [a, b] = [light(getComputedStyle(e).color), light(behind(e))].sort((x, y) => y - x);
    const contrast = (a + .05) / (b + .05);
    if (contrast < 4.5) poor.push(e.textContent.slice(0, 40) + ' ' + contrast.toFixed(1));
  }
  return poor;
})()"""


def test_the_live_page_refreshes_and_says_when_the_connection_is_lost(
    browser: Browser, server: Server
) -> None:
    page = Page(browser, 1440, 900)
    page.open(server.url)
    page.wait("document.querySelector('#verdict').innerText.includes('data loader')")
    assert "live" in text_of(page, "header")
    assert "rank 1 (host b)" in str(page.evaluate("document.title"))
    assert "dataset.py:43" in text_of(page, "#stacks")
    page.evaluate("document.querySelector('#rate input').focus()")
    asked = server.asked
    healthy = fixtures.make("healthy", 2)
    server.data = healthy
    page.wait("document.querySelector('#verdict').innerText.includes('healthy')")
    assert server.asked > asked
    assert page.evaluate("document.activeElement.type") == "range"  # a refresh keeps the focus
    assert text_of(page, "#stacks") == ""
    assert page.problems() == []
    server.data = None
    page.wait("document.body.className === 'lost'")
    assert "no connection since " in text_of(page, "header")
    assert "healthy" in text_of(page, "#verdict")  # what was known stays
    server.data = healthy
    page.wait("document.body.className === ''")


def test_parts_of_a_bar_share_a_line(browser: Browser, server: Server) -> None:
    """Also if their rounded widths add up to more than 100 %."""
    assert server.data
    server.data["course"]["cost"] |= {"computing": 0.8378, "waiting": 0.0809, "moving": 0.0814, "starting": 0}
    page = Page(browser, *SIZES["wide"])
    page.open(server.url)
    page.wait("document.querySelectorAll('#cost .bar b').length === 3")
    tops = page.evaluate("[...document.querySelectorAll('#cost .bar b')].map(part => part.offsetTop)")
    assert len(set(tops)) == 1, tops
