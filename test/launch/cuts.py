"""Cuts the network between 2 to 4 hosts (network namespaces, as root) at random, and checks who is named.

    python test/launch/cuts.py [--limit 30] [--cuts 30] [--longest 40] [--outages 10,20,25,28] [--repeat 5]
                               [--hosts 4] [--seed N]

First pairs of hosts, halves and single hosts, in both directions or in one, cut for 1/30 of the limit
(HOROVOD_TIMEOUT_SECONDS) up to --longest thirtieths in the midst of large allreduces; then all of one host's
network for each of the outages. Each job draws whether its connections are encrypted, whether hosts have one
rank or two, and where horovodrun runs: on one of them, or on a host without ranks, whose network may be what
is cut.

A job that was cut for less than the limit must go on, and one that was cut for longer must end; its ranks
must name exactly what was cut, all that still reach each other the same, and so must the last cause that
horovodrun prints. Nothing may be left soon after five times the limit. The exit status is 1 if something is
wrong. Needs horovodrun.
"""

from __future__ import annotations

import argparse
import contextlib
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

WORKER = Path(__file__).with_name("endless_worker.py")
NAMES = ("a", "b", "c", "d")
OUTSIDE = "z"  # a host without ranks, for horovodrun
LATEST = 1.37  # times the limit: ranks have named what is silent
LOST = 4.5  # times the limit: horovodrun has named a host that does not answer it
LEFT = 5  # times the limit: agents without a launcher have killed their ranks
ENDING = 15.0  # seconds for three grace periods of a job that ends, on a busy machine
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

    def __str__(self) -> str:
        sides = f"{''.join(self.one)} {'->' if self.one_way else '|'} {''.join(self.other)}"
        return f"{sides:8} {self.seconds:5.1f} s"


@dataclass
class Layout:
    """A job: its hosts, how many ranks each of them has, and where horovodrun is started."""

    names: Sequence[str] = NAMES
    per_host: int = 1
    launcher: str = "a"
    encrypted: bool = False

    def ranks(self) -> int:
        return self.per_host * len(self.names)

    def splits(self, cut: Cut) -> bool:
        return not {*self.names} - {*cut.one, *cut.other}

    def are_apart(self, hosts: set[str]) -> bool:
        """Those at opposite corners of the ring of four, but for the first one, have no connection."""
        return len(self.names) == 4 and hosts == {*self.names[1::2]}

    def sides(self, cut: Cut) -> list[set[str]]:
        """The hosts at both ends of this path."""
        if not self.splits(cut):
            return [{*self.names}]
        sides = [{*self.names} & {*side} for side in (cut.one, cut.other)]
        return [
            part for side in sides for part in ([{name} for name in side] if self.are_apart(side) else [side])
        ]

    def __str__(self) -> str:
        return f"{self.launcher}: {''.join(self.names)} x {self.per_host}{' encrypted' * self.encrypted}"


@dataclass
class Outcome:
    """No causes: the job went on and ended with 0. `error` is what horovodrun has written, and with `left`
    something of the job is there when nothing may be."""

    causes: dict[str, list[str]]  # by host, of its ranks
    error: str
    named_after: float  # seconds from the cut to the first cause
    left: bool

    def last_cause(self) -> str:
        """What horovodrun says last, but for where it keeps what the ranks did last."""
        said = re.findall(r"^horovodrun: (?!the last .* ranks are in )(.*)", self.error, re.MULTILINE)
        return said[-1]


