"""Elastic training with NumPy, and the base of states of one's own, see docs/elastic.md."""

from __future__ import annotations

from typing import Any

from horovod.common.basics import rank
from horovod.common.elastic import ObjectState as _ObjectState
from horovod.common.elastic import State as State
from horovod.common.elastic import run as run
from horovod.common.leaving import leave as leave
from horovod.framework.objects import broadcast_object


class ObjectState(_ObjectState):
    """The state of training as attributes: arrays, numbers, and whatever else can be copied and pickled.

    Args:
        kwargs: names and first values of the attributes.

    Example::

        state = hvd.elastic.ObjectState(weights=np.zeros(10), epoch=0)
    """

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(broadcast_object, rank, **kwargs)
