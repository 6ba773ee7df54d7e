"""Every stage that runs on a GPU: its time, its floor, and how far its results are from double precision.

    python benchmarks/gpu.py --results results.json
    python benchmarks/gpu.py --results results.json --page docs/gpu.md

The first command needs a GPU. Times are medians of several runs by CUDA events, data on the device. A floor is what the
fastest program could take: operations over the measured rate of a matrix product, or bytes over that of a copy.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy import sparse

import manyarms as ma
from manyarms.gpu.batched_posterior import SharedEffects, absorb_actions, action_means
from manyarms.gpu.click_sums import ClickRounds
from manyarms.gpu.device_draws import DeviceDraws, DrawnActions
from manyarms.gpu.device_top_k import DeviceBounds, DeviceMeans
from manyarms.gpu.half_screen import TileShape
from manyarms.learners import LBFGS, Adam
from manyarms.learners.device_objective import DeviceObjective
from manyarms.likelihoods.bernoulli import Bernoulli
from manyarms.likelihoods.likelihood import HERMITE
from manyarms.likelihoods.logistic_expectations import EXPONENTIAL_COEFFICIENTS
from manyarms.posterior.reward_width import confidence_radius

DEVICE, K = "cuda:0", 1_000_000


def milliseconds(work: Callable[[], Any], runs: int = 31, warm_up: int = 5) -> float:
    """The median time of some work on the device."""
    for _ in range(warm_up):
        work()
    times = []
    for _ in range(runs):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        work()
        end.record()
        torch.cuda.synchronize()
        times.append(start.elapsed_time(end))
    return statistics.median(times)


def normal(*shape: int, seed: int) -> torch.Tensor:
    """Standard normal numbers on the device."""
    generator = torch.Generator(DEVICE).manual_seed(seed)
    return torch.randn(*shape, dtype=torch.float64, device=DEVICE, generator=generator)


def limits() -> dict[str, float]:
    """Rates of this GPU: a copy, in bytes per millisecond, and matrix products, in operations per millisecond."""
    source = torch.randn(1 << 29, device=DEVICE)
    target = torch.empty_like(source)
    out = {"copy": 2 * source.nbytes / milliseconds(lambda: target.copy_(source))}
    del source, target
    for name, dtype in (("float64", torch.float64), ("float32", torch.float32), ("float16", torch.float16)):
        left, right = (torch.randn(8192, 8192, dtype=dtype, device=DEVICE) for _ in range(2))
        out[name] = 2 * 8192**3 / milliseconds(lambda left=left, right=right: left @ right, 5)
    return out


def argmax_by_product(x: torch.Tensor, means: torch.Tensor, step: int = 1 << 15) -> torch.Tensor:
    """The textbook form in double precision: all scores, a block of actions at a time."""
    best = torch.full((len(x),), -torch.inf, dtype=torch.float64, device=DEVICE)
    where = torch.zeros(len(x), dtype=torch.int64, device=DEVICE)
    for start in range(0, len(means), step):
        top, column = (x @ means[start : start + step].T).max(dim=1)
        where = torch.where(top > best, column + start, where)
        best = torch.maximum(best, top)
    return where


def greedy(limit: dict[str, float], tune: bool) -> list[dict[str, Any]]:
    """Greedy choices among a million actions."""
    rows = []
    for d in (32, 16):
        means, contexts = normal(K, d, seed=d), normal(100_000, d, seed=d + 1)
        tiles = [(None, True)]
        if tune:
            shapes = ((128, 256, 4, 3), (128, 256, 8, 3), (256, 128, 8, 3), (128, 128, 4, 4), (64, 256, 4, 3))
            tiles += [(TileShape(*shape), half) for shape in shapes for half in (True, False)]
        for n in (10_000, 100_000):
            x = contexts[:n].contiguous()
            plain = milliseconds(lambda x=x, means=means: argmax_by_product(x, means), 2, 1)
            expected = torch.cat([argmax_by_product(part, means) for part in x.split(20_000)])
            for tile, half in tiles:
                try:
                    ranking = DeviceMeans(means.cpu().numpy(), DEVICE, tile=tile, half=half)
                    screened = ranking.screen.rows(x)
                    pairs = len(screened.pairs(screened.kth_floor(1))[0])
                    got = ranking.best_on_device(x)[:, 0]
                    ours = milliseconds(lambda ranking=ranking, x=x: ranking.best_on_device(x))
                    screen = milliseconds(lambda ranking=ranking, x=x: ranking.screen.rows(x))
                except Exception as cause:
                    print("greedy", d, n, tile, half, repr(cause)[:200], flush=True)
                    continue
                rows.append({
                    "stage": "greedy", "d": d, "n": n, "tile": str(tile), "half": half, "ms": ours, "plain_ms": plain,
                    "floor_ms": 2 * n * K * d / limit["float16"], "screen_ms": screen, "pairs_per_row": pairs / n,
                    "mismatches": int((got != expected).sum()),
                })  # fmt: skip
                print(rows[-1], flush=True)
    return rows


def ties() -> list[dict[str, Any]]:
    """Greedy and ten best among actions of which nine tenths were never logged and share the mean of their category."""
    d, n = 32, 1000
    means, category = normal(1000, d, seed=1), torch.arange(K, device=DEVICE) % 1000
    seen = torch.arange(K, device=DEVICE) % 10 == 0
    means = torch.where(seen[:, None], means[category] + 0.3 * normal(K, d, seed=2), means[category])
    x = normal(n, d, seed=3)
    ranking = DeviceMeans(means.cpu().numpy(), DEVICE)
    expected = torch.argsort(-(x @ means.T), dim=1, stable=True)[:, :10]
    rows = []
    for k in (1, 10):
        got = ranking.best_on_device(x, k)
        rows.append({
            "stage": "ties", "d": d, "n": n, "k": k, "distinct": len(ranking.distinct),
            "ms": milliseconds(lambda k=k: ranking.best_on_device(x, k)),
            "mismatches": int((got != expected[:, :k]).any(dim=1).sum()),
        })  # fmt: skip
        print(rows[-1], flush=True)
    return rows


def posterior_like(d: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Means and covariances as after a fit: much data on some actions, little on most."""
    means, forms = torch.empty(K, d, dtype=torch.float64, device=DEVICE), None
    forms = torch.empty(K, d, d, dtype=torch.float64, device=DEVICE)
    eye = torch.eye(d, dtype=torch.float64, device=DEVICE)
    for start in range(0, K, 50_000):
        part = slice(start, start + 50_000)
        size = 10 ** (torch.rand(50_000, 1, 1, dtype=torch.float64, device=DEVICE) * 3 - 2)
        rounds = normal(50_000, d + 4, d, seed=seed + start) * size
        forms[part] = torch.cholesky_inverse(torch.linalg.cholesky(eye + rounds.mT @ rounds)) / d
        forms[part] = (forms[part] + forms[part].mT) / 2
        spread = torch.linalg.cholesky(eye / d * (1 + 1e-9) - forms[part])
        means[part] = torch.einsum("mde,me->md", spread, normal(50_000, d, seed=seed + start + 1))
    return means, forms


