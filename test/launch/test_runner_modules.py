"""What programs import of horovod.runner besides `run`."""

from __future__ import annotations

import functools
import io
import re
import socketserver
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest
from conftest import DEADLINE, Launcher, wait_until

from horovod.runner import _HorovodArgs
from horovod.runner.common.util import (
    config_parser,
    env,
    host_hash,
    hosts,
    safe_shell_exec,
    secret,
    settings,
    timeout,
)
from horovod.runner.launch import _run, run_controller
from horovod.runner.util import network
from horovod.runner.util.streams import Pipe
from horovod.runner.util.threads import in_thread, on_event

ROOT = Path(__file__).resolve().parents[2]


# -- jobs ------------------------------------------------------------------------------------------


def place(add: int = 0) -> tuple[int, int]:
    import horovod as hvd

    hvd.init()
    return hvd.rank() + add, hvd.size()


def test_a_job_of_a_function() -> None:
    args = _HorovodArgs()
    assert (args.hosts, args.nics, hasattr(args, "output_filename"), hasattr(args, "no_such")) == (
        *(None, None), True, False,
    )  # fmt: skip
    args.np, args.hosts, args.verbose, args.nics, args.run_func = 2, "localhost:2", 2, [], place
    assert _run(args) == [(0, 2), (1, 2)]
    args.run_func = lambda: 1 / 0
    with pytest.raises(RuntimeError, match=r"rank [01]: ZeroDivisionError"):
        _run(args)


def test_a_job_of_a_command(tmp_path: Path) -> None:
    args = _HorovodArgs()
    args.num_proc, args.nics, args.stall_check_warning_time_seconds = 2, {"lo"}, 7
    args.command = ["sh", "-c", f"echo $HOROVOD_STALL_CHECK_TIME_SECONDS >{tmp_path}/$HOROVOD_RANK"]
    assert _run(args) is None
    assert [(tmp_path / str(rank)).read_text() for rank in range(2)] == ["7\n", "7\n"]
    args.command = ["sh", "-c", "exit 3"]
    with pytest.raises(RuntimeError, match="exit code 3"):
        _run(args)
    args.num_proc, args.np = 2, 3
    with pytest.raises(ValueError, match="old name"):
        _run(args)
    with pytest.raises(ValueError, match="nothing to run"):
        _run(_HorovodArgs())


# -- threads ---------------------------------------------------------------------------------------


def test_in_thread() -> None:
    seen: list[int] = []
    thread = in_thread(seen.append, (3,), name="adder")
    thread.join(DEADLINE)
    assert (seen, thread.name, thread.daemon) == ([3], "adder", True)
    with pytest.raises(ValueError, match="tuple"):
        in_thread(seen.append, 3)  # type: ignore[arg-type]
    in_thread(lambda: 1 / 0, silent=True).join(DEADLINE)


def test_on_event() -> None:
    seen: list[str] = []
    event, other, stop = threading.Event(), threading.Event(), threading.Event()
    waits = on_event(event, seen.append, ("event",))
    stopped = on_event(other, seen.append, ["other"], stop=stop, check_stop_interval_s=0.01)
    assert not seen
    event.set()
    waits.join(DEADLINE)
    stop.set()
    stopped.join(DEADLINE)
    other.set()
    assert seen == ["event"]
    assert not stopped.is_alive()
    with pytest.raises(ValueError, match="no event"):
        on_event("event", seen.append)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="tuple"):
        on_event(event, seen.append, "x")


def test_a_pipe_between_threads() -> None:
    pipe = Pipe()
    assert pipe.read(timeout=0) is None
    writer = in_thread(lambda: [pipe.write(text) for text in ("abc", "", "de")])
    assert [pipe.read(2), pipe.read(5), pipe.read(timeout=DEADLINE)] == ["ab", "c", "de"]
    writer.join(DEADLINE)
    pipe.flush()
    reader = in_thread(lambda: pipe.read())
    pipe.close()
    reader.join(DEADLINE)
    assert not writer.is_alive() and not reader.is_alive()
    with pytest.raises(ValueError, match="closed"):
        pipe.write("x")


