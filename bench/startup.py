"""Measures how long a start takes, and the cost of an idle rank.

    python bench/startup.py                     needs horovodrun in PATH

`true`: from the start of the launcher to its end, two ranks. init: from the moment when the last rank calls
it until the last one has returned, so that the start of the interpreters does not count. idle: the share of a
core that the busiest of 4 ranks uses after initialization, all its threads together.
"""

from __future__ import annotations

import subprocess
import sys
import time

import compare
import publish

DEADLINE = 120.0
INITS = {"tiny": (2,), "quick": (2, 8, 32), "full": (2, 8, 32)}
IDLE = {"tiny": 0.2, "quick": 10.0, "full": 60.0}
IDLE_OF_PEERS = 10.0
OURS = compare.python_peer("horovod", "peer_start.py", "horovod")
GLOO = compare.python_peer("torch, Gloo", "peer_start.py", "torch.distributed", beside="horovod")


def launchers() -> list[compare.Peer]:
    """Those of MPI, which have a launcher and no initialization to speak of."""
    found = {name: launcher for name, (_, launcher) in compare.MPIS.items()}
    return [compare.Peer(name, words, ()) for name, words in found.items() if compare.installed(words[0])]


def milliseconds_of_true(peer: compare.Peer) -> float:
    start = time.monotonic()
    words = [*peer.launcher, "-np", "2", "true"]
    subprocess.run(words, capture_output=True, stdin=subprocess.DEVNULL, timeout=DEADLINE, check=True)
    return 1e3 * (time.monotonic() - start)


def milliseconds_of_init(peer: compare.Peer, ranks: int) -> float:
    moments, _ = compare.start(peer, ranks, 0, [])
    return 1e-3 * (moments["returned"] - moments["called"])


def measure(comparison: compare.Comparison, effort: str, peers: list[compare.Peer]) -> None:
    """Rounds of starts, then one spell of idling each."""

    def note(ranks: int, peer: compare.Peer, case: str, turn: int, value: float) -> None:
        comparison.samples.append(compare.Sample("startup", ranks, peer.name, case, turn, value, 0.0))

    for turn in range(comparison.effort.rounds):
        for peer in [OURS, *launchers(), *(each for each in peers if each.launcher != OURS.launcher)]:
            note(2, peer, "true", turn, milliseconds_of_true(peer))
        for peer in peers:
            for ranks in INITS[effort] if peer is OURS else (2,):
                note(ranks, peer, "init", turn, milliseconds_of_init(peer, ranks))
    for peer in peers:
        seconds = IDLE[effort] if peer is OURS else min(IDLE[effort], IDLE_OF_PEERS)
        note(4, peer, "idle", 0, compare.start(peer, 4, seconds, [])[0]["idle"])


def main() -> int:
    """Measures and writes."""
    args = compare.arguments(__doc__, seconds=0)
    effort = compare.Effort(0, 5 if args.effort == "full" else 1)
    comparison = compare.Comparison("startup", effort, args.seconds)
    peers = [OURS, GLOO]
    if args.effort == "full":
        peers += compare.original_peers("peer_start.py", "horovod.torch")
    measure(comparison, args.effort, peers)
    columns = [OURS, *launchers(), *peers[1:]]
    rows = [
        [text, *(publish.number(comparison.median(ranks, peer.name, case)) for peer in columns)]
        for text, ranks, case in (
            ("launcher, 2 ranks of `true`, ms", 2, "true"),
            *((f"init, {ranks} ranks, ms", ranks, "init") for ranks in INITS[args.effort]),
            ("idle, 4 ranks, % of a core each", 4, "idle"),
        )
    ]
    head = ["median", *(peer.name for peer in columns)]
    return publish.write(comparison, args.output, publish.table(head, rows))


if __name__ == "__main__":
    sys.exit(main())
