"""Which goals the figures of the last run reach: python bench/goals.py, after the others, whose CSV it reads.

Against a peer: the time of the best such peer divided by ours, formed within rounds; above 1 this engine is
ahead. The C interface is compared with MPI, PyTorch with Gloo and the original Horovod.
"""

from __future__ import annotations

import operator
import statistics
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

import bound
import compare
import distributed
import graphs
import keras_fit
import publish
import xla

C, TORCH, GLOO = compare.C_PEER.name, compare.TORCH_PEER.name, compare.GLOO_PEER.name
OPEN_MPI, MPIS, HOROVODS = ["Open MPI"], list(compare.MPIS), [compare.ORIGINAL_GLOO, compare.ORIGINAL_MPI]
TESTS: dict[str, Callable[[float, float], bool]] = {
    "≥": operator.ge,
    ">": operator.gt,
    "≤": operator.le,
}
SIZES = [4, *(1 << shift for shift in range(10, 27, 2))]
SMALL, LARGE = SIZES[:4], [4 << 20, 64 << 20]
WAYS = ("async", "grouped", "one-by-one", "buckets-copied", "buckets-viewed")
NAMES = (
    *("collectives", "gradients", "train", "distributed", "xla", "graphs", "keras_fit"),
    *("memory", "startup"),
)
OTHERS = ("allgather", "broadcast", "alltoall", "reducescatter")


@dataclass
class Goal:
    """A figure, None if nothing was measured, and its goal."""

    text: str
    value: float | None
    test: str
    wanted: float
    unit: str = " times"

    def row(self) -> list[str]:
        reached = "not measured"
        if self.value is not None:
            reached = "reached" if TESTS[self.test](self.value, self.wanted) else "**not reached**"
        measured = "-" if self.value is None else publish.number(self.value) + self.unit
        return [self.text, f"{self.test} {self.wanted:g}{self.unit}", measured, reached]


class Figures:
    """The comparisons of one run."""

    def __init__(self, folder: Path) -> None:
        self.of = {name: compare.comparison_of(folder / f"{name}.csv") for name in NAMES}
        self.machine = bound.machine_of(folder)
        self.folder = folder

    def ahead(self, peers: Iterable[str], cases: Iterable[str], ranks: int = 2) -> float | None:
        """The least ratio of these peers in these collectives."""
        figures = self.of["collectives"]
        found = []
        for case in cases:
            for peer in peers:
                ours = C if peer in MPIS else TORCH
                found.append(figures.ratio(ranks, peer, case, ours, case))
        return min((ratio for ratio in found if ratio), default=None)

    def gradients(
        self, peers: list[str], network: str, ranks: int = 2, ways: Iterable[str] = WAYS
    ) -> float | None:
        file = self.folder / f"{network}.counts"
        figures = self.of["gradients"]
        ratios = [
            figures.nearest(
                ranks,
                [(peer, f"{way}:{file}") for way in ways],
                C if peer in MPIS else TORCH,
                f"async:{file}",
            )
            for peer in peers
        ]
        return min((each[0] for each in ratios if each), default=None)

    def training(self, case: str) -> float | None:
        rivals = [(peer, case) for peer in ("DDP", *HOROVODS)]
        nearest = self.of["train"].nearest(2, rivals, "horovod.torch", case)
        return nearest[0] if nearest else None

    def median(self, name: str, ranks: int, peer: str, case: str) -> float | None:
        return self.of[name].median(ranks, peer, case)


def divided(numerator: float | None, denominator: float | None) -> float | None:
    return numerator / denominator if numerator is not None and denominator else None


def allreduces(sizes: Iterable[int]) -> list[str]:
    return [f"allreduce:{size}" for size in sizes]


def large(figures: Figures) -> list[Goal]:
    huge = [f"allreduce:{64 << 20}"]
    ours = figures.median("collectives", 2, C, huge[0])
    return [
        Goal("1. 64 MiB against Open MPI", figures.ahead(OPEN_MPI, huge), "≥", 1.8),
        Goal("1. 64 MiB against Gloo", figures.ahead([GLOO], huge), "≥", 4),
        Goal("1. 64 MiB against Horovod on Gloo", figures.ahead(HOROVODS[:1], huge), "≥", 4),
        Goal(
            "1. 64 MiB, longer than the bound",
            divided(ours, figures.machine.bound("allreduce", 2, 64 << 20)),
            "≤",
            1.3,
        ),
        Goal(
            "1. 64 MiB born shared, longer than the bound",
            divided(
                figures.median("collectives", 2, C, f"allreduce-shared:{64 << 20}"),
                figures.machine.bound("allreduce-shared", 2, 64 << 20),
            ),
            "≤",
            1.3,
        ),
        Goal("1. 4 MiB against Open MPI", figures.ahead(OPEN_MPI, [f"allreduce:{4 << 20}"]), "≥", 1.2),
        Goal("1. 256 KiB against Open MPI", figures.ahead(OPEN_MPI, [f"allreduce:{256 << 10}"]), "≥", 1),
        Goal("1. any size against Gloo", figures.ahead([GLOO], allreduces(SIZES)), "≥", 4),
        Goal("1. any size against Horovod", figures.ahead(HOROVODS, allreduces(SIZES)), "≥", 4),
    ]