def pessimistic(limit: dict[str, float]) -> list[dict[str, Any]]:
    """Pessimistic choices among a million actions."""
    rows = []
    for d in (16, 32):
        means, forms = posterior_like(d, seed=100 + d)
        x, radius = normal(1000, d, seed=d), confidence_radius(d, 0.05)
        ranking = DeviceBounds.of_tensors(means, forms, radius, DEVICE)
        first = milliseconds(lambda ranking=ranking, x=x: ranking.best_on_device(x), 1, 0)
        got = ranking.best_on_device(x)[:, 0]
        i, j = torch.triu_indices(d, d, device=DEVICE)
        packed = forms[:, i, j] * torch.where(i == j, 1.0, 2.0)

        def by_product(
            x: torch.Tensor = x, packed: torch.Tensor = packed, means: torch.Tensor = means, i: Any = i, j: Any = j,
            radius: float = radius,
        ) -> torch.Tensor:  # fmt: skip
            best = torch.full((len(x),), -torch.inf, dtype=torch.float64, device=DEVICE)
            where, squares = torch.zeros(len(x), dtype=torch.int64, device=DEVICE), x[:, i] * x[:, j]
            for start in range(0, K, 1 << 15):
                part = slice(start, start + (1 << 15))
                widths = (squares @ packed[part].T).clamp_min_(0.0).sqrt_()
                top, column = (x @ means[part].T - radius * widths).max(dim=1)
                where = torch.where(top > best, column + start, where)
                best = torch.maximum(best, top)
            return where

        expected = by_product()
        width = ranking.screen.width
        row, _ = ranking.hopeful(x, 1)
        rows.append({
            "stage": "pessimistic", "d": d, "n": 1000, "ms": milliseconds(lambda r=ranking, x=x: r.best_on_device(x)),
            "first_call_ms": first, "plain_ms": milliseconds(by_product, 2, 1),
            "floor_ms": max(2 * 1000 * K * (d + 1) / limit["float16"], K * width * 2 / limit["copy"]),
            "screen_ms": milliseconds(
                lambda r=ranking, x=x: r.screen.rows(torch.cat([x, x[:, :1]], dim=1))
            ),
            "pairs": len(row), "share_of_pairs": len(row) / (1000 * K), "mismatches": int((got != expected).sum()),
        })  # fmt: skip
        print(rows[-1], flush=True)
        del packed, forms, means, ranking
    return rows


