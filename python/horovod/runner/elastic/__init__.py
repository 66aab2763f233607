"""Elastic jobs whose processes a Python program starts, as Ray and Spark do, on hosts that it finds.

``horovodrun`` and ``horovod.run`` need none of this. Who is a rank is decided by the same state machine as
there, ``horovod._core.Membership``.
"""
