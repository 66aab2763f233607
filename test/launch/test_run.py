"""horovod.run: a function on some ranks, its results, and what goes wrong."""

from __future__ import annotations

import os
import re
import signal
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest
from conftest import DEADLINE, Launcher
from virtual_hosts import wait_until

import horovod
from horovod.common.exceptions import HorovodInternalError


def place(*words: str, last: str = "") -> tuple[Any, ...]:
    import horovod as hvd

    hvd.init()
    return hvd.rank(), hvd.size(), *words, last


FAILED = "Horovod detected that one or more processes exited with non-zero status"  # by which others know


class Sum:
    """A class that the ranks must find, too, in a module that only this program's path leads to."""

    def __init__(self, value: float) -> None:
        self.value = value


def total(value: float) -> Sum:
    import numpy as np

    import horovod as hvd

    hvd.init()
    return Sum(float(hvd.allreduce(np.array([value * hvd.rank()]), op=hvd.Sum)[0]))


class TwoArgumentsError(Exception):
    """As many exceptions: pickle can write it, but not read it."""

    def __init__(self, first: int, second: int) -> None:
        super().__init__(f"{first} and {second}")


def fail(kind: str, victim: int) -> None:
    import numpy as np

    import horovod as hvd

    hvd.init()
    if hvd.rank() == victim:
        if kind == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        if kind == "odd":
            raise TwoArgumentsError(1, 2)
        raise KeyError("the victim's own")
    hvd.allreduce(np.ones(1))


@pytest.mark.parametrize("ranks", [1, 3])
def test_results_in_rank_order(ranks: int) -> None:
    results = horovod.run(place, ("a", "b"), {"last": "c"}, np=ranks)
    assert results == [(rank, ranks, "a", "b", "c") for rank in range(ranks)]
    assert horovod.run(place, num_proc=ranks) == [(rank, ranks, "") for rank in range(ranks)]


def test_one_rank_unless_the_hosts_say_more() -> None:
    assert len(horovod.run(place)) == 1
    assert len(horovod.run(place, hosts="localhost:2")) == 2


def test_objects_of_classes_come_back() -> None:
    assert [result.value for result in horovod.run(total, (2.0,), np=3)] == [6.0] * 3


def test_functions_without_a_name() -> None:
    outside = [1, 2, 3]
    assert horovod.run(lambda: [2 * each for each in outside], np=2) == [[2, 4, 6]] * 2


@pytest.mark.parametrize("victim", [0, 1])
def test_the_first_exception_is_the_cause(victim: int) -> None:
    expected = rf"^{FAILED}.\nrank {victim}: KeyError: \"the victim's own\"\n"
    with pytest.raises(RuntimeError, match=expected) as caught:
        horovod.run(fail, ("throw", victim), np=2)
    assert repr(caught.value.__cause__) == repr(KeyError("the victim's own"))
    text = str(caught.value)
    assert f"rank {victim} raised it here:\nTraceback" in text
    assert 'raise KeyError("the victim\'s own")' in text
    assert re.search(
        rf"^horovodrun: the first to fail was rank {victim} .*exit code 1", text.splitlines()[-1]
    )


def test_exceptions_that_cannot_be_pickled() -> None:
    with pytest.raises(RuntimeError, match=rf"{FAILED}.\nrank 1: .*TwoArgumentsError: 1 and 2") as caught:
        horovod.run(fail, ("odd", 1), np=2)
    assert caught.value.__cause__ is None


def test_what_cannot_be_unpickled_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "only_there.py").write_text("class Absent(Exception):\n    pass\n")

    def make(raises: bool) -> Any:
        sys.path.append(str(tmp_path))
        absent = __import__("only_there").Absent("from there")
        if raises:
            raise absent
        return absent

    with pytest.raises(RuntimeError, match=rf"{FAILED}.\nrank 0: only_there.Absent: from there") as caught:
        horovod.run(make, (True,), np=1)
    assert caught.value.__cause__ is None
    with pytest.raises(RuntimeError, match="result of rank 0 can't be unpickled here, ModuleNotFoundError"):
        horovod.run(make, (False,), np=1)


def test_a_rank_that_is_killed_is_named_by_the_others() -> None:
    with pytest.raises(RuntimeError, match=rf"{FAILED}.\nrank 0: (.|\n)*rank 1") as caught:
        horovod.run(fail, ("kill", 1), np=2)
    assert isinstance(caught.value.__cause__, HorovodInternalError)
    assert re.search("first to fail was rank 1 .*was killed by SIGKILL", str(caught.value))


def test_a_rank_that_dies_alone() -> None:
    with pytest.raises(
        RuntimeError,
        match=rf"{FAILED}: horovodrun ended with exit code 137(.|\n)*rank 0 .*was killed by SIGKILL",
    ):
        horovod.run(fail, ("kill", 0), np=1)


