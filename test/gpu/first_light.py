"""The first runs on a real GPU: three calls of at most ten minutes, each of which ends in a table.

    make first-light                                  collects in build/first-light what travels
    python3 test/gpu/first_light.py driver            the driver: declarations, operations in C, memcheck
    python3 test/gpu/first_light.py frameworks        PyTorch, CuPy and JAX, on 1, 2 and 4 ranks of one GPU
    python3 test/gpu/first_light.py speed             copies, allreduces, what hooks cost

The machine needs a driver, Python with PyTorch for CUDA, and nothing else: no compiler, no network. What is
missing is skipped, with the reason. Each check has a time limit of its own, and its output is in
build/first-light/log. Nothing here changes a setting of the card. `--device cpu` runs the parts of frameworks
and speed on the CPU, and those of the driver on the stand-in that the programs were built with.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
# Of these programs; the others need the stand-in.
TESTS = {
    "group_test_cuda": ("test_a_captured_stream", "test_beside_a_capture"),
    "unit_test_kernels": ("test_bits*", "test_random*", "test_kernel_and_copy*", "test_batches*"),
}


class SkippedError(Exception):
    """Why a check is not possible here."""


class Run:
    """One call: where things are, and what the checks have found."""

    def __init__(self, folder: Path, device: str, ranks: list[int]) -> None:
        self.folder, self.device, self.ranks = folder, device, ranks
        self.rows: list[tuple[str, str, float, str]] = []
        self.log = folder / "log"
        self.log.mkdir(parents=True, exist_ok=True)
        self.packages = folder / "packages"

    def call(self, name: str, limit: float, *words: str | Path, **variables: str) -> str:
        """Returns what a program prints; AssertionError with its last line if it fails or takes too long."""
        line = [str(word) for word in words]
        environment = os.environ | {"PYTHONPATH": str(self.packages), "PYTHONUNBUFFERED": "1"} | variables
        path = self.log / f"{name}.txt"
        with path.open("w") as output:
            process = subprocess.Popen(
                line, stdin=subprocess.DEVNULL, stdout=output, stderr=output, env=environment, cwd=ROOT,
                start_new_session=True,
            )  # fmt: skip
            try:
                code = process.wait(limit)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, 9)
                process.wait()
                code = -1
        text = path.read_text(errors="replace")
        last = (text.strip().splitlines() or ["no output"])[-1]
        assert code != -1, f"not done after {limit:.0f} s: {last}"
        assert code == 0, f"exit code {code}: {last}"
        return text

    def check(self, name: str, function: Callable[[], str]) -> None:
        start = time.monotonic()
        try:
            outcome, words = "ok", function()
        except SkippedError as reason:
            outcome, words = "skipped", str(reason)
        except (AssertionError, OSError) as error:
            outcome, words = "FAILED", str(error)
        self.rows.append((name, outcome, time.monotonic() - start, words))
        print(f"{outcome:<8}{name}: {words}", flush=True)

    def horovodrun(self, name: str, limit: float, ranks: int, *words: str | Path, **variables: str) -> str:
        starter = [self.packages / "bin/horovodrun", "-np", str(ranks)]
        return self.call(name, limit, *starter, sys.executable, *words, **variables)

    def table(self) -> int:
        """Prints all rows; the exit code."""
        width = max(len(row[0]) for row in self.rows)
        print(f"\n{'check':<{width}}  outcome  seconds  what it says")
        for name, outcome, seconds, words in self.rows:
            print(f"{name:<{width}}  {outcome:<7} {seconds:>8.1f}  {words[:120]}")
        failed = sum(row[1] == "FAILED" for row in self.rows)
        print(f"{sum(row[1] == 'ok' for row in self.rows)} passed, {failed} failed")
        return min(failed, 1)


# ---- every call --------------------------------------------------------------------------------------------


def describe_machine(run: Run) -> str:
    if run.device == "cpu":
        raise SkippedError("on the CPU")
    words = ["--query-gpu=name,driver_version,memory.total", "--format=csv,noheader"]
    text = run.call("nvidia-smi", 60, "nvidia-smi", *words).strip().replace("\n", "; ")
    code = "import torch; print(torch.__version__, torch.version.cuda, torch.cuda.nccl.version())"
    try:
        return f"{text}; PyTorch {run.call('torch', 120, sys.executable, '-c', code).strip()}"
    except AssertionError as error:
        return f"{text}; no PyTorch for CUDA: {error}"


def install(run: Run) -> str:
    """Into a folder of its own: nothing of the machine changes."""
    wheels = sorted(run.folder.glob("*.whl"))
    assert len(wheels) == 1, f"{len(wheels)} wheels in {run.folder}; `make first-light` collects one"
    options = ["--no-index", "--no-deps", "--quiet", "--upgrade", "--target", run.packages]
    run.call("pip", 120, sys.executable, "-m", "pip", "install", *options, wheels[0])
    text = run.call("check-build", 60, run.packages / "bin/horovodrun", "--check-build")
    found = re.search(r"GPUs: .*", text)
    assert found and (run.device == "cpu" or " by a driver for CUDA" in found[0]), text
    return found[0]


# ---- the driver --------------------------------------------------------------------------------------------


def compare_declarations(run: Run) -> str:
    if not shutil.which("cc") or not find_spec("pytest"):
        raise SkippedError("needs a C compiler and pytest")
    text = run.call("declarations", 120, sys.executable, "-m", "pytest", "-q", "test/house/test_cuda.py")
    return text.strip().splitlines()[-1]


def run_program(run: Run, program: Path, wrapper: tuple[str, ...] = (), limit: float = 150) -> str:
    """One program; of those that need the stand-in, some tests."""
    name = "-".join([*(Path(word).name for word in wrapper[:1]), program.name])
    variables = {}
    if run.device == "cuda":
        variables = {
            "LD_PRELOAD": str(run.folder / "libgates.so"),
            "LD_LIBRARY_PATH": str(run.folder),
            "CUDA_MODULE_LOADING": "EAGER",  # later it could wait for a stream that is held back
            "CUDA_DEVICE_MAX_CONNECTIONS": "32",  # so that no stream waits for another one
        }
        old = os.environ.get("LD_LIBRARY_PATH")
        variables["LD_LIBRARY_PATH"] += f":{old}" if old else ""
    if program.name in TESTS:
        tests = [
            run.call(
                f"{name}-{each.strip('*')}", limit, *wrapper, program, HOROVOD_TEST_FILTER=each, **variables
            )
            for each in TESTS[program.name]
        ]
    else:
        tests = [run.call(name, limit, *wrapper, program, **variables)]
    passed = sum(len(re.findall(r"^\[ +OK +\]", text, re.MULTILINE)) for text in tests)
    assert passed, "no test has run"
    return f"{passed} tests"


def check_memory(run: Run) -> str:
    tool = shutil.which("compute-sanitizer") or "/usr/local/cuda/bin/compute-sanitizer"
    if run.device == "cpu" or not Path(tool).exists():
        raise SkippedError("needs compute-sanitizer and a GPU")
    return run_program(run, run.folder / "group_test_device-cuda", (tool, "--error-exitcode", "9"), 240)


def driver(run: Run) -> None:
    run.check("declarations as in cuda.h", lambda: compare_declarations(run))
    programs = [*sorted(run.folder.glob("group_test_*cuda")), *run.folder.glob("unit_test_kernels")]
    assert programs, f"no programs in {run.folder}; `make first-light` collects them"
    for program in programs:
        run.check(f"operations in C, {program.name}", lambda program=program: run_program(run, program))
    run.check("memcheck", lambda: check_memory(run))


# ---- frameworks --------------------------------------------------------------------------------------------


def lines_of(text: str) -> Iterator[tuple[str, str]]:
    """Names and outcomes of the checks of operations.py."""
    for line in text.splitlines():
        if found := re.search(r"(ok|FAILED) (\w+)(.*)", line):
            yield found[2], f"{found[1]}{found[3]}"


def operations(run: Run, ranks: int, *options: str) -> str:
    name = "".join([f"operations-{ranks}", *options])
    try:
        words = ["test/gpu/operations.py", "--device", run.device, *options]
        text = run.horovodrun(name, 240, ranks, *words)
    except AssertionError as error:
        text = (run.log / f"{name}.txt").read_text(errors="replace")
        wrong = [f"{check} {words}" for check, words in lines_of(text) if not words.startswith("ok")]
        raise AssertionError("; ".join(wrong) or str(error)) from None
    return f"{len(list(lines_of(text)))} checks"


def arrays(run: Run, module: str, make: str) -> str:
    """Arrays of another library, in place, by DLPack."""
    if run.device == "cpu":
        raise SkippedError("on the CPU")
    code = (
        f"try:\n    import {module}\nexcept ImportError:\n    print('not installed'); raise SystemExit\n"
        f"import horovod as hvd, numpy as np\nhvd.init()\narray = {make}\n"
        "hvd.allreduce_(array, op=hvd.Sum)\n"
        f"got = {module}.asnumpy(array) if hasattr({module}, 'asnumpy') else np.asarray(array)\n"
        "assert (got == np.arange(4099) * hvd.size()).all(), got\nprint('right')\n"
    )
    text = run.horovodrun(module, 120, 2, "-c", code, XLA_PYTHON_CLIENT_PREALLOCATE="false")
    if "not installed" in text:
        raise SkippedError(f"{module} is not installed")
    assert text.count("right") == 2, text
    return "in place, 2 ranks"


def frameworks(run: Run) -> None:
    for ranks in run.ranks:
        run.check(f"horovod.torch, {ranks} ranks", lambda ranks=ranks: operations(run, ranks))
    if run.device == "cuda":
        run.check("horovod.torch by NCCL, 2 ranks", lambda: operations(run, 2, "--nccl"))
    run.check("CuPy", lambda: arrays(run, "cupy", "cupy.arange(4099, dtype='float32')"))
    run.check("JAX", lambda: arrays(run, "jax", "jax.numpy.arange(4099, dtype='float32')"))


# ---- speed -------------------------------------------------------------------------------------------------


def measure(run: Run, ranks: int) -> str:
    seconds = "1" if run.device == "cuda" else "0.01"
    words = ["bench/gpu.py", "--device", run.device, "--seconds", seconds]
    text = run.horovodrun(f"speed-{ranks}", 240, ranks, *words)
    print(text)
    return f"{len(text.splitlines())} figures, above"


def speed(run: Run) -> None:
    for ranks in run.ranks:
        run.check(f"figures of {ranks} ranks", lambda ranks=ranks: measure(run, ranks))


CALLS: dict[str, Callable[[Run], None]] = {"driver": driver, "frameworks": frameworks, "speed": speed}


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("call", choices=[*CALLS])
    parser.add_argument("--device", default="cuda", choices=("cuda", "cpu"))
    parser.add_argument("--folder", type=Path, default=ROOT / "build/first-light")
    parser.add_argument("--ranks", default="1,2,4", help="numbers of ranks, on all GPUs together")
    args = parser.parse_args()
    run = Run(args.folder.absolute(), args.device, [int(each) for each in args.ranks.split(",")])
    run.check("machine", lambda: describe_machine(run))
    run.check("horovod of this tree", lambda: install(run))
    if run.rows[-1][1] == "ok":
        CALLS[args.call](run)
    return run.table()


if __name__ == "__main__":
    sys.exit(main())
