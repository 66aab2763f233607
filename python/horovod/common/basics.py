"""Joining and leaving a job, and this process's place in it. All frameworks export these functions."""

from __future__ import annotations

import atexit
import functools
import os
from collections.abc import Callable, Sequence
from typing import Any, Literal, overload

from horovod import _core
from horovod.common import carried_sets, epochs, resets, totals
from horovod.common import process_sets as _sets
from horovod.common.exceptions import HorovodInternalError, ends_epoch
from horovod.common.faults import publish_exceptions
from horovod.common.figures import figures
from horovod.common.members import address_of, settings_of
from horovod.common.process_sets import ProcessSet, add_process_set, global_process_set, remove_process_set
from horovod.common.starter import adopt_variables

__all__ = [
    "Adasum",
    "Average",
    "Max",
    "Min",
    "ProcessSet",
    "Product",
    "Sum",
    "add_process_set",
    "ccl_built",
    "cross_rank",
    "cross_size",
    "cuda_built",
    "ddl_built",
    "failure",
    "global_process_set",
    "gloo_built",
    "gloo_enabled",
    "init",
    "is_homogeneous",
    "is_initialized",
    "local_rank",
    "local_size",
    "metrics",
    "mpi_built",
    "mpi_enabled",
    "mpi_threads_supported",
    "nccl_built",
    "rank",
    "remove_process_set",
    "rocm_built",
    "shutdown",
    "size",
    "start_timeline",
    "step",
    "stop_timeline",
]

# The reductions, which collectives take as `op`. Average is the sum divided by the number of ranks; Adasum
# adds what is orthogonal in the ranks' tensors and averages what is parallel.
Average = _core.reductions["average"]
Sum = _core.reductions["sum"]
Adasum = _core.reductions["adasum"]
Min = _core.reductions["min"]
Max = _core.reductions["max"]
Product = _core.reductions["product"]

atexit.register(_core.shutdown)


def init(
    comm: Sequence[int] | Any | None = None,
    process_sets: Sequence[ProcessSet | Sequence[int]] | str | None = None,
) -> None:
    """Joins the job that the launcher has started; without a launcher the job has one rank.

    Blocks until all ranks have called it. A second call without ``shutdown`` in between does nothing.

    Args:
        comm: the ranks of the launcher's world that form this job, including the caller, in the order of
            their new numbers; the same list on each of them. Or a communicator of mpi4py, whose processes
            form the job and all call ``init``; it may be freed afterwards. None: all ranks.
        process_sets: the sets to register, the same list on all ranks; or ``"dynamic"``, which allows
            ``add_process_set`` and ``remove_process_set`` later on.

    Raises:
        ValueError: an environment variable has an invalid value, a process set is given twice, or a parameter
            asks for a feature that this version does not have.
        HorovodInternalError: other ranks did not connect in time, or refused this one.
    """
    sets = _sets.check_sets(process_sets)
    settings = settings_of(comm)
    if is_initialized():
        return
    adopt_variables()
    if epochs.is_elastic():
        if comm is not None:
            raise ValueError("init(comm=…) can't be used in an elastic job, whose ranks come and go")
        planned = epochs.plan()
        _sets.request(sets)
        if not planned:
            join_epoch()
        return
    _join(settings, address_of(comm), functools.partial(_sets.begin, sets))


def _join(settings: dict[str, str], comm: int, begin_sets: Callable[[], None]) -> None:
    _core.init(settings, comm)
    publish_exceptions()
    try:
        begin_sets()
    except BaseException:  # also Ctrl-C, and the end of the process in a signal's handler
        shutdown()
        raise


def join_epoch() -> None:
    """Joins the next epoch of an elastic job, and the one after it if that fails because of other ranks.

    Raises:
        SystemExit: this process is not in it, or the job has ended.
    """
    while not _core.is_initialized():
        settings = epochs.settings()
        try:
            _join(settings, 0, lambda: carried_sets.begin(epochs.number()))
        except HorovodInternalError as error:
            if not ends_epoch(error):
                raise
            epochs.has_lost(error.lost_rank)
    _core.timeline_mark(resets.describe(epochs.number(), size()))
    for each in epochs.resettable:
        each.begin_epoch()


