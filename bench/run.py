"""Runs every benchmark within a time and renews the tables of the pages on performance, as `make bench` does.

    python bench/run.py [--seconds 2700] [--quick] [--docs docs]

Benchmarks of fixed length run first; the others share the remaining time, and each of them makes at least
two rounds of what its share allows. A benchmark that overruns its share shortens the later ones. The results
are in build/bench: a CSV file, a Markdown table and a picture of each benchmark.
"""

from __future__ import annotations

import argparse
import datetime
import subprocess
import sys
import time
from pathlib import Path
from typing import IO

import compare
import publish

# Parts of the time, for benchmarks that use all the time that they are given.
COMPARISONS = {
    "collectives": 20,
    "gradients": 22,
    "train": 14,
    "distributed": 8,
    "xla": 6,
    "graphs": 5,
    "keras_fit": 10,
    "busy": 85,
}
# Benchmarks of fixed length; some print lines of plain text.
FIXED = ("memory", "startup")
PLAIN = {
    "kernels": [str(compare.BUILD / "bench" / "bench_kernels")],
    "faults": [sys.executable, str(compare.BENCH / "faults.py"), "1"],
}
# Computed from the figures of the others.
DERIVED = ("goals", "summary")
SECTIONS = ("machine", *COMPARISONS, *FIXED, *PLAIN, *DERIVED)
DEADLINE = 900.0  # seconds that a benchmark may take beyond its share


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=2700, help="in all, about (default 2700)")
    parser.add_argument("--quick", action="store_true", help="few sizes, one round, no kernels and faults")
    parser.add_argument("--output", type=Path, default=compare.BUILD / "bench", help="folder of results")
    text = f"folder of the pages whose tables are renewed (default {publish.DOCS.relative_to(compare.ROOT)})"
    parser.add_argument("--docs", type=Path, default=publish.DOCS, help=text)
    return parser.parse_args()


def call(name: str, words: list[str], output: IO[str] | None = None, seconds: float = 0) -> bool:
    print(f"\n== {name}", flush=True)
    try:
        process = subprocess.run(
            words, stdin=subprocess.DEVNULL, stdout=output, timeout=seconds + DEADLINE, check=False
        )
        return process.returncode == 0
    except subprocess.TimeoutExpired:
        print(f"{name}: not done after {seconds + DEADLINE:.0f} s", file=sys.stderr, flush=True)
        return False


def run_comparison(name: str, args: argparse.Namespace, seconds: float = 0) -> bool:
    effort = "quick" if args.quick else "full"
    script = str(compare.BENCH / f"{name}.py")
    options = ["--effort", effort, "--seconds", f"{seconds:.0f}", "--output", str(args.output)]
    return call(name, [sys.executable, script, *options], seconds=seconds)


def run_plain(name: str, words: list[str], folder: Path) -> bool:
    """Keeps the output of the program as a table of the page."""
    path = folder / f"{name}.md"
    with path.open("w") as file:
        file.write("```\n")
        file.flush()
        done = call(name, words, file)
        file.write("```\n")
    print(path.read_text(), flush=True)
    return done


def renew_pages(docs: Path, folder: Path) -> None:
    """Renews the sections that this run has measured."""
    for name in SECTIONS:
        table = folder / f"{name}.md"
        if table.exists():
            publish.renew(docs, name, table.read_text())
    print(f"\n{docs}: tables renewed", flush=True)


def main() -> int:
    """1 if anything failed; the rest is measured all the same."""
    args = arguments()
    begin = time.monotonic()
    args.output.mkdir(parents=True, exist_ok=True)
    for old in (*args.output.glob("*.md"), *args.output.glob("*.csv")):
        old.unlink()
    done = [run_comparison(name, args) for name in ("bound", *FIXED)]
    if not args.quick:
        done += [run_plain(name, words, args.output) for name, words in PLAIN.items()]
    parts = sum(COMPARISONS.values())
    for name, part in COMPARISONS.items():
        left = args.seconds - (time.monotonic() - begin)
        done.append(run_comparison(name, args, max(left, 0) * part / parts))
        parts -= part
    done += [run_comparison(name, args) for name in DERIVED]
    with (args.output / "machine.md").open("a") as file:
        effort = "quick run" if args.quick else "full run"
        today = datetime.date.today().isoformat()
        file.write(f"\nA {effort} of {time.monotonic() - begin:.0f} s on {today}.\n")
    renew_pages(args.docs, args.output)
    return 0 if all(done) else 1


if __name__ == "__main__":
    sys.exit(main())
