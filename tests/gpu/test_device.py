"""The argument `device`: what it accepts, and what policies do with it."""

import sys
from importlib.resources import files

import numpy as np
import pytest
from device_cases import fake_torch, stand_in, torch_or_skip

import manyarms as ma
from manyarms.gpu.cuda_kernels import kernel_size
from manyarms.gpu.device import as_device, require_memory


def fitted(likelihood=None):
    rng = np.random.default_rng(0)
    category = rng.integers(0, 6, 200)
    prior = ma.HierarchicalGaussian(np.zeros(6 * 4), 1.0, ma.MixedEffects(np.eye(6)[category], 4), 0.2)
    x, rewards = rng.normal(size=(400, 4)), rng.integers(0, 2, 400).astype(float)
    return ma.fit(ma.LoggedData(x, rng.integers(0, 60, 400), rewards, n_actions=200), prior, likelihood), x


@pytest.mark.parametrize("policy", [ma.Greedy, ma.Pessimistic])
def test_a_policy_on_a_device_chooses_as_on_the_processor(policy, monkeypatch):
    torch_or_skip()
    stand_in(monkeypatch, policy.__module__)
    posterior, x = fitted()
    here, there = policy(posterior), policy(posterior, device="cuda")
    assert np.array_equal(there.actions(x), here.actions(x))
    assert np.array_equal(there.top_k(x, 5), here.top_k(x, 5))
    shared = np.arange(3, 150, 4)
    assert np.array_equal(there.actions(x, eligible=[shared] * len(x)), here.actions(x, eligible=[shared] * len(x)))
    few = [[int(a), (int(a) + 7) % 200] for a in np.random.default_rng(1).integers(0, 200, len(x))]
    assert np.array_equal(there.actions(x, eligible=few), here.actions(x, eligible=few))
    assert posterior.value(there, x).value == posterior.value(here, x).value


def test_expected_clicks_are_not_ranked_on_a_device(monkeypatch):
    stand_in(monkeypatch, "manyarms.policies.greedy")
    posterior, x = fitted(ma.Bernoulli())
    with pytest.raises(ma.errors.InputError, match="linear in the features") as caught:
        ma.Greedy(posterior, device="cuda").actions(x)
    assert caught.value.argument == "device"


@pytest.mark.parametrize("value", ["gpu", "cuda:", "cuda:-1", None, 0, ["cuda"], np.array(["cpu", "cuda"])])
def test_other_names_are_refused(value):
    with pytest.raises(ma.errors.InputError, match='must be "cpu", "cuda" or "cuda:1"'):
        as_device(value)


def test_a_missing_gpu_is_an_error_with_a_remedy(monkeypatch):
    fake_torch(monkeypatch, 0)
    with pytest.raises(ma.errors.DeviceError, match="'cuda' is not there: PyTorch sees no GPU") as caught:
        ma.Greedy(fitted()[0], device="cuda")
    assert caught.value.argument == "device" and "driver" in caught.value.remedy
    fake_torch(monkeypatch, 1)
    assert as_device("cuda") == as_device("cuda:0") == "cuda:0"
    with pytest.raises(ma.errors.DeviceError, match="'cuda:1' is not there: PyTorch sees 1 GPU"):
        as_device("cuda:1")


def test_a_missing_library_is_an_error_with_a_remedy(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(ma.errors.MissingLibraryError, match=r"pip install \"manyarms\[gpu\]\""):
        as_device("cuda")
    assert as_device("cpu") == "cpu"


def test_too_little_memory_is_an_error_that_says_how_much(monkeypatch):
    fake_torch(monkeypatch, 1, free=4_000_000_000)
    require_memory("cuda:0", 6_000_000_000, "this", "Use less.")
    with pytest.raises(
        ma.errors.DeviceError, match=r"this needs 6\.1 GB on cuda:0, of which 6 GB are free\. Use less\."
    ):
        require_memory("cuda:0", 6_100_000_000, "this", "Use less.")


def test_kernels_are_part_of_the_package():
    names = {path.name for path in (files("manyarms.gpu") / "cuda").iterdir()}
    assert names == {"double_units.cuh", "posterior.cu", "clicks.cu", "sum_runs.cu", "thompson.cu"}
    assert [kernel_size(dim) for dim in (1, 16, 17, 32, 33)] == [16, 16, 32, 32, None]