def shutdown() -> None:
    """Leaves the job. Operations that other ranks submit from now on fail. ``init`` may be called again.

    Calls in other threads that wait for other ranks end with an error. In the handler of a signal that has
    interrupted ``init``, ``add_process_set`` or ``remove_process_set``, this function returns at once; the
    interrupted call then ends with an error, unless the handler raises, and with it the rank leaves.
    """
    totals.keep()
    carried_sets.keep()
    _core.shutdown()
    _sets.end()


def start_timeline(file_path: str | os.PathLike[str], mark_cycles: bool = False) -> None:
    """Records from now on when each tensor is negotiated and moved (docs/timeline.md).

    Rank 0 writes the file. It ends a recording that is in progress. ``mark_cycles`` also marks when batches
    are composed.

    Raises:
        ValueError: ``init`` was not called, or the timeline was not enabled before it, by
            ``HOROVOD_TIMELINE=DYNAMIC`` or a file.
        HorovodInternalError: the file can't be written.
    """
    _core.timeline_start(os.fspath(file_path), mark_cycles)


def stop_timeline() -> None:
    """Ends the recording and completes the file; ``shutdown`` also does this.

    Raises:
        ValueError: as for ``start_timeline``.
    """
    _core.timeline_stop()


def step(samples: int | None = None, step: int | None = None) -> None:
    """Reports that a step of training has ended, for ``horovodrun --status`` and other views of the job.

    Optimizers and tapes of Horovod report their updates by themselves. A program that uses one may also call
    this function, before or after the update, to add samples or a number: no step is counted twice. Call it
    outside functions that are compiled (``jax.jit``, ``tf.function``), where it would run only once.

    Args:
        samples: how many samples this rank has trained on in the step.
        step: its number by the program's own count, e.g. after a restart; None: the next one.

    Raises:
        ValueError: ``init`` was not called, or a number is negative.
    """
    _core.step(-1 if step is None else step, 0 if samples is None else samples)


@overload
def metrics(flat: Literal[False] = False) -> dict[Any, dict[str, Any]]: ...
@overload
def metrics(flat: Literal[True]) -> dict[str, float]: ...
def metrics(flat: bool = False) -> dict[Any, dict[str, Any]] | dict[str, float]:
    """Returns counters of this rank since ``init``, by process set id and operation; they are always on.

    ``metrics()[0]["allreduce"]`` has ``submitted``, ``succeeded`` and ``failed`` requests (the rest is in
    flight), the ``batches`` that were started for them, the ``bytes`` of this rank's inputs in these batches,
    the ``wait_seconds`` that callers spent in ``synchronize`` and blocking calls, and the ``nonfinite``
    tensors of this rank's inputs, which had a NaN or infinity (``HOROVOD_CHECK_NONFINITE``). An operation
    that was never used has no row. Counters only grow, and the rows of removed process sets remain.

    In an elastic job they go on from epoch to epoch, for each set that does. There ``metrics()["elastic"]``
    has what changes of the ranks have cost this process: ``resets`` by kind (``lost``: ranks were lost or an
    operation failed, ``added``, ``removed``, ``mixed``), ``seconds_lost`` from leaving an epoch to the next
    call of the function, ``bytes_sent`` and ``bytes_received`` of states, ``ranks_lost`` and ``ranks_added``,
    and ``sizes``: for the last 1,000 epochs their number, ``ranks``, ``time`` since 1970 and ``cause``.

    Args:
        flat: return one dict of floats for dashboards such as TensorBoard instead, by names that begin with
            ``"horovod/"``; docs/watching.md lists them. Rates and shares are those since the call before.
            Empty before ``init`` and after ``shutdown``; it never raises.

    Raises:
        ValueError: ``init`` was not called, and ``flat`` is false.
    """
    if flat:
        return figures()
    names = ("submitted", "succeeded", "failed", "batches", "bytes", "wait_seconds", "nonfinite")
    sets: dict[Any, dict[str, Any]] = {}
    for process_set, operation, values in totals.counters():
        sets.setdefault(process_set, {})[operation] = dict(zip(names, values, strict=True))
    if epochs.number() >= 0:
        sets["elastic"] = resets.metrics()
    return sets


