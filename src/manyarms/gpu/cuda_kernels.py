"""CUDA kernels of this package, compiled for the GPU at hand when they are first used; no compiler is needed."""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from typing import Any

from manyarms.errors import DeviceError, without_full_stop
from manyarms.gpu.device import Tensor, load_torch

KERNEL_SIZES = (16, 32)
"""The numbers of features that kernels are written for; fewer are padded with zeros."""


def kernel_size(dim: int) -> int | None:
    """The smallest size of a CUDA kernel that holds so many features, or None if there is none."""
    return next((size for size in KERNEL_SIZES if dim <= size), None)


@cache
def compiled(source: str, name: str, size: int, shared_bytes: int = 0) -> Any:
    """CUDA kernel `name` of the file `cuda/source.cu`, for `size` features, with so much shared memory of its own.

    Raises:
        DeviceError: If this PyTorch cannot compile kernels, or not for this GPU.
    """
    torch, folder = load_torch(), files("manyarms.gpu") / "cuda"
    text = "\n".join((folder / part).read_text(encoding="utf-8") for part in ("double_units.cuh", f"{source}.cu"))
    try:
        kernel = torch.cuda._compile_kernel(text, name, nvcc_options=["-std=c++17", f"-DD={size}"])
        # As much of the fast memory as there is goes to the kernel, so that many of its blocks fit at once.
        torch.cuda._utils._get_gpu_runtime_library().cuFuncSetAttribute(kernel.func, _SHARED_MEMORY_SHARE, 100)
        if shared_bytes:
            kernel.set_shared_memory_config(shared_bytes)
        return kernel
    except (AttributeError, OSError, RuntimeError) as cause:
        raise DeviceError(
            f"the kernel {name} could not be compiled: {without_full_stop(cause)}.",
            "Use PyTorch 2.9 or newer and a GPU of compute capability 8.0 or higher.",
        ) from cause


def launch(kernel: Any, blocks: int, threads: int, *arguments: Any, shared_bytes: int = 0) -> None:
    """Run a CUDA kernel on the GPU of its first argument."""
    torch = load_torch()
    with torch.cuda.device(arguments[0].device):
        kernel(grid=(blocks, 1, 1), block=(threads, 1, 1), args=list(arguments), shared_mem=shared_bytes)


def sum_runs(rows: Tensor, first: Tensor, target: Tensor, out: Tensor) -> None:
    """Run the CUDA kernel that sums runs of rows into some rows of `out`, always in the same order.

    Args:
        rows: (n, ...).
        first: (s + 1,) where each run begins, as 32-bit numbers, with the end.
        target: (s,) the row of `out` for each run, as 32-bit numbers.
        out: (m, ...), contiguous.
    """
    n_runs, width = len(target), rows[0].numel()
    if n_runs:
        kernel = compiled("sum_runs", "sum_runs", KERNEL_SIZES[0])
        launch(kernel, n_runs * -(-width // 32), 256, rows, first, target, out, width, n_runs)


def add_by_key(total: Tensor, keys: Tensor, rows: Tensor) -> None:
    """Add every row to the row of `total` that its key names, by a CUDA kernel on a GPU: always in the same order."""
    torch = load_torch()
    if not rows.is_cuda:
        total.index_add_(0, keys, rows)
        return
    keys, order = torch.sort(keys, stable=True)
    target, counts = torch.unique_consecutive(keys, return_counts=True)
    first = torch.cat([counts.new_zeros(1), torch.cumsum(counts, 0)]).to(torch.int32)
    sums = rows.new_empty(len(target), *rows.shape[1:])
    sum_runs(rows[order], first, torch.arange(len(target), dtype=torch.int32, device=rows.device), sums)
    total[target] += sums


_SHARED_MEMORY_SHARE = 9  # CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT
