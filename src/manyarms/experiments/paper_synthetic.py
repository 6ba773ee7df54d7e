"""The figures on well-specified synthetic problems, and what all figures on synthetic problems share."""

from __future__ import annotations

from dataclasses import replace

from manyarms.experiments import paper_text as text
from manyarms.experiments.claim import (
    ROUNDS,
    BestIsBetter,
    BetterThanEach,
    Claim,
    GainGrows,
    GainLargerAt,
    better_on_each,
    estimates_best,
    learns_best,
)
from manyarms.experiments.figure import Figure, Panel
from manyarms.experiments.methods import (
    BEYOND,
    CROSS_FITTED,
    DIRECT,
    FIXED_FREQ,
    LEARNERS_BEYOND,
    PAPER,
    SWEPT_MIPS,
    SWEPT_PC,
    UNTUNED,
    WEAK,
)
from manyarms.experiments.number_requirements import MatchesReferences, Reference
from manyarms.experiments.problem import Kind, Synthetic

SETTING_ONE = Synthetic()
"""K = 1000, d = d' = 10, uniform logging."""

SETTING = (
    "Contexts uniform on [-1, 1]^d, d = 10; W_a and μ uniform on [-1, 1]; Σ = 3 I, Σ_a = I, σ = 1. The truth and the "
    "relative reward are computed on 2,000 fresh contexts of the instance; estimators average over logged contexts. "
    "The target takes the truly best action half the time and a random one otherwise."
)

BASELINES = (
    "DM (Freq): a ridge per action, its penalty chosen by 5-fold cross-validation on each log; DR: with the same "
    "model, fitted to the same log. In evaluation, SLOPE++ chooses the clip of IPS and DR, the number of clusters of "
    "MIPS (0.5, 2, 5 or 20 % of K) and of neighbours of PC (0.3, 1, 3, 10 or 30 % of K) on each log. MIPS and PC see "
    "θ, as on MovieLens: k-means clusters, neighbours by cosine. In learning, IPS, snIPS, DR, MIPS and PC train a "
    "linear softmax policy by L-BFGS, our choice, stopped by a held-out fifth of the log; nothing is clipped, and MIPS "
    "has K/20 clusters, PC 3 % of K as neighbours. Variants: DR cross-fitted in 5 folds; a fixed λ = 0.001; no clip; "
    "MIPS and PC that know only W_a μ, with 10 clusters and 10 neighbours."
)


DIRECT_RIVALS = DIRECT[1:]
IPS_FAMILY = ("IPS", "snIPS", "DR")
CLUSTERED = ("MIPS", "PC")
WEIGHTED = ("snIPS", "DR", "MIPS")
"""The methods that the paper calls IPS-based when it compares them with direct methods."""
RIVALS = PAPER[1:]
"""The baselines of the paper."""


ONE = SETTING_ONE.label
LATENT_DIMS = (5, 10, 20)
GRID = {(K, latent): Synthetic(n_actions=K, latent_dim=latent) for K in (100, 1000) for latent in LATENT_DIMS}
GROWING_K = {p: tuple((f"K = {K}", GRID[K, p].label) for K in (100, 1000)) for p in LATENT_DIMS}
GROWING_DIM = {K: tuple((f"d' = {p}", GRID[K, p].label) for p in LATENT_DIMS) for K in (100, 1000)}
NAMED_GRID = {f"K = {K}, d' = {latent}": problem for (K, latent), problem in GRID.items()}
_GRID_AT = {K: {at: problem for at, problem in NAMED_GRID.items() if problem.n_actions == K} for K in (100, 1000)}
_WEIGHTED_BEAT_DM = tuple(part for ours in WEIGHTED for part in better_on_each(NAMED_GRID, "ope", ours, DIRECT_RIVALS))
TARGET_KNOWS = (
    "Where DM (Bayes) is better, the reason is that the target knows θ: half the time it takes the truly best action, "
    "whose estimate every prior pulls down. With many rounds per action little else is left of the error, and the "
    "prior of sDM, which is narrower given ψ, pulls more."
)
GREEDY_LOGGED = Synthetic(logging="epsilon-greedy")

