"""Ten tokens, 20 ms apart, after 50 ms, through LitServe's OpenAI endpoint. Runs in LitServe's own environment: ``litserve_app.py PORT``."""

import sys
import time

import litserve

TOKENS = 10


class Slow(litserve.LitAPI):
    def setup(self, device):
        pass

    def predict(self, prompt):
        time.sleep(0.05)
        for n in range(TOKENS):
            if n:
                time.sleep(0.02)
            yield f"tok{n} "


if __name__ == "__main__":
    api = Slow(spec=litserve.OpenAISpec())
    litserve.LitServer(api, accelerator="cpu", workers_per_device=2).run(
        host="127.0.0.1", port=int(sys.argv[1]), generate_client_file=False
    )
