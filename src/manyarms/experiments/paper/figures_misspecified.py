"""The figures in which sDM is told something wrong."""

from __future__ import annotations

from manyarms.experiments.claim_parts import Ahead, BestAhead
from manyarms.experiments.figure import Claim, Figure, Panel
from manyarms.experiments.methods import CLICKS, DM_BAYES, DR_SDM, LEARNED, MIPS_, OFFCEM, PAPER, PC, SDM, SNIPS_, WRONG
from manyarms.experiments.paper.figures_synthetic import BASELINES, RIVALS, ROUNDS, SETTING, names
from manyarms.experiments.synthetic_world import Synthetic

CLICKED = Synthetic(binary=True)
WRONGLY_TOLD = {K: Synthetic(n_actions=K) for K in (100, 1000)}
EVERYTHING, MEANS, COVARIANCES = (names(*methods) for methods in WRONG.values())

MISSPECIFIED_LIKELIHOOD = Figure(
    "misspecified-likelihood",
    "Clicks, with a linear-Gaussian likelihood",
    "Figure 4; Appendix, likelihood misspecification",
    (
        Panel("Learning", CLICKED, "opl", names(*PAPER, CLICKS, DR_SDM), many_slow=3.0),
        Panel("Judging", CLICKED, "ope", names(*PAPER, CLICKS, LEARNED, DR_SDM, OFFCEM)),
    ),
    (
        Claim(
            "Although its likelihood is wrong, sDM learns a better policy than every baseline.",
            (Ahead(CLICKED.label, "opl", "sDM", RIVALS, ROUNDS),),
        ),
        Claim(
            "In evaluation it is not the best any more: one of snIPS, MIPS and PC has a smaller squared error.",
            (BestAhead(CLICKED.label, "ope", names(SNIPS_, MIPS_, PC), names(SDM), ROUNDS),),
            remark=(
                "From n = 1,000 on snIPS is better, as the paper says. At n = 100 sDM still is: so few weights are not "
                "zero then that a wrong model beats none."
            ),
        ),
        Claim(
            "Beyond the paper: with the right likelihood, sDM is better than the linear one in both tasks.",
            (
                Ahead(CLICKED.label, "opl", CLICKS.name, names(SDM), ROUNDS, "learning: "),
                Ahead(CLICKED.label, "ope", CLICKS.name, names(SDM), ROUNDS, "judging: "),
            ),
        ),
    ),
    note=f"{SETTING} {BASELINES} Rewards are 1 with probability g(xᵀ θ_a) and else 0; linear methods assume σ = 0.5.",
)

MISSPECIFIED_PRIOR = Figure(
    "misspecified-prior",
    "Wrong priors: uniform noise from [v, v + 0.5] on their means and covariances",
    'Appendix, "Robustness to Prior Misspecification"',
    tuple(
        Panel(f"K = {K}", problem, "opl", names(SDM, DM_BAYES) + EVERYTHING + MEANS + COVARIANCES, many=2.0)
        for K, problem in WRONGLY_TOLD.items()
    ),
    (
        Claim(
            "The more wrong the prior, the worse the policy: right, v = 0.5, 1, 1.5.",
            tuple(
                Ahead(problem.label, "opl", better, (worse,), ROUNDS, f"K = {K}: ")
                for K, problem in WRONGLY_TOLD.items()
                for better, worse in zip(("sDM", *EVERYTHING), EVERYTHING, strict=False)
            ),
        ),
        Claim(
            "At K = 1000 sDM with a wrong prior is still ahead of DM (Bayes) with the right one.",
            tuple(Ahead(WRONGLY_TOLD[1000].label, "opl", wrong, names(DM_BAYES), ROUNDS) for wrong in EVERYTHING),
        ),
        Claim(
            "So it is at K = 100.",
            tuple(Ahead(WRONGLY_TOLD[100].label, "opl", wrong, names(DM_BAYES), ROUNDS) for wrong in EVERYTHING),
            remark=(
                "Up to n = 1,000 it is. From n = 2,000 on DM (Bayes) with the right prior is ahead, by less than "
                "0.3 % of the best value: with twenty rounds an action there is little left to share, and a wrong "
                "prior costs a little."
            ),
        ),
        Claim(
            "Wrong means (μ and W_a) hurt more than wrong covariances (Σ and Σ_a), at every v.",
            tuple(
                Ahead(problem.label, "opl", covariances, (means,), ROUNDS, f"K = {K}: ")
                for K, problem in WRONGLY_TOLD.items()
                for covariances, means in zip(COVARIANCES, MEANS, strict=True)
            ),
        ),
    ),
    note=(
        f"{SETTING} Noise is added to μ, W_a, Σ and Σ_a; covariances stay symmetric, eigenvalues above 0.001. "
        "DM (Bayes) has the right prior."
    ),
)