# Mean and standard error over 50 instances, from an independent implementation that is not public.
_REWARDS = {
    "sDM": ((0.938, 0.005), (0.949, 0.004), (0.964, 0.003), (0.977, 0.002)),
    "sDM, pessimistic": ((0.933, 0.006), (0.937, 0.005), (0.941, 0.004), (0.958, 0.003)),
    "DM (Bayes)": ((0.437, 0.020), (0.661, 0.010), (0.866, 0.005), (0.944, 0.003)),
    FIXED_FREQ: ((0.333, 0.004), (0.547, 0.003), (0.565, 0.018), (0.403, 0.020)),
}
_ERRORS = {
    "sDM": ((1.38, 0.15), (0.84, 0.06), (0.40, 0.03), (0.18, 0.02)),
    "DM (Bayes)": ((82.0, 6.0), (58.0, 4.0), (9.6, 0.6), (1.05, 0.07)),
    FIXED_FREQ: ((102.0, 7.0), (85.0, 6.0), (26.0, 2.0), (1.85, 0.15)),
    "IPS, no clip": ((1050.0, 362.0), (182.0, 74.0), (25.0, 5.0), (12.7, 3.9)),
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
    "Learning a policy from logs of n rounds: K = 1000, d = d' = 10",
    "Figure 2, synthetic, OPL",
    (
        Panel("The paper's methods", SETTING_ONE, "opl", PAPER, factor=6.0),
        Panel(
            "Variants and additions",
            SETTING_ONE,
            "opl",
            ("sDM", "sDM, pessimistic", *LEARNERS_BEYOND, FIXED_FREQ, CROSS_FITTED, *WEAK),
            factor=6.0,
        ),
    ),
    (
        learns_best(SETTING_ONE, text.OUTPERFORMS),
        Claim(
            "The gain over every baseline, a difference of relative rewards, is larger at n = 100 than at n = 10,000.",
            tuple(GainLargerAt(ONE, "opl", "sDM", rival, 100, 10_000) for rival in RIVALS),
            quotes=(text.SMALL_N,),
        ),
        Claim(
            "DM (Bayes) learns a better policy than every other baseline.",
            (BetterThanEach(ONE, "opl", "DM (Bayes)", RIVALS[1:]),),
            quotes=(text.COMPETITIVE,),
        ),
        Claim(
            "MIPS and PC do not lead the IPS family in learning: one of IPS, snIPS and DR is better than both.",
            (BestIsBetter(ONE, "opl", IPS_FAMILY, CLUSTERED),),
            quotes=(text.CLUSTERED_LEARN,),
        ),
        Claim(
            "Nor do MIPS and PC lead standard DM in learning: DM (Bayes) and DM (Freq) are better than both.",
            tuple(BetterThanEach(ONE, "opl", dm, CLUSTERED) for dm in DIRECT_RIVALS),
            quotes=(text.CLUSTERED_LEARN,),
        ),
        Claim(
            "A cross-validated penalty makes DM (Freq) better than λ = 0.001.",
            (BetterThanEach(ONE, "opl", "DM (Freq)", (FIXED_FREQ,)),),
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
    "Evaluating a policy from logs of n rounds: K = 1000, d = d' = 10",
    "Figure 2, synthetic, OPE",
    (
        Panel("The paper's methods", SETTING_ONE, "ope", PAPER, factor=6.0),
        Panel("Variants and additions", SETTING_ONE, "ope", ("sDM", *BEYOND, CROSS_FITTED, *UNTUNED), factor=6.0),
    ),
    (
        estimates_best(SETTING_ONE, text.OUTPERFORMS),
        Claim(
            "The gain over every baseline, a difference of squared errors and not their ratio, is larger at n = 100 "
            "than at n = 10,000.",
            tuple(GainLargerAt(ONE, "ope", "sDM", rival, 100, 10_000) for rival in RIVALS),
            quotes=(text.SMALL_N,),
        ),
        Claim(
            "MIPS and PC are better than IPS, snIPS, DR, DM (Bayes) and DM (Freq).",
            tuple(BetterThanEach(ONE, "ope", ours, (*IPS_FAMILY, *DIRECT_RIVALS)) for ours in CLUSTERED),
            "What is left of the error of MIPS and PC at large n is bias: actions with similar θ are not equal.",
            (text.CLUSTERED_LEAD,),
        ),
        Claim(
            "Clusters and neighbours of θ serve MIPS and PC better than those of W_a μ.",
            tuple(BetterThanEach(ONE, "ope", ours, (weak,)) for ours, weak in zip(CLUSTERED, WEAK, strict=True)),
        ),
        Claim(
            "Cross-fitting serves DR: its squared error is smaller than with a model of the same rounds.",
            (BetterThanEach(ONE, "ope", CROSS_FITTED, ("DR",)),),
        ),
        Claim(
            "Squared errors agree with an independent implementation, within two joint standard errors.",
            (MatchesReferences(_references("ope", _ERRORS)),),
        ),
    ),
    note=f"{SETTING} {BASELINES}",
)

SET_SIZES = Figure(
    "set-sizes",
    "Evaluation by MIPS and PC as the number of clusters and neighbours varies, K = 1000",
    "",
    (
        Panel("Clusters of MIPS", SETTING_ONE, "ope", (*SWEPT_MIPS, "MIPS", "snIPS")),
        Panel("Neighbours of PC", SETTING_ONE, "ope", (*SWEPT_PC, "PC", "snIPS")),
    ),
    note=f"{SETTING} Clusters of θ by k-means, neighbours of θ by cosine. MIPS and PC without a size: SLOPE++ chooses.",
)

GRID_OPL = Figure(
    "grid-opl",
    "Learning a policy as the number of actions K and the latent dimension d' vary",
    'Appendix, "relative reward ... on synthetic problems with varying n, K and d\'"',
    tuple(Panel(at, problem, "opl", (*PAPER, FIXED_FREQ), factor=4.0) for at, problem in NAMED_GRID.items()),
    (
        Claim(
            "sDM learns a better policy than every baseline for every K and d'.",
            better_on_each(NAMED_GRID, "opl", "sDM", RIVALS),
        ),
        Claim(
            "snIPS, DR and MIPS do not beat the direct methods in learning: DM (Bayes) and DM (Freq) are better, for "
            "every K and d'.",
            tuple(part for dm in DIRECT_RIVALS for part in better_on_each(NAMED_GRID, "opl", dm, WEIGHTED)),
            quotes=(text.IPS_BEATS_DM_NOT,),
        ),
        Claim(
            "The gap to every baseline widens from K = 100 to K = 1000, at every n and d'.",
            tuple(
                GainGrows(GROWING_K[p], "opl", "sDM", rival, n, f"d' = {p}: ")
                for rival in RIVALS
                for p in LATENT_DIMS
                for n in ROUNDS
            ),
            quotes=(text.GRID_K,),
        ),
        Claim(
            "The gap to every baseline widens with d' too, from 5 to 10 to 20, at every n and K.",
            tuple(
                GainGrows(GROWING_DIM[K], "opl", "sDM", rival, n, f"K = {K}: ")
                for rival in RIVALS
                for K in (100, 1000)
                for n in ROUNDS
            ),
            quotes=(text.GRID_DIM,),
        ),
        Claim(
            "At K = 100, n = 1000, relative rewards agree with an independent implementation, within two errors.",
            (MatchesReferences(SMALL_REWARDS),),
        ),
    ),
    note=f"{SETTING} {BASELINES}",
)

GRID_OPE = Figure(
    "grid-ope",
    "Evaluating a policy as the number of actions K and the latent dimension d' vary",
    'Appendix, "MSE of an ε-greedy target policy on synthetic problems with varying n, K and d\'"',
    tuple(Panel(at, problem, "ope", PAPER) for at, problem in NAMED_GRID.items()),
    (
        Claim(
            "sDM has a smaller squared error than every baseline for every K and d'.",
            better_on_each(NAMED_GRID, "ope", "sDM", RIVALS),
            TARGET_KNOWS,
            (text.GRID_OPE,),
        ),
        Claim(
            "The gain over every baseline, a difference of squared errors, is larger at n = 100 than at n = 10,000, "
            "for every K and d'.",
            tuple(
                GainLargerAt(problem.label, "ope", "sDM", rival, 100, 10_000, f"{at}: ")
                for at, problem in NAMED_GRID.items()
                for rival in RIVALS
            ),
            quotes=(text.GRID_OPE_SMALL_N,),
        ),
        Claim(
            "snIPS, DR and MIPS beat DM (Bayes) and DM (Freq) in evaluation, for every K and d'.",
            _WEIGHTED_BEAT_DM,
            "The model of DR is DM (Freq), so DR is good only where DM (Freq) is.",
            (text.IPS_BEATS_DM,),
        ),
        Claim(
            "sDM outperforms snIPS, DR and MIPS, and it is the only direct method that does: all three beat DM (Bayes) "
            "and DM (Freq), for every K and d'.",
            (*better_on_each(NAMED_GRID, "ope", "sDM", WEIGHTED), *_WEIGHTED_BEAT_DM),
            quotes=(text.ONLY_DM,),
        ),
        Claim(
            "At K = 1000 MIPS and PC lead the IPS family: both are better than IPS, snIPS and DR, for every d'.",
            tuple(part for ours in CLUSTERED for part in better_on_each(_GRID_AT[1000], "ope", ours, IPS_FAMILY)),
            quotes=(text.CLUSTERED_K,),
        ),
        *(
            Claim(
                f"At K = 100 MIPS and PC do not outperform {words}: one of {names} is better, for every d'.",
                tuple(
                    BestIsBetter(problem.label, "ope", standard, CLUSTERED, prefix=f"{at}: ")
                    for at, problem in _GRID_AT[100].items()
                ),
                quotes=(text.CLUSTERED_SMALL_K,),
            )
            for words, names, standard in (
                ("the standard IPS methods", "IPS, snIPS and DR", IPS_FAMILY),
                ("the standard direct methods", "DM (Bayes) and DM (Freq)", DIRECT_RIVALS),
            )
        ),
        Claim(
            "At K = 100, n = 1000, squared errors agree with an independent implementation, within two errors.",
            (MatchesReferences(SMALL_ERRORS),),
        ),
    ),
    share_axes="row",
    note=f"{SETTING} {BASELINES}",
)

SCALING = {f"K = {K:,}": Synthetic(n_actions=K) for K in (10, 100, 1000, 10_000, 100_000)}
SCALING_K = Figure(
    "scaling-k",
    "Learning a policy as the number of actions K grows, n = 1000",
    "Figure 3",
    tuple(
        Panel(name, problem, "opl", ("sDM", "DM (Bayes)"), (1000,), factor=1.0 if problem.n_actions < 100_000 else 0.4)
        for name, problem in SCALING.items()
    ),
    (
        Claim(
            "sDM learns a better policy than DM (Bayes) for every K from 10 to 100,000.",
            better_on_each(SCALING, "opl", "sDM", ("DM (Bayes)",), (1000,)),
        ),
        Claim(
            "The gap widens with every step of K.",
            (GainGrows(tuple((name, p.label) for name, p in SCALING.items()), "opl", "sDM", "DM (Bayes)", 1000),),
            quotes=(text.GAP_GROWS,),
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
            better_on_each(NAMED_GRID, "opl", "sDM", ("sDM, pessimistic",)),
            quotes=(text.GREEDY,),
        ),
    ),
    note=f"{SETTING} Pessimistic: lower confidence bound with the paper's α(d, δ), δ = 0.05.",
)

LOGGING_EPSILON_GREEDY = Figure(
    "logging-epsilon-greedy",
    "A log from a good policy, which takes the truly best action half the time",
    'Appendix, "Different Logging Policy: ε-Greedy"',
    (
        Panel("Learning", GREEDY_LOGGED, "opl", (*PAPER, CROSS_FITTED, *LEARNERS_BEYOND), factor=2.0),
        Panel("Evaluation", GREEDY_LOGGED, "ope", (*PAPER, CROSS_FITTED, *BEYOND), factor=2.0),
    ),
    (
        replace(
            learns_best(GREEDY_LOGGED, text.GREEDY_LOG),
            text="Of the conclusions of Section 6 we test one: sDM learns a better policy than every baseline.",
        ),
        Claim(
            "IPS learns a better policy than DR and snIPS.",
            (BetterThanEach(GREEDY_LOGGED.label, "opl", "IPS", ("DR", "snIPS")),),
            "The model of DR is DM (Freq), whose penalty is tuned here: it learns most of the policy.",
            (text.GREEDY_IPS,),
        ),
        estimates_best(GREEDY_LOGGED),
    ),
    note=f"{SETTING} {BASELINES} Here the target is the logging policy itself.",
)
