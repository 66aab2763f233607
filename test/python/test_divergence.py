"""Comparison of the ranks' parameters: a difference is found, with its rank; equal parameters raise no alarm.

The tests run in the job of their session, so they give the settings to the comparison themselves.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import horovod as hvd
from horovod import _core
from horovod.common.exceptions import HorovodInternalError
from horovod.framework import divergence
from horovod.framework.divergence import ParameterCheck, blame, bytes_of

EVERY = 5


@pytest.fixture
def said(monkeypatch: pytest.MonkeyPatch) -> list[str | None]:
    """Turns comparisons on, every five steps, and returns the list of their outcomes."""
    outcomes: list[str | None] = []
    values = {"check_parameters": str(EVERY), "on_divergence": "warn"}
    monkeypatch.setattr(_core, "setting", values.__getitem__)
    monkeypatch.setattr(_core, "parameters_checked", lambda text, warns: outcomes.append(text))
    monkeypatch.setattr(divergence, "_PATIENCE", 60.0)  # no rank goes on while another one is suspended
    return outcomes


@pytest.fixture
def abort(said: list[str | None], monkeypatch: pytest.MonkeyPatch) -> None:
    values = {"check_parameters": str(EVERY), "on_divergence": "abort"}
    monkeypatch.setattr(_core, "setting", values.__getitem__)


def several() -> None:
    if hvd.size() == 1:
        pytest.skip("one rank alone has nobody to differ from")


def flip(array: Any, bit: int = 3) -> None:
    bytes_of(array)[bit // 8] ^= 1 << bit % 8


def run(check: ParameterCheck, arrays: dict[str, Any], steps: int, change: Callable[[int], None]) -> None:
    for step in range(1, steps + 1):
        for array in arrays.values():
            array += 1
        change(step)
        if check.is_on() and check.count():
            check.compare((name, bytes_of(array)) for name, array in arrays.items())


def make_arrays() -> dict[str, Any]:
    return {f"layer.{i}": np.arange(10 * i + 1, dtype=np.float32) for i in range(8)}


def test_equal_parameters(said: list[str | None]) -> None:
    run(ParameterCheck("equal"), make_arrays(), 4 * EVERY, lambda step: None)
    assert said == ([None] * 4 if hvd.size() > 1 else [])


@pytest.mark.parametrize("wrong", [0, -1], ids=["first", "last"])
def test_one_bit(said: list[str | None], wrong: int) -> None:
    several()
    size, arrays = hvd.size(), make_arrays()
    wrong = wrong % size

    def change(step: int) -> None:
        if step == 2 * EVERY + 2 and hvd.rank() == wrong:
            flip(arrays["layer.4"])

    run(ParameterCheck("bit"), arrays, 3 * EVERY, change)
    assert said[:2] == [None, None] and len(said) == 3
    text = said[2] or ""
    assert text.startswith(
        f"parameters differ since step {2 * EVERY + 1}-{3 * EVERY}: layer.4 first (1 of 8), "
    )
    assert text.endswith(f"They were equal at step {2 * EVERY}.")
    if size == 2:
        assert "between rank 0 and rank 1; no majority" in text
    else:
        assert f", on rank {wrong}; rank" in text and "agree" in text


def test_abort(abort: None, said: list[str | None]) -> None:
    several()
    arrays = make_arrays()
    arrays["layer.0"] += hvd.rank()
    with pytest.raises(HorovodInternalError, match=r"since step 1-5: layer\.0 first") as caught:
        run(ParameterCheck("abort"), arrays, EVERY, lambda step: None)
    assert caught.value.code == "MISMATCH"  # which ends an elastic job
    hvd.barrier()


def test_different_numbers_of_steps(said: list[str | None], monkeypatch: pytest.MonkeyPatch) -> None:
    """The ranks go on, and agree on the number of the step when they meet."""
    several()
    monkeypatch.setattr(divergence, "_PATIENCE", 0.05)
    check, arrays = ParameterCheck("steps"), make_arrays()
    ahead = 3 if hvd.rank() == 0 else 0
    run(check, arrays, ahead, lambda step: None)
    for _ in range(8 * EVERY):
        run(check, make_arrays(), 1, lambda step: hvd.barrier())
        if hvd.allreduce(np.array([len(said)]), op=hvd.Min, name="steps.done")[0] == 2:
            break
    assert said == [None, None]


def test_uneven_epochs(said: list[str | None], monkeypatch: pytest.MonkeyPatch) -> None:
    """A rank has fewer batches in each epoch, and joins; the parameters change in each step."""
    several()
    monkeypatch.setattr(divergence, "_PATIENCE", 0.05)
    check, arrays = ParameterCheck("uneven"), make_arrays()

    def train(step: int) -> None:
        gradient = hvd.allreduce(np.ones(4, np.float32), op=hvd.Sum, name="uneven.gradient")
        arrays["layer.1"][:4] += gradient / gradient.max()

    for _ in range(3):
        run(check, arrays, 2 * EVERY + (0 if hvd.rank() == 0 else 2), train)
        last = hvd.join()
        for name, array in arrays.items():
            arrays[name][:] = hvd.broadcast(array, last, name=f"uneven.{name}")
    assert set(said) == {None}


def test_ranks_that_have_gone_on(said: list[str | None], monkeypatch: pytest.MonkeyPatch) -> None:
    """Hashes of different moments are not compared."""
    several()
    monkeypatch.setattr(divergence, "_PATIENCE", 0.05)
    check, arrays = ParameterCheck("moments"), make_arrays()
    if hvd.rank() == 0 and check.is_on():  # it counts two steps more than the others
        assert not check.count() and not check.count()

    def train(step: int) -> None:
        hvd.barrier()
        arrays["layer.1"][:4] += 1

    run(check, arrays, 6 * EVERY, train)
    assert set(said) <= {None}
    hvd.barrier()


def test_a_rank_that_joined(said: list[str | None]) -> None:
    several()
    arrays, size = make_arrays(), hvd.size()
    if hvd.rank() < size - 1:
        arrays["layer.7"] += hvd.rank() == 0
        run(ParameterCheck("join"), arrays, EVERY, lambda step: None)
        text = said[0] or ""
        if size == 2:  # there is one rank left
            assert said == [None]
        else:
            assert "layer.7 first (1 of 8)" in text and f"rank {size - 1}" not in text
    hvd.join()


def test_one_process_set(said: list[str | None], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOROVOD_DYNAMIC_PROCESS_SETS", "1")
    if hvd.size() < 3:
        pytest.skip("a set of two ranks and another rank")
    two = hvd.add_process_set([0, 2])
    arrays = make_arrays()
    arrays["layer.3"] += hvd.rank()
    run(ParameterCheck("set", two), arrays, EVERY, lambda step: None)
    hvd.remove_process_set(two)
    assert len(said) == (hvd.rank() in (0, 2))
    if said:
        assert "layer.3 first (1 of 8), between rank 0 and rank 2; no majority" in (said[0] or "")


def test_two_checks_of_one_name(said: list[str | None]) -> None:
    one, other = ParameterCheck("same"), ParameterCheck("same")
    for _ in range(EVERY):
        for check in (one, other):
            if check.is_on() and check.count():
                check.compare([("x", np.zeros(3, np.uint8))])
    assert said == ([None] * 2 if hvd.size() > 1 else [])


def test_hashes_know_every_byte() -> None:
    data = np.zeros(100_000, np.uint8)
    before, small = _core.hashes([data, data[:7]])
    data[99_999] = 1
    after, same = _core.hashes([data, data[:7]])
    assert before != after and small == same and before != small
    with pytest.raises(ValueError, match="hashes"):
        _core.hashes([object()])


@pytest.mark.parametrize(
    ("rows", "text"),
    [
        ([[7, 7, 8, 7]], "on rank 2; ranks 0-1, 3 agree"),
        ([[7, 8, 8, 8]], "on rank 0; ranks 1-3 agree"),
        ([[7, 7, 8, 7], [7, 9, 7, 7]], "on ranks 1-2; ranks 0, 3 agree"),
        ([[7, 7, 8, 8]], "between ranks 0-1 and ranks 2-3; no majority says which of them is right"),
        ([[1, 2, 3, 4]], "between rank 0 and rank 1 and rank 2 and rank 3; no majority says which of them"),
        ([[7, 0, 7, 8]], "on rank 3; ranks 0, 2 agree"),
    ],
)
def test_blame(rows: list[list[int]], text: str) -> None:
    assert text in blame([0, 1, 2, 3], rows)


class TestTorch:
    """DistributedOptimizer compares after its steps."""

    @pytest.fixture(autouse=True)
    def _torch(self) -> None:
        self.torch = pytest.importorskip("torch")

    def train(self, steps: int, change: Callable[[int, Any], None]) -> None:
        import horovod.torch as hvd_torch

        torch = self.torch
        torch.manual_seed(3)
        model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.BatchNorm1d(8), torch.nn.Linear(8, 1))
        optimizer = hvd_torch.DistributedOptimizer(
            torch.optim.Adam(model.parameters(), lr=0.01), model.named_parameters()
        )
        for step in range(1, steps + 1):
            optimizer.zero_grad()
            model(torch.randn(5, 4) + hvd.rank()).square().mean().backward()
            change(step, model)
            optimizer.step()

    def test_flipped_bit(self, said: list[str | None]) -> None:
        several()

        def change(step: int, model: Any) -> None:
            if step == EVERY + 1 and hvd.rank() == hvd.size() - 1:
                flip(model[2].weight.detach().numpy())

        self.train(2 * EVERY, change)
        assert said[0] is None
        assert re.match(r"parameters differ since step 6-10: 2\.weight first \(\d of 6\)", said[1] or "")

    def test_healthy(self, said: list[str | None]) -> None:
        self.train(8 * EVERY, lambda step, model: None)
        assert said == ([None] * 8 if hvd.size() > 1 else [])

    def test_layouts(self, said: list[str | None]) -> None:
        """Memory in another order, types that the engine does not know, and no elements at all."""
        from horovod.torch.divergence import _bytes_of

        torch = self.torch
        image = torch.randn(2, 3, 4, 5).contiguous(memory_format=torch.channels_last)
        tensors = [image, torch.tensor(1.5), torch.zeros(0), torch.ones(3, dtype=torch.complex64).conj()]
        assert [_bytes_of(tensor).numel() for tensor in tensors] == [480, 4, 0, 24]
        assert _core.hashes([_bytes_of(image)]) == _core.hashes([_bytes_of(image.contiguous())])


STEPS = 2 * EVERY


def is_wrong(step: int) -> bool:
    return step == EVERY + 1 and hvd.rank() == hvd.size() - 1


def check_said(said: list[str | None], name: str) -> None:
    """The first comparison found no difference, the second one did."""
    if hvd.size() == 1:
        assert not said
        return
    assert len(said) == 2 and said[0] is None, said
    assert re.match(r"parameters differ since step 6-10: .*" + name, said[1] or ""), said


@pytest.mark.two_or_three
class TestJax:
    """optax's optimizers see the parameters before a step: those that the step before has made."""

    @pytest.mark.parametrize("compiled", [True, False], ids=["jit", "eager"])
    def test_flipped_bit(self, said: list[str | None], compiled: bool) -> None:
        jax = pytest.importorskip("jax")
        optax = pytest.importorskip("optax")
        import horovod.jax as hvd_jax

        optimizer = hvd_jax.DistributedOptimizer(optax.adam(0.01), name=f"divergence.{compiled}")
        params = {"dense": {"kernel": np.ones((4, 3), np.float32), "bias": np.zeros(3, np.float32)}}
        params = jax.tree.map(jax.numpy.asarray, params)
        state = optimizer.init(params)

        def step(params: Any, state: Any, x: Any) -> Any:
            def loss(p: Any) -> Any:
                return ((x @ p["dense"]["kernel"] + p["dense"]["bias"]) ** 2).mean()

            updates, state = optimizer.update(jax.grad(loss)(params), state, params)
            return optax.apply_updates(params, updates), state

        step = jax.jit(step) if compiled else step
        for number in range(1, STEPS + 1):
            if is_wrong(number):
                bias = np.array(params["dense"]["bias"])
                flip(bias)
                params["dense"]["bias"] = jax.numpy.asarray(bias)
            params, state = step(params, state, np.ones((2, 4), np.float32) * (hvd.rank() + number))
        jax.block_until_ready(params)
        jax.effects_barrier()
        check_said(said, "bias")


