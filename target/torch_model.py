"""A real network behind the same door: a multilayer perceptron in PyTorch on CPU or GPU. The only module that imports torch."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

from target.model import Row

WIDTH, HIDDEN, LAYERS = 256, 4096, 8


class TorchModel:
    """An untrained network of about 119 million weights: enough for a GPU's utilisation, clock and power to follow the load."""

    name = "nowcast-mlp"
    version = "1"
    measured = True

    def __init__(self, torch: Any, device: str, seed: int) -> None:
        self._torch = torch
        self._device = torch.device(device)
        self._dtype = torch.float16 if device == "cuda" else torch.float32
        torch.manual_seed(seed)
        layers: list[Any] = [torch.nn.Linear(WIDTH, HIDDEN), torch.nn.GELU()]
        for _ in range(LAYERS - 1):
            layers += [torch.nn.Linear(HIDDEN, HIDDEN), torch.nn.GELU()]
        network = torch.nn.Sequential(*layers, torch.nn.Linear(HIDDEN, 1), torch.nn.Sigmoid())
        self._network = network.to(device=self._device, dtype=self._dtype).eval()
        self.digest = hashlib.sha256(f"{torch.__version__}/{WIDTH}/{HIDDEN}/{LAYERS}/{seed}".encode()).hexdigest()[:16]
        for rows in (1, 16, 64):  # the first calls pick kernels and fill caches: not the first user's time
            self.predict([(285.0, 70.0, 0.0)] * rows)

    def predict(self, rows: Sequence[Row]) -> list[float]:
        """One number in [0, 1] per row; returns when the device is done."""
        torch = self._torch
        with torch.inference_mode():
            inputs = torch.tensor(rows, dtype=torch.float32)
            inputs = (inputs - torch.tensor([285.0, 50.0, 0.0])) / torch.tensor([20.0, 30.0, 10.0])
            wide = inputs.repeat(1, WIDTH // inputs.shape[1] + 1)[:, :WIDTH].to(device=self._device, dtype=self._dtype)
            answers: list[float] = self._network(wide)[:, 0].float().cpu().tolist()
        return answers


def load(device: str, seed: int) -> TorchModel:
    """The network on "cpu" or "cuda". Raises RuntimeError with a remedy when torch or the GPU is missing."""
    try:
        import torch
    except ImportError:
        raise RuntimeError(
            f"--model torch-{device} needs PyTorch, which is not installed here: pip install torch, or use --model simulated"
        ) from None
    if device == "cuda" and not torch.cuda.is_available():
        raise RuntimeError("--model torch-cuda: PyTorch sees no CUDA device here; use --model torch-cpu or simulated")
    return TorchModel(torch, device, seed)
