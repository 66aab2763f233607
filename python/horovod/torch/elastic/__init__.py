"""Elastic training with PyTorch: ``horovod.torch.elastic``, see docs/elastic.md."""

from horovod.common.elastic import run as run
from horovod.common.leaving import leave as leave
from horovod.torch.elastic.sampler import ElasticSampler as ElasticSampler
from horovod.torch.elastic.state import TorchState as TorchState
