"""Slow targets of the Makefile, and the scripts behind them, without their work."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
BENCH = ROOT / "bench"
BUILD = Path(os.environ.get("HVD_BUILD", str(ROOT / "build")))
DEADLINE = 60.0

# Stands for `python` in bench/original.sh: notes every call and leaves what the real one would.
PYTHON = """#!/bin/sh
echo "$(pwd): $*" >>"$CALLS"
here=$(cd "$(dirname "$0")/.." && pwd)
case "$*" in
"-m venv "*) mkdir -p "$3/bin" "$3/site" && cp "$0" "$3/bin/python" ;;
*" download "*)
    release=horovod-${*##*==}
    while [ "$1" != -d ]; do shift; done
    mkdir -p "$2/$release/horovod/torch"
    for folder in "$2/$release" "$2/$release/horovod/torch"; do
        echo 'set(CMAKE_CXX_STANDARD 14)' >"$folder/CMakeLists.txt"
    done
    tar -C "$2" -czf "$2/$release.tar.gz" "$release" && rm -r "$2/$release"
    ;;
*" install "*.) grep -h STANDARD CMakeLists.txt horovod/torch/CMakeLists.txt >>"$CALLS" ;;
*purelib*) echo "$here/site" ;;
esac
"""


def test_the_original_is_built_in_a_relative_folder(tmp_path: Path) -> None:
    """As `make bench-original` calls the script; all is real but Python."""
    python, calls = tmp_path / "stub" / "python", tmp_path / "calls"
    python.parent.mkdir()
    python.write_text(PYTHON)
    python.chmod(0o755)
    done = subprocess.run(
        ["sh", BENCH / "original.sh", "build/original"],
        cwd=tmp_path, env=os.environ | {"CALLS": str(calls), "PATH": f"{python.parent}:{os.environ['PATH']}"},
        capture_output=True, text=True, timeout=DEADLINE, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    lines = calls.read_text().splitlines()
    (built,) = (number for number, line in enumerate(lines) if line.endswith("--no-build-isolation ."))
    assert lines[built].startswith(f"{tmp_path}/build/original/sources/horovod-")
    assert lines[built + 1 : built + 3] == 2 * ["set(CMAKE_CXX_STANDARD 20)"]
    assert "import horovod.torch" in lines[-1]
    assert not (tmp_path / "build/original/sources").exists()


def run(*words: str | Path) -> str:
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=DEADLINE, check=False)
    assert done.returncode == 0, (words, done.stderr)
    return done.stdout


TARGETS = re.findall(r"(?m)^([a-z-]+):.*## ", (ROOT / "Makefile").read_text())


@pytest.mark.parametrize("target", TARGETS)
def test_a_target_names_files_that_exist(target: str) -> None:
    if not shutil.which("make"):
        pytest.skip("no make")
    words = shlex.split(run("make", "--dry-run", "PYTHON=python", target), comments=True)
    ours = [word for word in words if re.match(r"(bench|docs|examples|test|tools)/[\w/]+\.\w+$", word)]
    assert ours or target in ("help", "clean")
    assert not [word for word in ours if not (ROOT / word).exists()]


def load(path: str) -> Any:
    """A script as a module; bench and test both have a run.py."""
    spec = importlib.util.spec_from_file_location(path.replace("/", "_").removesuffix(".py"), ROOT / path)
    assert spec
    assert spec.loader
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def shortest(words: list[str]) -> list[str]:
    """A short command that fails if this command of soak could not start."""
    if "test/launch/cuts.py" in words:
        return [*words[:2], "--help"]
    if words[0] == "setarch":
        return [*words[:2], *shortest(words[2:])]
    if words[0] == "ctest" and (ROOT / words[2] / "CTestTestfile.cmake").exists():
        return [*words[: words.index("--no-tests=error") + 1], "--show-only"]
    if words[0] in ("ctest", "cmake", "clang-tidy"):
        return [words[0], "--version"]
    return [{"10000": "1", "300000": "1", "65536": "4096"}.get(word, word) for word in words]


# Collects tests once, and fails unless each [folder or file, expression of -k] selects one of them.
COLLECT = """
import json, sys
from pathlib import Path
import pytest

class Selections:
    def pytest_collection_finish(self, session):
        for place, expression in selections:
            items = [item for item in session.items if item.path.is_relative_to(Path(place).resolve())]
            config = session.config
            config.option.keyword = expression
            config.hook.pytest_collection_modifyitems(session=session, config=config, items=items)
            assert items, (place, expression)

