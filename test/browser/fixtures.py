"""What the live page and the report show, by hand: the JSON of jobs that are hard to have, such as 256 ranks.

python test/browser/fixtures.py FOLDER    writes each as a report, to be looked at in a browser
"""

from __future__ import annotations

import base64
import hashlib
import json
import math
import random
import re
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
CASES = ("healthy", "late", "silent", "nan", "failed")
FOREIGN = "allreduce.<img src=x onerror=alert(1)>"  # a name of a tensor that would be a program in HTML
STEP = 0.074  # seconds


def policy(document: str) -> str:
    """As launch/CMakeLists.txt makes it."""

    def digest(element: str) -> str:
        [text] = re.findall(rf"<{element}>(.*?)</{element}>", document, re.DOTALL)
        return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()

    return (
        f"default-src 'none'; style-src 'sha256-{digest('style')}'; script-src 'sha256-{digest('script')}'; "
        "connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'"
    )


def document(data: dict[str, Any] | None) -> str:
    """The page; with data a report."""
    text = (ROOT / "launch/live.html").read_text()
    text = text.replace("@POLICY@", policy(text))
    return text.replace(">null<", f">{json.dumps(data).replace('<', chr(92) + 'u003c')}<") if data else text


def stack(line: int, function: str, text: str) -> dict[str, Any]:
    frames = [
        {"file": "dataset.py", "line": line, "function": function, "text": text},
        {
            "file": "fetch.py",
            "line": 54,
            "function": "fetch",
            "text": "data = [self.dataset[i] for i in indices]",
        },
        {"file": "train.py", "line": 88, "function": "main", "text": "for x, y in loader:"},
    ]
    return {"python": frames, "c": [{"function": "read", "library": "libc.so.6"}]}


def make_rank(rank: int, host: str, local_rank: int) -> dict[str, Any]:
    noise = random.Random(rank)
    return {
        "rank": rank, "host": host, "local_rank": local_rank, "pid": 7700 + rank, "state": "waits",
        "text": "waits in allreduce.fc1.weight", "seconds": 0.02, "in_horovod": 0.22 + 0.02 * noise.random(),
        "late": False, "late_share": 0.004 * noise.random(), "late_ms_per_step": 0.3 * noise.random(),
        "program": {"running": 0.7, "runnable": 0.03, "blocked": 0.02},
        "memory_bytes": 5.1e8 + 1e6 * noise.random(),
        "counters": {"allreduce": {"requests": 193683, "failed": 0, "batches": 4812, "bytes": 123e9}},
        "nonfinite": 0,
    }  # fmt: skip


def make_late(status: dict[str, Any], late: int) -> None:
    rank = status["ranks"][late]
    others = [each["rank"] for each in status["ranks"] if each["rank"] != late]
    rank |= {
        "state": "program", "text": "sleeps in its own program: dataset.py:43, in __getitem__",
        "seconds": 14.2,
        "in_horovod": 0.03, "late": True, "late_share": 0.31, "late_ms_per_step": 23.1,
        "stack": stack(43, "__getitem__", 'img = open(path).read()  # <b>"quoted" & marked</b>'),
    }  # fmt: skip
    for each in others:
        status["ranks"][each]["seconds"] = 14.2
    status["waiting"] = [
        {
            "tensor": tensor,
            "process_set": 0,
            "seconds": 14.2 - i,
            "waits": others,
            "missing": [late],
            "hidden": 0,
        }
        for i, tensor in enumerate([FOREIGN, *(f"allreduce.{layer}.weight" for layer in range(8, 0, -1))])
    ]
    status["job"]["last_progress_seconds"] = 14.2
    status["verdict"] = {
        "exit": 3, "kind": "late",
        "text": f"rank {late} (host {rank['host']}) is in the data loader for 14 s: dataset.py:43, in "
        f"__getitem__: img = open(path).read(); {len(others)} wait for it",
    }  # fmt: skip


def make_silent(status: dict[str, Any]) -> None:
    host = status["hosts"][-1]
    host |= {"answers": False, "silent_seconds": 12.4}
    ranks = [each for each in status["ranks"] if each["host"] == host["name"]]
    for rank in ranks:
        rank |= {"state": "unseen", "text": "is on a host that does not answer", "seconds": 12.4}
    names = f"ranks {ranks[0]['rank']}-{ranks[-1]['rank']}" if len(ranks) > 1 else f"rank {ranks[0]['rank']}"
    status["verdict"] = {
        "exit": 4, "kind": "silent",
        "text": f"host {host['name']} ({names}) does not answer for 12 s; the others wait for it in "
        "allreduce.fc1.weight",
    }  # fmt: skip


def make_nan(status: dict[str, Any]) -> None:
    status["ranks"][-1]["nonfinite"] = 4
    status["verdict"] = {
        "exit": 4, "kind": "nonfinite",
        "text": f"NaN in the gradient fc1.bias of rank {status['ranks'][-1]['rank']} at step 1203, before it "
        "was reduced; every rank has it since",
    }  # fmt: skip


