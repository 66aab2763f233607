"""Where the processes of a data service register, and wait for one another.

One process serves it. Every message is a line of JSON, signed with the key of the service and with what the
server has drawn for the connection; without the key a message is dropped, and nothing is unpickled.
"""

from __future__ import annotations

import json
import secrets
import socket
import socketserver
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any

from horovod.common import addresses
from horovod.common.addresses import of_this_host
from horovod.runner.common.util.secret import check_digest, compute_digest
from horovod.runner.common.util.timeout import Timeout

POLL_SECONDS = 0.2  # between two requests for the state of the registry
ANSWER_SECONDS = 10.0  # for which a connection may be silent
LINE_LIMIT = 4096  # bytes
Addresses = Mapping[str, Sequence[tuple[str, int]]]


def _sign(key: bytes, drawn: bytes, text: bytes) -> bytes:
    return compute_digest(key, drawn + text).hex().encode() + b" " + text + b"\n"


def _checked(key: bytes, drawn: bytes, line: bytes) -> dict[str, Any]:
    """Returns the message of a line; ValueError if it is not signed with the key, or incomplete."""
    signature, _, text = line.removesuffix(b"\n").partition(b" ")
    if not line.endswith(b"\n") or not check_digest(key, drawn + text, _unhex(signature)):
        raise ValueError("the message is not signed with the key of the service")
    found = json.loads(text)
    if not isinstance(found, dict):
        raise ValueError("the message is no object")
    return found


def _unhex(text: bytes) -> bytes:
    return bytes.fromhex(text.decode("ascii"))


class _Handler(socketserver.StreamRequestHandler):
    """Answers one request of a connection."""

    server: _Server
    timeout = ANSWER_SECONDS

    def handle(self) -> None:
        drawn = secrets.token_hex(16).encode()
        self.wfile.write(drawn + b"\n")
        try:
            request = _checked(self.server.key, drawn, self.rfile.readline(LINE_LIMIT))
            answer = self.server.service._answer(request)
        except (ValueError, KeyError, TypeError, OSError):
            return  # from somebody else, or damaged: no answer
        self.wfile.write(_sign(self.server.key, drawn + b"answer", json.dumps(answer).encode()))


