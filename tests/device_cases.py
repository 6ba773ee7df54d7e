"""PyTorch on the processor stands in for a GPU: the same code, with plain versions of the kernels."""

import importlib
import os
import sys
import types

import numpy as np
import pytest

HERE = "cpu:0"
"""A device of PyTorch that is not the word for "no device"."""


def torch_or_skip():
    """The module torch. Without it the test is skipped, unless MANYARMS_ALL_TESTS is set."""
    return module_or_skip("torch")


def module_or_skip(name):
    """A module that need not be installed. Without it the test is skipped, unless MANYARMS_ALL_TESTS is set."""
    try:
        return importlib.import_module(name)
    except ImportError:
        if os.environ.get("MANYARMS_ALL_TESTS"):
            pytest.fail(f"{name} is not installed, and MANYARMS_ALL_TESTS is set")
        pytest.skip(f"{name} is not installed")


def stand_in(monkeypatch, module):
    """Let "cuda" mean PyTorch on the processor in a module that takes the argument `device`."""
    monkeypatch.setattr(importlib.import_module(module), "as_device", lambda value: HERE if value == "cuda" else value)


def means_with_twins(rng, n_actions, dim):
    """Means of which more than half are those of a few categories, as before any data, far from zero."""
    means = rng.normal(size=(n_actions, dim)) + 3.0
    unseen = rng.random(n_actions) < 0.6
    means[unseen] = (rng.normal(size=(7, dim)) + 3.0)[rng.integers(0, 7, n_actions)][unseen]
    return means


def covariances(rng, n_actions, dim):
    """Covariances between 1e-4 and 1, some of them equal and one singular."""
    root = rng.normal(size=(n_actions, dim, dim + 2)) * 10 ** rng.uniform(-2, 0, size=(n_actions, 1, 1))
    out = root @ root.swapaxes(1, 2) / dim
    out[n_actions // 2 :: 3] = out[n_actions // 2]
    out[0] = np.outer(root[0, :, 0], root[0, :, 0])
    return out


def fake_torch(monkeypatch, count, free=0):
    """Let PyTorch see so many GPUs, with two gigabytes more than `free` of memory."""
    cuda = types.SimpleNamespace(
        is_available=lambda: count > 0,
        device_count=lambda: count,
        mem_get_info=lambda device: (free, 1 << 40),
        memory_reserved=lambda device: 3_000_000_000,
        memory_allocated=lambda device: 1_000_000_000,
    )
    monkeypatch.setitem(sys.modules, "torch", types.SimpleNamespace(cuda=cuda))
