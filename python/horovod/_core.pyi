from collections.abc import Sequence
from typing import Any

class Operation:
    def wait(self, seconds: float = -1) -> bool: ...
    def done(self) -> bool: ...
    def results(self) -> list[Result]: ...

class Result:
    def __buffer__(self, flags: int, /) -> memoryview: ...
    def __dlpack__(self, **keywords: Any) -> Any: ...
    def __dlpack_device__(self) -> tuple[int, int]: ...

def init(settings: dict[str, str], /) -> None: ...
def shutdown() -> None: ...
def is_initialized() -> bool: ...
def placement() -> tuple[int, int, int, int, int, int]: ...
def health() -> None: ...
def submit(
    operation: int,
    name: str | None,
    inputs: Sequence[Any],
    outputs: Sequence[Any] | None,
    reduction: int,
    prescale: float,
    postscale: float,
    root: int,
    process_set: int,
    priority: int,
    grouped: bool,
    splits: Sequence[int] | None = None,
    /,
) -> Operation: ...
def run(
    operation: int,
    name: str | None,
    inputs: Sequence[Any],
    outputs: Sequence[Any] | None,
    reduction: int,
    prescale: float,
    postscale: float,
    root: int,
    process_set: int,
    priority: int,
    grouped: bool,
    splits: Sequence[int] | None = None,
    /,
) -> list[Result] | None: ...
def version() -> str: ...
