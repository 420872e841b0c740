"""llama.cpp's server with four slots on one thread: ``llama_app.py MODEL.gguf PORT``. Runs in llama's own environment.

HTTP, batching and counters are llama.cpp's C++ (tools/server); Python only starts them, where a ``llama-server`` would take options.
"""

import signal
import sys

import xllamacpp

settings = xllamacpp.CommonParams()
settings.model.path = sys.argv[1]
settings.model_alias = {"tiny"}
settings.hostnames = ["127.0.0.1"]
settings.port = int(sys.argv[2])
settings.n_parallel = 4
settings.n_ctx = 4096
settings.cpuparams.n_threads = settings.cpuparams_batch.n_threads = 1
settings.endpoint_metrics = True
settings.warmup = settings.ui = False
server = xllamacpp.Server(settings)
signal.pause()
