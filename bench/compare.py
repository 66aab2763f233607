"""Compares libraries: they take turns, round after round, and every figure is a median of rounds.

The speed of a machine changes from minute to minute. So every round starts each library once, in an order
that rotates from round to round; ratios are formed within a round; and the load of other programs is noted
with each figure. A peer is a command that takes SECONDS RESULTS CASE... and writes one file per rank into
RESULTS with the figure of each case: microseconds, unless the case says otherwise.
"""

from __future__ import annotations

import argparse
import csv
import os
import resource
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from dataclasses import astuple, dataclass, field, fields
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BENCH = ROOT / "bench"
BUILD = Path(os.environ.get("HVD_BUILD", ROOT / "build"))
DEADLINE = 180.0  # of one start of one peer


@dataclass(frozen=True)
class Effort:
    """How much is measured: seconds of one case in one round, and rounds at most."""

    seconds: float
    rounds: int


EFFORTS = {"tiny": Effort(0.001, 1), "quick": Effort(0.01, 1), "full": Effort(0.1, 9)}


@dataclass(frozen=True)
class Peer:
    """A library: its column's name, its command without the launcher's -np, and whose ratio it shows."""

    name: str
    launcher: tuple[str, ...]
    worker: tuple[str, ...]
    beside: str | None = None  # the peer of ours that this one is compared with

    def command(self, ranks: int) -> list[str]:
        return [*self.launcher, "-np", str(ranks), *self.worker]


@dataclass(frozen=True)
class Sample:
    """One figure: the largest of the ranks' medians, in one round."""

    benchmark: str
    ranks: int
    peer: str
    case: str
    round: int
    value: float
    foreign_load: float  # cores that others kept busy meanwhile


