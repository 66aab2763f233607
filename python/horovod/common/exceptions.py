"""Exceptions that user code catches."""


class HorovodInternalError(RuntimeError):
    """A collective operation failed between the ranks: a mismatch, a lost rank, a rank that left."""


class HostsUpdatedInterrupt(RuntimeError):  # noqa: N818
    """Hosts joined an elastic job or left it. ``skip_sync``: the state is the same on all that stay."""

    def __init__(self, skip_sync: bool = False) -> None:
        super().__init__(skip_sync)
        self.skip_sync = skip_sync


class HorovodVersionMismatchError(ImportError):
    """The library was built for another version of the framework ``name`` than the one that is installed."""

    def __init__(self, name: str, version: str, installed_version: str) -> None:
        super().__init__(
            f"horovod was built for {name} {version}, but {installed_version} is installed; reinstall horovod"
        )
        self.name = name
        self.version = version
        self.installed_version = installed_version