def test_addresses_of_this_host() -> None:
    assert "127.0.0.1" in network.get_local_host_addresses()
    assert "lo" in network.get_local_intfs() and network.get_local_intfs("lo") == {"lo"}
    assert not network.get_local_intfs("no-such")
    assert (
        network.get_driver_ip(["no-such", "lo"]) == network.resolve_host_address("localhost") == "127.0.0.1"
    )
    assert network.filter_local_addresses(["localhost", "192.0.2.7", "no-such.invalid"]) == [
        "192.0.2.7",
        "no-such.invalid",
    ]
    with pytest.raises(RuntimeError, match="no-such"):
        network.get_driver_ip(["no-such"])
    server, port = network.find_port(lambda address: socketserver.TCPServer(address, None))  # type: ignore[arg-type]
    with server:
        assert server.server_address[1] == port > 0


def test_the_controller_that_is_chosen() -> None:
    called: list[str] = []
    functions = {name: functools.partial(called.append, name) for name in ("gloo", "mpi", "js")}
    for chosen in ("gloo", "mpi", "js", "", "gloo mpi"):
        words = [word for name in functions for word in (name in chosen.split(), functions[name])]
        run_controller(*words, 0)
    assert called == ["gloo", "mpi", "js", "gloo", "gloo"]
    with pytest.raises(ValueError, match="js_run is chosen"):
        run_controller(False, functions["gloo"], False, None, True, None, 0)


# -- processes -------------------------------------------------------------------------------------


def test_execute() -> None:
    out, err = io.StringIO(), io.StringIO()
    code = safe_shell_exec.execute("echo $A; echo oops >&2; exit 5", {"A": "b"}, out, err, index=1)
    assert (code, out.getvalue(), err.getvalue()) == (5, "[1]<stdout>:b\n", "[1]<stderr>:oops\n")
    assert safe_shell_exec.execute("kill -9 $$") == -9


def test_execute_ends_at_an_event_with_all_processes(launcher: Launcher) -> None:
    event, codes = threading.Event(), []
    command = f"touch {launcher.folder}/started; sleep 100 & sleep 100"
    thread = in_thread(
        lambda: codes.append(safe_shell_exec.execute(command, launcher.environment(), events=[event]))
    )
    assert wait_until((launcher.folder / "started").exists)
    event.set()
    thread.join(DEADLINE)
    assert codes == [-15]
    assert launcher.none_alive()


# -- hosts -----------------------------------------------------------------------------------------


def test_hosts_and_places(tmp_path: Path) -> None:
    (tmp_path / "hosts").write_text("# all\na slots=2\n\nb-1.x slots=1  # small\n")
    text = hosts.parse_host_files(str(tmp_path / "hosts"))
    assert text == "a:2,b-1.x:1"
    assert hosts.parse_hosts_and_slots(text) == (["a", "b-1.x"], {"a": 2, "b-1.x": 1})
    found = hosts.get_host_assignments(hosts.parse_hosts(text), 3)
    assert found == [
        hosts.SlotInfo("a", 0, 0, 0, 3, 2, 2),
        hosts.SlotInfo("a", 1, 1, 0, 3, 2, 1),
        hosts.SlotInfo("b-1.x", 2, 0, 1, 3, 1, 2),
    ]
    assert found[1].to_response_string() == "1,3,1,2,0,1"
    assert len(hosts.get_host_assignments(hosts.parse_hosts("a:4,b:4"), 2, 5)) == 5
    with pytest.raises(ValueError, match="have 3"):
        hosts.get_host_assignments(hosts.parse_hosts(text), 4)
    for wrong in ("a", "a:b", "a b:2", ""):
        with pytest.raises(ValueError, match="no host with its slots"):
            hosts.parse_hosts(wrong)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("\ufeffa slots=2\r\nb slots = 3\r\n", "a:2,b:3"),
        ("a:2\n\tb : 3\n", "a:2,b:3"),
        ("a max_slots=4 slots=2 port=22\n", "a:2"),
        ("a slots=x\n", None),
        ("a max_slots=4\n", None),
    ],
)
def test_host_files_as_people_write_them(tmp_path: Path, text: str, expected: str | None) -> None:
    (tmp_path / "hosts").write_text(text, encoding="utf-8")
    if expected:
        assert hosts.parse_host_files(str(tmp_path / "hosts")) == expected
    else:
        with pytest.raises(ValueError, match="is no line of a host file"):
            hosts.parse_host_files(str(tmp_path / "hosts"))
    assert hosts.parse_hosts(" a : 2,\tb:3 ") == [hosts.HostInfo("a", 2), hosts.HostInfo("b", 3)]