@dataclass
class Comparison:
    """A benchmark while it runs, and its figures."""

    name: str
    effort: Effort
    seconds: float
    samples: list[Sample] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    left_out: int = 0  # starts that the time did not allow

    def run(self, starts: list[tuple[Peer, int, list[str]]], whole: bool = False) -> None:
        """Rounds until the time is used up, two at least where more than one is wanted.

        What the first one does not reach in its share of the time is left out, unless it has to be `whole`:
        so the first starts are those that matter most.
        """
        begin = time.monotonic()
        share = self.seconds / min(self.effort.rounds, 2)
        done = []
        for start_of_one in starts:
            if done and not whole and time.monotonic() - begin > share:
                break
            self.round(0, [start_of_one])
            done.append(start_of_one)
        self.left_out += len(starts) - len(done)
        print(f"{self.name}: round 1 done after {time.monotonic() - begin:.0f} s", flush=True)
        for turn in range(1, self.effort.rounds):
            elapsed = time.monotonic() - begin
            if (turn > 1 or whole) and elapsed * (turn + 1) / turn > self.seconds:
                break
            first = turn % len(done)
            self.round(turn, done[first:] + done[:first])
            print(f"{self.name}: round {turn + 1} done after {time.monotonic() - begin:.0f} s", flush=True)

    def round(self, turn: int, starts: list[tuple[Peer, int, list[str]]]) -> None:
        for peer, ranks, cases in starts:
            try:
                times, load = start(peer, ranks, self.effort.seconds, cases)
            except (RuntimeError, subprocess.TimeoutExpired) as error:
                self.failures.append(f"{peer.name}, {ranks} ranks: {error}")
                print(f"{self.name}: FAILED {self.failures[-1]}", file=sys.stderr, flush=True)
                continue
            for case, value in times.items():
                self.samples.append(Sample(self.name, ranks, peer.name, case, turn, value, round(load, 2)))

    def median(self, ranks: int, peer: str, case: str) -> float | None:
        values = self.by_round(ranks, peer, case).values()
        return statistics.median(values) if values else None

    def ratio(self, ranks: int, peer: str, case: str, beside: str, ours: str) -> float | None:
        """How many times as long as ours: the median of the rounds' ratios."""
        theirs, own = self.by_round(ranks, peer, case), self.by_round(ranks, beside, ours)
        ratios = [theirs[turn] / own[turn] for turn in theirs.keys() & own.keys()]
        return statistics.median(ratios) if ratios else None

    def nearest(
        self, ranks: int, rivals: Iterable[tuple[str, str]], beside: str, ours: str
    ) -> tuple[float, str, str] | None:
        """The peer and case nearest to ours: its ratio, its name and its case."""
        ratios = [(self.ratio(ranks, peer, case, beside, ours), peer, case) for peer, case in rivals]
        return min(((ratio, peer, case) for ratio, peer, case in ratios if ratio), default=None)

    def by_round(self, ranks: int, peer: str, case: str) -> dict[int, float]:
        return {
            sample.round: sample.value
            for sample in self.samples
            if (sample.ranks, sample.peer, sample.case) == (ranks, peer, case)
        }

    def conditions(self) -> str:
        """A sentence for below the table."""
        if not self.samples:
            return "Nothing was measured."
        loads = [sample.foreign_load for sample in self.samples]
        rounds = 1 + max(sample.round for sample in self.samples)
        text = f"{rounds} interleaved round(s); other programs kept {statistics.median(loads):.1f} cores busy"
        text += f" (median; at most {max(loads):.1f})."
        return f"{text} {self.left_out} start(s) left out for lack of time." if self.left_out else text

    def write_csv(self, path: Path) -> None:
        with path.open("w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow([each.name for each in fields(Sample)])
            writer.writerows(astuple(sample) for sample in self.samples)


def comparison_of(path: Path) -> Comparison:
    """A comparison that was written, to read figures from."""
    return Comparison(path.stem, EFFORTS["tiny"], 0, list(read_csv(path)) if path.exists() else [])


def read_csv(path: Path) -> Iterable[Sample]:
    """What write_csv has written."""
    with path.open(newline="") as file:
        for row in csv.DictReader(file):
            yield Sample(
                row["benchmark"], int(row["ranks"]), row["peer"], row["case"], int(row["round"]),
                float(row["value"]), float(row["foreign_load"]),
            )  # fmt: skip


def start(peer: Peer, ranks: int, seconds: float, cases: list[str]) -> tuple[dict[str, float], float]:
    """Runs a peer once: figures by case, and the foreign load meanwhile."""
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        command = [*peer.command(ranks), str(seconds), folder, *cases]
        environment = os.environ | {"OMP_NUM_THREADS": "1"}
        busy, own, begin = busy_seconds(), own_seconds(), time.monotonic()
        process = subprocess.Popen(
            command, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True, start_new_session=True,
        )  # fmt: skip
        try:
            output, _ = process.communicate(timeout=DEADLINE)
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        if process.returncode != 0:
            raise RuntimeError(f"exit code {process.returncode}\n{output[-2000:]}")
        elapsed = time.monotonic() - begin
        foreign = (busy_seconds() - busy - (own_seconds() - own)) / elapsed
        return read_results(Path(folder), ranks), max(foreign, 0.0)


def read_results(folder: Path, ranks: int) -> dict[str, float]:
    """By case the largest over the ranks."""
    largest: dict[str, float] = {}
    for rank in range(ranks):
        for line in (folder / str(rank)).read_text().splitlines():
            case, value = line.rsplit(",", 1)
            largest[case] = max(largest.get(case, 0.0), float(value))
    return largest


def busy_seconds() -> float:
    """Of all cores since the machine started, by whatever program, or stolen by the host of a virtual one."""
    counts = Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]
    user, nice, system, _idle, _waiting, irq, softirq, stolen = map(int, counts)
    return (user + nice + system + irq + softirq + stolen) / os.sysconf("SC_CLK_TCK")


def own_seconds() -> float:
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return children.ru_utime + children.ru_stime


def python_peer(name: str, script: str, *words: str, beside: str | None = None) -> Peer:
    """A worker in Python, whose ranks horovodrun starts."""
    return Peer(name, ("horovodrun",), (sys.executable, str(BENCH / script), *words), beside)


