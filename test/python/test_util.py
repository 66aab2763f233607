"""horovod.common: what scripts and tests written for Horovod import from there."""

from __future__ import annotations

import importlib.util
import os
import pickle
from pathlib import Path

import pytest

import horovod as hvd
from horovod.common import exceptions, util
from horovod.framework.grouping import check_names, make_groups


def test_extensions() -> None:
    assert not util.extension_available("absent", verbose=True)
    util.check_extension("horovod.torch", "HOROVOD_WITH_PYTORCH", __file__, "mpi_lib_v2")
    with pytest.raises(ImportError, match=r"horovod\.mxnet can't be used"):
        util.check_extension("horovod.mxnet", "HOROVOD_WITH_MXNET", __file__, "mpi_lib")
    path = util.get_extension_full_path(str(Path("a") / "b.py"), "c", "lib")
    assert path == os.path.join("a", "c", "lib") + util.get_ext_suffix()
    assert util.get_ext_suffix().endswith(".so")


def test_extension_that_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    assert util.extension_available("torch", verbose=True)
    assert capsys.readouterr().out == "horovod.torch: available\n"


@pytest.mark.parametrize("name", ["mpi_built", "gloo_built", "nccl_built", "ddl_built", "ccl_built"])
def test_builds(name: str) -> None:
    assert getattr(util, name)(verbose=True) == getattr(hvd, name)()


def test_gpu(capsys: pytest.CaptureFixture[str]) -> None:
    """There can be one only where there is a driver."""
    available = util.gpu_available("torch", verbose=True)
    assert available in (False, hvd.cuda_built())
    assert "horovod.torch: " in capsys.readouterr().out


@pytest.mark.parametrize("name", util.FRAMEWORKS)
def test_frameworks(name: str) -> None:
    """Both it and the package for it have to be there."""
    there = all(importlib.util.find_spec(path) for path in (f"horovod.{name}", name))
    assert util.extension_available(name) is there
    assert not util.extension_available("common")


class Variable:
    """A parameter that is no key: TensorFlow's and Keras's have no hash, and compare by element."""

    __hash__ = None  # type: ignore[assignment]

    def __eq__(self, other: object) -> bool:
        raise TypeError("compares by element")


def test_names_of_parameters_without_a_hash() -> None:
    first, second = Variable(), Variable()
    assert check_names([("a", first), ("b", second)], [second, first]) == ["b", "a"]
    with pytest.raises(ValueError, match=rf"lacks 1 of the 2 .* ids of those: \[{id(second)}\]"):
        check_names([("a", first)], [first, second])


def test_groups_of_parameters_without_a_hash() -> None:
    single, other, frozen, last = Variable(), Variable(), Variable(), Variable()
    trained = {0: single, 1: other, 3: last}
    assert make_groups(2, trained) == [(0, 1), (3,)]
    assert make_groups([[last, frozen, single], [other]], trained) == [(3, 0), (1,)]
    with pytest.raises(ValueError, match="must not name a parameter twice"):
        make_groups([[last], [last]], trained)


def test_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HVD_OLD", "old")
    with pytest.raises(KeyError), util.env(HVD_OLD="new", HVD_NEW="1", HVD_NONE=None):
        assert (os.environ["HVD_OLD"], os.environ["HVD_NEW"]) == ("new", "1")
        assert "HVD_NONE" not in os.environ
        raise KeyError
    assert os.environ["HVD_OLD"] == "old"
    assert "HVD_NEW" not in os.environ


def test_lists() -> None:
    assert util.split_list([1, 2, 3, 4, 5], 3) == [[1, 2], [3, 4], [5]]
    assert util.split_list([1], 2) == [[1], []]
    assert util.is_iterable([]) and util.is_iterable("ab") and not util.is_iterable(3)


def test_powers_of_two() -> None:
    assert [n for n in range(-1, 20) if util.num_rank_is_power_2(n)] == [1, 2, 4, 8, 16]


@pytest.mark.parametrize(
    ("version", "target", "expected"),
    [
        ("2.13.0", "2.9.0", True),
        ("2.13.0+cpu", "2.13.0", True),
        ("1.8", "1.8.0", True),
        ("1.8.0a0", "1.8.1", False),
        ("1.13.1", "2.0.0", False),
    ],
)
def test_versions(version: str, target: str, expected: bool) -> None:
    assert util.is_version_greater_equal_than(version, target) is expected
    util.check_installed_version("torch", version, ImportError("another reason"))


def test_a_target_version_of_another_form() -> None:
    with pytest.raises(ValueError, match="it must be three numbers"):
        util.is_version_greater_equal_than("1.0.0", "1.0")


def test_cache() -> None:
    calls = []
    cached = util._cache(lambda x: calls.append(x) or x)
    assert [cached(1), cached(1), cached(2)] == [1, 1, 2]
    assert calls == [1, 2]


def test_average() -> None:
    reduction = util.get_average_backwards_compatibility_fun(hvd)
    assert reduction(None, None) == hvd.Average
    assert reduction(hvd.Max, None) == hvd.Max
    with pytest.warns(DeprecationWarning):
        assert (reduction(None, True), reduction(None, False)) == (hvd.Average, hvd.Sum)
    with pytest.raises(ValueError, match="not both"):
        reduction(hvd.Sum, True)


def test_exceptions() -> None:
    assert issubclass(exceptions.HorovodInternalError, RuntimeError)
    assert pickle.loads(pickle.dumps(exceptions.HostsUpdatedInterrupt(True))).skip_sync is True
    error = exceptions.HorovodVersionMismatchError("torch", "2.0", "2.1")
    assert isinstance(error, ImportError)
    assert (error.name, error.version, error.installed_version) == ("torch", "2.0", "2.1")
