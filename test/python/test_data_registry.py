"""Where the processes of a data service register."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("tensorflow")
from horovod.runner.common.util.timeout import TimeoutException
from horovod.tensorflow.data import registry
from horovod.tensorflow.data.compute_service import TfDataServiceConfig
from horovod.tensorflow.data.registry import ComputeClient, ComputeService

pytestmark = pytest.mark.own_process  # all in this process
KEY = b"k" * 32


@pytest.fixture
def service() -> Iterator[ComputeService]:
    own = ComputeService(2, 2, KEY)
    yield own
    own.shutdown()


@pytest.fixture
def client(service: ComputeService) -> ComputeClient:
    return ComputeClient(service.addresses(), KEY)


def test_all_find_one_another(client: ComputeClient) -> None:
    found: list[str] = []
    waiting = threading.Thread(target=lambda: found.append(client.wait_for_dispatcher_registration(1, 30)))
    waiting.start()
    client.register_dispatcher(1, "grpc://a:1")
    client.register_dispatcher(1, "grpc://a:1")
    waiting.join(30)
    assert found == ["grpc://a:1"]
    for worker in (0, 1):
        client.register_worker_for_dispatcher(1, worker)
    client.wait_for_dispatcher_worker_registration(1, 30)
    ended = threading.Thread(target=client.wait_for_shutdown)
    ended.start()
    client.shutdown()
    ended.join(30)
    assert not ended.is_alive()


def test_what_does_not_come(client: ComputeClient) -> None:
    with pytest.raises(TimeoutException, match="dispatcher 0 to register"):
        client.wait_for_dispatcher_registration(0, 0.1)
    client.register_worker_for_dispatcher(0, 7)
    client.register_worker_for_dispatcher(0, 7)
    with pytest.raises(TimeoutException, match="workers of dispatcher 0: 1 of 2 have come"):
        client.wait_for_dispatcher_worker_registration(0, 0.1)


def test_what_is_refused(client: ComputeClient) -> None:
    with pytest.raises(ValueError, match="there is no dispatcher 2 among 2"):
        client.register_dispatcher(2, "grpc://a:1")
    client.register_dispatcher(0, "grpc://a:1")
    with pytest.raises(
        ValueError, match="dispatcher 0 is registered at grpc://a:1 already, not at grpc://b:1"
    ):
        client.register_dispatcher(0, "grpc://b:1")
    with pytest.raises(ValueError, match="dispatchers=0"):
        ComputeService(0, 1, KEY)


def test_another_key(service: ComputeService) -> None:
    with pytest.raises(ConnectionError, match="the key may be wrong"):
        ComputeClient(service.addresses(), b"x" * 32).shutdown()
    ComputeClient(service.addresses(), KEY).register_dispatcher(0, "still there")


REQUEST = json.dumps({"dispatcher": 0, "over": True}).encode()


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"\n",
        b"GET / HTTP/1.0\r\n",
        b"00 " + REQUEST + b"\n",
        b"\xff\xfe \x00\n",
        b"a" * 10000,
        registry._sign(KEY, b"drawn for another connection", REQUEST),
    ],
)
def test_unsigned_lines_are_refused(service: ComputeService, line: bytes) -> None:
    (host, port), *_ = service.addresses()["any"]
    with socket.create_connection((host, port), 30) as connection, connection.makefile("rwb") as file:
        assert len(file.readline()) == 33
        with contextlib.suppress(OSError):  # the server closes before it has read all
            file.write(line)
            file.flush()
            connection.shutdown(socket.SHUT_WR)
            assert file.read() == b""
    assert not service._answer({"dispatcher": 0})["over"]


@pytest.mark.parametrize("request_", [[], {}, {"dispatcher": "x"}, {"dispatcher": None}, {"dispatcher": -1}])
def test_malformed_requests_with_the_key(client: ComputeClient, request_: Any) -> None:
    text = json.dumps(request_).encode()
    host, port = client._addresses[0]
    with socket.create_connection((host, port), 30) as connection:
        try:
            assert "error" in client._exchange(connection, text)
        except OSError as error:
            assert "does not answer" in str(error)
    client.register_dispatcher(0, "still there")


def test_configuration_files(tmp_path: Path) -> None:
    config = TfDataServiceConfig(1, 2, "compute", {"any": [("10.0.0.1", 7), ("fd00::7", 7)]}, KEY, 5)
    file = tmp_path / "service.json"
    config.write(file)
    assert TfDataServiceConfig.read(file, wait_for_file_creation=True) == config
    assert file.stat().st_mode & 0o77 == 0
    assert [*tmp_path.iterdir()] == [file]
    with pytest.raises(ValueError, match="'somewhere' is neither compute nor training"):
        TfDataServiceConfig(1, 2, "somewhere", {}, KEY)