def many(figures: Figures) -> list[Goal]:
    goals = []
    for network, mpi, others in (("resnet50", 1.3, 3.5), ("vgg16", 1.2, 3), ("bert-large", 1.2, 3)):
        goals += [
            Goal(f"2. {network} against the best way of MPI", figures.gradients(MPIS, network), "≥", mpi),
            Goal(f"2. {network} against Horovod", figures.gradients(HOROVODS, network), "≥", others),
            Goal(
                f"2. {network} against the buckets of DDP",
                figures.gradients([GLOO], network, ways=WAYS[3:]),
                "≥",
                others,
            ),
        ]
    numbers = figures.median("gradients", 2, C, f"async:{figures.folder / 'numbers.counts'}")
    return [*goals, Goal("2. one number, with 160 others", divided(numbers, 161), "≤", 2, " µs")]


def small(figures: Figures) -> list[Goal]:
    beyond = [
        ours - theirs
        for case in allreduces(SMALL)
        if (ours := figures.median("collectives", 2, C, case))
        and (theirs := figures.median("collectives", 2, OPEN_MPI[0], case))
    ]
    word = allreduces([4])
    return [
        Goal("3. 4 B to 16 KiB, beyond the time of Open MPI", max(beyond, default=None), "≤", 3, " µs"),
        Goal("3. 4 B from PyTorch", figures.median("collectives", 2, TORCH, word[0]), "≤", 8, " µs"),
        Goal("3. 4 B from PyTorch against Gloo", figures.ahead([GLOO], word), "≥", 15),
        Goal("3. 4 B from PyTorch against Horovod", figures.ahead(HOROVODS, word), "≥", 100),
    ]


def crowded(figures: Figures) -> list[Goal]:
    everybody = [*MPIS, GLOO, *HOROVODS]
    others = [peer for peer in everybody if peer not in OPEN_MPI]
    nearest = figures.ahead(OPEN_MPI, allreduces(SMALL), 4)
    return [
        *(
            Goal(
                f"4. {publish.byte_text(size)}, 4 ranks against every peer",
                figures.ahead(everybody, allreduces([size]), 4),
                ">",
                1,
            )
            for size in LARGE
        ),
        *(
            Goal(
                f"4. {network}, 4 ranks against every peer", figures.gradients(everybody, network, 4), ">", 1
            )
            for network in ("resnet50", "vgg16")
        ),
        Goal("4. 4 B to 16 KiB, 4 ranks, slower than Open MPI", divided(1, nearest), "≤", 5),
        Goal(
            "4. 4 B to 16 KiB, 4 ranks against the others",
            figures.ahead(others, allreduces(SMALL), 4),
            "≥",
            10,
        ),
    ]


def training(figures: Figures) -> list[Goal]:
    train = figures.of["train"]
    pair = divided(train.median(1, "alone", "mlp:64"), train.median(2, "horovod.torch", "mlp:64"))
    return [
        Goal("5. CNN, images a second against the best peer", figures.training("cnn:64"), "≥", 1),
        Goal("5. ResNet-18 against the best peer", figures.training("resnet18:16"), "≥", 1),
        Goal("5. MLP against the best peer", figures.training("mlp:64"), "≥", 1.3),
        Goal("5. MLP, 2 ranks against 1 process", pair and 2 * pair, ">", 1),
    ]


def idle(figures: Figures) -> list[Goal]:
    def start(ranks: int, case: str) -> float | None:
        return figures.median("startup", ranks, "horovod", case)

    train = figures.of["train"]
    costs = [train.ratio(1, "idle", case, "alone", case) for case in ("cnn:64", "resnet18:16", "mlp:64")]
    found = [each for each in costs if each]
    cost = statistics.median(found) if found else None
    return [
        Goal("6. 4 ranks idle, of a core each", start(4, "idle"), "≤", 0.05, " %"),
        Goal("6. a step of 1 process after init against one without", cost, "≤", 1.03),
        Goal("6. `horovodrun -np 2 true`", start(2, "true"), "≤", 50, " ms"),
        Goal("6. init of 2 ranks", start(2, "init"), "≤", 20, " ms"),
        Goal("6. init of 32 ranks", start(32, "init"), "≤", 500, " ms"),
    ]


def others(figures: Figures) -> list[Goal]:
    comparison = figures.of["collectives"]
    single = f"allreduce:{64 << 20}"
    return [
        *(
            Goal(
                f"7. 16 Mi elements of {dtype} against float32",
                comparison.ratio(2, C, f"allreduce:{32 << 20}:{dtype}", C, single),
                "≤",
                0.6,
            )
            for dtype in ("bfloat16", "float16")
        ),
        *(
            Goal(
                f"7. {what} of 4 MiB against the best MPI", figures.ahead(MPIS, [f"{what}:{4 << 20}"]), "≥", 1
            )
            for what in OTHERS
        ),
    ]