def make_failed(status: dict[str, Any]) -> dict[str, Any]:
    for rank in status["ranks"]:
        rank |= {"state": "failed", "text": "has failed"}
    text = (
        "the first to fail was rank 1 (pid 7701) on b: it raised KeyError: '<b>label</b>' (train.py, line "
        "93, in step) and ended with exit code 1 after 968.203 s"
    )
    status["verdict"] = {
        "exit": 4,
        "kind": "failed",
        "text": "rank 1 has failed: the program raised KeyError",
    }
    return {
        "exit_code": 1, "text": text, "seconds": 968.0, "time": "2026-11-27T02:11:05Z",
        "failures": [
            {"rank": 1, "host": status["ranks"][1]["host"],
             "text": "raised KeyError: '<b>label</b>' and ended with exit code 1",
             "lines": ["Traceback (most recent call last):", '  File "train.py", line 93, in step',
                       "    y = batch['<b>label</b>']", "KeyError: '<b>label</b>'"]},
            {"rank": 0, "host": status["ranks"][0]["host"], "text": "ended with exit code 1", "lines": []},
        ],
    }  # fmt: skip


def course_of(status: dict[str, Any]) -> dict[str, Any]:
    up, noise = status["job"]["up_seconds"], random.Random(3)
    late = status["verdict"]["kind"] == "late"
    points = []
    for i in range(240):
        at = up * i / 239
        rate = (13.5 if i > 8 else 1.6 * i) * (1 + 0.03 * math.sin(i / 9) + 0.02 * noise.random()) - (
            4 if 140 < i < 160 else 0
        )
        points.append(
            [
                round(at, 1),
                0 if late and i > 234 else round(rate, 2),
                0.22,
                0.28 if 140 < i < 160 else 0.004,
                1,
            ]
        )
    verdicts = [
        {"at": 0, "until": up * 0.03, "exit": 3, "kind": "joining", "text": "rank 0 waits in init"},
        {"at": up * 0.03, "until": up * 0.58, "exit": 0, "kind": "healthy", "text": "healthy: 13.5 steps/s"},
        {"at": up * 0.58, "until": up * 0.67, "exit": 3, "kind": "late",
         "text": "rank 1 costs 31 ms of each 105 ms step; 96 % of it blocked in the data loader"},
        {"at": up * 0.67, "until": up - 14, "exit": 0, "kind": "healthy", "text": "healthy: 13.4 steps/s"},
        {"at": up - 14, "until": up, **status["verdict"]},
    ]  # fmt: skip
    return {
        "version": 1, "steps": 12031, "points": points, "verdicts": verdicts,
        "late": [{"rank": r["rank"], "host": r["host"], "share": r["late_share"], "ms": r["late_ms_per_step"],
                  "late": r["late"]}
                 for r in status["ranks"]],
        "cost": {"text": "2.1 rank-hours: 71 % computing, 22 % waiting for rank 1, 4 % moving 0.9 TB, "
                 "3 % starting; engine 0.02 core-hours; 118 kJ", "rank_seconds": 7560, "computing": 0.71,
                 "waiting": 0.22, "waiting_for": 1, "moving": 0.04, "starting": 0.03},
    }  # fmt: skip


def make(case: str, size: int) -> dict[str, Any]:
    """{status, course, outcome}: what a report holds; the live page asks for the first two."""
    host_count = 2 if size == 2 else size // 8
    hosts = [f"node{i:02d}" if host_count > 26 else chr(ord("a") + i) for i in range(host_count)]
    ranks = [make_rank(i, hosts[i * host_count // size], i % (size // host_count)) for i in range(size)]
    status: dict[str, Any] = {
        "version": 1, "time": "2026-11-27T02:11:05Z",
        "job": {"id": "a61c0f3e5d2b4977", "name": "train.py", "ranks": size, "hosts": host_count, "epoch": 0,
                "up_seconds": 968.0, "steps": 12031, "samples": 12031 * 32 * size,
                "steps_per_second": 1 / STEP, "last_progress_seconds": 0.02},
        "verdict": {"exit": 0, "kind": "healthy",
                    "text": "healthy: step 12031, 13.5 steps/s (74 ms), no rank is late by more than 2 %"},
        "waiting": [], "hosts": [{"name": name, "answers": True, "silent_seconds": 0.1} for name in hosts],
        "ranks": ranks,
        "links": [{"from": name, "to": hosts[(i + 1) % host_count], "bytes_per_second": 4.1e8 + i * 1e6,
                   "busy": 0.98 if case == "late" and not i else 0.12 + i / 1000, "receiver_limited": 0,
                   "limits": case == "late" and not i,
                   "retransmitted": 3 * i}
                  for i, name in enumerate(hosts)],
    }  # fmt: skip
    outcome = None
    if case == "late":
        make_late(status, 1 if size == 2 else 137)
    elif case == "silent":
        make_silent(status)
    elif case == "nan":
        make_nan(status)
    elif case == "failed":
        outcome = make_failed(status)
    return {"status": status, "course": course_of(status), "outcome": outcome}


def main() -> None:
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    for case in CASES:
        for size in (2, 256):
            (folder / f"{case}-{size}.html").write_text(document(make(case, size)))


if __name__ == "__main__":
    main()
