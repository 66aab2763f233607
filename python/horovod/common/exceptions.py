"""Exceptions that user code catches."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from horovod.common.faults import Fault


class HorovodInternalError(RuntimeError):
    """A collective operation failed between the ranks: a mismatch, a lost rank, a rank that left.

    Attributes:
        code: the code of the engine: ``"MISMATCH"`` (the job continues), ``"PEER_LOST"``, ``"TIMED_OUT"`` or
            ``"SHUT_DOWN"`` (it has failed), …; "": the program raised it.
        lost_rank: the first rank that is lost, silent, late or gone; None: there is none.
        host: its host, or the host that is cut off from all others; "": unknown.
        cause: ``"connection"``, ``"silence"``, ``"host"``, ``"network"``, ``"stall"``, ``"left"`` or
            ``"none"``, see ``hvd_cause`` in horovod.h.
    """

    lost_rank: int | None = None
    host: str = ""
    cause: str = "none"

    def __init__(self, *args: object, code: str = "") -> None:
        super().__init__(*args)
        self.code = code


_ENDS_EPOCH = ("PEER_LOST", "SHUT_DOWN", "TIMED_OUT", "REFUSED", "")


def ends_epoch(error: HorovodInternalError) -> bool:
    """Returns true if the ranks of an elastic job recover from this error in a new epoch.

    After others, such as a mismatch, the job continues, and the next attempt would fail in the same way.
    """
    return error.code in _ENDS_EPOCH


class JobFailedError(RuntimeError):
    """Ranks that ``horovod.run`` has started failed.

    Attributes:
        fault: the first cause; None: unknown, as when horovodrun itself was killed.
        faults: the record of each rank that failed, by rank.
        exit_code: of horovodrun.
    """

    def __init__(
        self,
        text: str,
        fault: Fault | None = None,
        faults: dict[int, Fault] | None = None,
        exit_code: int = 0,
    ) -> None:
        super().__init__(text)
        self.fault = fault
        self.faults = faults or {}
        self.exit_code = exit_code


class HostsUpdatedInterrupt(RuntimeError):  # noqa: N818
    """Hosts joined an elastic job or left it.

    Attributes:
        skip_sync: the state is the same on all that stay.
        saved: the state whose ``commit`` has raised this, so its values have been kept; None: another call.
        kind: ``"added"``, ``"removed"``, or ``"mixed"``: both.
    """

    saved: object = None

    def __init__(self, skip_sync: bool = False) -> None:
        super().__init__(skip_sync)
        self.skip_sync = skip_sync
        self.kind = "removed" if skip_sync else "added"


class HorovodVersionMismatchError(ImportError):
    """The library was built for another version of the framework ``name`` than the one that is installed."""

    def __init__(self, name: str, version: str, installed_version: str) -> None:
        super().__init__(
            f"horovod was built for {name} {version}, but {installed_version} is installed; reinstall horovod"
        )
        self.name = name
        self.version = version
        self.installed_version = installed_version
