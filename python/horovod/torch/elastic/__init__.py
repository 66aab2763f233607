"""Elastic training with PyTorch: ``horovod.torch.elastic``, see docs/elastic.md."""

from horovod.common.elastic import run as run
from horovod.torch.elastic.sampler import ElasticSampler as ElasticSampler
from horovod.torch.elastic.state import TorchState as TorchState
