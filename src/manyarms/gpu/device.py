"""The device that a computation runs on: the processor (the default), or a GPU through PyTorch."""

from __future__ import annotations

import re
import warnings
from typing import Any

import numpy as np

from manyarms.errors import DeviceError, InputError, MissingLibraryError

Tensor = Any
"""An array of PyTorch, which need not be installed."""

CPU = "cpu"


def load_torch() -> Any:
    """Import PyTorch, or say how to install it."""
    try:
        import torch  # noqa: PLC0415  # pyright: ignore[reportMissingImports]
    except ImportError:
        raise MissingLibraryError(
            'device="cuda" needs PyTorch, which is not installed.', 'Install it with pip install "manyarms[gpu]".'
        ) from None
    return torch


def as_device(value: Any) -> str:
    """Check the argument `device` of a user: "cpu", "cuda" or "cuda:1".

    Raises:
        DeviceError: If the GPU is not there.
        MissingLibraryError: If PyTorch is not installed.
    """
    if isinstance(value, str) and value == CPU:
        return CPU
    if not isinstance(value, str) or not re.fullmatch(r"cuda(:\d{1,3})?", value):
        raise InputError(f'must be "cpu", "cuda" or "cuda:1"; got {value!r}.', argument="device")
    torch = load_torch()
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    number = int(value.partition(":")[2] or 0)
    if number >= count:
        present = f"PyTorch sees {count} GPU{'' if count == 1 else 's'}" if count else "PyTorch sees no GPU"
        raise DeviceError(
            f"{value!r} is not there: {present}.", 'Use device="cpu", or install a driver.', argument="device"
        )
    return f"cuda:{number}"


def upload(array: Any, device: str) -> Tensor:
    """Copy of an array on the device, in double precision; what lies there already is returned as it is."""
    torch = load_torch()
    if isinstance(array, torch.Tensor):
        return array.to(device, torch.float64)
    with warnings.catch_warnings():
        # Arrays of a posterior cannot be written to, and are not.
        warnings.simplefilter("ignore", UserWarning)
        return torch.from_numpy(np.ascontiguousarray(array, dtype=np.float64)).to(device)


def require_memory(device: str, needed: int, work: str, remedy: str) -> None:
    """Refuse work that needs more bytes than the device has free, before any of it is done."""
    if not device.startswith("cuda"):
        return
    free = free_memory(device)
    if needed > free:
        raise DeviceError(
            f"{work} needs {_gigabytes(needed)} on {device}, of which {_gigabytes(free)} are free.", remedy
        )


def free_memory(device: str) -> int:
    """Bytes that the device has free; a gigabyte where it is the processor."""
    if not device.startswith("cuda"):
        return 1 << 30
    torch = load_torch()
    free, _ = torch.cuda.mem_get_info(device)
    # Memory that PyTorch holds but does not use is free to us.
    return int(free + torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device))


def _gigabytes(size: int) -> str:
    return f"{size / 1e9:.3g} GB"


def processors(device: Any) -> int:
    """The number of multiprocessors of a GPU device."""
    return load_torch().cuda.get_device_properties(device).multi_processor_count
