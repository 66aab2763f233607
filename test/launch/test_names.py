"""horovod.common: what scripts written for Horovod import from there. Needs no job."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import pytest

import horovod as hvd
from horovod.common import exceptions, util


def test_exceptions_have_horovods_bases() -> None:
    assert issubclass(exceptions.HorovodInternalError, RuntimeError)
    assert issubclass(exceptions.HorovodVersionMismatchError, ImportError)
    assert issubclass(exceptions.HostsUpdatedInterrupt, RuntimeError)
    assert exceptions.HostsUpdatedInterrupt(skip_sync=True).skip_sync is True
    assert exceptions.HostsUpdatedInterrupt().skip_sync is False
    error = exceptions.HorovodVersionMismatchError("torch", "1.0", "2.0")
    assert (error.name, error.version, error.installed_version) == ("torch", "1.0", "2.0")
    assert "torch 1.0" in str(error) and "2.0 is installed" in str(error)


@pytest.mark.parametrize("name", ["mpi_built", "gloo_built", "nccl_built", "ddl_built", "ccl_built"])
def test_what_was_built_is_what_the_library_says(name: str) -> None:
    assert getattr(util, name)() == getattr(util, name)(verbose=True) == getattr(hvd, name)()
    assert util.gloo_built() and not util.gpu_available("torch", verbose=True)


def test_extensions(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("torch")
    assert util.extension_available("torch", verbose=True)
    assert "torch" in capsys.readouterr().out
    util.check_extension("horovod.torch", "HOROVOD_WITH_PYTORCH", __file__, "mpi_lib_v2")
    assert not util.extension_available("no_such_framework", verbose=True)
    with pytest.raises(ImportError, match=r"horovod\.no_such_framework can't be used"):
        util.check_extension("horovod.no_such_framework", "HOROVOD_WITH_IT", __file__, "lib")


def test_an_extension_without_its_framework_is_not_available() -> None:
    code = "import sys; sys.modules['torch'] = None\n"
    code += "from horovod.common.util import check_extension; check_extension('horovod.torch', 'X', '')"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert "ImportError: horovod.torch can't be used" in done.stderr


def test_paths_of_extensions() -> None:
    assert util.get_ext_suffix().endswith(".so")
    path = util.get_extension_full_path("/a/b/__init__.py", "c", "lib")
    assert path == "/a/b/c/lib" + util.get_ext_suffix()


def test_env_sets_and_puts_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HVD_TEST_OLD", "old")
    monkeypatch.delenv("HVD_TEST_NEW", raising=False)
    with pytest.raises(KeyError), util.env(HVD_TEST_OLD="1", HVD_TEST_NEW="2", HVD_TEST_NONE=None):
        assert os.environ["HVD_TEST_OLD"] == "1" and os.environ["HVD_TEST_NEW"] == "2"
        assert "HVD_TEST_NONE" not in os.environ
        raise KeyError
    assert os.environ["HVD_TEST_OLD"] == "old" and "HVD_TEST_NEW" not in os.environ


@pytest.mark.parametrize(
    ("length", "pieces", "sizes"), [(5, 2, [3, 2]), (6, 3, [2, 2, 2]), (2, 3, [1, 1, 0]), (0, 1, [0])]
)
def test_split_list(length: int, pieces: int, sizes: list[int]) -> None:
    parts = util.split_list(list(range(length)), pieces)
    assert [len(part) for part in parts] == sizes
    assert [each for part in parts for each in part] == list(range(length))


def test_powers_of_two() -> None:
    assert [n for n in range(-1, 20) if util.num_rank_is_power_2(n)] == [1, 2, 4, 8, 16]


@pytest.mark.parametrize(
    ("value", "expected"), [([], True), ("", True), ({}, True), (1, False), (None, False)]
)
def test_is_iterable(value: Any, expected: bool) -> None:
    assert util.is_iterable(value) is expected


@pytest.mark.parametrize(
    ("version", "target", "expected"),
    [
        ("1.2.3", "1.2.3", True),
        ("1.10.0", "1.9.0", True),
        ("2.13.0+cpu", "2.13.0", True),
        ("2.0", "2.0.1", False),
        ("1.2.3rc1", "1.2.4", False),
    ],
)
def test_versions(version: str, target: str, expected: bool) -> None:
    assert util.is_version_greater_equal_than(version, target) is expected


def test_a_version_to_compare_with_has_three_numbers() -> None:
    with pytest.raises(ValueError, match=r"a\.b\.c"):
        util.is_version_greater_equal_than("1.2.3", "1.2")


def test_cached_functions_run_once() -> None:
    calls = []

    @util._cache
    def function(x: int) -> int:
        calls.append(x)
        return x

    assert [function(1), function(1), function(2)] == [1, 1, 2] and calls == [1, 2]


def test_average_is_the_old_name() -> None:
    reduction = util.get_average_backwards_compatibility_fun(hvd)
    assert reduction(None, None) == hvd.Average
    assert reduction(hvd.Max, None) == hvd.Max
    with pytest.warns(DeprecationWarning):
        assert reduction(None, False) == hvd.Sum
    with pytest.raises(ValueError):
        reduction(hvd.Sum, True)


def test_any_version_of_a_framework_will_do() -> None:
    util.check_installed_version("torch", "0.0.1")
    with pytest.raises(KeyError):
        util.check_installed_version("torch", "0.0.1", KeyError("what the import raised"))