@pytest.mark.two_or_three
class TestKeras:
    @pytest.mark.parametrize("compiled", [True, False], ids=["compiled", "eager"])
    def test_flipped_bit(self, said: list[str | None], compiled: bool) -> None:
        keras = pytest.importorskip("keras")
        import horovod.keras as hvd_keras

        keras.utils.set_random_seed(5)
        layers = [keras.layers.Dense(8), keras.layers.BatchNormalization(), keras.layers.Dense(1)]
        model = keras.Sequential([keras.Input((4,)), *layers])
        optimizer = hvd_keras.DistributedOptimizer(keras.optimizers.Adam(0.01))
        model.compile(optimizer, "mse", run_eagerly=not compiled, jit_compile=False)

        x = np.random.default_rng(hvd.rank()).normal(size=(EVERY * 2, 4)).astype(np.float32)
        model.fit(x, x[:, :1], batch_size=2, verbose=0, shuffle=False)
        if is_wrong(EVERY + 1):
            kernel = np.array(layers[2].kernel)
            flip(kernel)
            layers[2].kernel.assign(kernel)
        model.fit(x, x[:, :1], batch_size=2, verbose=0, shuffle=False)
        check_said(said, r"dense.*kernel")

    def test_accumulated_passes(self, said: list[str | None]) -> None:
        keras = pytest.importorskip("keras")
        import horovod.keras as hvd_keras

        model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1, kernel_initializer="ones")])
        optimizer = hvd_keras.DistributedOptimizer(keras.optimizers.SGD(0.01), backward_passes_per_step=2)
        model.compile(optimizer, "mse", run_eagerly=True, jit_compile=False)
        x = np.random.default_rng(hvd.rank()).normal(size=(EVERY * 2 * 2, 4)).astype(np.float32)
        model.fit(x, x[:, :1], batch_size=1, verbose=0, shuffle=False)
        assert said == ([None] * 2 if hvd.size() > 1 else [])


