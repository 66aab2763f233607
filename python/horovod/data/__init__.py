"""Loaders that read batches ahead in a thread, for any framework."""

from horovod.data.data_loader_base import AsyncDataLoaderMixin as AsyncDataLoaderMixin
from horovod.data.data_loader_base import BaseDataLoader as BaseDataLoader
