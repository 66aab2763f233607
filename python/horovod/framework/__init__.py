"""The code that all frameworks share. A new framework is a folder that defines how its arrays differ.

=============================================  ===========================================================
To offer                                       a framework implements
=============================================  ===========================================================
allreduce and the other collectives, also      ``arrays.MemoryArrays`` (``dense``, ``empty_like``,
asynchronous, grouped and in place: methods    ``adopt``), if the engine can reach the memory of its
of ``collectives.Collectives(arrays)``         arrays by DLPack or the buffer protocol; otherwise
                                               ``arrays.CopiedArrays`` (``values``, ``array``)
the same with gradients of any order:          ``derivatives.Differentiable`` (``needs_gradient``,
``derivatives.DifferentiableCollectives``      ``record``, ``zeros_like``, ``extend``)
an optimizer that reduces a list of            nothing: ``gradient_list.EagerTensors(collectives)``; for
gradients: ``gradient_list.GradientOptions``   sparse gradients or graphs ``gradient_list.Tensors``
an optimizer that reduces during the           ``reducer.Gradients`` (where a parameter keeps its
backward pass: ``reducer.Reducer``             gradient), and hooks that call the reducer
``Compression``                                two methods (``compression.Compressor``), unless its arrays
                                               have ``astype`` as NumPy's have
``init``, process sets, ``barrier``, ``join``  nothing; its package exports them, as does
``synchronize``, ``broadcast_object``, …       ``horovod/__init__.py``
=============================================  ===========================================================

If a framework's programs are graphs, as in JAX, it describes a call in its own way and passes it to the
engine when the graph runs. ``CONTRIBUTING.md`` shows the shortest framework.
"""