def memory(figures: Figures) -> list[Goal]:
    folder = figures.folder
    few, cut = (
        figures.median("memory", 2, C, f"memory:{folder / name}")
        for name in ("resnet50.counts", "pieces.resnet50.counts")
    )
    held = [sample.value for sample in figures.of["memory"].samples if sample.peer == C]
    return [
        Goal(
            "8. memory beyond the tensors, from C, the most",
            max(held, default=0) / 1024 or None,
            "≤",
            64,
            " MiB",
        ),
        Goal("8. 1610 tensors against 161", divided(cut, few), "≤", 1.1),
    ]


def torch_distributed(figures: Figures) -> list[Goal]:
    of, engine, gloo = figures.of["distributed"], distributed.ENGINE.name, distributed.GLOO.name
    wanted = (
        ("all_reduce, 4 MiB", f"allreduce:{4 << 20}", 5),
        ("all_reduce, 64 MiB", f"allreduce:{64 << 20}", 2.5),
        ("all_gather_into_tensor, 4 MiB", f"allgather:{4 << 20}", 4),
        ("reduce_scatter_tensor, 4 MiB", f"reducescatter:{4 << 20}", 4),
        ("a step of DDP", f"step-ddp:{24 << 20}", 2),
        ("a step of FSDP2", f"step-fsdp2:{24 << 20}", 3),
    )
    views, optimizer = (
        of.median(2, peer, f"step-{case}:{24 << 20}")
        for peer, case in ((engine, "ddp-viewed"), (distributed.TORCH.name, "optimizer"))
    )
    return [
        *(
            Goal(f"9. {text} against Gloo", of.ratio(2, gloo, case, engine, case), "≥", least)
            for text, case, least in wanted
        ),
        Goal(
            "9. a step of DDP with bucket views against DistributedOptimizer",
            divided(views, optimizer),
            "≤",
            1.25,
        ),
    ]


def compiled(figures: Figures) -> list[Goal]:
    of, engine, gloo = figures.of["xla"], xla.ENGINE.name, xla.GLOO.name
    word, middle, large, together = "allreduce:4", f"allreduce:{4 << 20}", f"allreduce:{64 << 20}", "many:4"
    ours, empty, torch = (
        of.median(2, peer, case)
        for peer, case in ((engine, word), (engine, "empty:4"), (xla.TORCH.name, word))
    )
    more = ours - empty if ours and empty else None
    wanted = (
        ("4 B", word, 4),
        ("4 MiB", middle, 2),
        ("64 MiB", large, 2),
        ("50 of 4 B at once", together, 8),
    )
    return [
        Goal("10. jit, 4 B without the empty call against horovod.torch", divided(more, torch), "≤", 3),
        *(
            Goal(f"10. jit, {text} against Gloo in JAX", of.ratio(2, gloo, case, engine, case), "≥", least)
            for text, case, least in wanted
        ),
    ]


def traced(figures: Figures) -> list[Goal]:
    of, engine, torch = figures.of["graphs"], graphs.ENGINE.name, graphs.TORCH.name
    word, middle = f"allreduce:{graphs.WORD}", f"allreduce:{graphs.MIDDLE}"
    each = of.median(2, torch, word)
    chain, many = (of.median(2, engine, f"{what}:{graphs.WORD}") for what in ("chain", "many"))
    whole, empty = of.median(2, engine, middle), of.median(2, engine, f"empty:{graphs.MIDDLE}")
    more = whole - empty if whole and empty else None
    return [
        Goal(
            "11. tf.function, 4 B, each of 50 in a chain against horovod.torch", of_each(chain, each), "≤", 2
        ),
        Goal("11. tf.function, 4 B, each of 50 at once against horovod.torch", of_each(many, each), "≤", 2),
        Goal(
            "11. tf.function, 4 MiB without the empty call against horovod.torch",
            divided(more, of.median(2, torch, middle)),
            "≤",
            1.5,
        ),
    ]


def of_each(together: float | None, one: float | None) -> float | None:
    return divided(together / 50 if together else None, one)


def fitted(figures: Figures) -> list[Goal]:
    of, ours = figures.of["keras_fit"], (keras_fit.ENGINE.name, keras_fit.CASE)
    wanted = (
        ("MultiWorkerMirroredStrategy", keras_fit.STRATEGY.name, 3),
        ("two processes that exchange nothing", keras_fit.APART.name, 0.9),
    )
    return [
        Goal(f"12. fit of Keras against {text}", of.ratio(2, peer, keras_fit.CASE, *ours), "≥", least)
        for text, peer, least in wanted
    ]


def main() -> int:
    """Writes goals.md."""
    args = compare.arguments(__doc__, seconds=0)
    figures = Figures(args.output)
    parts = (
        *(large, many, small, crowded, training, idle, others, memory),
        *(torch_distributed, compiled, traced, fitted),
    )
    rows = [goal.row() for part in parts for goal in part(figures)]
    missed = sum(row[-1] == "**not reached**" for row in rows)
    text = publish.table(["goal", "wanted", "measured", ""], rows)
    text += f"\n\n{missed} of {len(rows)} goals not reached in this run."
    (args.output / "goals.md").write_text(text + "\n")
    print(text, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
