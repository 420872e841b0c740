"""Stands for a language model: 50 ms for the prompt, then a token every 10 ms, each an answer of its own. Runs inside of Triton."""

import threading
import time

import numpy as np
import triton_python_backend_utils as backend

PROMPT_S, TOKEN_S = 0.050, 0.010


class TritonPythonModel:
    def execute(self, requests):
        for request in requests:
            tokens = int(backend.get_input_tensor_by_name(request, "tokens").as_numpy()[0])
            threading.Thread(target=self.stream, args=(request.get_response_sender(), tokens), daemon=True).start()

    def stream(self, sender, tokens):
        due_s = time.monotonic() + PROMPT_S
        for n in range(tokens):
            time.sleep(max(0.0, due_s - time.monotonic()))
            due_s += TOKEN_S
            sender.send(backend.InferenceResponse([backend.Tensor("text_output", np.array([f"tok{n} ".encode()], object))]))
        sender.send(flags=backend.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