def thompson(limit: dict[str, float]) -> list[dict[str, Any]]:
    """The best of a million actions in 1,000 categories under 1,000 draws, for 1,000 contexts."""
    d, n, n_draws, n_kinds = 16, 1000, 1000, 1000
    factor = torch.empty(K, d, d, dtype=torch.float64, device=DEVICE)
    eye = torch.eye(d, dtype=torch.float64, device=DEVICE)
    for start in range(0, K, 50_000):
        size = 10 ** (torch.rand(50_000, 1, 1, dtype=torch.float64, device=DEVICE) * 2 - 1.5)
        rounds = normal(50_000, 8, d, seed=start) * size
        lower = torch.linalg.cholesky(eye + rounds.mT @ rounds)
        factor[start : start + 50_000] = torch.linalg.solve_triangular(lower, eye.expand_as(lower), upper=False).mT
    kind = torch.arange(K, device=DEVICE) * n_kinds // K
    draws = DeviceDraws(DrawnActions(factor, normal(K, d, seed=1), kind, 2 * normal(n_draws, n_kinds, d, seed=2)), 5)
    x = normal(n, d, seed=3)

    def plainly(draw: int) -> torch.Tensor:
        noise = normal(K, d, seed=draw)
        own = torch.einsum("mde,md->me", factor, draws._actions.shared[draw][kind]) + noise
        return argmax_by_product(x, draws._actions.constant + torch.einsum("mde,me->md", factor, own))

    best, n_tiles = draws.best_on_device(x)
    differ, loss, checked = 0, 0.0, range(0, n_draws, 50)
    for draw in checked:
        scores = x @ draws.weights(draw).T
        top, action = scores.max(dim=1)
        got = best[draw].to(torch.int64)
        differ += int((got != action).sum())
        loss = max(loss, float(((top - scores.gather(1, got[:, None])[:, 0]) / top.abs()).max()))
    row = {
        "stage": "thompson", "d": d, "n": n, "draws": n_draws, "ms": milliseconds(lambda: draws.best_on_device(x), 11),
        # One draw at a time, and all take the same time.
        "plain_ms": n_draws * milliseconds(lambda: plainly(0), 5, 2),
        "floor_ms": 2 * n * K * n_draws * d / limit["float16"], "tiles_per_choice": n_tiles / (n * n_draws),
        "mismatches": differ, "checked": n * len(checked), "largest_loss": loss,
    }  # fmt: skip
    print(row, flush=True)
    return [row]


