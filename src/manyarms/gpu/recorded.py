"""Work on a GPU that is launched once and then replayed: a CUDA graph."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from manyarms.gpu.device import Tensor, load_torch


class Recorded:
    """A recording of work on tensors of one shape; a replay costs one launch. Not for two threads at a time.

    Args:
        work: A function of a tensor on a GPU that neither looks at numbers nor depends on any other than these.
        x: An example.
    """

    def __init__(self, work: Callable[[Tensor], Any], x: Tensor):
        torch = load_torch()
        self._x, self.shape, self._graph = x.clone(), x.shape, torch.cuda.CUDAGraph()
        with torch.cuda.device(x.device):
            here, side = torch.cuda.current_stream(), torch.cuda.Stream()
            side.wait_stream(here)
            # Kernels are compiled, and tables made, before the recording.
            with torch.cuda.stream(side):
                work(self._x)
            here.wait_stream(side)
            with torch.cuda.graph(self._graph, capture_error_mode="thread_local"):
                self._out = work(self._x)

    def __call__(self, x: Tensor) -> Any:
        """The result for other numbers; the next replay overwrites it."""
        self._x.copy_(x)
        self._graph.replay()
        return self._out
