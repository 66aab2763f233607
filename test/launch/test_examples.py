"""Every example on two ranks with few steps: the output that its docstring promises, and its files."""

from __future__ import annotations

import gzip
import importlib
import importlib.metadata
import importlib.util
import os
import re
import runpy
import sys
from pathlib import Path

import numpy
import pytest
from conftest import Launcher

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples"
PNG = b"\x89PNG"
DEADLINE = 280.0


@pytest.fixture(autouse=True)
def _compile_fast(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compiling takes JAX longer than these few steps; test/python compiles with all optimizations."""
    monkeypatch.setenv("JAX_DISABLE_MOST_OPTIMIZATIONS", "1")


def run(launcher: Launcher, ranks: int, *words: str | Path) -> list[str]:
    """What the example printed on rank 0, line by line."""
    process = launcher.start("-np", str(ranks), *map(str, words))
    out, err = process.communicate(timeout=DEADLINE)
    assert process.returncode == 0, out + err
    return [line.split(": ", 1)[1] for line in out.splitlines() if line.startswith("[0]<stdout>: ")]


def example(launcher: Launcher, ranks: int, name: str, *words: str) -> list[str]:
    return run(launcher, ranks, sys.executable, EXAMPLES / "torch" / name, "--output-dir", "results", *words)


def numbers(line: str) -> list[float]:
    return [float(word) for word in re.findall(r"\b\d+\.\d+\b", line)]


def function_approximation(launcher: Launcher, ranks: int, steps: int) -> list[str]:
    lines = example(launcher, ranks, "function_approximation.py", "--steps", str(steps))
    assert sum(line.startswith("step") for line in lines) == 10
    assert "weights equal on all ranks: yes" in lines
    picture = launcher.folder / "results" / "function_approximation.png"
    assert picture.read_bytes().startswith(PNG)
    assert lines[-1] == "picture: results/function_approximation.png"
    return lines


def test_function_approximation_on_one_rank(launcher: Launcher) -> None:
    lines = function_approximation(launcher, 1, 30)
    together = next(line for line in lines if line.startswith("all ranks together"))
    assert all(0 < error < 2 for error in numbers(together))
    assert not any(line.startswith("rank 0 alone") for line in lines)


def test_two_ranks_learn_what_one_cannot(launcher: Launcher) -> None:
    """The point of the example, with a third of its steps."""
    lines = function_approximation(launcher, 2, 1000)
    together, alone = (
        next(numbers(line) for line in lines if line.startswith(name))
        for name in ("all ranks together", "rank 0 alone")
    )
    assert together[-1] < 0.1, lines
    assert alone[0] < 0.2
    assert alone[-1] > 0.5


def test_function_approximation_ensemble(launcher: Launcher) -> None:
    lines = example(launcher, 2, "function_approximation_ensemble.py", "--steps", "30")
    for rank, own in enumerate(("[-1, 0]", "[0, 1]")):
        assert any(line.startswith(f"rank {rank} ") and own in line for line in lines)
    picture = launcher.folder / "results" / "function_approximation_ensemble.png"
    assert picture.read_bytes().startswith(PNG)


@pytest.mark.parametrize(("ranks", "steps"), [(1, 20), (2, 750)])
def test_pinn(launcher: Launcher, ranks: int, steps: int) -> None:
    """A quarter of its steps is enough for the promised error."""
    lines = example(launcher, ranks, "pinn.py", "--steps", str(steps))
    assert sum(line.startswith("step") for line in lines) == 10
    assert "weights equal on all ranks: yes" in lines
    assert (launcher.folder / "results" / "pinn.png").read_bytes().startswith(PNG)
    assert lines[-1] == "picture: results/pinn.png"
    error = numbers(next(line for line in lines if line.startswith("relative L2 error")))[0]
    assert error <= 0.05 or ranks == 1, lines


def test_two_ranks_solve_two_equations(launcher: Launcher) -> None:
    lines = example(launcher, 2, "pinn_ensemble.py", "--steps", "750")
    for rank, solution in enumerate(("sin(πx)", "sin(2πx)")):
        (line,) = (line for line in lines if line.startswith(f"rank {rank} "))
        assert solution in line
        assert numbers(line)[0] <= 0.05, lines
    assert (launcher.folder / "results" / "pinn_ensemble.png").read_bytes().startswith(PNG)


def test_mnist_and_its_checkpoint(launcher: Launcher) -> None:
    lines = example(launcher, 2, "mnist.py", "--epochs", "1")
    assert "2 rank(s), 4000 digits to train on, 1000 held out" in lines
    assert "weights equal on all ranks: yes" in lines
    accuracy = numbers(next(line for line in lines if line.startswith("held-out accuracy")))[0]
    assert 60 < accuracy < 100
    assert (launcher.folder / "results" / "mnist.png").read_bytes().startswith(PNG)

    lines = example(launcher, 2, "mnist.py", "--epochs", "2", "--resume")
    assert [line.split()[1] for line in lines if line.startswith("epoch")] == ["2"]
    assert "weights equal on all ranks: yes" in lines


def test_elastic_mnist_in_a_job_whose_ranks_stay(launcher: Launcher) -> None:
    lines = run(launcher, 2, sys.executable, EXAMPLES / "torch" / "elastic_mnist.py", "--epochs", "1")
    assert "2 rank(s) from step 0 of epoch 1" in lines
    assert 60 < numbers(next(line for line in lines if line.startswith("held-out accuracy")))[0] < 100
    assert lines[-1] == "weights equal on all ranks: yes"


def test_mnist_reads_idx_files(launcher: Launcher) -> None:
    """Two classes that differ in half of the image, in the format of the original files, one kind packed."""
    data = launcher.folder / "data"
    data.mkdir()
    for part, count in (("train", 64), ("t10k", 16)):
        labels = numpy.arange(count, dtype=numpy.uint8) % 2
        images = numpy.zeros((count, 28, 28), numpy.uint8)
        images[labels == 1, :14] = 255
        head = b"\0\0\x08\x03" + numpy.array(images.shape, ">i4").tobytes()
        (data / f"{part}-images-idx3-ubyte.gz").write_bytes(gzip.compress(head + images.tobytes()))
        head = b"\0\0\x08\x01" + numpy.array(labels.shape, ">i4").tobytes()
        (data / f"{part}-labels-idx1-ubyte").write_bytes(head + labels.tobytes())
    lines = example(launcher, 2, "mnist.py", "--epochs", "3", "--data-dir", "data")
    assert "2 rank(s), 64 digits to train on, 16 held out" in lines


def test_mnist_in_jax(launcher: Launcher) -> None:
    pytest.importorskip("jax", reason="JAX is not installed")
    pytest.importorskip("optax", reason="optax is not installed")
    lines = run(launcher, 2, sys.executable, EXAMPLES / "jax" / "mnist.py", "--epochs", "1")
    assert lines[0] == "2 rank(s), 4000 digits to train on, 1000 held out"
    assert 60 < numbers(lines[1])[-1] < 100
    assert lines[-1] == "weights equal on all ranks: yes"


def test_mnist_in_tensorflow(launcher: Launcher) -> None:
    pytest.importorskip("tensorflow", reason="TensorFlow is not installed")
    path = EXAMPLES / "tensorflow" / "mnist.py"
    lines = run(launcher, 2, sys.executable, path, "--steps", "120", "--checkpoint-dir", "checkpoints")
    assert lines[0] == "2 rank(s), 4000 digits to train on, 1000 held out"
    assert 60 < numbers(lines[-2])[-1] < 100
    assert lines[-1] == "weights equal on all ranks: yes"
    assert (launcher.folder / "checkpoints" / "checkpoint").exists()


@pytest.mark.one_case
@pytest.mark.parametrize("option", [[], ["--ensemble"]], ids=["one", "ensemble"])
def test_function_approximation_in_tensorflow(launcher: Launcher, option: list[str]) -> None:
    pytest.importorskip("tensorflow", reason="TensorFlow is not installed")
    path = EXAMPLES / "tensorflow" / "function_approximation.py"
    lines = run(launcher, 2, sys.executable, path, "--steps", "1000", *option)
    each, together = numbers(lines[-2]), numbers(lines[-1])[0]
    assert len(each) == 2 and together < 0.1
    assert (each[0] == each[1]) == (not option)


@pytest.mark.one_case
@pytest.mark.parametrize("option", [[], ["--ensemble"]], ids=["one", "ensemble"])
def test_pinn_in_tensorflow(launcher: Launcher, option: list[str]) -> None:
    pytest.importorskip("tensorflow", reason="TensorFlow is not installed")
    path = EXAMPLES / "tensorflow" / "pinn.py"
    lines = run(launcher, 2, sys.executable, path, "--steps", "1000", *option)
    errors = numbers(lines[-1])
    assert len(errors) == 2 and max(errors) < 0.05, lines
    assert (errors[0] == errors[1]) == (not option)


def test_synthetic_benchmark_in_tensorflow(launcher: Launcher) -> None:
    pytest.importorskip("tensorflow", reason="TensorFlow is not installed")
    path = EXAMPLES / "tensorflow" / "synthetic_benchmark.py"
    small = ["--model", "MobileNet", "--batch-size", "2", "--image-size", "32", "--num-warmup-batches", "1"]
    few = ["--num-batches-per-iter", "1", "--num-iters", "2", "--fp16-allreduce"]
    lines = run(launcher, 2, sys.executable, path, *small, *few)
    assert sum(line.startswith("Iter #") for line in lines) == 2
    assert re.fullmatch(r"Total img/sec on 2 CPU\(s\): \d+\.\d \+-\d+\.\d", lines[-1])


def test_mnist_in_mxnet(launcher: Launcher) -> None:
    pytest.importorskip("mxnet", reason="MXNet is not installed", exc_type=ImportError)
    lines = run(launcher, 2, sys.executable, EXAMPLES / "mxnet" / "mnist.py", "--epochs", "1")
    assert lines[0] == "2 rank(s), 4000 digits to train on, 1000 held out"
    assert 60 < numbers(lines[1])[-1] < 100
    assert lines[-1] == "weights equal on all ranks: yes"


def keras_on(backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Skips the test where this back end is missing, or Keras has none but TensorFlow."""
    for package in (backend, "keras"):
        if importlib.util.find_spec(package) is None:
            pytest.skip(f"{package} is not installed")
    if importlib.metadata.version("keras") < "3" and backend != "tensorflow":
        pytest.skip("of Keras 3")
    monkeypatch.setenv("KERAS_BACKEND", backend)


@pytest.mark.one_case
@pytest.mark.parametrize("backend", ["torch", "jax", "tensorflow"])
def test_mnist_in_keras(launcher: Launcher, monkeypatch: pytest.MonkeyPatch, backend: str) -> None:
    keras_on(backend, monkeypatch)
    few = ["--epochs", "1", "--steps", "60", "--batch-size", "16", "--output", "model.keras"]
    lines = run(launcher, 2, sys.executable, EXAMPLES / "keras" / "mnist.py", *few)
    assert lines[0] == f"2 rank(s) on {backend}, 4000 digits to train on, 1000 held out"
    assert 40 < numbers(lines[1])[-1] < 100
    assert lines[-1] == "weights equal on all ranks: yes"
    if backend == "jax":  # the file is the same on all
        check_loads_without_horovod(launcher)


def check_loads_without_horovod(launcher: Launcher) -> None:
    load = "import sys; sys.modules['horovod'] = None; import keras"
    show = "o = keras.models.load_model('model.keras').optimizer; print(type(o).__name__, int(o.iterations))"
    assert run(launcher, 1, *launcher.python(f"{load}; {show}")) == ["Adam 30"]


@pytest.mark.parametrize(
    ("name", "parameters", "tensors"),
    [("resnet50", 25_557_032, 161), ("resnet101", 44_549_160, 314), ("vgg16", 138_357_544, 32)],
)
def test_models_have_their_well_known_size(
    name: str, parameters: int, tensors: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(EXAMPLES / "torch")
    torch = pytest.importorskip("torch")
    with torch.device("meta"):
        model = importlib.import_module("models").MODELS[name]()
        assert model(torch.empty(2, 3, 224, 224)).shape == (2, 1000)
    counts = [parameter.numel() for parameter in model.parameters()]
    assert (sum(counts), len(counts)) == (parameters, tensors)


@pytest.mark.one_case
@pytest.mark.parametrize("option", [[], ["--fp16-allreduce"], ["--use-adasum"]])
def test_synthetic_benchmark(launcher: Launcher, option: list[str]) -> None:
    path = EXAMPLES / "torch" / "synthetic_benchmark.py"
    small = ["--batch-size", "2", "--image-size", "32", "--num-warmup-batches", "1"]
    lines = run(
        launcher, 2, sys.executable, path, *small, "--num-batches-per-iter", "1", "--num-iters", "2", *option
    )
    assert sum(line.startswith("Iter #") for line in lines) == 2
    assert re.fullmatch(r"Img/sec per CPU: \d+\.\d \+-\d+\.\d", lines[-2])
    assert re.fullmatch(r"Total img/sec on 2 CPU\(s\): \d+\.\d \+-\d+\.\d", lines[-1])


def test_synthetic_benchmark_in_keras(launcher: Launcher, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a network that is smaller than ResNet-50, which takes a minute to compile."""
    keras_on("torch", monkeypatch)
    path = EXAMPLES / "keras" / "synthetic_benchmark.py"
    small = ["--model", "MobileNetV2", "--batch-size", "2", "--image-size", "32", "--num-warmup-batches", "1"]
    lines = run(launcher, 2, sys.executable, path, *small, "--num-batches-per-iter", "1", "--num-iters", "2")
    assert sum(line.startswith("Iter #") for line in lines) == 2
    assert re.fullmatch(r"Total img/sec on 2 CPU\(s\): \d+\.\d \+-\d+\.\d", lines[-1])


@pytest.mark.parametrize(
    ("name", "option"),
    [
        ("torch/function_approximation", "--output-dir"),
        ("torch/function_approximation_ensemble", "--output-dir"),
        ("torch/pinn", "--output-dir"),
        ("torch/pinn_ensemble", "--output-dir"),
        ("torch/mnist", "--output-dir"),
        ("torch/elastic_mnist", "--batches-per-commit"),
        ("torch/synthetic_benchmark", "--use-adasum"),
        ("jax/elastic_mnist", "--batches-per-commit"),
        ("jax/mnist", "--batch-size"),
        ("keras/elastic_mnist", "--batches-per-commit"),
        ("keras/mnist", "--output"),
        ("keras/synthetic_benchmark", "--fp16-allreduce"),
        ("mxnet/mnist", "--batch-size"),
        ("tensorflow/elastic_mnist", "--batches-per-commit"),
        ("tensorflow/mnist", "--checkpoint-dir"),
        ("tensorflow/function_approximation", "--ensemble"),
        ("tensorflow/pinn", "--ensemble"),
        ("tensorflow/synthetic_benchmark", "--model"),
    ],
)
def test_help_says_what_one_sees(
    name: str, option: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    if name.startswith("jax"):
        pytest.importorskip("optax", reason="JAX or optax is not installed")
    if name.startswith("tensorflow"):
        pytest.importorskip("tensorflow", reason="TensorFlow is not installed")
    if name.startswith("keras"):
        keras_on("torch", monkeypatch)
    if name.startswith("mxnet"):
        pytest.importorskip("mxnet", reason="MXNet is not installed", exc_type=ImportError)
    path = EXAMPLES / f"{name}.py"
    monkeypatch.syspath_prepend(path.parent)
    monkeypatch.delitem(sys.modules, "mnist", raising=False)  # that of another framework
    monkeypatch.setattr(sys, "argv", [str(path), "--help"])
    with pytest.raises(SystemExit, match="0"):
        runpy.run_path(str(path), run_name="__main__")
    out = capsys.readouterr().out
    assert "You see:" in out
    assert option in out
    assert f"/{name}.py" in (EXAMPLES / "README.md").read_text()


@pytest.mark.parametrize(
    ("page", "place"),
    [
        ("docs/jax.md", 1),
        ("docs/keras.md", 1),
        ("docs/mxnet.md", 1),
        ("docs/tensorflow.md", 2),
        ("docs/torch_distributed.md", 1),
    ],
)
def test_the_example_of_a_page(
    launcher: Launcher, monkeypatch: pytest.MonkeyPatch, page: str, place: int
) -> None:
    if "jax" in page:
        pytest.importorskip("optax", reason="JAX or optax is not installed")
    if "tensorflow" in page:
        pytest.importorskip("tensorflow", reason="TensorFlow is not installed")
    if "keras" in page:
        keras_on("jax", monkeypatch)
    if "mxnet" in page:
        pytest.importorskip("mxnet", reason="MXNet is not installed", exc_type=ImportError)
    source = re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(), re.DOTALL)[place]
    assert source.count("\n") <= 40
    check_example(launcher, source)


def test_the_example_of_the_readme(launcher: Launcher) -> None:
    """The script after the change that the page shows as a diff."""
    (diff,) = re.findall(r"```diff\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    source = "".join(line[1:] or "\n" for line in diff.splitlines(keepends=True) if line[0] != "-")
    assert source.count("\n") <= 22
    check_example(launcher, source)


def check_example(launcher: Launcher, source: str) -> None:
    """Two ranks fit one network to the data of both."""
    lines = run(launcher, 2, *launcher.python(source))
    assert lines[0].startswith("0 of 2 mean loss ")
    assert numbers(lines[0])[-1] < 0.2


@pytest.mark.parametrize("ranks", [1, 3])
def test_pi_in_c(launcher: Launcher, ranks: int) -> None:
    program = Path(os.environ.get("HVD_BUILD", ROOT / "build")) / "examples" / "c" / "pi"
    assert program.exists(), "build it with `make build`, or set HVD_BUILD"
    lines = run(launcher, ranks, program, "100000")
    assert lines[0].startswith(f"rank 0 of {ranks}: ")
    assert "all strips 3.1415926535" in lines[0]
    assert lines[1].startswith("error ")


def test_pi_without_a_launcher(launcher: Launcher) -> None:
    program = Path(os.environ.get("HVD_BUILD", ROOT / "build")) / "examples" / "c" / "pi"
    process = launcher.start("1000", program=str(program))
    out, err = process.communicate(timeout=DEADLINE)
    assert process.returncode == 0, err
    assert out.startswith("rank 0 of 1: ")
