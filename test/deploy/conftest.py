"""Containers of the image that deploy/docker makes, and the commands of pages."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from containers import Containers, UnavailableError

ROOT = Path(__file__).resolve().parents[2]

SECONDS = 120.0  # of one command in a container


def wait_until(condition: Callable[[], bool], seconds: float = 60.0) -> bool:
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.1)
    return True


@pytest.fixture(scope="session")
def engine() -> Iterator[Containers]:
    """Podman with a network of its own; `docker` is another name of it."""
    try:
        containers = Containers()
    except UnavailableError as error:
        pytest.skip(f"containers: {error}")
    try:
        containers.make_base()
        docker = containers.folder / "programs" / "docker"
        docker.unlink(missing_ok=True)
        docker.symlink_to("podman")
        yield containers
    finally:
        containers.close()


class Shell:
    """Runs commands of a page in one folder."""

    def __init__(self, engine: Containers, folder: Path) -> None:
        self.engine = engine
        self.folder = folder

    def run(self, text: str, seconds: float = SECONDS) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["bash", "-ec", text],
            cwd=self.folder,
            env=self.engine.environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=seconds,
        )

    def out(self, text: str, seconds: float = SECONDS) -> str:
        """Both streams of commands that must succeed."""
        result = self.run(text, seconds)
        assert result.returncode == 0, f"{text}\n{result.stdout}{result.stderr}"
        return result.stdout + result.stderr


@pytest.fixture(scope="session")
def image(engine: Containers) -> str:
    """`horovod`, of this tree's wheel, built as the pages say; prints how long it took, and its size."""
    start = time.monotonic()
    words = ["make", "--no-print-directory", "image", "ENGINE=podman"]
    result = subprocess.run(
        words, cwd=ROOT, env=engine.environment, capture_output=True, text=True, timeout=290, check=False
    )
    assert result.returncode == 0, result.stdout[-3000:] + result.stderr[-3000:]
    size = engine.call("image", "inspect", "--format", "{{.Size}}", "horovod")
    print(f"image: {time.monotonic() - start:.0f} s, {int(size) / 1e6:.0f} MB")
    return "horovod"


@pytest.fixture
def shell(engine: Containers, image: str, tmp_path: Path) -> Iterator[Shell]:
    """In a folder that a container's user may read and write; containers and volumes end with the test."""
    tmp_path.chmod(0o777)
    for parent in tmp_path.parents:
        if parent.stat().st_uid == os.getuid() and parent.name.startswith("pytest"):
            parent.chmod(0o755)
    yield Shell(engine, tmp_path)
    for words in (["rm", "-afv", "-t", "0"], ["volume", "prune", "-f"], ["network", "prune", "-f"]):
        engine.call(*words)


def blocks(page: str) -> list[str]:
    """The blocks of commands of a page, but those whose first line says `# not run`."""
    text = (ROOT / "docs" / page).read_text()
    found = re.findall(r"^```bash\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    return [block for block in found if not block.startswith("# not run")]


def needs(*programs: str) -> pytest.MarkDecorator:
    missing = [name for name in programs if not shutil.which(name)]
    return pytest.mark.skipif(bool(missing), reason=f"there is no {', no '.join(missing)}")
