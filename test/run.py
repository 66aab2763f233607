"""Runs the tests and prints a summary: how many of each kind passed, what they cost, which were the slowest.

    python test/run.py               all kinds
    python test/run.py unit launch   these
    python test/run.py soak          whole products, long fuzzing, many lives, for SOAK_MINUTES

Every runner writes JUnit files into build/results; the counts and the seconds of files and tests come from
these. `make test` calls this after building; it needs only the standard library. The summary is also written
to build/results/summary; its last line is "N passed, N failed".
"""

from __future__ import annotations

import json
import os
import random
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field
from pathlib import Path
from xml.etree import ElementTree

ROOT = Path(__file__).resolve().parent.parent
BUILD = Path("build")  # like every path here, seen from ROOT, where the commands run
RESULTS = BUILD / "results"
PATH = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
MODULES = os.pathsep.join([str(ROOT / "test/imports"), os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep)
DEADLINE = 1800.0  # seconds of one command; pytest and ctest end a single test long before
stopping = threading.Event()  # ends the commands of all threads


@dataclass
class Result:
    """The outcome of the tests of one kind, by name, and what they cost."""

    passed: set[str] = field(default_factory=set)
    failed: set[str] = field(default_factory=set)
    skipped: set[str] = field(default_factory=set)
    seconds: float = 0.0
    processor: list[float] = field(default_factory=list)  # seconds of each command, on all cores
    files: dict[str, float] = field(default_factory=dict)  # seconds of each file of tests
    tests: dict[str, float] = field(default_factory=dict)  # seconds of each test

    def add(self, name: str, outcome: str) -> None:
        """The worst outcome counts of a test that ran on several ranks."""
        for each in (self.passed, self.failed, self.skipped):
            if name in each and (each is self.failed or outcome == "passed"):
                return
            each.discard(name)
        {"passed": self.passed, "failed": self.failed, "skipped": self.skipped}[outcome].add(name)

    def call(self, *words: str | Path, **environment: str) -> bool:
        """Runs one command and ends its process group at the deadline; True for exit code 0."""
        line = [str(word) for word in words]
        print("$", " ".join(line), flush=True)
        # Ranks share the cores: threads of OpenMP, one for each core and rank, would spin there.
        variables = (
            {"OMP_NUM_THREADS": "1"} | os.environ | {"PATH": PATH, "PYTHONPATH": MODULES} | environment
        )
        process = subprocess.Popen(line, env=variables, stdin=subprocess.DEVNULL, start_new_session=True)
        deadline = time.monotonic() + DEADLINE
        try:
            while not stopping.is_set() and time.monotonic() < deadline:
                ended, status, usage = os.wait4(process.pid, os.WNOHANG)
                if ended:
                    process.returncode = os.waitstatus_to_exitcode(status)
                    self.processor.append(usage.ru_utime + usage.ru_stime)
                    return process.returncode == 0
                time.sleep(0.05)
            print(f"FAILED: stopped, at the latest after {DEADLINE:.0f} seconds", flush=True)
            return False
        finally:
            if process.returncode is None:
                end(process)


def end(process: subprocess.Popen[bytes]) -> None:
    """Interrupts the process group as Ctrl-C would, and kills it if it is still there 30 seconds later."""
    os.killpg(process.pid, signal.SIGINT)
    try:
        process.wait(30)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def result_file(name: str) -> Path:
    path = RESULTS / f"{name}.xml"
    path.unlink(missing_ok=True)
    return path


def read_junit(result: Result, path: Path, prefix: str = "", timed: bool = True) -> None:
    """Adds the cases of one file; the seconds only if `timed`, as all ranks of a job take the same ones."""
    if not path.exists():
        result.add(f"{prefix}{path.stem}: no result file", "failed")
        return
    for case in ElementTree.parse(path).iter("testcase"):
        name = f"{prefix}{case.get('classname')}.{case.get('name')}"
        if timed:
            add_seconds(result, case, name)
        outcome = "passed"
        if case.find("failure") is not None or case.find("error") is not None:
            outcome = "failed"
        elif case.find("skipped") is not None:
            outcome = "skipped"
        programs = case.findtext("system-out") or ""
        cases = re.findall(r"^\[ +(OK|FAILED|SKIPPED) +\] (\w+)$", programs, re.MULTILINE)
        words = {"OK": "passed", "FAILED": "failed", "SKIPPED": "skipped"}
        for word, each in cases:
            result.add(f"{name}.{each}", words[word])
        if not cases or (outcome == "failed" and "FAILED" not in dict(cases)):
            result.add(name, outcome)


def add_seconds(result: Result, case: ElementTree.Element, name: str) -> None:
    """The seconds of a test count for its file, too; ctest knows only those of the file, a program."""
    file, seconds = f"{case.get('classname')}", float(case.get("time") or 0)
    result.files[file] = result.files.get(file, 0.0) + seconds
    if file != case.get("name"):
        result.tests[name] = result.tests.get(name, 0.0) + seconds


def ctest(result: Result, folder: Path, labels: str, name: str, *wrapper: str, parallel: int = 1) -> None:
    """One program holds many cmocka tests: ctest's JUnit file carries its output, which names them."""
    path = result_file(name)
    done = result.call(
        *wrapper, "ctest", "--test-dir", folder, "--label-regex", f"^({labels})$", "--no-tests=error",
        "--parallel", str(parallel),
        "--output-on-failure", "--test-output-size-passed", "10000000",
        "--output-junit", path.absolute(),
    )  # fmt: skip
    read_junit(result, path, f"{name}: ")
    if not done and not result.failed:
        result.add(f"{name}: ctest", "failed")


def pytest_words(tests: list[str], path: Path | str) -> list[str]:
    options = ["-q", "-p", "no:cacheprovider", "--timeout=300", "--timeout-method=thread"]
    return ["python", "-m", "pytest", *tests, *options, f"--junitxml={path}"]


def pytest(result: Result, tests: list[str], name: str) -> None:
    path = result_file(name)
    done = result.call(*pytest_words(tests, path), HVD_BUILD=str(BUILD.absolute()))
    read_junit(result, path)
    if not done and not result.failed:
        result.add(f"{name}: pytest", "failed")


# Of test/launch: half of its time. They start first, the longest one before the others.
LONGEST = ("examples", "elastic", "benchmarks", "frameworks", "elastic_hosts", "hosts", "faults", "lateness",
           "elastic_training", "monitor", "guides", "stall")  # fmt: skip


def run_launch(result: Result) -> None:
    """Three files side by side, since they wait most of the time; the short ones in parts of equal number."""
    first = [f"test/launch/test_{name}.py" for name in LONGEST]
    short = sorted({*map(str, Path("test/launch").glob("test_*.py"))} - {*first})
    parts = {f"launch-{name}": [path] for name, path in zip(LONGEST, first, strict=True)}
    parts |= {f"launch-{number}": short[number::8] for number in range(8)}
    with ThreadPoolExecutor(3) as beside:
        started = [beside.submit(pytest, result, files, name) for name, files in parts.items()]
    for part in started:
        part.result()


def run_model(result: Result) -> None:
    pytest(result, ["test/model"], "model")


def run_house(result: Result) -> None:
    pytest(result, ["test/house"], "house")


def run_python(result: Result) -> None:
    """Jobs of 1, 2 and 3 ranks (soak: of 4, too): importing all frameworks takes each process 7 s.

    A process has one back end of Keras, in those jobs TensorFlow; the others have a job of 2 ranks each.
    """
    for size in (1, 2, 3):
        run_ranks(result, size, "test/python")
    for backend in ("jax", "torch"):
        run_ranks(result, 2, "test/python/test_keras.py", f"-{backend}", KERAS_BACKEND=backend)


def run_ranks(result: Result, size: int, tests: str, suffix: str = "", **environment: str) -> None:
    """One job; every rank writes its own result file."""
    name = f"python-{size}{suffix}"
    paths = [result_file(f"{name}.{rank}") for rank in range(size)]
    words = " ".join(pytest_words([tests], RESULTS / f"{name}.$HOROVOD_RANK.xml"))
    done = result.call("horovodrun", "-np", str(size), "sh", "-c", f"exec {words}", **environment)
    for rank, path in enumerate(paths):
        read_junit(result, path, f"{size}{suffix} ranks: ", timed=rank == 0)
    if not done and not result.failed:
        result.add(f"horovodrun -np {size}{suffix}", "failed")


def run_lint(result: Result) -> None:
    folders = ("src", "include", "launch", "test", "bench", "examples")
    sources = [path for folder in folders for path in sorted(Path(folder).rglob("*.[ch]"))]
    checked = ("test/run.py", "test/frameworks.py", "test/imports", "docs/generate_settings.py", "docs/site")
    commands: dict[str, list[str | Path]] = {
        "clang-format": ["clang-format", "--dry-run", "-Werror", *sources],
        "ruff check": ["ruff", "check", "."],
        "ruff format": ["ruff", "format", "--check", "."],
        "mypy": ["mypy", "python/horovod", *checked],
    }
    for name, words in commands.items():
        result.add(name, "passed" if result.call(*words) else "failed")
    result.add("clang-tidy", "passed" if clang_tidy(result) else "failed")


def clang_tidy(result: Result, whole: bool = False) -> bool:
    """Checks every C file; those that the build of the tests does not compile get their options here.

    Half of the time would go to a few functions, in which the analyzer ends at its limit of 225,000 nodes.
    With the limit of its shallow mode, 75,000, it ends there earlier; `make soak` has the higher one.
    """
    folder, ours = compiled_once()
    limit = "225000" if whole else "75000"
    words = [
        f"--extra-arg={word}" for word in ("-Xclang", "-analyzer-config", "-Xclang", f"max-nodes={limit}")
    ]
    apart = [
        "-std=c17",
        "-D_GNU_SOURCE",
        "-Iinclude",
        "-Isrc",
        "-Ilaunch",
        "-I.",
        "-I/usr/share/include/llhttp",  # of Debian's package, or its copy
        "-Ithird_party/sources/llhttp/include/llhttp",
    ]
    count = len(ours) // 8
    parts: list[list[str]] = [["-p", str(folder), *ours[i::count]] for i in range(count)]
    parts.append([*map(str, sorted(Path("test/fuzz").glob("*.c"))), "--", *apart])
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        return all(list(pool.map(lambda part: result.call("clang-tidy", "--quiet", *words, *part), parts)))


def compiled_once() -> tuple[Path, list[str]]:
    """The folder of a compilation database, and its files.

    clang-tidy checks a file once for each entry: this database has one for each set of our definitions.
    """
    entries = {}
    for entry in json.loads((BUILD / "compile_commands.json").read_text()):
        path = Path(entry["file"])
        ours = path.is_relative_to(ROOT) and not path.is_relative_to(ROOT / "third_party")
        if ours and not entry["file"].endswith("/reduce_x86.c"):  # clang 14 has no f16c
            definitions = frozenset(re.findall(r"-D(HVD_\w+)", entry["command"]))
            entries[entry["file"], definitions] = entry
    folder = BUILD / "lint"
    folder.mkdir(exist_ok=True)
    (folder / "compile_commands.json").write_text(json.dumps(list(entries.values())))
    return folder, sorted({file for file, _ in entries})


def run_sanitize(result: Result) -> None:
    """The unit and group tests again, built with sanitizers.

    gcc's thread sanitizer can't bear every random address layout, hence setarch where that is allowed.
    """
    setarch = ["setarch", "-R"]
    if subprocess.call([*setarch, "true"], stderr=subprocess.DEVNULL) != 0:
        setarch = []
    labels = "unit|group|soak" if all_sizes() else "unit|group"
    for name in SANITIZED:
        if build_sanitizer(result, name):
            wrapper = setarch if name == "thread" else []
            folder = BUILD / f"sanitize-{name}"
            ctest(result, folder, labels, f"sanitize-{name}", *wrapper, parallel=3)
        else:
            result.add(f"sanitize-{name}: build", "failed")


SANITIZED = {"address": "address,undefined", "thread": "thread"}


def all_sizes() -> bool:
    return os.environ.get("HOROVOD_TEST_SIZES") == "all"


def build_sanitizer(result: Result, name: str) -> bool:
    targets = ["tests", "soak-tests"] if all_sizes() else ["tests"]
    return build(result, BUILD / f"sanitize-{name}", [f"-DHVD_SANITIZE={SANITIZED[name]}"], *targets)


def build_fuzzers(result: Result) -> bool:
    options = ["-DHVD_FUZZ=ON", "-DHVD_SANITIZE=address,undefined"]
    return build(result, BUILD / "fuzz", options, "fuzzers")


def build(result: Result, folder: Path, options: Iterable[str], *targets: str) -> bool:
    """With assertions; -O1 compiles in half the time of -O2, and the programs take about as long. Sanitizers
    report lines, for which -g1 is enough."""
    options = [*options, "-DCMAKE_BUILD_TYPE=Debug", "-DCMAKE_C_FLAGS_DEBUG=-O1 -g1", "--log-level=WARNING"]
    return result.call("cmake", "-G", "Ninja", "-S", ".", "-B", folder, *options) and result.call(
        "cmake", "--build", folder, "--target", *targets, "--", "--quiet"
    )


def run_fuzz(result: Result) -> None:
    """The kept inputs again, and for FUZZ_SECONDS each what comes out of them."""
    os.environ.setdefault("FUZZ_SECONDS", "5")
    if build_fuzzers(result):
        ctest(result, BUILD / "fuzz", "fuzz", "fuzz", parallel=2)
    else:
        result.add("fuzz: build", "failed")


def run_soak(result: Result) -> None:
    """Everything that depends on chance or timing, whole and long, for SOAK_MINUTES."""
    end = time.monotonic() + 60 * float(os.environ.get("SOAK_MINUTES", "30"))
    whole = {
        "HOROVOD_TEST_FULL": "1",
        "HOROVOD_TEST_LIVES": "1000",
        "HOROVOD_TEST_FAULTS": "24",  # of each kind a round; those of stopped processes take seconds
    }
    simulations: dict[str, list[str | Path]] = {
        "10,000 seeds": [BUILD / "test/simulate", "--seeds", "10000", "--ranks", "100"],
        "10,000 corrupted seeds": [BUILD / "test/simulate", "--seeds", "10000", "--ranks", "30", "--corrupt"],
        "300,000 elastic jobs": [BUILD / "test/simulate_membership", "--seeds", "300000"],
        "65,536 ranks": [BUILD / "test/simulate", "--scale", "65536"],
    }
    for name, words in simulations.items():
        result.add(name, "passed" if result.call(*words) else "failed")
    for size in (2, 3, 4):
        done = result.call(
            "horovodrun", "-np", str(size), *pytest_words(["test/python"], "/dev/null"), **whole
        )
        result.add(f"test/python with 1,000 lives of {size} processes", "passed" if done else "failed")
        chosen = pytest_words(["test/python/test_random_operations.py"], "/dev/null")
        done = result.call("horovodrun", "-np", str(size), *chosen, HOROVOD_TEST_OPERATIONS="1000")
        result.add(
            f"1,000 random operations of each framework on {size} ranks", "passed" if done else "failed"
        )
    launched = pytest_words(["test/launch"], "/dev/null")
    done = result.call(
        *launched,
        "-k",
        "torch_distributed or programs_of_jax or frameworks or guides or training_on_hosts or test_running "
        "or test_wrong_numbers or test_examples or test_benchmarks",
        HVD_BUILD=str(BUILD.absolute()),
        **whole,
    )
    result.add(
        "torch.distributed, JAX, 300 lives, elastic frameworks, training on hosts, examples, benchmarks",
        "passed" if done else "failed",
    )
    done = result.call(*pytest_words(["test/model"], "/dev/null"), "-k", "no_wake_up", **whole)
    result.add("the model, long scenarios, too", "passed" if done else "failed")
    result.add("clang-tidy to its own limit", "passed" if clang_tidy(result, whole=True) else "failed")
    cuts = [sys.executable, "test/launch/cuts.py", "--limit", "10", "--outages", "3,6,8", "--repeat", "3"]
    result.add("30 cuts and 9 outages between hosts", "passed" if result.call(*cuts) else "failed")
    for case, what in (
        ("random_kills", "100 kills in one elastic job"),
        ("random_stops", "100 stops in one elastic job"),
        ("many_resets", "200 resets in one process"),
    ):
        training = pytest_words(["test/launch/test_elastic_training.py"], "/dev/null")
        done = result.call(*training, "-k", case, HOROVOD_TEST_KILLS="100", **whole)
        result.add(what, "passed" if done else "failed")
    for fault in ("killed", "stopped", "slow_links"):
        for victim in ("root", "leader", "other"):
            named = pytest_words(["test/launch/test_causes.py"], "/dev/null")
            done = result.call(*named, "-k", f"{fault} and {victim}", **whole)
            result.add(
                f"the cause after many ends of one rank: {fault}, {victim}", "passed" if done else "failed"
            )
    done = result.call(*pytest_words(["test/launch/test_hosts.py"], "/dev/null"), "-k", "outage", **whole)
    result.add("an outage of 28 seconds", "passed" if done else "failed")
    for transport in ("shm", "tcp"):
        done = result.call(BUILD / "test/group_test_beyond", HOROVOD_TEST_BEYOND=transport)
        result.add(f"tensors of more than 2^32 elements over {transport}", "passed" if done else "failed")
    os.environ["HOROVOD_TEST_SIZES"] = "all"
    run_sanitize(result)
    rounds = 0
    while not rounds or (time.monotonic() < end and not result.failed):
        rounds += 1
        os.environ["HOROVOD_TEST_SEED"] = str(int(os.environ["HOROVOD_TEST_SEED"]) + 1)
        os.environ["FUZZ_SECONDS"] = os.environ.get("SOAK_FUZZ_SECONDS", "60")
        os.environ |= whole
        ctest(result, BUILD, "group|unit", "soak-group")
        run_fuzz(result)
    print(f"{rounds} rounds", flush=True)


KINDS: dict[str, Callable[[Result], None]] = {
    "unit": lambda result: ctest(result, BUILD, "unit", "unit", parallel=3),
    "group": lambda result: ctest(result, BUILD, "group", "group", parallel=3),
    "simulate": lambda result: ctest(result, BUILD, "simulate", "simulate", parallel=2),
    "model": run_model,
    "launch": run_launch,
    "python": run_python,
    "house": run_house,
    "lint": run_lint,
    "sanitize": run_sanitize,
    "fuzz": run_fuzz,
}
SPECIAL: dict[str, Callable[[Result], None]] = {"soak": run_soak}  # only when asked for

# Seconds of processor time, which depend little on what else runs. Review a kind that needs more.
BUDGETS = {
    "unit": 27, "group": 95, "simulate": 110, "model": 100, "launch": 1000, "python": 500, "house": 12,
    "lint": 220, "sanitize": 540, "fuzz": 125,
}  # fmt: skip

# Two of the first kinds run at a time, as most of their tests wait more than they compute; the next starts
# when one has finished, the longest first. The others only compute: they run one after the other with low
# priority, after what sanitize and fuzz run has been built.
WAITING = ("launch", "python", "sanitize", "group", "unit", "fuzz", *SPECIAL)
COMPUTING = ("house", "simulate", "model", "lint")


def run(kind: str, result: Result) -> None:
    print(f"\n== {kind}", flush=True)
    start = time.monotonic()
    (KINDS | SPECIAL)[kind](result)
    result.seconds = time.monotonic() - start
    if not result.passed | result.failed:
        result.add(f"{kind}: no test ran", "failed")


def run_all(kinds: list[str]) -> dict[str, Result]:
    results = {kind: Result() for kind in kinds}
    built = threading.Event()
    waiting = iter([kind for kind in WAITING if kind in results])
    with ThreadPoolExecutor(3) as pool:
        lanes = [pool.submit(run_computing, results, built)]
        lanes += [pool.submit(run_lane, waiting, results, built) for _ in range(2)]
        try:
            for each in as_completed(lanes):
                each.result()
        except BaseException:
            stopping.set()
            raise
    return results


def run_computing(results: dict[str, Result], built: threading.Event) -> None:
    if len(results) > 1:
        lower_priority()
    try:
        build_sanitized(results)
    finally:
        built.set()
    run_lane(iter([kind for kind in COMPUTING if kind in results]), results, built)


def run_lane(kinds: Iterator[str], results: dict[str, Result], built: threading.Event) -> None:
    """Runs the next kind until there is none; two lanes may share the kinds."""
    for kind in kinds:
        if stopping.is_set():
            return
        if kind in ("sanitize", "fuzz"):
            built.wait()
        run(kind, results[kind])


def build_sanitized(results: dict[str, Result]) -> None:
    """Builds what sanitize and fuzz run; they report a failure, since they build again."""
    for name in SANITIZED if "sanitize" in results else ():
        build_sanitizer(results["sanitize"], name)
    if "fuzz" in results:
        build_fuzzers(results["fuzz"])


def lower_priority() -> None:
    os.setpriority(os.PRIO_PROCESS, 0, 19)  # of this thread and what it starts


def table(results: dict[str, Result]) -> str:
    """One row for each kind; "processor" is the time of all cores, to which the budget applies."""
    names = ("passed", "failed", "skipped", "seconds", "processor", "budget")
    lines = [f"{'kind':10s} {' '.join(f'{name:>9s}' for name in names)}"]
    for kind, each in results.items():
        counts = " ".join(f"{len(names):9d}" for names in (each.passed, each.failed, each.skipped))
        spent, budget = sum(each.processor), BUDGETS.get(kind, 0)
        note = "  over budget" if 0 < budget < spent else ""
        lines.append(f"{kind:10s} {counts} {each.seconds:9.1f} {spent:9.1f} {budget or '':9}{note}")
    lines += [f"FAILED {kind}: {name}" for kind, each in results.items() for name in sorted(each.failed)]
    return "\n".join(lines)


def slowest(results: dict[str, Result], what: str, count: int = 15) -> str:
    """The files or the tests of all kinds that took longest, in seconds."""
    rows = [
        (seconds, kind, name)
        for kind, each in results.items()
        for name, seconds in getattr(each, what).items()
    ]
    lines = [
        f"{seconds:9.1f} {kind:10s} {name}" for seconds, kind, name in sorted(rows, reverse=True)[:count]
    ]
    return "\n".join([f"slowest {what}, in seconds:", *lines])


def main() -> int:
    kinds = sys.argv[1:] or list(KINDS)
    if unknown := [kind for kind in kinds if kind not in KINDS | SPECIAL]:
        print(f"no such kind of tests: {', '.join(unknown)}; there are {', '.join(KINDS)}", file=sys.stderr)
        return 2
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # stop the running command, then stop
    os.chdir(ROOT)
    RESULTS.mkdir(parents=True, exist_ok=True)
    (RESULTS / "summary").unlink(missing_ok=True)
    seed = os.environ.setdefault("HOROVOD_TEST_SEED", str(random.randrange(1, 1 << 31)))
    print(f"random cases: HOROVOD_TEST_SEED={seed} tries the same ones again", flush=True)
    start = time.monotonic()
    results = run_all(kinds)
    seconds = time.monotonic() - start
    passed, failed, skipped = (
        sum(len(getattr(each, outcome)) for each in results.values())
        for outcome in ("passed", "failed", "skipped")
    )
    summary = "\n\n".join(
        [
            *(slowest(results, what) for what in ("tests", "files")),
            f"{table(results)}\n{seconds / 60:.1f} minutes",
            f"HOROVOD_TEST_SEED={seed}\n{passed} passed, {failed} failed"
            + (f", {skipped} skipped" if skipped else ""),
        ]
    )
    (RESULTS / "summary").write_text(summary + "\n")
    print(f"\n{summary}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
