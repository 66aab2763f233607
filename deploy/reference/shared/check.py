"""Checks a cluster from its master: hosts, ranks on all of them, the shared folder, JupyterLab, monitoring.

    python check.py [--monitoring] [--grafana] [--no-notebook]

prints one line for each check and exits with the number of checks that failed.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path

import horovod

HOSTLIST = Path(os.environ.get("HOSTLIST", "/etc/horovod/HOSTLIST"))
SHARED = Path("/shared")
DISCOVERY = Path("/var/lib/horovod")
SECONDS = 200  # the longest time that one command may take, on a busy machine


def slots() -> dict[str, int]:
    """Returns the hosts of HOSTLIST with the number of ranks on each."""
    found = {}
    for line in HOSTLIST.read_text().splitlines():
        words = line.partition("#")[0].split()
        if words:
            number = re.search(r"\bslots=(\d+)", line)
            found[words[0]] = int(number[1]) if number else 1
    return found


def run(*words: str) -> str:
    result = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=SECONDS)
    assert result.returncode == 0, f"{' '.join(words)}: {result.stdout[-500:]}{result.stderr[-500:]}"
    return result.stdout


def on(host: str, command: str) -> str:
    """Returns the output of a command on a host. The master needs no sshd for itself."""
    if host == socket.gethostname():
        return run("sh", "-c", command)
    return run("ssh", "-o", "BatchMode=yes", host, command)


def every_host_answers() -> str:
    assert len(slots()) >= 2, f"{HOSTLIST} names {len(slots())} hosts"
    for host in slots():
        on(host, "true")
    return f"{len(slots())} hosts"


def all_hosts_have_the_same_release() -> str:
    program = shutil.which("horovodrun")  # a command by ssh does not have a login's PATH
    found = {host: on(host, f"{program} --version").strip() for host in slots()}
    assert len(set(found.values())) == 1, str(found)
    return next(iter(found.values()))


def the_folder_is_shared() -> str:
    with tempfile.NamedTemporaryFile(dir=SHARED, prefix="check-") as file:
        file.write(b"shared")
        file.flush()
        for host in slots():
            assert on(host, f"cat {file.name}") == "shared", host
    return str(SHARED)


def reduce_once() -> tuple[str, int]:
    """Runs as a rank: returns its host and the number of ranks."""
    import socket

    import numpy

    import horovod as hvd

    hvd.init()
    total = hvd.allreduce(numpy.full(1 << 20, hvd.rank() + 1, numpy.float32), op=hvd.Sum)
    assert (total == hvd.size() * (hvd.size() + 1) / 2).all()
    return socket.gethostname(), hvd.size()


def ranks_on_all_hosts_agree() -> str:
    results = horovod.run(reduce_once, hostfile=str(HOSTLIST))
    names = {name for name, _ in results}
    assert len(names) == len(slots()), f"ranks ran on {', '.join(sorted(names))} only"
    return f"{len(results)} ranks on {', '.join(sorted(names))}"


def a_missing_host_is_named() -> str:
    with tempfile.NamedTemporaryFile("w") as file:
        file.write(f"{next(iter(slots()))} slots=1\nabsent.invalid slots=1\n")
        file.flush()
        words = ["horovodrun", "--hostfile", file.name, "true"]
        result = subprocess.run(
            words, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=SECONDS
        )
    assert result.returncode and "absent.invalid" in result.stderr, result.stderr
    return result.stderr.strip().splitlines()[-1]


def jupyter_refuses_requests_without_its_token() -> str:
    url = next(each for each in run("jupyter", "server", "list").split() if each.startswith("http"))
    found = re.fullmatch(r"(http://[^/]+/)\?token=(\w{20,})", url)
    assert found, "JupyterLab has no token"
    address, token = found.groups()
    try:
        urllib.request.urlopen(f"{address}api/contents", timeout=10)
        raise AssertionError("files can be listed without the token")
    except urllib.error.HTTPError as error:
        assert error.code == 403, error
    request = urllib.request.Request(f"{address}api/contents", headers={"Authorization": f"token {token}"})
    with urllib.request.urlopen(request, timeout=10) as answer:
        assert b"train.ipynb" in answer.read()
    return address


def a_notebook_trains_on_all_hosts() -> str:
    with tempfile.TemporaryDirectory(dir=SHARED) as folder:
        copy = Path(folder) / "train.ipynb"
        copy.write_bytes((SHARED / "train.ipynb").read_bytes())
        run("jupyter", "execute", "--inplace", str(copy))
        text = copy.read_text()
    found = re.search(r"(\d+) ranks on (\d+) hosts: loss ([\d.]+) -> ([\d.]+)", text)
    assert found and int(found[2]) == len(slots()) and float(found[4]) < float(found[3]), text[-1000:]
    return found[0]


def prometheus_sees_a_job() -> str:
    ranks = sum(slots().values())
    words = ["horovodrun", "--metrics-discovery", str(DISCOVERY), "--hostfile", str(HOSTLIST)]
    words += [sys.executable, "-c", f"import time, horovod as hvd; hvd.init(); time.sleep({SECONDS})"]
    silent = subprocess.DEVNULL
    job = subprocess.Popen(words, stdin=silent, stdout=silent, stderr=silent)
    try:
        query = "http://127.0.0.1:9090/api/v1/query?query=sum(horovod_rank_up)"
        end = time.monotonic() + SECONDS
        while time.monotonic() < end:
            with urllib.request.urlopen(query, timeout=10) as answer:
                text = answer.read().decode()
            if f'"{ranks}"]' in text:
                return f"{ranks} ranks"
            assert job.poll() is None, f"horovodrun exited with {job.returncode}"
            time.sleep(1)
        raise AssertionError(f"Prometheus does not show the ranks: {text}")
    finally:
        job.terminate()
        job.wait(30)


def grafana_has_no_default_password() -> str:
    request = urllib.request.Request(
        "http://127.0.0.1:3000/api/org",
        headers={"Authorization": "Basic YWRtaW46YWRtaW4="},  # admin:admin
    )
    try:
        urllib.request.urlopen(request, timeout=10)
    except urllib.error.HTTPError as error:
        assert error.code == 401, error
        return "admin:admin is refused"
    raise AssertionError("Grafana accepts admin:admin")


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--monitoring", action="store_true", help="check Prometheus as well")
    parser.add_argument("--grafana", action="store_true", help="check Grafana as well")
    parser.add_argument("--no-notebook", action="store_true", help="omit the notebook, which needs PyTorch")
    given = parser.parse_args()
    checks: list[Callable[[], str]] = [
        every_host_answers,
        all_hosts_have_the_same_release,
        the_folder_is_shared,
        ranks_on_all_hosts_agree,
        a_missing_host_is_named,
        jupyter_refuses_requests_without_its_token,
    ]
    checks += [] if given.no_notebook else [a_notebook_trains_on_all_hosts]
    checks += [prometheus_sees_a_job] if given.monitoring else []
    checks += [grafana_has_no_default_password] if given.grafana else []
    failed = 0
    print(f"checking the hosts of {HOSTLIST} from {socket.gethostname()}", flush=True)
    for check in checks:
        start = time.monotonic()
        try:
            text, word = check(), "ok"
        except Exception as error:
            text, word = f"{type(error).__name__}: {error}", "FAILED"
            failed += 1
        name = check.__name__.replace("_", " ")
        print(f"{word:6} {name}, {time.monotonic() - start:.1f} s: {text}", flush=True)
    print(f"{len(checks) - failed} passed, {failed} failed")
    return failed


if __name__ == "__main__":
    raise SystemExit(main())
