"""Exceptions that user code catches."""


class HorovodInternalError(RuntimeError):
    """A collective operation failed between the ranks: a mismatch, a lost rank, a rank that left."""


class HorovodVersionMismatchError(ImportError):
    """The library and the framework it was built for do not fit."""
