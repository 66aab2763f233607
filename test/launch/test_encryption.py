"""HOROVOD_ENCRYPTION where OpenSSL is missing: in a mount namespace that has nothing in its place."""

from __future__ import annotations

import os
import re
import shutil
import subprocess

import pytest
from conftest import Launcher

SUM = """
import numpy as np
import horovod as hvd
hvd.init()
assert hvd.allreduce(np.ones(3), op=hvd.Sum)[0] == hvd.size()
"""
MISSING = "OpenSSL 1.1.1 or later (libssl.so.3)"


def without_openssl() -> list[str]:
    """The words in front of a command that finds no OpenSSL."""
    if (
        os.getuid() != 0
        or subprocess.run(["unshare", "--mount", "true"], stderr=subprocess.DEVNULL).returncode
    ):
        pytest.skip("mount namespaces need root")
    ldconfig = shutil.which("ldconfig", path="/sbin:/usr/sbin:/bin:/usr/bin") or pytest.skip("no ldconfig")
    known = subprocess.run([ldconfig, "-p"], capture_output=True, text=True, check=True).stdout
    paths = re.findall(r"libssl\.so\.(?:3|1\.1) .*=> (\S+)", known)
    hide = "".join(f"mount --bind /dev/null {path} && " for path in paths)
    return ["unshare", "--mount", "sh", "-c", f'{hide}exec "$@"', "sh"]


def test_ranks_without_openssl_say_so(launcher: Launcher) -> None:
    words = ["--encryption", "-np", "2", *launcher.python(SUM)]
    result = launcher.run(*words, inside=without_openssl())
    assert result.returncode == 1
    assert f"HOROVOD_ENCRYPTION needs {MISSING} on every host; install it" in result.stderr
    assert launcher.none_alive()


def test_without_encryption_none_is_needed(launcher: Launcher) -> None:
    result = launcher.run("-np", "2", *launcher.python(SUM), inside=without_openssl())
    assert result.returncode == 0, result.stderr


def test_a_rendezvous_without_openssl_refuses(launcher: Launcher) -> None:
    """The ranks, in this process's namespace, have OpenSSL: they get the cause, and don't retry."""
    back = ["nsenter", f"--mount=/proc/{os.getpid()}/ns/mnt", "env", "-C", str(launcher.folder)]
    words = ["--encryption", "-np", "2", *back, *launcher.python(SUM)]
    result = launcher.run(*words, inside=without_openssl())
    assert result.returncode == 1
    assert (
        f"refused this connection: it can't encrypt, since {MISSING} is not installed there" in result.stderr
    )
    assert launcher.none_alive()