def original_peers(script: str, *words: str) -> list[Peer]:
    """The original Horovod where bench/original.sh has built it: on Gloo and, where it is there, on MPI."""
    folder = BUILD / "original"
    libraries = list(folder.glob("lib/python*/site-packages/horovod/torch/mpi_lib_v2*.so"))
    if not libraries:
        print("the original Horovod is not built (make bench-original): left out", flush=True)
        return []
    worker = (str(folder / "bin" / "python"), str(BENCH / script), *words)
    gloo = (str(folder / "bin" / "horovodrun"), "--gloo")
    peers = [Peer(ORIGINAL_GLOO, gloo, worker, TORCH_PEER.name)]
    if b"libmpi.so" in libraries[0].read_bytes() and installed(OPEN_MPI[0]):
        peers.append(Peer(ORIGINAL_MPI, (*OPEN_MPI, "--bind-to", "none"), worker, TORCH_PEER.name))
    return peers


C_PEER = Peer("horovod, C", ("horovodrun",), (str(BUILD / "bench" / "bench_peer_horovod"),))
TORCH_PEER = python_peer("horovod.torch", "peer_torch.py", "horovod")
GLOO_PEER = python_peer("torch, Gloo", "peer_torch.py", "gloo", beside=TORCH_PEER.name)

ORIGINAL_GLOO, ORIGINAL_MPI = "Horovod 0.28, Gloo", "Horovod 0.28, MPI"

OPEN_MPI = ("mpirun.openmpi", "--allow-run-as-root", "--oversubscribe")
MPIS = {
    "Open MPI": ("mpicc.openmpi", OPEN_MPI),
    "MPICH": ("mpicc.mpich", ("mpiexec.mpich",)),
}


def installed(program: str) -> bool:
    return shutil.which(program) is not None


def mpi_peers(folder: Path) -> list[Peer]:
    """Every MPI of this machine, its worker compiled into `folder`; says which are missing."""
    peers = []
    for name, (compiler, launcher) in MPIS.items():
        if not installed(compiler) or not installed(launcher[0]):
            print(f"{name} is not installed ({compiler}, {launcher[0]}): left out", flush=True)
            continue
        worker = folder / f"peer_{compiler.split('.')[1]}"
        sources = (BENCH / "mpi" / "peer_mpi.c", BENCH / "protocol.c")
        options = ("-O3", "-std=c17", "-D_GNU_SOURCE", "-w", f"-I{BENCH}")
        subprocess.run([compiler, *options, *sources, "-o", worker], check=True, timeout=DEADLINE)
        peers.append(Peer(name, launcher, (str(worker),), beside=C_PEER.name))
    return peers


def all_peers(folder: Path, original: bool) -> list[Peer]:
    """Every library that moves tensors; programs that must be compiled are put into `folder`."""
    originals = original_peers("peer_torch.py", "horovod") if original else []
    return [C_PEER, *mpi_peers(folder), TORCH_PEER, GLOO_PEER, *originals]


def arguments(
    description: str | None, seconds: float, more: Sequence[str] = (), options: dict[str, str] | None = None
) -> argparse.Namespace:
    """The command line that all benchmarks share, behind `more` paths; the folder of results is made.

    `options` are those of this benchmark alone, with their defaults.
    """
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    for name in more:
        parser.add_argument(name, type=Path)
    for name, default in (options or {}).items():
        parser.add_argument(f"--{name}", default=default, help=f"default {default or 'none'}")
    text = "tiny: only whether it works; quick: a first look; full (default)"
    parser.add_argument("--effort", choices=EFFORTS, default="full", help=text)
    text = f"rounds go on for about so long (default {seconds:.0f})"
    parser.add_argument("--seconds", type=float, default=seconds, help=text)
    parser.add_argument(
        "--output", type=Path, default=BUILD / "bench", help="folder of results (default build/bench)"
    )
    args = parser.parse_args()
    args.output = args.output.absolute()
    args.output.mkdir(parents=True, exist_ok=True)
    return args
