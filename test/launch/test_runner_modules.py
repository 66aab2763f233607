"""What programs import of horovod.runner besides `run`."""

from __future__ import annotations

import functools
import importlib
import io
import os
import re
import socketserver
import sys
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest
from conftest import DEADLINE, Launcher, wait_until

from horovod.runner import _HorovodArgs, absent, command_line, js_run
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
from horovod.runner.common.util.settings import Settings
from horovod.runner.launch import _run, parse_args, run_controller
from horovod.runner.util import cache, lsf, network
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


def test_arguments_of_a_job(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = "-np 2 -H localhost:2 --verbose --no-stall-check --cycle-time-ms 0.5 --network-interface lo"
    args = parse_args([*words.split(), "python", "-v", "--np=3"])
    assert (args.np, args.num_proc, args.hosts, args.hostfile, args.verbose) == (
        2,
        2,
        "localhost:2",
        None,
        True,
    )
    assert (args.command, args.cycle_time_ms, args.nics) == (["python", "-v", "--np=3"], 0.5, ["lo"])
    assert (args.stall_check, args.no_stall_check, args.autotune, args.no_autotune) == (
        *(False, True, None), None,
    )  # fmt: skip
    assert not any((args.use_gloo, args.use_mpi, args.use_jsrun, args.disable_cache, args.check_build))
    assert (args.min_np, args.ssh_port, args.start_timeout, args.prefix_output_with_timestamp) == (
        *(None, None, None), False,
    )  # fmt: skip
    show = f'echo "$HOROVOD_STALL_CHECK_DISABLE $HOROVOD_CYCLE_TIME" >{tmp_path}/$HOROVOD_RANK'
    assert _run(parse_args([*words.split(), "--", "sh", "-c", show])) is None
    assert [(tmp_path / str(rank)).read_text() for rank in range(2)] == ["1 0.5\n"] * 2
    assert parse_args(["-np", "2", "python", "-c", "pass"]).command == ["python", "-c", "pass"]
    for wrong in (["--no-such", "true"], ["-np", "x", "true"]):
        with pytest.raises(SystemExit):
            parse_args(wrong)
    assert "-np/--np/-num-proc/--num-proc: invalid int value: 'x'" in capsys.readouterr().err


def test_every_option_is_an_attribute(launcher: Launcher) -> None:
    listed = re.findall(r"^  (?:-\S+, )?--(?:\[no-\])?([\w-]+)", launcher.run("--help").stdout, re.MULTILINE)
    parser = command_line._parser()
    known = {flag.lstrip("-") for action in parser._actions for flag in action.option_strings}
    assert len(listed) > 50
    assert set(listed) - known == set()


def test_jsrun(launcher: Launcher, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that starts the ranks and sets what the real one sets."""
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    with pytest.raises(RuntimeError, match="no jsrun on the PATH"):
        js_run.js_run(Settings(num_proc=2), None, None, "true")
    program = launcher.folder / "jsrun"
    program.write_text(
        f"""#!/bin/sh
[ "$1 $3 $4" = "--np -b rs" ] || exit 9
size=$2; shift 4
for rank in $(seq 0 $((size - 1))); do
    JSM_NAMESPACE_RANK=$rank JSM_NAMESPACE_SIZE=$size "$@" >{launcher.folder}/out.$rank & pids="$pids $!"
done
for pid in $pids; do wait $pid || exit; done
"""
    )
    program.chmod(0o700)
    monkeypatch.setenv("PATH", f"{launcher.folder}:/usr/bin:/bin")
    assert js_run.is_jsrun_installed()
    show = "import horovod as hvd; hvd.init(); print(hvd.rank(), hvd.size())"
    settings = Settings(num_proc=2, binding_args="-b rs", nics={"lo"})
    env = launcher.environment(HOME=str(launcher.folder), PATH=os.environ["PATH"], LSB_JOBID="9")
    js_run.js_run(settings, None, env, [sys.executable, "-c", show])
    assert [(launcher.folder / f"out.{rank}").read_text() for rank in range(2)] == ["0 2\n", "1 2\n"]
    with pytest.raises(RuntimeError, match=r"one or more processes exited(.*)jsrun ended with exit code 3"):
        js_run.js_run(settings, None, env, "sh -c 'exit 3'")


# -- what is not here -------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [*absent.MODULES, "horovod.runner.common.service.task_service"])
def test_modules_that_are_not_here_say_why(name: str) -> None:
    with pytest.raises(ModuleNotFoundError, match=r"^horovod.runner.* has no counterpart here: \w+ "):
        importlib.import_module(name)


@pytest.mark.parametrize("name", absent.NAMES)
def test_names_that_are_not_here_say_why(name: str) -> None:
    module, _, attribute = name.rpartition(".")
    if module.endswith("LSFUtils"):
        with pytest.raises(AttributeError, match=rf"^{name} has no counterpart here: \w+ "):
            getattr(lsf.LSFUtils, attribute)
    else:
        with pytest.raises(ImportError, match=rf"^{name} has no counterpart here: \w+ "):
            exec(f"from {module} import {attribute}")
        assert not hasattr(importlib.import_module(module), "no_such")


def test_what_is_not_here_is_on_the_page() -> None:
    page = (ROOT / "docs" / "compatibility.md").read_text()
    assert [name for name in [*absent.MODULES, *absent.NAMES] if f"`{name}`" not in page] == []


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


# -- LSF, results that are kept ---------------------------------------------------------------------


def test_hosts_of_lsf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("LSB_JOBID", "LSB_DJOB_RANKFILE", "LSB_MCPU_HOSTS"):
        monkeypatch.delenv(name, raising=False)
    assert (lsf.LSFUtils.using_lsf(), lsf.LSFUtils.get_compute_hosts()) == (False, [])
    monkeypatch.setenv("LSB_JOBID", "9")
    assert lsf.LSFUtils.using_lsf()
    for pairs, names, slots in (
        ("batch5 1 h1 2 h2 2", ["h1", "h2"], 4), ("login1 1 h1 42 h2 42", ["h1", "h2"], 84),
        ("h1 1 h2 1", ["h1", "h2"], 2), ("h1 1", ["h1"], 1),
    ):  # fmt: skip
        monkeypatch.setenv("LSB_MCPU_HOSTS", pairs)
        assert (lsf.LSFUtils.get_compute_hosts(), lsf.LSFUtils.get_num_processes()) == (names, slots)
    monkeypatch.setenv("LSB_MCPU_HOSTS", "h1")
    with pytest.raises(ValueError, match="0 is not a number of slots for h1"):
        lsf.LSFUtils.get_compute_hosts()
    (tmp_path / "ranks").write_text("batch1\nh1\nh1\nh2\nh2\nh1\n")
    monkeypatch.setenv("LSB_DJOB_RANKFILE", str(tmp_path / "ranks"))
    assert (lsf.LSFUtils.get_compute_hosts(), lsf.LSFUtils.get_num_processes()) == (["h1", "h2"], 5)


def test_results_are_kept(tmp_path: Path) -> None:
    called: list[int] = []

    @cache.use_cache()
    def double(number: int) -> int:
        called.append(number)
        return 2 * number

    folder = str(tmp_path / "kept")
    kept = cache.Cache(folder, 10, "a")
    assert [double(2, fn_cache=kept), double(2, fn_cache=kept), double(2), double(3, fn_cache=kept)] == [
        *(4, 4, 4), 6,
    ]  # fmt: skip
    assert called == [2, 2, 3]
    assert double(2, fn_cache=cache.Cache(folder, 10, "a")) == 4
    assert called == [2, 2, 3]
    others = ((10, "a"), (-1, "a"), (10, "b"))
    assert [cache.Cache(folder, *other).get(((2,),)) for other in others] == [4, None, None]
    (tmp_path / "kept" / cache.FILE).write_text("{")
    assert cache.Cache(folder, 10, "a").get(((2,),)) is None


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