def failure() -> HorovodInternalError | None:
    """Returns the first cause of the job's failure; None while operations can be submitted. Any thread.

    Its ``code``, ``lost_rank``, ``host`` and ``cause`` are equal on all ranks. The errors that TensorFlow,
    JAX, Keras and MXNet raise for a collective have only its text.

    Raises:
        ValueError: ``init`` was not called, or ``shutdown`` was.

    Example::

        try:
            train(model)
        except tf.errors.UnknownError:
            if failure := hvd.failure():
                print("lost", failure.lost_rank, "on", failure.host, "by", failure.cause)
    """
    try:
        _core.health()
    except HorovodInternalError as error:
        return error.with_traceback(None)
    return None


def is_initialized() -> bool:
    """Returns true after ``init`` and before ``shutdown``."""
    return _core.is_initialized() or epochs.is_planned()


def rank() -> int:
    """Returns this process's number in the job, 0 … size() - 1."""
    return _core.placement()[0]


def size() -> int:
    """Returns the number of processes in the job."""
    return _core.placement()[1]


def local_rank() -> int:
    """Returns this process's number among those of its host: the device to use, for instance."""
    return _core.placement()[2]


def local_size() -> int:
    """Returns the number of the job's processes on this host."""
    return _core.placement()[3]


def cross_rank() -> int:
    """Returns this host's number among the hosts that have this local rank."""
    return _core.placement()[4]


def cross_size() -> int:
    """Returns the number of hosts that have this local rank."""
    return _core.placement()[5]


def is_homogeneous() -> bool:
    """Returns true if every host has the same number of ranks."""
    return bool(_core.placement()[6])


def mpi_threads_supported() -> bool:
    """Returns true: the program may call MPI in any thread.

    Raises:
        ValueError: MPI is not enabled.
    """
    if not mpi_enabled():
        raise ValueError("MPI is not enabled: HOROVOD_CPU_OPERATIONS=mpi, or horovodrun --mpi, turns it on")
    return True


def mpi_enabled() -> bool:
    """Returns true after ``init`` if MPI runs the job's collectives (``HOROVOD_CPU_OPERATIONS=mpi``)."""
    return is_initialized() and os.environ.get("HOROVOD_CPU_OPERATIONS", "").lower() == "mpi"


def mpi_built() -> bool:
    """Returns true: an MPI that is installed can be used."""
    return True


def gloo_enabled() -> bool:
    """Returns true: like Gloo in Horovod, the engine needs no MPI."""
    return True


def gloo_built() -> bool:
    """Returns true, like ``gloo_enabled``."""
    return True


def nccl_built() -> int:
    """Returns the version of the NCCL that tensors on GPUs can use, 22707 for 2.27.7; 0 if there is none.

    It looks for NCCL as the engine does: what the process has loaded, then ``HOROVOD_NCCL_LIBRARY``, then the
    package ``nvidia.nccl``, then the system's.
    """
    return _core.find_nccl()[0]


def ddl_built() -> bool:
    """Returns false: IBM's DDL is not supported."""
    return False


def ccl_built() -> bool:
    """Returns false: oneCCL is not needed."""
    return False


def cuda_built() -> bool:
    """Returns true if this host has a driver for NVIDIA's GPUs, so that operations take tensors on them.

    Whether there is a GPU is another question: ``horovod.common.util.gpu_available``.
    """
    return _core.cuda_version() > 0


def rocm_built() -> bool:
    """Returns false: this version uses no GPUs of AMD."""
    return False


class HorovodBasics:
    """The functions above as methods, for programs that have operations of a framework of their own.

    Args:
        pkg_path: accepted for compatibility, like the other arguments; there is no library to load.
    """

    def __init__(self, pkg_path: str, *args: str) -> None: ...

    def __getattr__(self, name: str) -> Any:
        if name not in __all__:
            raise AttributeError(name)
        return globals()[name]

    def _get_process_set_ids_and_ranks(self) -> dict[int, list[int]]:
        """Returns the members of every process set by its id."""
        return {number: [*process_set.ranks] for number, process_set in _sets._registered.items()}
