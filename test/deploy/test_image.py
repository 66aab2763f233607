"""The image of deploy/docker: any user id, small or read-only folders, limits, ssh between containers."""

from __future__ import annotations

import pytest
from conftest import Shell, blocks

TRAIN = """
import sys
import numpy
import horovod as hvd

hvd.init()
count = int(float(sys.argv[1]) * 2**18) if len(sys.argv) > 1 else 2**18
total = hvd.allreduce(numpy.full(count, hvd.rank() + 1, numpy.float32), op=hvd.Sum)
assert (total == hvd.size() * (hvd.size() + 1) / 2).all()
places = hvd.allgather(numpy.array([[hvd.local_rank(), hvd.local_size()]]))
print("trained", hvd.size(), places.tolist(), flush=True)
"""
HARDENED = "--read-only --tmpfs /tmp --cap-drop all --security-opt no-new-privileges"


@pytest.fixture(autouse=True)
def program(shell: Shell) -> None:
    (shell.folder / "train.py").write_text(TRAIN)


def test_it_holds_no_compiler_and_no_key(shell: Shell) -> None:
    out = shell.out(
        "docker run --rm horovod sh -c 'for each in cc gcc g++ clang make; do command -v $each; done; "
        "ls /etc/ssh; id; horovodrun --version'"
    )
    assert "bin/" not in out and "ssh_host" not in out
    assert "uid=1000 gid=0(root)" in out or "uid=1000(1000) gid=0(root)" in out


@pytest.mark.parametrize(
    ("options", "ranks", "mib"),
    [
        ("", 2, 16),
        ("--shm-size 1m", 2, 16),
        ("--tmpfs /dev/shm:size=4k", 2, 16),
        ("", 4, 64),
        (f"{HARDENED} --user 54321:54321 --passwd=false", 2, 16),
        ("--cpus 0.5", 2, 1),
    ],
    ids=["default", "shm-1m", "shm-4k", "4x64MiB", "hardened", "half-a-core"],
)
def test_ranks_in_one_container(shell: Shell, options: str, ranks: int, mib: int) -> None:
    command = f"horovodrun -np {ranks} python train.py {mib}"
    out = shell.out(f'docker run --rm {options} -v "$PWD:/shared" horovod {command}')
    places = [[each, ranks] for each in range(ranks)]
    assert out.count(f"trained {ranks} {places}") == ranks


def test_too_little_memory_ends_the_job_with_a_cause(shell: Shell) -> None:
    run = 'docker run --rm --memory 96m --memory-swap 96m -v "$PWD:/shared" horovod'
    result = shell.run(f"{run} horovodrun -np 2 python train.py 64")
    assert result.returncode == 137, result.stdout + result.stderr
    assert "killed" in result.stderr and "memory" in result.stderr


@pytest.mark.parametrize("user", ["1000:0", "54321:54321", "0:0"])
def test_two_containers_by_ssh(shell: Shell, user: str) -> None:
    """As users that have no name in the image, with a read-only system."""
    options = f"{HARDENED} --user {user} --passwd=false --network train -v keys:/keys"
    if user == "0:0":  # sshd of root changes users and their files
        options = f"--user {user} --network train -v keys:/keys"
    out = shell.out(
        "docker network create train >/dev/null\n"
        f'docker run -d --name worker {options} -v "$PWD:/shared" horovod >/dev/null\n'
        f'docker run --rm {options} -v "$PWD:/shared" horovod sh -c "'
        "until ssh worker true 2>/dev/null; do sleep 0.1; done\n"
        'horovodrun -H localhost:2,worker:2 python train.py"'
    )
    assert out.count("trained 4 [[0, 2], [1, 2], [0, 2], [1, 2]]") == 4


def test_a_container_with_another_key_is_refused(shell: Shell) -> None:
    """In both directions: it does not get in, and nobody takes it for a worker."""
    shell.out("docker network create train")
    for name, keys in (("worker", "keys"), ("foreign", "others")):
        shell.out(f"docker run -d --name {name} --network train -v {keys}:/keys horovod")
    ready = "until ssh worker true 2>/dev/null; do sleep 0.1; done"
    run = "docker run --rm --network train -v {}:/keys horovod sh -c '{}'"
    shell.out(run.format("keys", ready))
    result = shell.run(
        run.format(
            "keys",
            "until ssh-keyscan -p 2222 foreign 2>/dev/null | grep -q ssh; do sleep 0.1; done\n"
            "ssh foreign true",
        )
    )
    assert result.returncode == 255 and "Host key verification failed" in result.stderr
    result = shell.run(run.format("others", "ssh -o StrictHostKeyChecking=no worker true"))
    assert result.returncode == 255 and "Permission denied" in result.stderr


def test_sshd_needs_a_key(shell: Shell) -> None:
    result = shell.run("docker run --rm horovod")
    assert result.returncode == 1
    assert "horovod-entry: sshd needs a key: mount a volume at /keys" in result.stderr


def test_variables_of_a_container_reach_its_ranks(shell: Shell) -> None:
    """Of ssh's sessions, too: they belong to the host, so horovodrun does not pass its own on."""
    shell.out("docker network create train")
    shell.out("docker run -d --name worker -e HIP_VISIBLE_DEVICES=3,5 --network train -v keys:/keys horovod")
    out = shell.out(
        "docker run --rm --network train -v keys:/keys horovod sh -c '"
        "until ssh worker true 2>/dev/null; do sleep 0.1; done; horovodrun -H worker:1 env'"
    )
    assert "HIP_VISIBLE_DEVICES=3,5" in out


def test_the_commands_of_the_page(shell: Shell) -> None:
    found = blocks("containers.md")
    assert len(found) == 3
    text = "make() { :; }\n" + "".join(found)  # the image is there
    out = shell.out(text, 250)
    assert out.count("trained 2 ") >= 2 and out.count("trained 4 ") == 4
