"""The figures on well-specified synthetic problems, and what all figures on synthetic problems share."""

from __future__ import annotations

from collections.abc import Mapping

from manyarms.experiments.claim import (
    RIVALS,
    ROUNDS,
    BestIsBetter,
    BetterThanEach,
    Claim,
    GainGrows,
    GainLargerAt,
    MatchesReferences,
    Reference,
    estimates_best,
    learns_best,
)
from manyarms.experiments.figure import Figure, Panel
from manyarms.experiments.methods import BEYOND, DIRECT, LEARNERS_BEYOND, PAPER
from manyarms.experiments.problem import Kind, Problem, Synthetic

SETTING_ONE = Synthetic()
"""K = 1000, d = d' = 10, uniform logging."""

SETTING = (
    "Contexts uniform on [-1, 1]^d, d = 10; W_a and μ uniform on [-1, 1]; Σ = 3 I, Σ_a = I, σ = 1. The truth and the "
    "relative reward are computed on 2,000 fresh contexts of the instance; estimators average over logged contexts. "
    "The target takes the truly best action half the time and a random one otherwise."
)

BASELINES = (
    "MIPS: 10 k-means clusters, PC: 10 nearest neighbours, both of W_a μ. DR: cross-fitted in 5 folds with DM "
    "(Freq), a ridge with λ = 0.001. IPS, snIPS, DR, MIPS and PC learn a linear softmax policy by L-BFGS, stopped "
    "by a held-out fifth of the log."
)


DIRECT_RIVALS = DIRECT[1:]
IPS_FAMILY = ("IPS", "snIPS", "DR")
CLUSTERED = ("MIPS", "PC")


def _on_each(
    problems: Mapping[str, Problem], kind: Kind, rivals: tuple[str, ...], rounds: tuple[int, ...] = ROUNDS
) -> tuple[BetterThanEach, ...]:
    return tuple(BetterThanEach(p.label, kind, "sDM", rivals, rounds, f"{name}: ") for name, p in problems.items())


ONE = SETTING_ONE.label
LATENT_DIMS = (5, 10, 20)
GRID = {(K, latent): Synthetic(n_actions=K, latent_dim=latent) for K in (100, 1000) for latent in LATENT_DIMS}
GROWING_K = {p: tuple((f"K = {K}", GRID[K, p].label) for K in (100, 1000)) for p in LATENT_DIMS}
GROWING_DIM = {K: tuple((f"d' = {p}", GRID[K, p].label) for p in LATENT_DIMS) for K in (100, 1000)}
NAMED_GRID = {f"K = {K}, d' = {latent}": problem for (K, latent), problem in GRID.items()}
GREEDY_LOGGED = Synthetic(logging="epsilon-greedy")

# Mean and standard error over 50 instances, from an independent implementation that is not public.
_REWARDS = {
    "sDM": ((0.938, 0.005), (0.949, 0.004), (0.964, 0.003), (0.977, 0.002)),
    "sDM, pessimistic": ((0.933, 0.006), (0.937, 0.005), (0.941, 0.004), (0.958, 0.003)),
    "DM (Bayes)": ((0.437, 0.020), (0.661, 0.010), (0.866, 0.005), (0.944, 0.003)),
    "DM (Freq)": ((0.333, 0.004), (0.547, 0.003), (0.565, 0.018), (0.403, 0.020)),
}
_ERRORS = {
    "sDM": ((1.38, 0.15), (0.84, 0.06), (0.40, 0.03), (0.18, 0.02)),
    "DM (Bayes)": ((82.0, 6.0), (58.0, 4.0), (9.6, 0.6), (1.05, 0.07)),
    "DM (Freq)": ((102.0, 7.0), (85.0, 6.0), (26.0, 2.0), (1.85, 0.15)),
    "IPS": ((1050.0, 362.0), (182.0, 74.0), (25.0, 5.0), (12.7, 3.9)),
    "snIPS": ((97.0, 7.0), (54.0, 8.0), (8.4, 2.0), (3.1, 0.8)),
}


def _references(kind: Kind, table: dict[str, tuple[tuple[float, float], ...]]) -> tuple[Reference, ...]:
    return tuple(
        Reference(ONE, kind, method, n, mean, error)
        for method, row in table.items()
        for n, (mean, error) in zip((100, 1000, 5000, 10_000), row, strict=True)
    )


SMALL = GRID[100, 10].label
SMALL_REWARDS = (
    Reference(SMALL, "opl", "sDM", 1000, 0.976, 0.002),
    Reference(SMALL, "opl", "DM (Bayes)", 1000, 0.936, 0.003),
)
SMALL_ERRORS = (
    Reference(SMALL, "ope", "sDM", 1000, 0.11, 0.01),
    Reference(SMALL, "ope", "DM (Bayes)", 1000, 0.76, 0.08),
)