selections, words = json.load(sys.stdin)
sys.exit(pytest.main(["--collect-only", "--assert=plain", *words], plugins=[Selections()]))
"""


def collect(commands: list[list[str]]) -> None:
    """Fails if one of these commands, [folder or file, option..., "-k", expression], would find no test."""
    [options] = {tuple(words[1:-2]) for words in commands}
    folders = sorted({str(Path(words[0]).parent if "." in words[0] else words[0]) for words in commands})
    text = json.dumps([[(words[0], words[-1]) for words in commands], [*folders, *options]])
    done = subprocess.run(
        [sys.executable, "-c", COLLECT],
        cwd=ROOT, input=text, capture_output=True, text=True, timeout=DEADLINE, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout


def test_soak_can_start_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    runner = load("test/run.py")
    programs, tried = set(), []
    selections: list[list[str]] = []  # of pytest

    def call(result: Any, *words: str | Path, **environment: str) -> bool:
        command = [str(word) for word in words]
        programs.add(Path(command[0]).name)
        if "pytest" in command:
            tests = command[command.index("pytest") + 1 :]
            # test/python imports all frameworks; `make test` collects it by the same words.
            if "-k" in tests:
                selections.append(tests)
            else:
                assert tests[0].startswith("test/python") and Path(tests[0]).exists()
            return True
        short = shortest(command)
        if short not in tried:
            tried.append(short)
            run(*short)
        return shutil.which(command[0], path=runner.PATH) is not None

    monkeypatch.chdir(ROOT)
    monkeypatch.setattr(runner.Result, "call", call)
    monkeypatch.setattr(runner, "read_junit", lambda *_: None)
    monkeypatch.setattr(runner, "result_file", lambda name: runner.RESULTS / name)
    monkeypatch.setattr(os, "environ", os.environ | {"SOAK_MINUTES": "0", "HOROVOD_TEST_SEED": "1"})
    result = runner.Result()
    runner.run_soak(result)
    assert not result.failed
    collect(selections)
    ours = {"simulate", "simulate_membership", "group_test_beyond", "horovodrun"}
    assert programs - {"setarch"} == ours | {"python", "ctest", "cmake", "clang-tidy"}


@pytest.mark.parametrize("options", [[], ["--quick"]], ids=["full", "quick"])
def test_bench_can_start_everything(
    options: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(BENCH)
    module = load("bench/run.py")
    started = []

    def call(name: str, words: list[str], output: Any = None, seconds: float = 0) -> bool:
        started.append(name)
        if words[0] != sys.executable:
            return os.access(words[0], os.X_OK)
        usage = run(*words[:2], "--help") if "--effort" in words else ""
        return all(word in usage for word in words[2:] if word.startswith("--"))

    docs = shutil.copytree(ROOT / "docs", tmp_path / "docs")
    monkeypatch.setattr(module, "call", call)
    monkeypatch.setattr(
        sys, "argv", ["run.py", "--docs", str(docs), "--output", str(tmp_path / "results"), *options]
    )
    assert module.main() == 0
    assert set(started) == {"bound", *module.SECTIONS} - {"machine"} - ({*module.PLAIN} if options else set())
    assert "A quick run of" in (docs / "performance.md").read_text() or not options


@pytest.mark.parametrize(
    "words",
    [
        ["horovodrun", "-np", "1", sys.executable, BENCH / "submit.py", "1"],
        [BUILD / "bench" / "bench_kernels", "float32", "1"],
        [BUILD / "bench" / "bench_wakeup"],
        [BUILD / "bench" / "bench_handover"],
    ],
    ids=["submit", "kernels", "wakeup", "handover"],
)
def test_what_prints_its_figures_still_does(words: list[str | Path]) -> None:
    assert re.search(r"\d\.\d", run(*words))


def test_faults_finds_its_worker() -> None:
    assert load("bench/faults.py").slowest_survivor("shm", 1) > 0


def test_elastic_finds_its_worker() -> None:
    elastic = load("bench/elastic.py")
    with elastic.running(["horovodrun", "-np", "2", "--min-np", "1", *elastic.ALWAYS], "numpy") as job:
        losses, growths = elastic.lose_and_grow(job, 2, 1, elastic.kill)
    assert 0 < losses[0] < elastic.DEADLINE
    assert 0 < growths[0] < elastic.DEADLINE
