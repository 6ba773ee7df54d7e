"""Checks that Gaussian posteriors are exact: against a dense joint Gaussian in high-precision arithmetic.

An error is the largest absolute error of a quantity over its largest entry. The reference needs many digits itself: in
double precision, the textbook formula was off by 2e-10 on a problem with 165 rounds that the library solves to 1e-15.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

import manyarms as ma
from trust.check import Check, Outcome, Row
from trust.oracles_and_studies import DenseJoint, Problem, make_problem

SECTION = "Exactness"
TOLERANCE = 1e-10
EPSILON = float(np.finfo(float).eps)
DECADES = tuple(range(0, 13, 3))
"""Powers of ten of the condition numbers."""
FAMILIES = ("small noise", "collinear features", "uneven action covariance", "uneven latent covariance")


def random_problem(rng: np.random.Generator, *, most_actions: int, most_rounds: int, **changes: object) -> Problem:
    """A problem with a prior of any of the allowed forms; some actions are never logged."""
    recipe = {
        "seed": int(rng.integers(2**32)),
        "n_actions": int(rng.integers(1, most_actions + 1)),
        "dim": int(rng.integers(1, 6)),
        "n_rounds": int(rng.integers(0, most_rounds + 1)),
        "mixing_form": str(rng.choice(["dense", "none", "one_hot", "sparse_effects", "dense_effects"])),
        "cov_form": str(rng.choice(["scalar", "diagonal", "shared", "each", "singular"])),
        "latent_form": str(rng.choice(["scalar", "diagonal", "full", "blocks"])),
        "offset_form": str(rng.choice(["none", "shared", "each"])),
        "latent_dim": int(rng.integers(1, 9)),
        "action_scale": float(rng.choice([0.0, 1e-6, 1e-2, 1.0, 10.0])),
        "noise_std": float(rng.choice([0.1, 1.0, 3.0])),
    }
    return make_problem(**(recipe | changes))


def relative_error(actual: object, exact: object) -> float:
    """The largest error over the largest entry; zero for empty arrays."""
    exact = np.asarray(exact, dtype=float)
    if exact.size == 0:
        return 0.0
    difference = np.abs(np.asarray(actual, dtype=float) - exact).max()
    return float(difference / max(np.abs(exact).max(), np.finfo(float).tiny))


def posterior_errors(problem: Problem, joint: DenseJoint) -> dict[str, float]:
    """The relative error of every quantity of a posterior."""
    posterior, everyone = problem.fit(), problem.everyone
    weights = posterior.weights
    left, right = (grid.ravel() for grid in np.meshgrid(everyone, everyone, indexing="ij"))
    errors = {
        "latent mean": relative_error(weights.latent_mean, joint.latent_mean),
        "latent covariance": relative_error(weights.latent_cov, joint.latent_cov),
        "action means": relative_error(weights.action_mean(), joint.action_mean),
        "action covariances": relative_error(weights.action_cov(everyone), joint.blocks[everyone, everyone]),
        "cross-covariances": relative_error(weights.cross_cov(left, right), joint.blocks[left, right]),
    }
    if len(problem.logs):
        errors["log evidence"] = relative_error(posterior.log_evidence, joint.log_evidence)
    rng = np.random.default_rng(len(everyone))
    contexts = rng.normal(size=(6, problem.prior.dim))
    probabilities = rng.dirichlet(np.ones(len(everyone)), 6)
    direction = np.einsum("na,nd->ad", probabilities, contexts) / len(contexts)
    mean = float(np.sum(direction * joint.action_mean))
    variance = float(np.einsum("ad,abde,be->", direction, joint.blocks, direction))
    own_blocks = joint.blocks[everyone, everyone]
    reward_scale = np.abs(contexts @ joint.action_mean.T).max() or 1.0
    variance_scale = np.einsum("nd,kde,ne->nk", contexts, own_blocks, contexts).max() or 1.0
    estimate = posterior.value(ma.TablePolicy(probabilities), contexts)
    errors["policy value"] = abs(estimate.value - mean) / reward_scale
    errors["variance of the value"] = abs(estimate.posterior_std**2 - variance) / variance_scale
    return {name: float(error) for name, error in errors.items()}


def measure_dense_joint(case: int) -> Row:
    problem = random_problem(np.random.default_rng([1601, case]), most_actions=10, most_rounds=40)
    return posterior_errors(problem, DenseJoint(problem.dense, digits=30))


def summarise_dense_joint(rows: Sequence[Row]) -> Outcome:
    quantity, worst = max(((name, error) for row in rows for name, error in row.items()), key=lambda pair: pair[1])
    return Outcome(f"largest error {worst:.1e} ({quantity})", worst <= TOLERANCE)


def ill_conditioned_problem(rng: np.random.Generator, family: str, condition: float) -> Problem:
    """A small problem, one part of which has the given condition number.

    "small noise": the rounds outweigh the prior of an action by that factor. "collinear features": the second moments
    of the contexts. The last two families: the prior covariance of actions, or of ψ.
    """
    dim = int(rng.integers(2, 5))
    changes: dict[str, object] = {"dim": dim, "n_rounds": int(rng.integers(5, 31)), "action_scale": 1.0}
    if family == "small noise":
        problem = random_problem(rng, most_actions=5, most_rounds=30, **changes, noise_std=1.0)
        noise_std = float(np.sqrt(max(problem.largest_eigenvalue(), 1.0) / condition))
        return replace(problem, noise_std=noise_std, dense=replace(problem.dense, noise_std=noise_std))
    changes |= {"mixing_form": "dense", "offset_form": "each", "noise_std": 1.0}
    dense = random_problem(rng, most_actions=5, most_rounds=30, **changes).dense
    if family == "collinear features":
        rotation = np.linalg.qr(rng.normal(size=(dim, dim)))[0]
        lengths = np.geomspace(1.0, condition**-0.5, dim)
        dense = replace(dense, contexts=dense.contexts @ rotation * lengths @ rotation.T)
    elif family == "uneven action covariance":
        dense = replace(dense, action_cov=np.stack([uneven_covariance(rng, dim, condition) for _ in dense.mixing]))
    else:
        dense = replace(dense, latent_cov=uneven_covariance(rng, dense.latent_dim, condition))
    prior = ma.HierarchicalGaussian(dense.latent_mean, dense.latent_cov, dense.mixing, dense.action_cov, dense.offset)
    logs = ma.LoggedData(dense.contexts, dense.actions, dense.rewards, n_actions=dense.n_actions)
    return Problem(prior, logs, dense.noise_std, dense)


def uneven_covariance(rng: np.random.Generator, size: int, condition: float) -> np.ndarray:
    """A covariance with random axes, the largest eigenvalue one, and the given condition number."""
    rotation = np.linalg.qr(rng.normal(size=(size, size)))[0]
    cov = rotation * np.geomspace(1.0, 1.0 / condition, size) @ rotation.T
    return (cov + cov.T) / 2


def measure_sixty_digits(case: int) -> Row:
    family = FAMILIES[case % len(FAMILIES)]
    condition = 10.0 ** DECADES[case // len(FAMILIES) % len(DECADES)]
    problem = ill_conditioned_problem(np.random.default_rng([1602, case]), family, condition)
    errors = posterior_errors(problem, DenseJoint(problem.dense, digits=60))
    return {"family": family, "condition": condition, "weight": problem.largest_eigenvalue(), "errors": errors}


def share_of_allowed(row: Row) -> float:
    """The largest error of a case over what is allowed: 1e-10, or 100 ε times what amplifies rounding.

    For the posterior that is how far the rounds outweigh the prior of an action. The log evidence also needs the
    residual of a least-squares fit, so there it is the condition number of the features as well.
    """
    collinear = row["condition"] if row["family"] == "collinear features" else 1.0
    shares = list[float]()
    for quantity, error in row["errors"].items():
        amplification = max(row["weight"], collinear) if quantity == "log evidence" else row["weight"]
        shares.append(error / max(TOLERANCE, 100 * EPSILON * amplification))
    return max(shares)


def summarise_sixty_digits(rows: Sequence[Row]) -> Outcome:
    worst = max(map(share_of_allowed, rows))
    notes = list[str]()
    for family in dict.fromkeys(row["family"] for row in rows):
        errors = dict[float, list[Row]]()
        for row in rows:
            if row["family"] == family:
                errors.setdefault(row["condition"], []).append(row["errors"])
        by_condition = [_two_errors(condition, group) for condition, group in sorted(errors.items())]
        notes.append(f"Largest error with {family}: {'; '.join(by_condition)}.")
    return Outcome(f"largest share of the allowed error: {worst:.2f}", worst <= 1.0, tuple(notes))


def _two_errors(condition: float, errors: Sequence[Row]) -> str:
    posterior = max(error for row in errors for name, error in row.items() if name != "log evidence")
    evidence = max(row.get("log evidence", 0.0) for row in errors)
    return f"{posterior:.0e} (log evidence {evidence:.0e}) at condition number {condition:.0e}"


def measure_covariances(case: int) -> Row:
    """How far the covariances of an extreme problem are from symmetric and positive semi-definite."""
    rng = np.random.default_rng([1603, case])
    extremes = {
        "action_scale": float(rng.choice([1e-6, 1.0, 1e2, 1e8, 1e14])),
        "noise_std": float(rng.choice([1e-6, 1e-3, 1.0])),
    }
    problem = random_problem(rng, most_actions=12, most_rounds=80, **extremes)
    posterior, everyone = problem.fit(), problem.everyone
    weights = posterior.weights
    left, right = (grid.ravel() for grid in np.meshgrid(everyone, everyone, indexing="ij"))
    size = len(everyone) * weights.dim
    joint = weights.cross_cov(left, right).reshape(len(everyone), len(everyone), weights.dim, weights.dim)
    matrices = [weights.latent_cov, *weights.action_cov(everyone), joint.transpose(0, 2, 1, 3).reshape(size, size)]
    contexts = rng.normal(size=(5, weights.dim))
    std = posterior.value(ma.Uniform(len(everyone)), contexts).posterior_std
    return {
        "asymmetry": max(relative_error(matrix, matrix.T) for matrix in matrices),
        "negative": max(map(_negative_part, matrices)),
        "std_is_a_number": bool(np.isfinite(std) and std >= 0),
    }


def _negative_part(matrix: np.ndarray) -> float:
    """The most negative eigenvalue over the largest in size, as a positive number; zero if none is negative."""
    if matrix.size == 0:
        return 0.0
    eigenvalues = np.linalg.eigvalsh(matrix)
    return float(max(-eigenvalues[0], 0.0) / max(np.abs(eigenvalues).max(), np.finfo(float).tiny))


def summarise_covariances(rows: Sequence[Row]) -> Outcome:
    asymmetry, negative = (max(row[name] for row in rows) for name in ("asymmetry", "negative"))
    finite = all(row["std_is_a_number"] for row in rows)
    measured = f"asymmetry {asymmetry:.0e}, negative eigenvalue {negative:.0e} of the largest"
    notes = () if finite else ("The standard deviation of a value is not a number in some case.",)
    return Outcome(measured, finite and max(asymmetry, negative) <= ROUNDING, notes)


ROUNDING = 1e-13
"""The share of the largest eigenvalue that rounding may take: eigenvalues of 60 x 60 matrices are no more exact."""

CHECKS = (
    Check(
        "dense-joint", SECTION, "A Gaussian posterior is the conditional of the dense joint Gaussian.",
        "relative error at most 1e-10", 500, measure_dense_joint, summarise_dense_joint, batch=20,
    ),
    Check(
        "sixty-digits", SECTION, "It agrees with 60-digit arithmetic for condition numbers up to 1e12.",
        "error at most 1e-10, or 100 ε times the amplification of rounding", 400,
        measure_sixty_digits, summarise_sixty_digits, batch=40, shortest=len(FAMILIES) * len(DECADES),
    ),
    Check(
        "covariances", SECTION, "Every covariance is symmetric and positive semi-definite, however extreme the scales.",
        "within 1e-13 of the largest eigenvalue", 500, measure_covariances, summarise_covariances, batch=100,
    ),
)  # fmt: skip
