"""The figures that vary K and d' under epsilon-greedy logging, a misspecified likelihood and a misspecified prior."""

from __future__ import annotations

from dataclasses import replace

from manyarms.experiments import paper_text as text
from manyarms.experiments.claim import ROUNDS, BestIsBetter, BetterThanEach, Claim, GainGrows, better_on_each
from manyarms.experiments.figure import Figure, Panel
from manyarms.experiments.methods import MISSPECIFIED, PAPER, PAPER_CLICKS
from manyarms.experiments.paper_robustness import CLICK_TREATMENTS, SATURATED, SET_METHODS
from manyarms.experiments.paper_synthetic import BASELINES, GROWING_K, NAMED_GRID, RIVALS, SETTING
from manyarms.experiments.problem import Kind

GREEDY_GRID = {name: replace(problem, logging="epsilon-greedy") for name, problem in NAMED_GRID.items()}
CLICKS_GRID = {name: replace(problem, binary=True) for name, problem in NAMED_GRID.items()}
WRONG = MISSPECIFIED["prior"]

GREEDY_GRID_OPL = Figure(
    "grid-epsilon-greedy",
    "Learning from a log of a good policy, as the number of actions K and the latent dimension d' vary",
    'Appendix, "relative reward ... on synthetic problems with varying n, K and d\' and varying logging policies"',
    tuple(Panel(at, problem, "opl", PAPER) for at, problem in GREEDY_GRID.items()),
    (
        Claim(
            "sDM learns a better policy than every baseline for every K and d', as with uniform logging.",
            better_on_each(GREEDY_GRID, "opl", "sDM", RIVALS),
            quotes=(text.GREEDY_LOG,),
        ),
        Claim(
            "IPS learns a better policy than DR and snIPS for every K and d'.",
            better_on_each(GREEDY_GRID, "opl", "IPS", ("DR", "snIPS")),
            quotes=(text.GREEDY_IPS,),
        ),
    ),
    note=f"{SETTING} {BASELINES} The log takes the truly best action half the time and a random one otherwise.",
)

_CLICKS_NOTE = f"{SETTING} {BASELINES} Rewards are 1 with probability g(xᵀ θ_a) and otherwise 0; σ = 0.5 is assumed."

CLICKS_GRID_OPL = Figure(
    "grid-misspecified-likelihood-opl",
    "Learning from clicks with a linear-Gaussian likelihood, as K and d' vary",
    'Appendix, "relative reward ... using misspecified likelihood with varying n and K"; d\' is our addition',
    tuple(Panel(at, problem, "opl", (*PAPER, "sDM (Bernoulli)", PAPER_CLICKS)) for at, problem in CLICKS_GRID.items()),
    (
        Claim(
            "Although its likelihood is wrong, sDM learns a better policy than every baseline, by any margin, for "
            "every K and d'.",
            better_on_each(CLICKS_GRID, "opl", "sDM", RIVALS),
            quotes=(text.CLICKS_MORE_OPL,),
        ),
        Claim(
            "For every K and d', variational inference learns a better policy than the paper's treatment of clicks.",
            better_on_each(CLICKS_GRID, "opl", "sDM (Bernoulli)", (PAPER_CLICKS,)),
        ),
    ),
    note=f"{_CLICKS_NOTE} {CLICK_TREATMENTS}",
)

CLICKS_GRID_OPE = Figure(
    "grid-misspecified-likelihood-ope",
    "Evaluating a policy from clicks with a linear-Gaussian likelihood, as K and d' vary",
    "Appendix, likelihood misspecification in OPE; K and d' vary as in the figure for OPL",
    # Without sDM (Bernoulli), whose errors would take five decades of the axis: click-treatments shows it.
    tuple(Panel(at, problem, "ope", PAPER) for at, problem in CLICKS_GRID.items()),
    (
        Claim(
            "In evaluation sDM suffers: for every K and d', one of snIPS, MIPS and PC has a smaller squared error.",
            tuple(
                BestIsBetter(problem.label, "ope", SET_METHODS, ("sDM",), prefix=f"{at}: ")
                for at, problem in CLICKS_GRID.items()
            ),
            quotes=(text.CLICKS_MORE_OPE,),
        ),
    ),
    note=f"{_CLICKS_NOTE} {SATURATED}",
)

_PRIOR_METHODS = ("sDM", "DM (Bayes)", *WRONG)
_PRIOR_NOTE = (
    f"{SETTING} Noise is added to μ, W_a, Σ and Σ_a; covariances stay symmetric, with eigenvalues above 0.001. "
    "DM (Bayes) has the right prior. Means and covariances apart: see misspecified-prior."
)


def _prior_claims(task: Kind, worse: str, *, of_paper: bool) -> tuple[Claim, ...]:
    """The claims about misspecified priors, in learning ("opl") or evaluation ("ope")."""
    return (
        Claim(
            f"The further the prior is from the right one, the worse sDM, for every K and d': {worse}.",
            tuple(
                BetterThanEach(problem.label, task, right, (wrong,), prefix=f"{at}: ")
                for at, problem in NAMED_GRID.items()
                for right, wrong in zip(("sDM", *WRONG), WRONG, strict=False)
            ),
            quotes=(text.PRIOR_WORSE,) * of_paper,
        ),
        Claim(
            "For every K and d', sDM with a misspecified prior is still better than DM (Bayes) with the right one.",
            tuple(part for wrong in WRONG for part in better_on_each(NAMED_GRID, task, wrong, ("DM (Bayes)",))),
            quotes=(text.PRIOR_STILL,) * of_paper,
        ),
    )


PRIOR_GRID_OPL = Figure(
    "grid-misspecified-prior-opl",
    "Learning with misspecified priors, as the number of actions K and the latent dimension d' vary",
    'Appendix, "relative reward ... misspecified prior means and covariances with varying n and K and d\'"',
    tuple(Panel(at, problem, "opl", _PRIOR_METHODS, factor=2.0) for at, problem in NAMED_GRID.items()),
    (
        *_prior_claims("opl", "a smaller relative reward", of_paper=True),
        Claim(
            "The gain of sDM with a misspecified prior over DM (Bayes) grows from K = 100 to K = 1000, at every n and "
            "d'.",
            tuple(
                GainGrows(problems, "opl", wrong, "DM (Bayes)", n, f"d' = {latent}: ")
                for latent, problems in GROWING_K.items()
                for wrong in WRONG
                for n in ROUNDS
            ),
            quotes=(text.PRIOR_LARGE_K,),
        ),
    ),
    measure="regret",
    note=_PRIOR_NOTE,
)

PRIOR_GRID_OPE = Figure(
    "grid-misspecified-prior-ope",
    "Evaluating a policy with misspecified priors, as the number of actions K and the latent dimension d' vary",
    "",
    tuple(Panel(at, problem, "ope", _PRIOR_METHODS) for at, problem in NAMED_GRID.items()),
    _prior_claims("ope", "a larger squared error", of_paper=False),
    share_axes="row",
    note=(
        f"{_PRIOR_NOTE} The paper's appendix on priors has one figure, of relative rewards. A caption there speaks of "
        "the MSE with misspecified priors, but it belongs to the figure on misspecified likelihoods: we take it for an "
        "error of the paper."
    ),
)
