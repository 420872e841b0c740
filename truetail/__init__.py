"""The swarm: scenario, dispatcher, clients, recorder, fleet protocol, live view and command line.

Deliberately empty: importing a pure module such as ``truetail.records`` must not import locust or gevent.
"""
