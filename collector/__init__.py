"""The sidecar: logs what GPUs, servers and the host did, on the same clock as the latency. Start it with ``python -m collector``."""