def draw(source: random.Random, names: Sequence[str], longest: float) -> tuple[Cut, Layout]:
    """Cuts a pair, one host, half of them, or a launcher without ranks; a third of the cuts is one-way."""
    layout = Layout(
        names, source.choice((1, 2)), source.choice((*names, OUTSIDE)), source.choice((False, True))
    )
    order = source.sample(names, len(names))
    seconds, one_way = source.uniform(longest / 40, longest), source.random() < 1 / 3
    kinds = ["pair", "host"] + ["half"] * (len(names) > 3) + ["launcher"] * (layout.launcher == OUTSIDE)
    kind = source.choice(kinds)
    if kind == "launcher":
        return Cut([OUTSIDE], sorted(order[: source.randint(1, len(order))]), seconds, one_way), layout
    here = {"half": len(order) // 2}.get(kind, 1)
    there = 1 if kind == "pair" else len(order) - here
    return Cut(sorted(order[:here]), sorted(order[here : here + there]), seconds, one_way), layout


def named(cause: str) -> set[str]:
    """The hosts of "host c (ranks 4-5)", "rank 0 (pid 12, host a)"."""
    return set(re.findall(r"\bhost (\w)\b", cause.partition(":")[0]))


def truth(cut: Cut, layout: Layout, host: str) -> set[str]:
    """What the ranks of a host must name."""
    if not layout.splits(cut):
        return {*cut.one, *cut.other}
    others = {*layout.names} & {*(cut.other if host in cut.one else cut.one)}
    return {host} if {host} in layout.sides(cut) and len(others) > 1 else others


def explain_launcher(cut: Cut, limit: float, outcome: Outcome) -> str:
    """Only the network of horovodrun was cut: no rank may have found something, but a host may be lost."""
    if not outcome.causes:
        return "" if cut.seconds < limit * LATEST * LOST else "the job went on"
    lost = set(re.findall(r"lost host (\w) with", outcome.error))
    if not lost or lost - {*cut.other}:
        return f"horovodrun has lost {lost or 'nothing'}"
    texts = itertools.chain(*(texts for host, texts in outcome.causes.items() if host not in cut.other))
    if re.search("killed|crashed", "".join(texts)):
        return "a rank that its agent has killed is a cause"
    return ""


def explain(cut: Cut, limit: float, outcome: Outcome, layout: Layout) -> str:
    """What is wrong; "" if nothing is. If the cut ends while ranks settle on the cause they may name some of
    the pairs that it has cut, or what the other side has named."""
    if outcome.causes and cut.seconds < limit:
        return "the job ended"
    if outcome.left:
        return "something is left"
    if OUTSIDE in cut.one:
        return explain_launcher(cut, limit, outcome)
    if not outcome.causes:
        return (
            ""
            if layout.are_apart({*cut.one, *cut.other}) or cut.seconds < limit * LATEST
            else "the job went on"
        )
    said = [outcome.last_cause(), *itertools.chain(*outcome.causes.values())]
    if re.search(r"\blost\b|killed|crashed", "".join(said)):
        return "a process that was killed is the cause"
    ended = cut.seconds < limit * LATEST
    for host, causes in outcome.causes.items():
        right = [truth(cut, layout, host)] + [truth(cut, layout, other) for other in layout.names if ended]
        for cause in causes:
            pairs = ended and {*cut.one} & named(cause) and {*cut.other} & named(cause)
            if named(cause) not in right and not pairs:
                return f"host {host} names {named(cause)}: {cause}"
    sides = layout.sides(cut)
    if any(len({cause for host in side for cause in outcome.causes[host]}) > 1 for side in sides):
        return "not one cause"
    if not any(cause in outcome.last_cause() for cause in said[1:]):
        return "horovodrun names something else"
    return ""


def steps(folder: Path, ranks: int) -> list[int]:
    paths = [folder / f"{rank}.step" for rank in range(ranks)]
    return [int(path.read_text() or 0) if path.exists() else 0 for path in paths]


def wait_for(folder: Path, ranks: int, more: int, process: subprocess.Popen[str]) -> bool:
    """All ranks do some more steps; False: the job ends."""
    goal = min(steps(folder, ranks)) + more
    wait_until(lambda: process.poll() is not None or min(steps(folder, ranks)) >= goal, DEADLINE)
    return process.poll() is None and min(steps(folder, ranks)) >= goal


def is_used(folder: Path) -> bool:
    """Whether a process of the job, on any host, works in this folder."""
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if (process / "cwd").readlink() == folder:
                return True
    return False


def run(
    hosts: VirtualHosts, horovodrun: str, cut: Cut, limit: float, layout: Layout, delay: float
) -> Outcome:
    folder = Path(tempfile.mkdtemp(prefix="cuts-")).resolve()
    slots = ",".join(f"{name}:{layout.per_host}" for name in layout.names)
    words = [
        *hosts.enter(layout.launcher, folder),
        horovodrun,
        "--timeout-seconds",
        f"{limit:g}",
        "-H",
        slots,
    ]
    words += ["--encryption"] * layout.encrypted
    words += [sys.executable, str(WORKER)]
    ranks = layout.ranks()
    errors = [folder / f"{rank}.error" for rank in range(ranks)]
    process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    try:
        assert wait_for(folder, ranks, 3, process), process.communicate()
        time.sleep(delay)
        for pair in cut.directions():
            hosts.cut(*pair)
        begin = time.time()
        wait_until(lambda: process.poll() is not None, cut.seconds)
        if process.poll() is not None:  # the other side may be about to end
            end = begin + min(cut.seconds, LEFT * limit + ENDING)
            wait_until(lambda: not is_used(folder), max(end - time.time(), 0))
        for pair in cut.directions():
            hosts.mend(*pair)
        if wait_for(folder, ranks, 3, process):
            (folder / "over").touch()
        _, error = process.communicate(timeout=DEADLINE)
        end = max(begin + LEFT * limit, time.time()) + ENDING
        left = not wait_until(lambda: not is_used(folder), end - time.time())
        found = [path for path in errors if path.exists()]
        named_after = min((path.stat().st_mtime for path in found), default=begin) - begin
        texts = [path.read_text() if path in found else "no error" for path in errors]
        causes = {
            name: texts[i * layout.per_host : (i + 1) * layout.per_host]
            for i, name in enumerate(layout.names)
        }
        return Outcome(causes if process.returncode else {}, error, named_after, left)
    finally:
        for pair in cut.directions():
            hosts.mend(*pair)
        process.kill()
        process.wait(DEADLINE)
        shutil.rmtree(folder)


def show(hosts: VirtualHosts, cut: Cut, limit: float, layout: Layout, source: random.Random) -> bool:
    """One row of the table."""
    horovodrun = shutil.which("horovodrun")
    assert horovodrun, "horovodrun is not in PATH"
    outcome = run(hosts, horovodrun, cut, limit, layout, source.uniform(0, 0.5))
    wrong = explain(cut, limit, outcome, layout)
    causes = {cause.partition(":")[0] for causes in outcome.causes.values() for cause in causes}
    said = f"after {outcome.named_after:.1f} s: {' | '.join(sorted(causes))}" if causes else "went on"
    print(f"{cut!s:18}  {layout!s:22}  {'WRONG: ' + wrong if wrong else 'right'}  {said}", flush=True)
    if wrong:
        print(outcome.error, flush=True)
    return not wrong


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--limit", type=float, default=30, help="seconds")
    parser.add_argument("--cuts", type=int, default=30)
    parser.add_argument("--longest", type=float, default=40, help="cut, in thirtieths of the limit")
    parser.add_argument("--outages", default="10,20,25,28", help="seconds, separated by commas")
    parser.add_argument("--repeat", type=int, default=5, help="of each outage")
    parser.add_argument("--hosts", type=int, default=4, choices=(2, 3, 4))
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 31))
    args = parser.parse_args()
    source = random.Random(args.seed)
    print(f"seed {args.seed}; the limit is {args.limit:g} s")
    names = NAMES[: args.hosts]
    hosts = virtual_hosts.make((*names, OUTSIDE))
    try:
        cuts = [draw(source, names, args.longest * args.limit / 30) for _ in range(args.cuts)]
        outages = [float(word) for word in args.outages.split(",") if word] * args.repeat
        for seconds in outages:
            host = source.choice(names)
            others = [name for name in (*names, OUTSIDE) if name != host]
            layout = Layout(names, source.choice((1, 2)), source.choice(names), source.choice((False, True)))
            cuts.append((Cut([host], others, seconds), layout))
        rights = [show(hosts, cut, args.limit, layout, source) for cut, layout in cuts]
    finally:
        hosts.end()
        shutil.rmtree(hosts.folder)
    print(f"{sum(rights)} of {len(rights)} right")
    return int(not all(rights))


if __name__ == "__main__":
    sys.exit(main())
