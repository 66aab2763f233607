"""The code that all frameworks share. A new framework is a folder that defines how its arrays differ.

======================================  ==================================================================
The framework implements                and gets
======================================  ==================================================================
``arrays.MemoryArrays``, if the engine  from ``collectives.Collectives``: allreduce, allgather, broadcast,
can reach the memory of its arrays,     reducescatter and alltoall, each blocking and asynchronous, also of
else ``arrays.CopiedArrays``            groups, and in place in memory
``derivatives.Differentiable``: how to  from ``derivatives.DifferentiableCollectives``: the same, with
record an operation for its gradient    gradients of any order
``reducer.Gradients``: where a          from ``reducer.Reducer``: reduction during the backward pass, groups,
parameter keeps its gradient            passes per step, sparse gradients, compression, Adasum
``gradient_list.Tensors``, or no more   from ``gradient_list``: ``GradientOptions`` and ``GradientList``, for
than ``EagerTensors(collectives)``      optimizers without hooks: lists of gradients in, reduced ones out
nothing                                 ``barrier``, ``join``, ``poll``, ``synchronize``, process sets,
                                        ``broadcast_object``, ``allgather_object``, ``Compression``, metrics
======================================  ==================================================================

If a framework's programs are graphs, as in JAX, it describes a call in its own way and passes it to the
engine when the graph runs. ``CONTRIBUTING.md`` shows the shortest framework.
"""
