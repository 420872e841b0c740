"""The reference inference service: dynamic batching, three device disciplines, replicas and faults, behind one address.

Started as ``python -m target``; imports no other room, so that the judged service and the judge share no logic.
Time inside is ``time.monotonic_ns()`` in integers, passed to everything that decides.
"""
