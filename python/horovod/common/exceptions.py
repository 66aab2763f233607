"""Exceptions that user code catches."""


class HorovodInternalError(RuntimeError):
    """A collective operation failed between the ranks: a mismatch, a lost rank, a rank that left."""


class HostsUpdatedInterrupt(RuntimeError):  # noqa: N818
    """Hosts came or went. ``skip_sync``: they only went, so the state of those that stay is still equal."""

    def __init__(self, skip_sync: bool = False) -> None:
        super().__init__("the hosts of the job have changed")
        self.skip_sync = skip_sync


class HorovodVersionMismatchError(ImportError):
    """The library and the framework it was built for do not fit."""