def test_names_of_hosts() -> None:
    assert host_hash.host_hash() == host_hash.host_hash()
    assert host_hash.host_hash() != host_hash.host_hash(salt="container")
    assert host_hash._hash("a") != host_hash._hash("b")


# -- keys, deadlines, settings ---------------------------------------------------------------------


def test_keys() -> None:
    key = secret.make_secret_key()
    digest = secret.compute_digest(key, b"message")
    assert (len(key), len(digest)) == (32, secret.DIGEST_LENGTH)
    assert secret.check_digest(key, b"message", digest)
    assert not secret.check_digest(key, b"massage", digest)
    assert not secret.check_digest(secret.make_secret_key(), b"message", digest)


def test_deadlines() -> None:
    ample = timeout.Timeout(3600, "waited for {activity}")
    ample.check_time_out_for("nothing")
    assert ample.timeout == 3600
    assert 0 < ample.remaining() <= 3600
    over = timeout.Timeout(0, "waited for {activity}, {timeout} s")
    assert over.timed_out()
    with pytest.raises(timeout.TimeoutException, match="waited for ranks, 0 s"):
        over.check_time_out_for("ranks")


def test_settings() -> None:
    kept = settings.Settings(num_proc=2, hosts="a:2", key=b"k", start_timeout=timeout.Timeout(1, ""))
    assert (kept.num_proc, kept.hosts, kept.verbose, kept.nics, kept.elastic) == (2, "a:2", 0, None, False)
    with pytest.raises(TypeError):
        settings.Settings(no_such=1)  # type: ignore[call-arg]


def test_environment_of_a_rank(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HOROVOD_RANK", "HOROVOD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    assert env.get_env_rank_and_size() == (0, 1)
    monkeypatch.setenv("HOROVOD_RANK", "2")
    monkeypatch.setenv("HOROVOD_SIZE", "3")
    assert env.get_env_rank_and_size() == (2, 3)
    kept = [
        name
        for name in ("PATH", "OLDPWD", "BASH_FUNC_x%%", "CUDA_VISIBLE_DEVICES")
        if env.is_exportable(name)
    ]
    assert kept == ["PATH"]


def test_arguments_as_variables() -> None:
    args = SimpleNamespace(fusion_threshold_mb=2, cycle_time_ms=0.5, autotune=True, cache_capacity=None)
    variables = config_parser.set_env_from_args({"A": "b"}, args)
    assert variables == {
        "A": "b", "HOROVOD_FUSION_THRESHOLD": "2097152", "HOROVOD_CYCLE_TIME": "0.5", "HOROVOD_AUTOTUNE": "1",
    }  # fmt: skip
    config = {"params": {"fusion_threshold_mb": 8, "cycle_time_ms": 1}, "autotune": None, "timeline": {}}
    config_parser.set_args_from_config(args, config, {"cycle_time_ms"})
    assert (args.fusion_threshold_mb, args.cycle_time_ms, args.autotune) == (8, 0.5, True)


def test_the_settings_are_those_of_the_engine() -> None:
    table = (ROOT / "src" / "base" / "settings.def").read_text()
    for setting in config_parser.SETTINGS:
        option = setting.attribute.replace("_", "-")
        row = rf'"{setting.variable}", "{option}", {setting.unit}, "{re.escape(setting.key)}"'
        assert re.search(row, table), row