SYNTHETIC_OPL = Figure(
    "synthetic-opl",
    "Learning a policy, synthetic problems",
    "Figure 2, synthetic, OPL",
    (Panel("K = 1000", SETTING_ONE, "opl", (*PAPER, "sDM, pessimistic", *LEARNERS_BEYOND), factor=6.0),),
    (
        learns_best(SETTING_ONE),
        Claim(
            "The gain over DM (Bayes) is larger at small n: at n = 100 than at n = 10,000.",
            (GainLargerAt(ONE, "opl", "sDM", "DM (Bayes)", 100, 10_000),),
        ),
        Claim(
            "MIPS and PC do not lead the IPS family in learning: one of IPS, snIPS and DR is better.",
            (BestIsBetter(ONE, "opl", IPS_FAMILY, CLUSTERED),),
        ),
        Claim(
            "snIPS, DR and MIPS do not beat the direct methods in learning: DM (Bayes) and DM (Freq) are better.",
            tuple(BetterThanEach(ONE, "opl", dm, ("snIPS", "DR", "MIPS")) for dm in DIRECT_RIVALS),
            "DM (Bayes) is better everywhere. DM (Freq) is not better at n = 10,000, where snIPS and DR overtake "
            "it. With about as many rounds per action as features, a regression with almost no penalty (λ = 0.001) "
            "fits the noise, and the greedy policy then takes what is overestimated most. Its own curve falls from "
            "n = 2,000 on.",
        ),
        Claim(
            "Relative rewards agree with an independent implementation, within two joint standard errors.",
            (MatchesReferences(_references("opl", _REWARDS)),),
        ),
    ),
    note=f"{SETTING} {BASELINES}",
)

SYNTHETIC_OPE = Figure(
    "synthetic-ope",
    "Evaluating a policy, synthetic problems",
    "Figure 2, synthetic, OPE",
    (Panel("K = 1000", SETTING_ONE, "ope", (*PAPER, *BEYOND), factor=6.0),),
    (
        estimates_best(SETTING_ONE),
        Claim(
            "MIPS and PC lead the IPS family at K = 1000: both are better than IPS, snIPS and DR.",
            tuple(BetterThanEach(ONE, "ope", ours, IPS_FAMILY) for ours in CLUSTERED),
            "They lead IPS and DR up to n = 500, when almost all weights are zero, and fall behind from n = 2,000 "
            "on; snIPS is better than both from n = 1,000 on. Their squared error does not shrink with n: it is "
            "bias, since actions with similar W_a μ do not have similar rewards in this model. The paper does "
            "not say what its clusters and neighbours were made of.",
        ),
        Claim(
            "snIPS, DR and MIPS beat DM (Bayes) and DM (Freq) in evaluation.",
            tuple(BetterThanEach(ONE, "ope", ours, DIRECT_RIVALS) for ours in ("snIPS", "DR", "MIPS")),
            "Only in the middle: snIPS is better than both direct methods from n = 1,000 to 5,000, DR at 5,000, "
            "and MIPS is never better than DM (Bayes). At n = 100 weights are zero or huge; at n = 10,000 both "
            "direct methods are better.",
        ),
        Claim(
            "Squared errors agree with an independent implementation, within two joint standard errors.",
            (MatchesReferences(_references("ope", _ERRORS)),),
        ),
    ),
    note=f"{SETTING} {BASELINES}",
)

GRID_OPL = Figure(
    "grid-opl",
    "Learning a policy, by number of actions and latent dimension",
    'Appendix, "relative reward ... on synthetic problems with varying n, K and d\'"',
    tuple(Panel(at, problem, "opl", DIRECT, factor=4.0) for at, problem in NAMED_GRID.items()),
    (
        Claim(
            "sDM learns a better policy than DM (Bayes) and DM (Freq) for every K and d'.",
            _on_each(NAMED_GRID, "opl", DIRECT_RIVALS),
        ),
        Claim(
            "The gap to DM (Bayes) and DM (Freq) widens from K = 100 to K = 1000, at every n and d'.",
            tuple(
                GainGrows(GROWING_K[p], "opl", "sDM", dm, n, f"d' = {p}: ")
                for dm in DIRECT_RIVALS
                for p in LATENT_DIMS
                for n in ROUNDS
            ),
            "The gap to DM (Bayes) widens everywhere. The gap to DM (Freq) widens with one exception: at K = 100, "
            "n = 1,000 an action has as many rounds as there are features, where a regression without a penalty "
            "is at its worst.",
        ),
        Claim(
            "The gap widens with d' too, from 5 to 10 to 20, at every n and K.",
            tuple(
                GainGrows(GROWING_DIM[K], "opl", "sDM", dm, n, f"K = {K}: ")
                for dm in DIRECT_RIVALS
                for K in (100, 1000)
                for n in ROUNDS
            ),
            "The gap to DM (Bayes) widens at K = 1000 up to n = 5,000, and at K = 100 up to n = 1,000. With more "
            "rounds per action there is almost no gap left to widen. The gap to DM (Freq) widens while most "
            "actions are unseen and shrinks afterwards: a larger d' makes rewards larger relative to the noise "
            "that this regression fits.",
        ),
        Claim(
            "At K = 100, n = 1000, relative rewards agree with an independent implementation, within two errors.",
            (MatchesReferences(SMALL_REWARDS),),
        ),
    ),
    note=f"{SETTING} Direct methods only: the gradient learners are run in synthetic-opl.",
)

