"""Cuts the network between 4 hosts (network namespaces, as root) at random, and checks who is named.

    python test/launch/cuts.py [--limit 30] [--cuts 30] [--outages 10,20,25,28] [--repeat 5] [--seed N]

First pairs of hosts, single directions, halves and single hosts, cut for 1/30 to 40/30 of the limit
(HOROVOD_TIMEOUT_SECONDS) in the midst of large allreduces; then all of one host's network for each of the
outages. A job that was cut for less than the limit must go on; otherwise its ranks must name exactly what was
cut, all that still reach each other the same. The exit status is 1 if one does not. Needs horovodrun.
"""

from __future__ import annotations

import argparse
import itertools
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))
import virtual_hosts  # noqa: E402
from virtual_hosts import VirtualHosts, wait_until  # noqa: E402

WORKER = Path(__file__).with_name("outage_worker.py")
NAMES = ("a", "b", "c", "d")
LATEST = 1.3  # times the limit: ranks have named what is silent
RECOVERY = 1.2  # seconds from the end of an outage to the next retransmission and its answer
DEADLINE = 100.0


@dataclass
class Cut:
    """Nothing passes between the hosts of the two sides; `one_way`: from the first to the second."""

    one: Sequence[str]
    other: Sequence[str]
    seconds: float
    one_way: bool = False

    def directions(self) -> list[tuple[str, str]]:
        there = list(itertools.product(self.one, self.other))
        return there if self.one_way else there + [(b, a) for a, b in there]

    def is_split(self) -> bool:
        return len(self.one) + len(self.other) == len(NAMES)

    def __str__(self) -> str:
        sides = f"{''.join(self.one)} {'->' if self.one_way else '|'} {''.join(self.other)}"
        return f"{sides:8} {self.seconds:5.1f} s"


def draw(source: random.Random, limit: float) -> Cut:
    """A pair, a direction, halves, or one host."""
    order = source.sample(NAMES, len(NAMES))
    kind = source.choice(("pair", "direction", "half", "host"))
    count = {"half": 2, "host": 3}.get(kind, 1)
    one, other = order[:-1][: len(NAMES) - count], order[len(NAMES) - count :]
    if kind in ("pair", "direction"):
        one = order[:1]
    return Cut(sorted(one), sorted(other), source.uniform(1, 40) * limit / 30, kind == "direction")


def named(cause: str) -> set[str]:
    """The hosts of "host c (ranks 4-5)", "rank 0 (pid 12, host a)"."""
    return set(re.findall(r"\bhost (\w)\b", cause.partition(":")[0]))


def truth(cut: Cut, host: str) -> set[str]:
    """What the ranks of a host must name."""
    if not cut.is_split():
        return {*cut.one, *cut.other}
    mine, others = (cut.one, cut.other) if host in cut.one else (cut.other, cut.one)
    return set(mine if len(mine) == 1 else others)


def explain(cut: Cut, limit: float, causes: dict[str, str], error: str) -> str:
    """What is wrong; "" if nothing is. `causes`: by host, of its first rank; empty if the job went on. If the
    cut ends while ranks settle on the cause they may name some of the pairs that it has cut."""
    if not causes:
        never = {*cut.one, *cut.other} == {"b", "d"}  # they have no connection
        return "" if never or cut.seconds < limit * LATEST else "the job went on"
    if cut.seconds < limit - RECOVERY:
        return "the job ended"
    if re.search(r"\blost\b|killed|crashed", error):
        return "a process that was killed is the cause"
    for host, cause in causes.items():
        ended = cut.seconds < limit * LATEST and {*cut.one} & named(cause) and {*cut.other} & named(cause)
        if named(cause) != truth(cut, host) and not ended:
            return f"host {host} names {named(cause)}: {cause}"
    sides = [cut.one, cut.other] if cut.is_split() else [NAMES]
    if any(len({causes[host] for host in side}) > 1 for side in sides):
        return "not one cause"
    return ""