@pytest.mark.two_or_three
class TestTensorFlow:
    """Optimizers of TensorFlow 1, in functions and in sessions."""

    def test_function(self, said: list[str | None]) -> None:
        tf = pytest.importorskip("tensorflow")
        import horovod.tensorflow as hvd_tf

        weight, bias = tf.Variable([1.0, 2.0], name="weight"), tf.Variable(0.0, name="bias")
        optimizer = hvd_tf.DistributedOptimizer(
            tf.compat.v1.train.GradientDescentOptimizer(0.01), name="divergence.function"
        )

        @tf.function
        def step(x: Any) -> None:
            with tf.GradientTape() as tape:
                loss = (tf.reduce_sum(weight * x) + bias) ** 2
            gradients = tape.gradient(loss, [weight, bias])
            optimizer.apply_gradients(zip(gradients, [weight, bias], strict=True))

        # The gradients are this rank's own, so they must be equal.
        for number in range(1, STEPS + 1):
            if is_wrong(number):
                bias.assign_add(2.0**-20)
            step(tf.constant([1.0, float(number)]))
        if hvd.size() > 1:
            assert said[0] is None and "parameters differ since step 6-10" in (said[1] or "")

    def test_session(self, said: list[str | None]) -> None:
        tf = pytest.importorskip("tensorflow")
        import horovod.tensorflow as hvd_tf

        with tf.Graph().as_default(), tf.compat.v1.Session() as session:
            weight = tf.compat.v1.get_variable("weight", initializer=[1.0, 2.0], use_resource=True)
            x = tf.compat.v1.placeholder(tf.float32, [2])
            optimizer = hvd_tf.DistributedOptimizer(
                tf.compat.v1.train.GradientDescentOptimizer(0.01), name="divergence.session"
            )
            train = optimizer.minimize(tf.reduce_sum(weight * x) ** 2)
            flipped = weight.assign_add([0.0, 2.0**-20])
            session.run(tf.compat.v1.global_variables_initializer())
            for number in range(1, STEPS + 1):
                if is_wrong(number):
                    session.run(flipped)
                session.run(train, {x: [hvd.rank() + 1.0, number]})
        check_said(said, "weight:0")