GRID_OPE = Figure(
    "grid-ope",
    "Evaluating a policy, by number of actions and latent dimension",
    'Appendix, "MSE of an ε-greedy target policy on synthetic problems with varying n, K and d\'"',
    tuple(Panel(at, problem, "ope", (*PAPER, *BEYOND)) for at, problem in NAMED_GRID.items()),
    (
        Claim(
            "sDM has a smaller squared error than every baseline for every K and d'.",
            _on_each(NAMED_GRID, "ope", RIVALS),
            "At K = 1000 it does, wherever the comparison is decided. At K = 100 it does up to n = 1,000. From n = "
            "2,000 on, with twenty rounds per action or more, DM (Freq) and, at d' = 5, DM (Bayes) have the "
            "smaller squared error. All these errors are small, and they are bias: the target takes the truly "
            "best action, a posterior shrinks exactly this one towards the others, and a regression without a "
            "penalty does not. Here the error of the truth, computed on 2,000 contexts, is not negligible: its "
            "square is 0.0009, 0.0016 and 0.0032 at d' = 5, 10 and 20, against squared errors of sDM of 0.0070, "
            "0.0042 and 0.0061 at n = 5,000 and 0.0021, 0.0025 and 0.0043 at n = 10,000. It adds the same amount "
            "to all methods, and blurs their differences.",
        ),
        Claim(
            "At K = 100 MIPS and PC do not lead the IPS family: one of IPS, snIPS and DR is better.",
            (BestIsBetter(SMALL, "ope", IPS_FAMILY, CLUSTERED),),
        ),
        Claim(
            "At K = 100, n = 1000, squared errors agree with an independent implementation, within two errors.",
            (MatchesReferences(SMALL_ERRORS),),
        ),
    ),
    note=f"{SETTING} {BASELINES}",
)

SCALING = {f"K = {K:,}": Synthetic(n_actions=K) for K in (10, 100, 1000, 10_000, 100_000)}
SCALING_K = Figure(
    "scaling-k",
    "sDM and DM (Bayes) as the catalog grows, n = 1000",
    "Figure 3",
    tuple(
        Panel(name, problem, "opl", ("sDM", "DM (Bayes)"), (1000,), factor=1.0 if problem.n_actions < 100_000 else 0.4)
        for name, problem in SCALING.items()
    ),
    (
        Claim(
            "sDM learns a better policy than DM (Bayes) for every K from 10 to 100,000.",
            _on_each(SCALING, "opl", ("DM (Bayes)",), (1000,)),
        ),
        Claim(
            "The gap widens with every step of K.",
            (GainGrows(tuple((name, p.label) for name, p in SCALING.items()), "opl", "sDM", "DM (Bayes)", 1000),),
        ),
    ),
    axis="n_actions",
    note=SETTING,
)

GREEDY_OR_PESSIMISTIC = Figure(
    "greedy-vs-pessimistic",
    "Greedy and pessimistic policies from the same posterior",
    'Appendix, "Comparison of Greedy and Pessimistic Policies"',
    tuple(Panel(at, problem, "opl", ("sDM", "sDM, pessimistic")) for at, problem in NAMED_GRID.items()),
    (
        Claim(
            "On average over instances drawn from the prior, the greedy policy is better, for every n, K and d'.",
            _on_each(NAMED_GRID, "opl", ("sDM, pessimistic",)),
        ),
    ),
    note=f"{SETTING} Pessimistic: lower confidence bound with the paper's α(d, δ), δ = 0.05.",
)

LOGGING_EPSILON_GREEDY = Figure(
    "logging-epsilon-greedy",
    "A log from a good policy: the truly best action half the time",
    'Appendix, "Different Logging Policy: ε-Greedy"',
    (
        Panel("Learning", GREEDY_LOGGED, "opl", (*PAPER, *LEARNERS_BEYOND), factor=2.0),
        Panel("Evaluation", GREEDY_LOGGED, "ope", (*PAPER, *BEYOND), factor=2.0),
    ),
    (
        learns_best(GREEDY_LOGGED),
        Claim(
            "IPS learns a better policy than DR and snIPS.",
            (BetterThanEach(GREEDY_LOGGED.label, "opl", "IPS", ("DR", "snIPS")),),
            "At n = 5,000 and 10,000 it does. At n = 100, DR is better. In between, 10 instances are too few to "
            "tell them all apart.",
        ),
        estimates_best(GREEDY_LOGGED),
    ),
    note=f"{SETTING} {BASELINES} Here the target is the logging policy itself.",
)