class _Server(socketserver.ThreadingTCPServer):
    daemon_threads = True
    allow_reuse_address = True

    def __init__(self, key: bytes, service: ComputeService) -> None:
        self.key, self.service = key, service
        super().__init__(("", 0), _Handler)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Says nothing: a connection that breaks is the concern of its client."""


class ComputeService:
    """Knows the dispatchers and workers of a data service.

    Args:
        dispatchers: their number.
        workers_per_dispatcher: how many workers each of them has.
        key: what proves that a process belongs to the service.

    Raises:
        ValueError: a number is not positive.
    """

    def __init__(self, dispatchers: int, workers_per_dispatcher: int, key: bytes) -> None:
        if dispatchers < 1 or workers_per_dispatcher < 1:
            raise ValueError(
                f"dispatchers={dispatchers}, workers_per_dispatcher={workers_per_dispatcher}: they must be "
                "positive"
            )
        self._workers = workers_per_dispatcher
        self._dispatchers: list[str | None] = [None] * dispatchers
        self._registered: list[set[int]] = [set() for _ in range(dispatchers)]
        self._over = False
        self._lock = threading.Lock()
        self._server = _Server(key, self)
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def addresses(self) -> Addresses:
        """Returns where clients reach it, best first."""
        return {"any": [(address, self._server.server_address[1]) for address in of_this_host()]}

    def _answer(self, request: Mapping[str, Any]) -> dict[str, Any]:
        with self._lock:
            dispatcher = int(request["dispatcher"])
            if not 0 <= dispatcher < len(self._dispatchers):
                return {"error": f"there is no dispatcher {dispatcher} among {len(self._dispatchers)}"}
            if error := self._note(dispatcher, request):
                return {"error": error}
            return {
                "address": self._dispatchers[dispatcher],
                "workers": len(self._registered[dispatcher]),
                "all": self._workers,
                "over": self._over,
            }

    def _note(self, dispatcher: int, request: Mapping[str, Any]) -> str:
        """Takes over what a request says; returns what is wrong with it."""
        known, address = self._dispatchers[dispatcher], request.get("address")
        if address is not None:
            if known not in (None, address):
                return f"dispatcher {dispatcher} is registered at {known} already, not at {address}"
            self._dispatchers[dispatcher] = str(address)
        if "worker" in request:
            self._registered[dispatcher].add(int(request["worker"]))
        self._over |= bool(request.get("over"))
        return ""

    def shutdown(self) -> None:
        """Ends the service."""
        self._server.shutdown()
        self._server.server_close()


class ComputeClient:
    """What the processes of a data service ask its ``ComputeService``.

    Args:
        compute_addresses: what ``ComputeService.addresses`` has returned.
        key: the key of the service.
        verbose: has no meaning.

    Each method raises a ConnectionError if the service can't be reached, a ValueError for a dispatcher that
    there is not, and a TimeoutException if what it waits for does not come.
    """

    def __init__(self, compute_addresses: Addresses, key: bytes, verbose: int = 1) -> None:
        self._addresses = [(host, port) for each in compute_addresses.values() for host, port in each]
        self._key = key

    def register_dispatcher(self, dispatcher_id: int, dispatcher_address: str) -> None:
        """Registers the address of a dispatcher."""
        self._ask(dispatcher_id, address=dispatcher_address)

    def wait_for_dispatcher_registration(self, dispatcher_id: int, timeout: float) -> str:
        """Waits for a dispatcher and returns its address."""
        end = Timeout(timeout, "Timed out waiting for {activity}. Try to find out what takes it so long.")
        while not (address := self._ask(dispatcher_id)["address"]):
            end.check_time_out_for(f"dispatcher {dispatcher_id} to register")
            time.sleep(POLL_SECONDS)
        return str(address)

    def register_worker_for_dispatcher(self, dispatcher_id: int, worker_id: int) -> None:
        """Registers a worker."""
        self._ask(dispatcher_id, worker=worker_id)

    def wait_for_dispatcher_worker_registration(self, dispatcher_id: int, timeout: float) -> None:
        """Waits for all workers of a dispatcher."""
        end = Timeout(timeout, "Timed out waiting for {activity}. Try to find out what takes them so long.")
        while (found := self._ask(dispatcher_id))["workers"] < found["all"]:
            end.check_time_out_for(
                f"workers of dispatcher {dispatcher_id}: {found['workers']} of {found['all']} have come"
            )
            time.sleep(POLL_SECONDS)

    def shutdown(self) -> None:
        """Notifies all workers that they are no longer needed."""
        self._ask(0, over=True)

    def wait_for_shutdown(self) -> None:
        """Waits until that is so."""
        while not self._ask(0)["over"]:
            time.sleep(POLL_SECONDS)

    def _ask(self, dispatcher: int, **values: Any) -> dict[str, Any]:
        text = json.dumps({"dispatcher": dispatcher, **values}).encode()
        failures = []
        for host, port in self._addresses:
            try:
                with socket.create_connection((host, port), ANSWER_SECONDS) as connection:
                    answer = self._exchange(connection, text)
            except OSError as error:
                failures.append(f"{addresses.join(host, port)}: {error}")
                continue
            if "error" in answer:
                raise ValueError(answer["error"])
            return answer
        raise ConnectionError(f"the data service can't be reached: {'; '.join(failures)}")

    def _exchange(self, connection: socket.socket, text: bytes) -> dict[str, Any]:
        with connection.makefile("rwb") as file:
            drawn = file.readline(LINE_LIMIT).removesuffix(b"\n")
            file.write(_sign(self._key, drawn, text))
            file.flush()
            try:
                return _checked(self._key, drawn + b"answer", file.readline(LINE_LIMIT))
            except ValueError as error:
                raise OSError(f"it does not answer, so the key may be wrong ({error})") from error