def steps(folder: Path, ranks: int) -> list[int]:
    paths = [folder / f"{rank}.step" for rank in range(ranks)]
    return [int(path.read_text() or 0) if path.exists() else 0 for path in paths]


def wait_for(folder: Path, ranks: int, more: int, process: subprocess.Popen[str]) -> bool:
    """All ranks do some more steps; False: the job ends."""
    goal = min(steps(folder, ranks)) + more
    wait_until(lambda: process.poll() is not None or min(steps(folder, ranks)) >= goal, DEADLINE)
    return process.poll() is None and min(steps(folder, ranks)) >= goal


def run(
    hosts: VirtualHosts, horovodrun: str, cut: Cut, limit: float, per_host: int, delay: float
) -> tuple[dict[str, str], str]:
    """The causes by host, and what horovodrun said; no causes: the job went on and ended with 0."""
    folder = Path(tempfile.mkdtemp(prefix="cuts-")).resolve()
    layout = ",".join(f"{name}:{per_host}" for name in NAMES)
    words = [*hosts.enter("a", folder), horovodrun, "--timeout-seconds", f"{limit:g}", "-H", layout]
    words += [sys.executable, str(WORKER)]
    ranks = per_host * len(NAMES)
    process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    try:
        assert wait_for(folder, ranks, 3, process), process.communicate()
        time.sleep(delay)
        for pair in cut.directions():
            hosts.cut(*pair)
        wait_until(lambda: process.poll() is not None, cut.seconds)
        errors = [folder / f"{name * per_host}.error" for name in range(len(NAMES))]
        if process.poll() is not None:  # the other side may be about to end
            wait_until(lambda: all(path.exists() and path.read_text() for path in errors), limit * LATEST)
        for pair in cut.directions():
            hosts.mend(*pair)
        if wait_for(folder, ranks, 3, process):
            (folder / "over").touch()
        _, error = process.communicate(timeout=DEADLINE)
        wait_until(lambda: process.returncode == 0 or all(path.exists() for path in errors), DEADLINE)
        texts = [path.read_text() if path.exists() else "no error" for path in errors]
        return (dict(zip(NAMES, texts, strict=True)) if process.returncode else {}), error
    finally:
        for pair in cut.directions():
            hosts.mend(*pair)
        process.kill()
        process.wait(DEADLINE)
        shutil.rmtree(folder)


def show(hosts: VirtualHosts, cut: Cut, limit: float, source: random.Random) -> bool:
    """One row of the table."""
    horovodrun = shutil.which("horovodrun")
    assert horovodrun, "horovodrun is not in PATH"
    causes, error = run(hosts, horovodrun, cut, limit, source.choice((1, 2)), source.uniform(0, 0.5))
    wrong = explain(cut, limit, causes, error)
    said = " | ".join(sorted({cause.partition(":")[0] for cause in causes.values()})) or "went on"
    print(f"{cut!s:18}  {'WRONG: ' + wrong if wrong else 'right'}  {said}", flush=True)
    if wrong:
        print(error, flush=True)
    return not wrong


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--limit", type=float, default=30, help="seconds")
    parser.add_argument("--cuts", type=int, default=30)
    parser.add_argument("--outages", default="10,20,25,28", help="seconds, separated by commas")
    parser.add_argument("--repeat", type=int, default=5, help="of each outage")
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 31))
    args = parser.parse_args()
    source = random.Random(args.seed)
    print(f"seed {args.seed}; the limit is {args.limit:g} s")
    hosts = virtual_hosts.make(NAMES)
    try:
        cuts = [draw(source, args.limit) for _ in range(args.cuts)]
        outages = [float(word) for word in args.outages.split(",") if word] * args.repeat
        for seconds in outages:
            host = source.choice(NAMES)
            cuts.append(Cut([host], [name for name in NAMES if name != host], seconds))
        rights = [show(hosts, cut, args.limit, source) for cut in cuts]
    finally:
        hosts.end()
        shutil.rmtree(hosts.folder)
    print(f"{sum(rights)} of {len(rights)} right")
    return int(not all(rights))


if __name__ == "__main__":
    sys.exit(main())
