"""Commits in files: two generations, damaged ones, and jobs that start from them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import horovod as hvd
from horovod.common import elastic
from horovod.common.commit_files import CommitFiles


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The same folder on all ranks, which does not exist yet."""
    return Path(hvd.broadcast_object(str(tmp_path / "commits")))


def make_state(value: int, folder: Path) -> Any:
    state = elastic.ObjectState(hvd.broadcast_object, hvd.rank, value=value)
    state.save_every(folder, 0)
    return state


def join(state: Any) -> None:
    state._joins = True
    state.sync()
    state._joins = False


def finish(state: Any) -> None:
    """Waits until the commit is in its file, on all ranks."""
    writer = state._commit.files._writer
    if writer:
        writer.join(60)
        assert not writer.is_alive()
    hvd.barrier()


def commit(state: Any, value: int) -> None:
    state.value = value
    state.commit()
    finish(state)


def test_a_later_job_takes_the_newest(folder: Path, rank: int) -> None:
    state = make_state(0, folder)
    join(state)
    for value in (1, 2, 3):
        commit(state, value)
    assert len([*folder.iterdir()]) == 2  # and nothing unfinished
    hvd.barrier()
    later = make_state(10 + rank, folder)
    join(later)
    assert later.value == 3
    commit(later, 4)
    last = make_state(0, folder)
    join(last)
    assert last.value == 4 and last._commit.version == later._commit.version
    hvd.barrier()


@pytest.mark.parametrize("harm", ["cut", "bit", "foreign", "empty", "unreadable"])
def test_a_damaged_file_is_passed_over(harm: str, folder: Path, rank: int) -> None:
    state = make_state(0, folder)
    join(state)
    for value in (1, 2):
        commit(state, value)
    if rank == 0:
        newest = max(folder.iterdir())
        content = newest.read_bytes()
        half = len(content) // 2
        newest.unlink()
        if harm == "unreadable":
            newest.mkdir()
        else:
            newest.write_bytes(
                {
                    "cut": content[:-1],
                    "bit": content[:half] + bytes([content[half] ^ 1]) + content[half + 1 :],
                    "foreign": b"something else " * 9,
                    "empty": b"",
                }[harm]
            )
        (folder / "commit-notes").write_text("a file of the user")
    hvd.barrier()
    later = make_state(9, folder)
    if rank == 0:
        with pytest.warns(UserWarning, match="is not used"):
            join(later)
    else:
        join(later)
    assert later.value == 1
    hvd.barrier()


def test_a_running_job_does_not_go_back(folder: Path, rank: int, size: int) -> None:
    """A process that joins takes what the others have, not what is in files."""
    state = make_state(0, folder)
    join(state)
    commit(state, 1)
    state._commit.files._seconds = state._commit.files._next = float("inf")
    commit(state, 2)
    if rank == size - 1 and size > 1:
        state = make_state(0, folder)
    join(state)
    assert state.value == 2
    hvd.barrier()


def test_a_sync_by_the_program_does_not_go_back(folder: Path, rank: int) -> None:
    """Only ranks that have just come together look for files."""
    state = make_state(0, folder)
    join(state)
    commit(state, 1)
    state.value = 30 + rank
    state.sync()
    assert state.value == 30
    hvd.barrier()


def test_memory_may_change_once_it_is_copied(tmp_path: Path) -> None:
    files = CommitFiles(tmp_path, 0)
    memory = np.arange(3_000_000).astype(np.uint8)
    files.write_if_due(7, lambda: ({"step": 7}, [memory, memory[:5]]))
    files.wait()
    memory.fill(0)
    assert files._writer
    files._writer.join(60)
    room = [np.zeros(3_000_000, np.uint8), np.zeros(5, np.uint8)]
    seen: list[Any] = []

    def make_room(description: Any) -> list[Any]:
        seen.append(description)
        return room

    assert files.numbers() == [7] and files.read(7, make_room)
    assert seen == [{"step": 7}]
    assert np.array_equal(room[0], np.arange(3_000_000).astype(np.uint8))
    assert room[1].tolist() == [0, 1, 2, 3, 4]
    with pytest.raises(ValueError, match="another state"):
        files.read(7, lambda _: room[:1])


def test_a_folder_that_cannot_be_written(tmp_path: Path, recwarn: pytest.WarningsRecorder) -> None:
    (tmp_path / "file").write_text("")
    files = CommitFiles(tmp_path / "file" / "folder", 0)
    files.write_if_due(1, lambda: (None, []))
    assert files._writer
    files._writer.join(60)
    assert any("can't write a commit" in str(each.message) for each in recwarn.list)
    assert files.numbers() == []


def test_refuses_negative_seconds(tmp_path: Path) -> None:
    state = elastic.ObjectState(hvd.broadcast_object, hvd.rank)
    with pytest.raises(ValueError, match="negative"):
        state.save_every(tmp_path, -1)
