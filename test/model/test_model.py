"""The model of drive.c, searched by Spin: scenarios hold, planted faults are found, quotations are true."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
LONG = {"callback_beside"}  # minutes: only in `make soak`
SCENARIOS = sorted(path.stem for path in HERE.glob("*.pml") if path.stem != "drive")
MUTANTS = sorted(path.stem for path in (HERE / "mutants").glob("*.patch"))
TRANSPORTS = {"shm": [], "marked": ["-DMARKED"], "tcp": ["-DTCP"]}
CASES = [
    (scenario, transport)
    for scenario in SCENARIOS
    for transport in TRANSPORTS
    if transport != "marked" or "#define MESSAGES" in (HERE / f"{scenario}.pml").read_text()
]


def search(folder: Path, scenario: str, work: Path, options: list[str], optimize: str) -> str:
    """What pan prints when it has searched all states, or has found an error."""
    subprocess.run(["spin", *options, "-a", str(folder / f"{scenario}.pml")], cwd=work, check=True)
    compiler = [os.environ.get("CC", "cc"), optimize, "-w", "-DSAFETY", "-DNOFAIR", "-o", "pan", "pan.c"]
    subprocess.run(compiler, cwd=work, check=True)
    # depth, hash table of 2^22 places (it grows), no list of unreached statements
    done = subprocess.run(
        ["./pan", "-m20000", "-w22", "-n"], cwd=work, capture_output=True, text=True, check=False
    )
    return done.stdout + done.stderr


def steps(folder: Path, scenario: str, work: Path, options: list[str]) -> str:
    """The end of the way to the error, step by step."""
    shutil.copytree(folder, work, dirs_exist_ok=True)
    words = ["spin", *options, "-t", "-p", "-g", f"{scenario}.pml"]
    return subprocess.run(words, cwd=work, capture_output=True, text=True, check=False).stdout[-8000:]


@pytest.mark.timeout(600)
@pytest.mark.parametrize("scenario, transport", CASES)
def test_no_wake_up_is_lost(scenario: str, transport: str, tmp_path: Path) -> None:
    if scenario in LONG and not os.environ.get("HOROVOD_TEST_FULL"):
        pytest.skip("minutes long; make soak runs it")
    options = TRANSPORTS[transport]
    # Small ones are searched faster than compiled.
    report = search(HERE, scenario, tmp_path, options, "-O0" if transport == "tcp" else "-O1")
    assert "errors: 0" in report, report + steps(HERE, scenario, tmp_path, options)
    assert "Search not completed" not in report, report
    assert "search depth too small" not in report, report


@pytest.mark.timeout(600)
@pytest.mark.parametrize("mutant", MUTANTS)
def test_planted_fault_is_found(mutant: str, tmp_path: Path) -> None:
    patch = (HERE / "mutants" / f"{mutant}.patch").read_text()
    folder = tmp_path / "test" / "model"
    shutil.copytree(HERE, folder)
    applied = subprocess.run(
        ["patch", "-s", "-p1", "--fuzz=2"], cwd=tmp_path, input=patch, text=True, check=False
    )
    assert applied.returncode == 0, "it does not apply any more; plant the fault anew"
    scenario, *transport = patch.splitlines()[0].removeprefix("scenario: ").split(" over ")
    report = search(folder, scenario, tmp_path, TRANSPORTS["".join(transport) or "shm"], "-O0")
    assert "errors: 1" in report, report
    assert "invalid end state" in report or "assertion violated" in report, report


# ---- the model speaks of the source as it is --------------------------------------------------------------


def squeeze(text: str) -> str:
    return " ".join(text.split())


def functions(path: Path) -> dict[str, str]:
    """The text of each function of a C file, by name."""
    found = re.findall(
        r"^[a-z][^\n;=]*?\b(\w+)\([^;{}]*?\)\n\{\n(.*?)^\}", path.read_text(), re.MULTILINE | re.DOTALL
    )
    return {name: squeeze(body) for name, body in found}


def quotations() -> list[tuple[str, str]]:
    """Function and statement of each."""
    return re.findall(r"\|(\w+): ([^|]*(?:\|\| [^|]*)*)\|(?!\|)", (HERE / "drive.pml").read_text())


def test_quotations_are_in_the_source() -> None:
    bodies = [each for path in sorted((ROOT / "src").glob("[bet]*/*.c")) for each in functions(path).items()]
    quoted = quotations()
    assert len(quoted) > 40
    missing = [
        (function, statement)
        for function, statement in quoted
        if not any(name == function and statement in body for name, body in bodies)
    ]
    assert not missing


def test_every_atomic_operation_is_quoted() -> None:
    quoted = quotations()
    missing = [
        f"{name}: {call}"
        for name, body in functions(ROOT / "src" / "engine" / "drive.c").items()
        for call in re.findall(r"(?:atomic|futex)_\w+\((?:&\w+->)?\w+", body)
        if not any(name == function and call in statement for function, statement in quoted)
    ]
    assert not missing