@pytest.mark.parametrize("code", [0, 3])
def test_a_function_that_ends_its_process(code: int) -> None:
    with pytest.raises(RuntimeError, match=f"{FAILED}.\nrank 0: SystemExit: {code}") as caught:
        horovod.run(sys.exit, (code,), np=1)
    assert isinstance(caught.value.__cause__, SystemExit)
    with pytest.raises(RuntimeError, match=f"rank 0.*exit code {code}" if code else "no result came"):
        horovod.run(os._exit, (code,), np=1)


@pytest.mark.parametrize(("ranks", "missing"), [(2, "any rank"), (3, "rank 1, 2 of 3")])
def test_ranks_that_leave_in_silence(ranks: int, missing: str) -> None:
    with pytest.raises(RuntimeError, match=f"no result came from {missing}"):
        horovod.run(lambda: (ranks > 2 and os.environ["HOROVOD_RANK"] == "0") or os._exit(0), np=ranks)


def test_results_that_cannot_be_pickled() -> None:
    with pytest.raises(RuntimeError, match="rank 0 returned a generator, which can't be pickled") as caught:
        horovod.run(lambda: (each for each in range(3)), np=1)
    assert isinstance(caught.value.__cause__, TypeError)


@pytest.mark.parametrize(
    ("parameters", "problem"),
    [
        ({"np": 2, "num_proc": 3}, "num_proc=3 and np=2"),
        ({"hosts": "localhost:1", "hostfile": "f"}, "hosts and hostfile exclude each other"),
        ({"use_gloo": True, "use_mpi": True}, "use_gloo and use_mpi exclude each other"),
        ({"np": 0}, "-np=0 must be a whole number from 1"),
        ({"hosts": "localhost:x"}, "'x' is not a number of slots"),
        ({"min_num_proc": 2, "num_proc": 1}, "--min-np 2 is more than -np 1"),
        ({"spares": 1}, "--spares needs --min-np or --host-discovery-script"),
        ({"min_num_proc": 1, "failed_slot": "no"}, "--failed-slot=no must be drop-host"),
        ({"cooldown_range": (1, 2)}, "--blacklist-cooldown-range needs --min-np or --host-discovery-script"),
        ({"host_discovery_script": "./find"}, "how many ranks"),
        ({"host_discovery_script": "./find", "min_num_proc": 1, "hosts": "a"}, "takes the place of --hosts"),
    ],
)
def test_refused_parameters(parameters: dict[str, Any], problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        horovod.run(place, **parameters)


def train(size: int, victim: str) -> tuple[int, int, str]:
    """Trains until there are ``size`` ranks after one of them has killed itself."""
    import numpy as np

    import horovod as hvd

    hvd.init()

    @hvd.elastic.run
    def step(state: Any) -> None:
        while state.step < 5 or hvd.size() != size:
            hvd.allreduce(np.ones(1), name="step")
            if state.step == 3 and os.environ["HOROVOD_SLOT"] == victim:
                os.kill(os.getpid(), signal.SIGKILL)
            state.step += 1
            state.commit()

    step(hvd.elastic.ObjectState(step=0))
    return hvd.rank(), hvd.size(), os.environ["HOROVOD_SLOT"]


def test_an_elastic_job_returns_the_results_of_its_last_ranks() -> None:
    results = horovod.run(train, (2, "0"), num_proc=4, min_num_proc=2, hosts="localhost:2,127.0.0.1:2")
    assert results == [(0, 2, "2"), (1, 2, "3")]  # a failed rank takes its host along


def test_a_rank_that_has_joined_later_returns_a_result() -> None:
    results = horovod.run(train, (3, "1"), num_proc=3, min_num_proc=2)
    assert results == [(0, 3, "0"), (1, 3, "2"), (2, 3, "3")]


def train_beside_a_spare(folder: str) -> tuple[int, int, str]:
    """Trains until process 1 has killed itself, which it does when process 2 is there."""
    import numpy as np

    import horovod as hvd

    hvd.init()
    slot = os.environ["HOROVOD_SLOT"]
    Path(folder, slot).touch()

    @hvd.elastic.run
    def step(state: Any) -> None:
        while hvd.allreduce(np.array([slot == "1"]), op=hvd.Max, name="step")[0]:
            if slot == "1":
                assert wait_until(Path(folder, "2").exists, DEADLINE)
                os.kill(os.getpid(), signal.SIGKILL)
            state.commit()

    step(hvd.elastic.ObjectState())
    return hvd.rank(), hvd.size(), slot


def test_a_spare_takes_a_lost_place(tmp_path: Path) -> None:
    results = horovod.run(
        train_beside_a_spare, (str(tmp_path),), num_proc=2, min_num_proc=2, hosts="localhost:3", spares=1,
        reset_limit=1, elastic_timeout=60, rejoin_seconds=60, failed_slot="restart",
    )  # fmt: skip
    assert results == [(0, 2, "0"), (1, 2, "2")]


def test_an_elastic_job_on_the_hosts_of_a_script(tmp_path: Path) -> None:
    script = tmp_path / "hosts"
    script.write_text("#!/bin/sh\necho localhost\n")
    script.chmod(0o755)
    results = horovod.run(
        place, min_num_proc=1, max_num_proc=2, slots=2, reset_limit=0, cooldown_range=(1, 2),
        host_discovery_script=str(script),
    )  # fmt: skip
    assert results == [(0, 2, ""), (1, 2, "")]


def test_what_ends_an_elastic_job() -> None:
    with pytest.raises(RuntimeError, match=f'{FAILED}.\nrank .: KeyError: "the victim') as caught:
        horovod.run(fail, ("throw", 0), num_proc=1, min_num_proc=1)
    assert repr(caught.value.__cause__) == repr(KeyError("the victim's own"))
    with pytest.raises(RuntimeError, match="number of resets during elastic job exceeded limit: 0"):
        horovod.run(train, (2, "0"), num_proc=2, min_num_proc=1, reset_limit=0)


def test_parameters_that_change_nothing(tmp_path: Path) -> None:
    with pytest.warns(UserWarning, match="without mpirun"):
        results = horovod.run(
            place, np=2, use_mpi=True, mpi_args="-x A", ssh_port=22, disable_cache=True, start_timeout=20,
            network_interfaces=["lo"], output_filename=str(tmp_path / "out"), verbose=2,
            executable=sys.executable,
        )  # fmt: skip
    assert [result[0] for result in results] == [0, 1]
    assert (tmp_path / "out" / "rank.1" / "stdout").exists()


def test_nothing_is_left_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    modes = horovod.run(lambda: [path.stat().st_mode & 0o777 for path in tmp_path.iterdir()], np=1)
    assert modes == [[0o700]]
    with pytest.raises(RuntimeError, match="KeyError"):
        horovod.run(fail, ("throw", 0), np=1)
    assert not list(tmp_path.iterdir())


def test_output_goes_through_this_programs_streams(capsys: pytest.CaptureFixture[str]) -> None:
    horovod.run(lambda: print("as in a notebook"), np=2)
    lines = capsys.readouterr().out.splitlines()
    assert sorted(lines) == [f"[{rank}]<stdout>: as in a notebook" for rank in range(2)]


SCRIPT = """
import sys
{before}
import horovod

def own_rank(factor):
    import horovod as hvd
    hvd.init()
    return Result(factor * hvd.rank())

class Result:
    def __init__(self, value):
        self.value = value

{call}
"""


def script(
    before: str = "", call: str = "print([each.value for each in horovod.run(own_rank, (5,), np=2)])"
) -> str:
    return SCRIPT.format(before=before, call=call)


def test_functions_of_main_and_no_guard(launcher: Launcher) -> None:
    process = launcher.start(*launcher.python(script())[1:], program=sys.executable)
    out, err = process.communicate(timeout=60)
    assert out == "[0, 5]\n", err


def test_as_typed_into_a_notebook(launcher: Launcher) -> None:
    """Cells are compiled one by one and run in __main__, of which there is no file."""
    cells = (
        f"cells = {script().split(chr(10) * 2)!r}\nfor cell in cells: exec(compile(cell, '<cell>', 'exec'))"
    )
    process = launcher.start("-c", cells, program=sys.executable)
    out, err = process.communicate(timeout=60)
    assert out == "[0, 5]\n", err


def test_without_cloudpickle(launcher: Launcher) -> None:
    (launcher.folder / "module.py").write_text("def double(x):\n    return 2 * x\n")
    before = "sys.modules['cloudpickle'] = None"
    call = "import module\nprint(horovod.run(module.double, (4,), np=2))\nhorovod.run(own_rank, (1,))"
    process = launcher.start(*launcher.python(script(before, call))[1:], program=sys.executable)
    out, err = process.communicate(timeout=60)
    assert out == "[8, 8]\n", err
    assert "ImportError: horovod.run can't send own_rank" in err.splitlines()[-1]
    assert "pip install cloudpickle" in err.splitlines()[-1]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_the_caller_is_stopped(launcher: Launcher, number: signal.Signals) -> None:
    call = "horovod.run(lambda: (print('ready', flush=True), __import__('time').sleep(60)), np=2)"
    own = launcher.environment(TMPDIR=str(launcher.folder))  # SIGKILL leaves the files of the run there
    process = launcher.start(*launcher.python(script(call=call))[1:], program=sys.executable, env=own)
    assert process.stdout and "ready" in process.stdout.readline()
    process.send_signal(number)  # to this process only, as a notebook's kernel gets it
    assert launcher.none_alive()


@pytest.mark.parametrize("words", [["--version"], ["-np", "1", "true"], ["-np", "x", "true"]])
def test_the_launcher_as_a_module(launcher: Launcher, words: list[str]) -> None:
    ours = launcher.start("-m", "horovod.runner.launch", *words, program=sys.executable)
    out, err = ours.communicate(timeout=60)
    expected = launcher.run(*words)
    assert (out, err, ours.returncode) == (expected.stdout, expected.stderr, expected.returncode)


def test_check_build_from_python(capsys: pytest.CaptureFixture[str]) -> None:
    from horovod.runner.launch import check_build

    check_build()
    assert capsys.readouterr().out.startswith("Horovod v")
