"""Starting jobs: ``horovod.run`` for functions, ``horovod.runner.launch`` for command lines."""

from horovod.runner import absent as _absent
from horovod.runner.arguments import _HorovodArgs as _HorovodArgs
from horovod.runner.functions import run

__all__ = ["run"]

_absent.install()
