"""The sidecar: logs what GPUs, servers and the host did, on the latency's clock. Started as ``python -m collector``."""
