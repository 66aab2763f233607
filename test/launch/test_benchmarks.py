"""The benchmarks in their smallest size, so that they can't rot; no figure is judged."""

from __future__ import annotations

import importlib
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
BENCH = ROOT / "bench"
DEADLINE = 280.0
OURS = {"horovod, C", "horovod.torch"}
PNG = b"\x89PNG"


@pytest.fixture
def compare(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(BENCH)
    return importlib.import_module("compare")


@pytest.fixture
def publish(compare: Any) -> Any:
    return importlib.import_module("publish")


def run(name: str, folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    build = os.environ.get("HVD_BUILD", str(ROOT / "build"))
    environment = {key: value for key, value in os.environ.items() if not key.startswith("HOROVOD")}
    return subprocess.run(
        [sys.executable, BENCH / f"{name}.py", *words, "--effort", "tiny", "--output", folder],
        env=environment | {"HVD_BUILD": build}, capture_output=True, text=True, timeout=DEADLINE, check=False,
    )  # fmt: skip


@pytest.mark.parametrize("clients", ["600", "4096"])
def test_all_clients_of_the_rendezvous_at_once(clients: str) -> None:
    """More connections than may wait for a handshake: those that have sent a hello are not dropped."""
    program = Path(os.environ.get("HVD_BUILD", ROOT / "build")) / "bench" / "bench_rendezvous"
    result = subprocess.run([program, clients], capture_output=True, text=True, timeout=DEADLINE)
    assert result.returncode == 0, result.stderr


def without_mpi(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A PATH with what the benchmarks need and no MPI."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for name in ("horovodrun", "sh", "env"):
        found = next(path for part in os.environ["PATH"].split(":") if (path := Path(part) / name).exists())
        (folder / name).symlink_to(found)
    monkeypatch.setenv("PATH", str(folder))


@pytest.mark.one_case
@pytest.mark.parametrize("name", ["collectives", "gradients"])
def test_every_case_has_a_figure(
    name: str, tmp_path: Path, compare: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    without_mpi(tmp_path, monkeypatch)
    done = run(name, tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Open MPI is not installed" in done.stdout
    samples = list(compare.read_csv(tmp_path / f"{name}.csv"))
    assert {sample.peer for sample in samples} == OURS | {"torch, Gloo"}
    ours = [{s.case for s in samples if s.peer == peer} for peer in sorted(OURS)]
    assert ours[0] == ours[1] != set()
    assert all(sample.value > 0 for sample in samples)
    assert (tmp_path / f"{name}.png").read_bytes().startswith(PNG)
    assert (tmp_path / f"{name}.md").read_text() in done.stdout


@pytest.mark.one_case("training")
def test_training(tmp_path: Path, compare: Any) -> None:
    done = run("train", tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    samples = list(compare.read_csv(tmp_path / "train.csv"))
    assert {sample.peer for sample in samples} == {"alone", "idle", "horovod.torch", "DDP", "apart"}


@pytest.mark.skipif("HOROVOD_TEST_FULL" not in os.environ, reason="long: HOROVOD_TEST_FULL=1")
def test_every_peer_beside_every_busy_program(tmp_path: Path, compare: Any) -> None:
    done = run("busy", tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    peers = {sample.peer for sample in compare.read_csv(tmp_path / "busy.csv")}
    loads = importlib.import_module("busy").LOADS
    assert {f"{peer}, {load}" for peer in OURS | {"torch, Gloo"} for load in loads} <= peers


@pytest.mark.parametrize(
    "kind, rank, own, beside", [("loop", 0, 0, 1), ("loader", 0, 1, 0), ("loader", 1, 0, 0)]
)
def test_busy_programs(kind: str, rank: int, own: int, beside: int, tmp_path: Path) -> None:
    """A loop runs beside any command, a loader as the child of one of the first ranks."""
    listing = "for p in $$ $PPID; do cat /proc/$p/task/*/children; echo; done >seen; exit 3"
    done = subprocess.run(
        [sys.executable, BENCH / "load.py", kind, "1", "sh", "-c", listing],
        env=os.environ | {"HOROVOD_RANK": str(rank)}, cwd=tmp_path, timeout=DEADLINE, check=False,
    )  # fmt: skip
    assert done.returncode == 3
    of_command, of_parent = (tmp_path / "seen").read_text().splitlines()[:2]
    assert len(of_command.split()) - 1 == own  # and cat
    if kind == "loop":
        assert len(of_parent.split()) - 1 == beside  # and the command
    deadline = time.monotonic() + 60
    while any(Path(f"/proc/{process}").exists() for process in of_command.split()):
        assert time.monotonic() < deadline, "a loader outlives its rank, which ended at once"
        time.sleep(0.01)


@pytest.mark.skipif("HOROVOD_TEST_FULL" not in os.environ, reason="long: HOROVOD_TEST_FULL=1")
def test_torch_distributed(tmp_path: Path, compare: Any) -> None:
    done = run("distributed", tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    cases = {(sample.peer, sample.case) for sample in compare.read_csv(tmp_path / "distributed.csv")}
    assert len(cases) == 16 + 6 + 3, cases


@pytest.mark.skipif("HOROVOD_TEST_FULL" not in os.environ, reason="long: HOROVOD_TEST_FULL=1")
def test_programs_of_jax(tmp_path: Path, compare: Any) -> None:
    pytest.importorskip("jax", reason="JAX is not installed")
    done = run("xla", tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    cases = {(sample.peer, sample.case) for sample in compare.read_csv(tmp_path / "xla.csv")}
    assert len(cases) == 2 * 5 + 3, cases


@pytest.mark.one_case("training")
def test_two_builds_in_turns(tmp_path: Path, compare: Any) -> None:
    """This build twice; which one is faster is not judged."""
    done = run("before", tmp_path, str(ROOT))
    assert done.returncode in (0, 1), done.stdout + done.stderr
    assert "FAILED" not in done.stderr
    samples = list(compare.read_csv(tmp_path / "before.csv"))
    assert {s.peer for s in samples} == {
        f"{way}, {name}" for way in ("C", "torch") for name in ("before", "now", "before again")
    }
    assert "| torch, 2 ranks, async resnet50 |" in done.stdout
    assert "| C, 2 ranks, memory pieces.resnet50 |" in done.stdout


def test_the_cost_of_order(tmp_path: Path, compare: Any) -> None:
    done = run("deterministic", tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    samples = list(compare.read_csv(tmp_path / "deterministic.csv"))
    assert {sample.peer for sample in samples} == {compare.C_PEER.name, "deterministic"}
    assert (tmp_path / "deterministic.md").read_text() in done.stdout


def test_tuning(tmp_path: Path, compare: Any) -> None:
    done = run("autotune", tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    samples = list(compare.read_csv(tmp_path / "autotune.csv"))
    swept = {"sweep, no. 1", "sweep, no. 2"}
    assert {sample.peer for sample in samples} == {"tuned", "bad start", "defaults"} | swept
    log = (tmp_path / "autotune-log.csv").read_text().splitlines()
    assert log[1].startswith("65536,8,1024,4096,search,")
    assert ",best," in log[-1]


def test_the_bound_of_this_machine(tmp_path: Path, compare: Any) -> None:
    done = run("bound", tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "| cores | " in (tmp_path / "machine.md").read_text()
    machine = importlib.import_module("bound").machine_of(tmp_path)
    assert 0 < machine.bound("allreduce", 2, 4) < machine.bound("allreduce", 2, 64 << 20)


def test_the_bound_is_passes_and_one_hop(compare: Any) -> None:
    """10 GB/s in cache and 5 beyond: 2 passes of 64 MiB take 26.8 ms."""
    machine = importlib.import_module("bound").Machine("any", 2, [10, 10, 10, 5, 5], 0.5, 2, 20, {})
    assert machine.bound("allreduce", 2, 0) == 0.5
    assert machine.bound("allreduce", 4, 0) == 2
    assert machine.bound("broadcast", 2, 1 << 20) == pytest.approx(0.5 + 104.9, rel=1e-3)
    assert machine.bound("allreduce", 2, 64 << 20) == pytest.approx(0.5 + 26843.5, rel=1e-3)
    assert machine.bound("allreduce", 4, 64 << 20) == pytest.approx(2 + 3 * 26843.5, rel=1e-3)


@pytest.mark.one_case("processes")
def test_memory_has_a_figure_for_every_case(tmp_path: Path, compare: Any) -> None:
    done = run("memory", tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    samples = list(compare.read_csv(tmp_path / "memory.csv"))
    assert {sample.peer for sample in samples} == OURS
    assert len(samples) == 4
    assert all(sample.value > 0 for sample in samples)
    counts, pieces = (
        [int(count) for count in (tmp_path / name).read_text().split()]
        for name in ("resnet50.counts", "pieces.resnet50.counts")
    )
    assert len(pieces) == 10 * len(counts)
    assert sum(pieces) == sum(counts)


def test_goals_are_judged_by_the_figures(tmp_path: Path, compare: Any) -> None:
    """Ours took 10 µs, Open MPI 15, and nothing else was measured."""
    comparison = compare.Comparison("collectives", compare.EFFORTS["tiny"], 0)
    for peer, value in ((compare.C_PEER.name, 10.0), ("Open MPI", 15.0)):
        for size in (256 << 10, 64 << 20):
            comparison.samples.append(
                compare.Sample("collectives", 2, peer, f"allreduce:{size}", 0, value, 0.0)
            )
    comparison.write_csv(tmp_path / "collectives.csv")
    bound = importlib.import_module("bound")
    machine = bound.asdict(bound.Machine("any", 2, [10, 10, 10, 5, 5], 0.5, 2, 20, {}))
    (tmp_path / "machine.json").write_text(bound.json.dumps(machine))
    done = run("goals", tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    rows = [line.strip("| ").split(" | ") for line in (tmp_path / "goals.md").read_text().splitlines()]
    judged = {row[0]: row[2:] for row in rows if len(row) == 4}
    assert judged["1. 64 MiB against Open MPI"] == ["1.5 times", "**not reached**"]
    assert judged["1. 256 KiB against Open MPI"] == ["1.5 times", "reached"]
    assert judged["1. 64 MiB against Gloo"] == ["-", "not measured"]
    assert {"1", "2", "3", "4", "5", "6", "7", "8"} <= {goal.split(".")[0] for goal in judged}
    done = run("summary", tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "| allreduce of 64 MiB, from C, µs | 10 | 15 (1.50) | - | - |" in done.stdout
    assert "| allreduce of 64 MiB, from PyTorch, µs | - | - | - | - |" in done.stdout


@pytest.mark.skipif(
    not shutil.which("mpicc.openmpi"), reason="no Open MPI: `tools/deps.sh peers` installs it"
)
def test_mpi_has_the_same_cases(tmp_path: Path, compare: Any) -> None:
    folder = tmp_path / "results"
    folder.mkdir()
    cases = ["allreduce:64", "allgather:64", "broadcast:64", "alltoall:64", "reducescatter:64"]
    for peer in compare.mpi_peers(folder):
        times, _ = compare.start(peer, 2, 0.001, ["allreduce:64:float16", *cases])
        assert list(times) == cases  # and nothing in a type that it has not


def test_bert_large_has_its_well_known_size(compare: Any) -> None:
    gradients = importlib.import_module("gradients")
    shapes = gradients.bert_large_shapes()
    assert len(shapes) == 391
    assert sum(gradients.math.prod(shape) for shape in shapes) == 335_141_888


def test_ratios_are_formed_within_rounds(compare: Any, publish: Any) -> None:
    """The second round was three times as slow for all, the third for the peer only."""
    comparison = compare.Comparison("some", compare.EFFORTS["tiny"], 0)
    for turn, (ours, theirs) in enumerate([(10, 20), (30, 60), (10, 60)]):
        for name, value in (("ours", ours), ("theirs", theirs)):
            comparison.samples.append(compare.Sample("some", 2, name, "case", turn, value, 0.0))
    assert comparison.median(2, "theirs", "case") == 60
    assert comparison.ratio(2, "theirs", "case", "ours", "case") == 2
    assert comparison.median(2, "theirs", "other") is None
    peer = compare.Peer("theirs", (), (), beside="ours")
    assert publish.cell(comparison, 2, peer, "case") == "60 (2.00)"


def test_what_the_time_does_not_allow_is_left_out(compare: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten starts of a second each: in 7 s there are two rounds of four of them, or one of all."""
    time_now, started = [0.0], []

    def start(peer: Any, *_: Any) -> tuple[dict[str, float], float]:
        time_now[0] += 1
        started.append(peer.name)
        return {"case": 1.0}, 0.0

    monkeypatch.setattr(compare, "start", start)
    monkeypatch.setattr(compare.time, "monotonic", lambda: time_now[0])
    starts = [(compare.Peer(str(i), (), ()), 2, ["case"]) for i in range(10)]
    comparison = compare.Comparison("some", compare.EFFORTS["full"], 7)
    comparison.run(starts)
    assert sorted(started) == sorted(2 * [str(i) for i in range(4)])
    assert "6 start(s) left out" in comparison.conditions()
    started.clear()
    comparison.run(starts, whole=True)
    assert started == [str(i) for i in range(10)]


def test_a_benchmark_may_use_its_share(compare: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """However large the share is, it is ended only long afterwards."""
    runner = importlib.import_module("run")
    deadlines = []

    def start(*_: object, timeout: float, **__: object) -> subprocess.CompletedProcess[str]:
        deadlines.append(timeout)
        return subprocess.CompletedProcess([], 0)

    monkeypatch.setattr(subprocess, "run", start)
    monkeypatch.setattr(sys, "argv", ["run.py"])
    args = runner.arguments()
    shares = (0, 1200, 5000)
    assert all(runner.run_comparison("busy", args, seconds) for seconds in shares)
    assert [deadline - seconds for deadline, seconds in zip(deadlines, shares, strict=True)] == [900] * 3


def test_a_peer_that_fails_is_left_out_and_named(compare: Any, capfd: pytest.CaptureFixture[str]) -> None:
    broken = compare.Peer("broken", ("sh", "-c", "echo 'no such library' >&2; exit 3", "sh"), ())
    comparison = compare.Comparison("some", compare.EFFORTS["tiny"], 0)
    comparison.run([(broken, 2, ["case"])])
    assert not comparison.samples
    assert "no such library" in comparison.failures[0]
    assert "broken, 2 ranks: exit code 3" in capfd.readouterr().err


def test_the_pages_have_every_section_once(tmp_path: Path, compare: Any, publish: Any) -> None:
    module = importlib.import_module("run")
    docs = shutil.copytree(publish.DOCS, tmp_path / "docs")
    for name in (*module.SECTIONS, "hosts", "hosts-delay"):
        publish.renew(docs, name, f"| new {name} |")
    texts = [page.read_text() for page in publish.pages(docs)]
    for name in (*module.SECTIONS, "hosts", "hosts-delay"):
        renewed = f"<!-- begin {name} -->\n| new {name} |\n<!-- end {name} -->"
        assert sum(renewed in text for text in texts) == 1
    publish.renew(docs, "goals", f"| {'a cell ' * 40}|\n\n{'a word ' * 40}\n")
    lines = (docs / "performance" / "goals.md").read_text().split("\n")
    assert [len(line) > publish.WIDTH for line in lines if "a cell" in line or "a word" in line] == [
        True,
        False,
        False,
        False,
    ]
    texts = [page.read_text() for page in publish.pages(docs)]
    with pytest.raises(ValueError, match="0 sections"):
        publish.renew(docs, "unknown", "")
    (docs / "performance" / "second.md").write_text("<!-- begin goals -->\n<!-- end goals -->\n")
    with pytest.raises(ValueError, match="2 sections"):
        publish.renew(docs, "goals", "")
    assert texts == [page.read_text() for page in publish.pages(docs) if page.name != "second.md"]


@pytest.mark.one_case("processes")
def test_startup_has_a_figure_for_every_job(tmp_path: Path, compare: Any) -> None:
    done = run("startup", tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    samples = [s for s in compare.read_csv(tmp_path / "startup.csv") if s.peer == "horovod"]
    assert [(s.case, s.ranks) for s in samples] == [("true", 2), ("init", 2), ("idle", 4)]
    assert all(sample.value > 0 for sample in samples)


@pytest.mark.skipif(not shutil.which("qperf"), reason="no qperf: `tools/deps.sh peers` installs it")
def test_a_delay_between_hosts_is_there_and_back(tmp_path: Path, compare: Any) -> None:
    done = run("hosts", tmp_path, "--runs", "2x1@5000us", "--peers", "none", "--table", "delay")
    assert done.returncode == 0, done.stdout + done.stderr
    if "left out" in done.stdout:
        pytest.skip(done.stdout)
    samples = list(compare.read_csv(tmp_path / "delay.csv"))
    assert [sample.case for sample in samples] == ["allreduce:4", "allreduce:256", "allreduce:4096"]
    assert all(sample.value >= 1e4 for sample in samples)
    lines = (tmp_path / "delay.md").read_text().splitlines()
    bounds = [float(line.split(" | ")[1]) for line in lines if line.startswith("| 2 x 1 at 5000us")]
    assert len(bounds) == 3
    assert min(bounds) >= 10