def posterior(limit: dict[str, float]) -> list[dict[str, Any]]:
    """Posteriors of a million actions under one shared effect with a matrix W for every action."""
    rows = []
    for d in (32, 16):
        gram = torch.empty(K, d, d, dtype=torch.float64, device=DEVICE)
        for start in range(0, K, 50_000):
            size = 10 ** (torch.rand(50_000, 1, 1, dtype=torch.float64, device=DEVICE) * 4 - 3)
            rounds = normal(50_000, d + 4, d, seed=start) * size
            gram[start : start + 50_000] = rounds.mT @ rounds
        moment, mixing = normal(K, d, seed=5), normal(K, d, d, seed=6) / d**0.5
        everyone = torch.arange(K, dtype=torch.int32, device=DEVICE)
        effects = SharedEffects(mixing, everyone, torch.zeros_like(everyone), 1)
        eye = torch.eye(d, dtype=torch.float64, device=DEVICE)

        def ours(gram: Any = gram, moment: Any = moment, effects: Any = effects, eye: Any = eye) -> tuple[Any, ...]:
            absorbed = absorb_actions(gram, moment, effects)
            latent = torch.linalg.solve(eye + absorbed.precision[0], absorbed.score[0])
            return absorbed, latent, action_means(absorbed.factor, moment, effects, latent[None])

        def plain(gram: Any = gram, moment: Any = moment, mixing: Any = mixing, eye: Any = eye) -> tuple[Any, ...]:
            precision, score, lowers = torch.zeros_like(eye), torch.zeros_like(eye[0]), []
            parts = list(zip(gram.split(250_000), moment.split(250_000), mixing.split(250_000), strict=True))
            for G, b, W in parts:
                lower = torch.linalg.cholesky(eye + G)
                precision += (W.mT @ torch.cholesky_solve(G @ W, lower)).sum(dim=0)
                score += torch.einsum("mde,md->e", W, torch.cholesky_solve(b[:, :, None], lower)[:, :, 0])
                lowers.append(lower)
            latent = torch.linalg.solve(eye + precision, score)
            means = [
                torch.cholesky_solve((b + W @ latent)[:, :, None], lower)[:, :, 0]
                for (_, b, W), lower in zip(parts, lowers, strict=True)
            ]
            return precision, score, latent, torch.cat(means)

        absorbed, latent, means = ours()
        expected = plain()
        some = absorbed.factor[:20_000]
        inverse = torch.linalg.inv(eye + gram[:20_000])
        size = K * (4 * d * d + 5 * d) * 8 + K * d * d * 8
        rows.append({
            "stage": "posterior", "d": d, "ms": milliseconds(ours), "plain_ms": milliseconds(plain, 2, 1),
            "floor_ms": size / limit["copy"],
            "absorb_ms": milliseconds(lambda g=gram, b=moment, e=effects: absorb_actions(g, b, e)),
            "means_ms": milliseconds(
                lambda a=absorbed, b=moment, e=effects, z=latent: action_means(a.factor, b, e, z[None])
            ),
            "error": {
                "covariance": relative(some @ some.mT, inverse),
                "precision": relative(absorbed.precision[0], expected[0]),
                "score": relative(absorbed.score[0], expected[1]), "latent": relative(latent, expected[2]),
                "means": relative(means, expected[3]),
                "log_det": relative(absorbed.log_det, torch.logdet(eye + gram).sum()),
            },
        })  # fmt: skip
        print(rows[-1], flush=True)
        del gram, mixing, moment, absorbed, means, expected, effects
    return rows


def relative(values: torch.Tensor, expected: torch.Tensor) -> float:
    """Norm of the difference over the norm."""
    return float((values - expected).norm() / expected.norm())


def clicks(limit: dict[str, float]) -> list[dict[str, Any]]:
    """One variational step for ten million clicks on 100,000 actions."""
    n, m, d, rows = 10_000_000, 100_000, 16, []
    nodes, shares = np.array(HERMITE).T
    rules = np.concatenate([nodes[nodes > 0], shares[nodes > 0], EXPONENTIAL_COEFFICIENTS])
    for kind, scale in (("uniform", 0.04), ("zipf", 0.04), ("wide", 0.1)):
        generator = torch.Generator(DEVICE).manual_seed(7)
        weights = torch.ones(m, dtype=torch.float64, device=DEVICE)
        if kind == "zipf":
            weights = 1.0 / torch.arange(1, m + 1, dtype=torch.float64, device=DEVICE)
        uniform = torch.rand(n, dtype=torch.float64, device=DEVICE, generator=generator)
        edges = torch.cumsum(weights, 0) / weights.sum()
        per_action = torch.bincount(torch.searchsorted(edges, uniform).clamp_max(m - 1), minlength=m)
        # Every action has rounds here.
        per_action = per_action.clamp_min(1)
        per_action[0] -= int(per_action.sum()) - n
        x = normal(n, d, seed=8)
        x[:, 0] = 1.0
        y = (torch.rand(n, device=DEVICE, generator=generator) < 0.05).to(torch.uint8)
        means, root = 0.5 * normal(m, d, seed=9), scale * normal(m, d, d + 8, seed=10)
        cov = root @ root.mT
        rounds = ClickRounds(x, y, None, per_action, rules)
        sums, fit = rounds.sums(means, cov)
        some = slice(0, m, 997)
        starts = torch.cumsum(per_action, 0) - per_action
        errors = []
        for action in range(m)[some]:
            part = slice(int(starts[action]), int(starts[action] + per_action[action]))
            own, clicked = x[part].cpu().numpy(), y[part].cpu().numpy().astype(float)
            C = cov[action].cpu().numpy()
            site = Bernoulli().site(clicked, own @ means[action].cpu().numpy(), np.einsum("nd,de,ne->n", own, C, own))
            S, V = (own * site.weight[:, None]).T @ own, site.linear @ own
            errors.append(max(
                float(np.abs(sums.gram[action].cpu().numpy() - S).max() / np.abs(S).max()),
                float(np.abs(sums.moment[action].cpu().numpy() - V).max() / np.abs(V).max()),
            ))  # fmt: skip
        size = n * (d * 8 + 1) + m * (2 * d * d + 2 * d) * 8
        rows.append({
            "stage": "clicks", "kind": kind, "d": d, "n": n, "K": m,
            "spread": float(((x[:100_000] @ cov[0]) * x[:100_000]).sum(dim=1).sqrt().mean()),
            "ms": milliseconds(lambda r=rounds, a=means, c=cov: r.sums(a, c)),
            "plain_ms": milliseconds(
                lambda x=x, y=y, a=means, c=cov, p=per_action: plain_click_step(x, y, a, c, p), 2, 1
            ),
            "floor_ms": size / limit["copy"], "error": max(errors), "finite": bool(torch.isfinite(fit).all()),
        })  # fmt: skip
        print(rows[-1], flush=True)
        del x, y, rounds, sums, cov, root
    return rows


