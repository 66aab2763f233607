"""What every framework shares. A new framework is a folder beside this one that says how its arrays differ.

======================================  ==================================================================
The framework implements                and gets
======================================  ==================================================================
``arrays.Arrays``: dense memory of an   from ``collectives.Collectives``: allreduce, allgather, broadcast,
array, room for a result, an array      reducescatter and alltoall, each blocking and asynchronous, in place
over memory of the engine               and for groups
``derivatives.Differentiable``: the     from ``derivatives.DifferentiableCollectives``: the same, with
same, and how to record an operation    gradients of any order
``reducer.Gradients``: where a          from ``reducer.Reducer``: reduction during the backward pass, groups,
parameter keeps its gradient            passes per step, sparse gradients, compression, Adasum
``gradient_list.Tensors``, or no more   from ``gradient_list``: ``GradientOptions`` and ``GradientList``, for
than ``MemoryArrays(collectives)``      optimizers without hooks: lists of gradients in, reduced ones out
nothing                                 ``barrier``, ``join``, ``poll``, ``synchronize``, process sets,
                                        ``broadcast_object``, ``allgather_object``, ``Compression``, metrics
======================================  ==================================================================

A framework that traces its programs makes a ``requests.Call`` and runs it in its own way, as JAX's does.
"""
