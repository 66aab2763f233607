"""launch/live.html by its text; test/browser looks at it in a browser."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path

TEXT = (Path(__file__).parents[2] / "launch/live.html").read_text()


def element(name: str) -> str:
    [text] = re.findall(rf"<{name}>(.*?)</{name}>", TEXT, re.DOTALL)
    return str(text)


def test_its_script_stays_small() -> None:
    assert len([line for line in element("script").splitlines() if line.strip()]) <= 300


def test_it_loads_nothing_from_elsewhere() -> None:
    addresses = set(re.findall(r"https?://[^\"'` ]+", TEXT))
    assert addresses == {"http://www.w3.org/2000/svg"}  # the name of a language, which nobody fetches
    assert not re.search(r"@import|url\(|\bimport\b *\(", TEXT)


def test_foreign_text_can_not_become_a_program() -> None:
    ways = r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\b|new Function|DOMParser|srcdoc"
    assert not re.search(ways, TEXT)


class Tags(HTMLParser):
    """The attributes of all elements, and how often each element is opened and closed."""

    def __init__(self) -> None:
        super().__init__()
        self.attributes: list[str] = []
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.attributes += [name for name, _ in attributes]
        if tag not in ("meta", "link"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_its_elements_are_closed_and_have_no_inline_style_or_handler() -> None:
    tags = Tags()
    tags.feed(TEXT)
    assert tags.open == []
    assert not [name for name in tags.attributes if name == "style" or name.startswith("on")]


def test_it_never_acts_on_the_job() -> None:
    assert not re.search(r"<(button|form|a)\b", TEXT)
    assert re.findall(r"fetch\(.*", element("script")) == [
        'fetch(path, {cache: "no-store", signal: AbortSignal.timeout(LIMIT)});'
    ]