def plain_click_step(
    x: torch.Tensor, y: torch.Tensor, means: torch.Tensor, cov: torch.Tensor, per_action: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """The textbook form of a step, in chunks of rounds."""
    d, m = x.shape[1], len(means)
    nodes, shares = (torch.tensor(part, device=DEVICE) for part in np.array(HERMITE).T)
    owner = torch.repeat_interleave(torch.arange(m, device=DEVICE), per_action)
    S, V = torch.zeros(m, d * d, dtype=x.dtype, device=DEVICE), torch.zeros(m, d, dtype=x.dtype, device=DEVICE)
    for part in torch.arange(len(x), device=DEVICE).split(500_000):
        own, a = x[part], owner[part]
        mean = (own * means[a]).sum(dim=1)
        spread = ((own[:, None, :] @ cov[a])[:, 0] * own).sum(dim=1).sqrt()
        p = torch.sigmoid(mean[:, None] + spread[:, None] * nodes)
        weight = (p * (1 - p)) @ shares
        linear = y[part].double() - p @ shares + weight * mean
        S.index_add_(0, a, (own[:, :, None] * (weight[:, None] * own)[:, None, :]).reshape(-1, d * d))
        V.index_add_(0, a, linear[:, None] * own)
    return S, V


def plain_objective(
    x: torch.Tensor, actions: torch.Tensor, rewards: torch.Tensor, weights: torch.Tensor, step: int = 1 << 25
) -> tuple[float, torch.Tensor]:
    """IPS under uniform logging and its gradient, by automatic differentiation in blocks of rounds."""
    K, total = len(weights), 0.0
    weights = weights.detach().requires_grad_()
    for part in torch.arange(len(x), device=DEVICE).split(max(1, step // K)):
        chosen = torch.softmax(x[part] @ weights.T, dim=1).gather(1, actions[part, None])[:, 0]
        value = (chosen * K * rewards[part]).sum() / len(x)
        value.backward()
        total += float(value.detach())
    gradient = weights.grad
    assert gradient is not None
    return total, gradient


def training(limit: dict[str, float]) -> list[dict[str, Any]]:
    """An objective of softmax learners with its gradient, and policies learned on the GPU and on the processor."""
    d, rows = 16, []
    for K, n in ((1000, 1_000_000), (100_000, 10_000)):
        learner = ma.IPSLearner(training=ma.Training(ridge=0.0))
        rounds = learner.training_rounds(softmax_logs(K, n, d), None)
        here = learner.training.objective(rounds, learner.criterion)
        there = DeviceObjective.place(here, DEVICE)
        weights = np.random.default_rng(1).normal(size=(K, d)) / 4
        placed = torch.from_numpy(weights).to(DEVICE)
        x, actions, rewards = (
            torch.from_numpy(np.array(part)).to(DEVICE) for part in (rounds.contexts, rounds.actions, rounds.rewards)
        )
        value, gradient = there.value_and_gradient(weights)
        expected = here.value_and_gradient(weights)
        rows.append({
            "stage": "training", "d": d, "n": n, "K": K, "kind": f"{K:,} actions",
            "ms": milliseconds(lambda t=there, w=placed: t.value_and_gradient(w), 11),
            "plain_ms": milliseconds(lambda x=x, a=actions, r=rewards, w=placed: plain_objective(x, a, r, w), 3, 1),
            # Probabilities are written once and read twice, for their sums and for the gradient.
            "floor_ms": max(4 * n * K * d / limit["float64"], 3 * 8 * n * K / limit["copy"]),
            "error": {
                "value": abs(value / expected[0] - 1),
                "gradient": float(np.linalg.norm(gradient - expected[1]) / np.linalg.norm(expected[1])),
            },
        })  # fmt: skip
        print(rows[-1], flush=True)
    return rows + learned_policies()


def learned_policies() -> list[dict[str, Any]]:
    """Whole trainings, and how far the two policies are apart."""
    (K, n, d), rows = (1000, 100_000, 16), []
    logs = softmax_logs(K, n, d)
    model = ma.fit(logs.take(np.arange(n // 2)), ma.priors.independent(K, dim=d))

    def learners(device: str) -> dict[str, Any]:
        settings = ma.Training(LBFGS(30), imitation=0.01, device=device)
        adam = ma.Training(Adam(batch_size=4096), rng=np.random.default_rng(0), device=device)
        return {
            "IPS": ma.IPSLearner(training=settings), "snIPS": ma.SNIPSLearner(training=settings),
            "DR": ma.DRLearner(model, training=settings), "MIPS": ma.MIPSLearner(np.arange(K) % 50, training=settings),
            "snIPS by Adam": ma.SNIPSLearner(training=adam),
        }  # fmt: skip

    learners("cuda")["IPS"].learn(logs)
    for name, here in learners("cpu").items():
        row, policies = {"stage": "learned policy", "K": K, "n": n, "d": d, "learner": name}, []
        for device, learner in (("cuda", learners("cuda")[name]), ("cpu", here)):
            policies.append(seconds(rows, {**row, "what": device}, lambda learner=learner: learner.learn(logs)))
        values = [here.objective(policy, logs) for policy in policies]
        rows[-1] |= {
            "objective": values[1], "gap": abs(values[0] / values[1] - 1),
            "weights": float(np.abs(policies[0].weights - policies[1].weights).max()),
        }  # fmt: skip
        print(rows[-1], flush=True)
    return rows


def softmax_logs(K: int, n: int, d: int) -> ma.LoggedData:
    """Rounds under uniform logging, with rewards that depend on action and context."""
    rng = np.random.default_rng(0)
    x, actions = rng.normal(size=(n, d)), rng.integers(0, K, n)
    mean = np.einsum("nd,nd->n", x, rng.normal(size=(K, d))[actions]) / d**0.5
    uniform = ma.Uniform(K)
    return ma.LoggedData(x, actions, mean + rng.normal(size=n), np.full(n, 1 / K), K, logging_policy=uniform)


def values(limit: dict[str, float]) -> list[dict[str, Any]]:
    """The value of a greedy policy whose choices are made on the GPU, and what the choices alone take of it."""
    (n, d), rows = (1_000_000, 16), []
    prior, x, actions, _ = click_logs(K, n, d, 1000)
    rewards = np.random.default_rng(1).normal(size=n)
    posterior = ma.fit(ma.LoggedData(x, actions, rewards, n_actions=K), prior)
    policy = ma.Greedy(posterior, device="cuda")
    policy.actions(x[:10])
    for size in (10_000, 100_000):
        row = {"stage": "value", "K": K, "d": d, "n": size}
        for what in ("first", "again"):
            seconds(rows, {**row, "what": f"choices, {what}"}, lambda size=size: policy.actions(x[:size]))
            seconds(rows, {**row, "what": f"value, {what}"}, lambda size=size: posterior.value(policy, x[:size]))
    return rows


def click_logs(K: int, n: int, d: int, n_categories: int) -> tuple[Any, Any, Any, Any]:
    """A prior with one effect per category, contexts, actions of which few are frequent, and clicks."""
    rng = np.random.default_rng(0)
    category = rng.integers(0, n_categories, K)
    weights = sparse.csr_array((np.ones(K), category, np.arange(K + 1)), shape=(K, n_categories))
    prior = ma.HierarchicalGaussian(np.zeros(n_categories * d), 0.25, ma.MixedEffects(weights, d), 0.1)
    x = rng.normal(size=(n, d)) / 4
    x[:, 0] = 1.0
    actions = (rng.random(n) ** 3 * K).astype(np.int64)
    clicked = rng.random(n) < 1 / (1 + np.exp(3 - 0.5 * rng.normal(size=n_categories)[category[actions]]))
    return prior, x, actions, clicked.astype(float)


def seconds(rows: list[dict[str, Any]], row: dict[str, Any], work: Callable[[], Any]) -> Any:
    """The result of some work; its wall time, with copies, becomes a row."""
    started = time.perf_counter()
    out = work()
    torch.cuda.synchronize()
    rows.append({**row, "s": time.perf_counter() - started})
    print(rows[-1], flush=True)
    return out


def end_to_end(limit: dict[str, float]) -> list[dict[str, Any]]:
    """Ten million clicks on a million actions, fitted, and choices under the posterior, through the public names."""
    n, d, rows = 10_000_000, 16, []
    prior, x, actions, clicked = click_logs(K, n, d, 1000)
    fitted = None
    for what, size in (("first fit", n // 10), ("fit", n // 10), ("fit", n)):
        logs = ma.LoggedData(x[:size], actions[:size], clicked[:size], n_actions=K)
        row = {"stage": "end to end", "what": what, "n": size, "K": K, "d": d}
        fitted = seconds(rows, row, lambda logs=logs: ma.fit(logs, prior, ma.Bernoulli(), device="cuda"))
        rows[-1] |= {"steps": len(fitted.trace) - 1, "log_evidence": fitted.log_evidence}
    policy, rng = ma.Pessimistic(fitted, device="cuda"), np.random.default_rng(1)
    drawn = ma.Thompson(fitted, rng=rng, device="cuda")
    for what, chosen, part in (
        ("first choice", policy, x[:10_000]), ("choice", policy, x[10_000:20_000]),
        ("first choice by draws", drawn, x[:1000]), ("choice by draws", drawn, x[1000:2000]),
    ):  # fmt: skip
        row = {"stage": "end to end", "what": what, "n": len(part)}
        seconds(rows, row, lambda chosen=chosen, part=part: chosen.actions(part))
    return rows


def learning(limit: dict[str, float]) -> list[dict[str, Any]]:
    """A prior learned on the GPU and on the processor."""
    (m, n, d), rows = (10_000, 100_000, 10), []
    prior, x, actions, clicked = click_logs(m, n, d, 100)
    logs, learned = ma.LoggedData(x, actions, clicked, n_actions=m), []
    for what in ("cuda", "cuda", "cpu"):
        row = {"stage": "learning", "what": what, "n": n, "K": m, "d": d}
        learned.append(seconds(rows, row, lambda what=what: ma.learn_prior(logs, prior, ma.Bernoulli(), device=what)))
    gap = float(np.abs(learned[1].eta - learned[2].eta).max())
    rows.append({
        "stage": "learning", "what": "difference", "log_stds": gap,
        "log_evidence": learned[1].log_evidence - learned[2].log_evidence,
    })  # fmt: skip
    print(rows[-1], flush=True)
    return rows


def decision(limit: dict[str, float]) -> list[dict[str, Any]]:
    """From ten million clicks on a million actions to a decision on 10,000 further rounds."""
    n, held, rows = 10_000_000, 10_000, []
    prior, x, actions, clicked = click_logs(K, n, 16, 1000)
    logs, further = (
        ma.LoggedData(x[part], actions[part], clicked[part], n_actions=K) for part in (slice(-held), slice(-held, None))
    )
    row = {"stage": "decision", "K": K, "d": 16}
    learned = seconds(
        rows, {**row, "what": "prior and posterior", "n": len(logs)},
        lambda: ma.learn_prior(logs, prior, ma.Bernoulli(), device="cuda"),
    )  # fmt: skip
    rows[-1] |= {"eta": learned.eta.tolist(), "memory": torch.cuda.max_memory_allocated()}
    for what in ("first update", "further update"):
        seconds(rows, {**row, "what": what, "n": held}, lambda: learned.posterior.update(further))
    policy = ma.Pessimistic(learned.posterior, device="cuda")
    seconds(rows, {**row, "what": "choice", "n": held}, lambda: policy.actions(further.contexts))
    verdict = seconds(
        rows, {**row, "what": "decision", "n": held},
        lambda: ma.decide({"pessimistic": policy}, further, learned.posterior),
    )  # fmt: skip
    rows[-1]["sentence"] = verdict.sentence
    print(verdict.sentence, flush=True)
    return rows


STAGES: dict[str, Callable[..., list[dict[str, Any]]]] = {
    "pessimistic": pessimistic, "thompson": thompson, "posterior": posterior, "clicks": clicks,
    "training": training, "values": values, "learning": learning, "end_to_end": end_to_end, "decision": decision,
}  # fmt: skip

GOALS = {
    ("greedy", 32, 10_000): 2.0, ("greedy", 32, 100_000): 15.0, ("pessimistic", 16, 1000): 3.0,
    ("pessimistic", 32, 1000): 3.0, ("posterior", 32, None): 20.0, ("posterior", 16, None): 5.0,
    ("clicks", 16, 10_000_000): 1.5, ("thompson", 16, 1000): 130.0,
}  # fmt: skip


def table(rows: list[dict[str, Any]]) -> str:
    """The times as a table for the page."""
    lines = ["| stage | plain PyTorch, ms | ours, ms | floor, ms | goal, ms | difference from double precision |"]
    lines.append("|---|---|---|---|---|---|")
    for row in rows:
        if "ms" not in row or row["stage"] not in _IN_TABLE:
            continue
        goal = None if row.get("kind") == "wide" else GOALS.get((row["stage"], row["d"], row.get("n")))
        verdict = "" if goal is None else f"{goal:g}, {'met' if row['ms'] <= goal else 'missed'}"
        name = f"{row['stage']}, d = {row['d']}"
        name += (
            f", {row['n']:,} {'rounds' if row['stage'] in ('clicks', 'training') else 'contexts'}" if "n" in row else ""
        )
        name += f", {row['kind']}" if "kind" in row else ""
        error = row.get("error")
        name += f", {row['draws']:,} draws" if "draws" in row else ""
        if "checked" in row:
            far = f"{row['mismatches']} of {row['checked']:,} actions"
        elif "mismatches" in row:
            far = f"{row['mismatches']} actions"
        else:
            far = f"{max(error.values()) if isinstance(error, dict) else error:.0e} relative"
        lines.append(
            f"| {name} | {row['plain_ms']:.0f} | {row['ms']:.2f} | {row['floor_ms']:.2f} | {verdict} | {far} |"
        )
    return "\n".join(lines)


def write_page(page: Path, rows: list[dict[str, Any]]) -> None:
    """Put the table between its two markers."""
    before, rest = page.read_text(encoding="utf-8").split(_BEGIN, 1)
    page.write_text(f"{before}{_BEGIN}\n{table(rows)}\n{_END}{rest.split(_END, 1)[1]}", encoding="utf-8")


_IN_TABLE = "greedy", "pessimistic", "thompson", "posterior", "clicks", "training"
_BEGIN, _END = "<!-- times -->", "<!-- end of times -->"


def measure(stages: list[str], out: Path, tune: bool) -> None:
    """Run the stages and write their rows."""
    started, limit = time.time(), limits()
    rows: list[dict[str, Any]] = [{"stage": "limits", **limit, "device": torch.cuda.get_device_name()}]
    print(rows[0], flush=True)
    for stage in stages:
        try:
            if stage == "greedy":
                rows += greedy(limit, tune)
            else:
                rows += ties() if stage == "ties" else STAGES[stage](limit)
        except Exception as cause:
            traceback.print_exc()
            rows.append({"stage": stage, "failed": repr(cause)[:500]})
        out.write_text(json.dumps(rows, indent=1))
        print(f"{stage}: {time.time() - started:.0f} s so far", flush=True)


def main() -> None:
    """Measure, or write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--results", type=Path, required=True)
    parser.add_argument("--page", type=Path)
    parser.add_argument(
        "--stages",
        default="greedy,ties,pessimistic,thompson,posterior,clicks,training,values,learning,end_to_end,decision",
    )
    parser.add_argument("--tune", action="store_true")
    options = parser.parse_args()
    if options.page is None:
        measure(options.stages.split(","), options.results, options.tune)
    else:
        write_page(options.page, json.loads(options.results.read_text()))


if __name__ == "__main__":
    main()
