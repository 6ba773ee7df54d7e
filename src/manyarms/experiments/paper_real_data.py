"""The figures on real data."""

from __future__ import annotations

from dataclasses import replace

from manyarms.datasets.data_files import KUAIREC, cache_folder
from manyarms.datasets.kuairec import PART, SMALL
from manyarms.experiments import paper_text as text
from manyarms.experiments import real_data_problems as problems
from manyarms.experiments.claim import (
    ROUNDS,
    BestIsBetter,
    BetterThanEach,
    Claim,
    better_on_each,
    estimates_best,
    learns_best,
)
from manyarms.experiments.figure import Figure, Panel
from manyarms.experiments.methods import BEYOND, CROSS_FITTED, DIRECT, FIXED_FREQ, LEARNERS_BEYOND, PAPER
from manyarms.experiments.number_requirements import AboveLogged, NearTruth
from manyarms.experiments.paper_synthetic import BASELINES, DIRECT_RIVALS, IPS_FAMILY, RIVALS, SETTING, SETTING_ONE
from manyarms.experiments.problem import Kind, Problem

MOVIELENS = (
    "MovieLens 1M: ratings with zeros where unrated, rank-5 factorisation, users u √s as contexts, movies v √s as θ; K "
    "of the rated movies drawn for each instance; rewards N(xᵀ θ_a, 1). sDM: a diagonal Gaussian mixture with J "
    "components, 5 unless stated, on the vectors of the movies, d' = 5 J; DM (Bayes): their mean and variance. MIPS "
    "and PC see the same vectors; in learning MIPS has J clusters by k-means. sDM (learned prior): effects of genres, "
    "learned from the log. The prior is fitted to the true weights themselves, so `sDM, no data` shows its greedy "
    "policy without any data."
)
UNDERESTIMATED = (
    "The rest of sDM's error is bias: the target takes the truly best movie of a thousand, an outlier that a mixture "
    "of five Gaussians does not expect and therefore shrinks. For a target chosen by the prior means, see the next "
    "claim."
)
PART_ONLY = "Only 83 videos for each of 1,411 users are here, a part of the small matrix, and nothing of the big one."


def real_data_figures(data: str | None) -> dict[str, Figure]:
    """The figures on real data by name; `data` is the folder of the data, None for the cache folder."""
    of_folder = (
        *(_figure_2, _movielens, _movielens_sizes, _movielens_epsilon_greedy, _movielens_halves),
        *(_kuairec, _jester, _open_bandit),
    )
    return {figure.name: figure for figure in (*(make(data) for make in of_folder), _digits())}


def _figure_2(data: str | None) -> Figure:
    """The real-data and synthetic panels of the paper's Figure 2, and below them our additions."""
    movielens = problems.MovieLensProblem(data)
    added = ("sDM", "sDM (learned prior)", "DR (sDM)", CROSS_FITTED, FIXED_FREQ)
    columns: tuple[tuple[str, Problem, Kind, float], ...] = (
        ("Synthetic, OPE", SETTING_ONE, "ope", 6.0),
        ("Synthetic, OPL", SETTING_ONE, "opl", 6.0),
        ("MovieLens, OPE", movielens, "ope", 2.0),
        ("MovieLens, OPL", movielens, "opl", 4.0),
    )
    return Figure(
        "figure-2",
        "The paper's Figure 2: evaluation and learning as the log grows, K = 1000; second row: our additions",
        "Figure 2",
        tuple(
            Panel(f"{title}{suffix}", problem, kind, methods, factor=factor)
            for methods, suffix in ((PAPER, ""), (added, ", more"))
            for title, problem, kind, factor in columns
        ),
        note=f"{SETTING} {MOVIELENS} {BASELINES}",
        data="ml-1m",
        columns=4,
        share_axes="row",
    )


def _movielens(data: str | None) -> Figure:
    """The figure on MovieLens by the paper's recipe."""
    problem = problems.MovieLensProblem(data)
    by_prior = replace(problem, target="prior")
    learners = ("sDM", CROSS_FITTED, "sDM, own variances", "sDM, no data", *LEARNERS_BEYOND)
    return Figure(
        "movielens",
        "MovieLens 1M as the log grows, K = 1000; second row: our additions",
        "Figure 2, MovieLens; Appendix, additional MovieLens experiments",
        (
            Panel("Learning", problem, "opl", PAPER, factor=4.0),
            Panel("Evaluation, best movie", problem, "ope", PAPER, factor=2.0),
            Panel("Evaluation, best by prior", by_prior, "ope", PAPER),
            Panel("Learning, more", problem, "opl", learners, factor=4.0),
            Panel("Evaluation, best movie, more", problem, "ope", ("sDM", CROSS_FITTED, *BEYOND), factor=2.0),
            Panel("Evaluation, best by prior, more", by_prior, "ope", ("sDM", CROSS_FITTED, "sDM, own variances")),
        ),
        (
            learns_best(problem, text.MOVIELENS),
            estimates_best(problem, text.MOVIELENS, remark=UNDERESTIMATED),
            replace(
                estimates_best(by_prior),
                text="sDM has a smaller squared error than every baseline, for a target chosen by the prior means.",
            ),
            Claim(
                "A log of 100 rounds makes sDM's policy better than its prior alone.",
                (BetterThanEach(problem.label, "opl", "sDM", ("sDM, no data",), (100,)),),
            ),
        ),
        share_axes="row",
        note=(
            f"{MOVIELENS} {BASELINES} The first target takes the truly best movie half the time, which favours methods "
            "that do not shrink; the second takes the best by the prior means of sDM, like a policy chosen before the "
            "log."
        ),
        data="ml-1m",
    )


def _movielens_sizes(data: str | None) -> Figure:
    """The figure on MovieLens with other numbers of movies and of mixture components."""
    problem = problems.MovieLensProblem(data)
    varied: dict[str, Problem] = {
        "J = 10": replace(problem, n_components=10),
        "J = 20": replace(problem, n_components=20),
        "K = 100": replace(problem, n_actions=100),
    }
    kinds: tuple[tuple[str, Kind], ...] = (("learning", "opl"), ("evaluation", "ope"))
    return Figure(
        "movielens-sizes",
        "MovieLens 1M as the number of mixture components J and of movies K varies",
        "Appendix, additional MovieLens experiments",
        tuple(Panel(f"{name}, {words}", other, kind, PAPER) for words, kind in kinds for name, other in varied.items()),
        (
            Claim(
                "sDM learns a better policy than every baseline for every J and K.",
                better_on_each(varied, "opl", "sDM", RIVALS),
                quotes=(text.MOVIELENS_MORE,),
            ),
            Claim(
                "sDM has a smaller squared error than every baseline for every J and K.",
                better_on_each(varied, "ope", "sDM", RIVALS),
                quotes=(text.MOVIELENS_MORE,),
            ),
        ),
        note=f"{MOVIELENS} {BASELINES}",
        data="ml-1m",
    )


def _movielens_epsilon_greedy(data: str | None) -> Figure:
    """The figure on MovieLens logged by a good policy."""
    problem = problems.MovieLensProblem(data, logging="epsilon-greedy")
    return Figure(
        "movielens-epsilon-greedy",
        "MovieLens 1M, logged by a policy that takes the truly best movie half the time",
        'Appendix, "Different Logging Policy: ε-Greedy"',
        (
            Panel("Learning", problem, "opl", (*PAPER, CROSS_FITTED, "sDM, no data", *LEARNERS_BEYOND)),
            Panel("Evaluation", problem, "ope", (*PAPER, CROSS_FITTED, *BEYOND)),
        ),
        (
            replace(
                learns_best(problem, text.GREEDY_MOVIELENS),
                text="Of the conclusions of Section 6 we test one: sDM learns a better policy than every baseline.",
            ),
            Claim(
                "IPS learns a better policy than DR and snIPS.",
                (BetterThanEach(problem.label, "opl", "IPS", ("DR", "snIPS")),),
            ),
            estimates_best(problem),
        ),
        note=(
            f"{MOVIELENS} {BASELINES} The target is the logging policy itself: for weighting estimators, evaluation is "
            "then a mean of rewards."
        ),
        data="ml-1m",
    )


def _movielens_halves(data: str | None) -> Figure:
    """The figure on MovieLens with truth and prior from separate ratings."""
    problem = problems.MovieLensProblem(data, half=True)
    return Figure(
        "movielens-halves",
        "MovieLens 1M, the prior from one half of the ratings and the truth from the other",
        "",
        (
            Panel("Learning", problem, "opl", (*DIRECT, FIXED_FREQ, "sDM, no data", "sDM (learned prior)"), factor=2.0),
            Panel("Evaluation", problem, "ope", PAPER),
            Panel("Evaluation, more", problem, "ope", ("sDM", CROSS_FITTED, *BEYOND)),
        ),
        (
            Claim(
                "sDM learns a better policy than DM (Bayes) and DM (Freq).",
                (BetterThanEach(problem.label, "opl", "sDM", DIRECT_RIVALS),),
            ),
            estimates_best(problem),
        ),
        share_axes="panel",
        note=f"{MOVIELENS} Ratings are split at random once; the vectors for priors come from the other half.",
        data="ml-1m",
    )


def _kuairec(data: str | None) -> Figure:
    """The figure on KuaiRec: real watch ratios."""
    partial = _is_partial(data)
    problem = problems.KuaiRecProblem(data, partial)
    by_context = replace(problem, target="context")
    part = (
        "RUN ON PARTIAL DATA: 83 videos for each of 1,411 users, a published part of the small matrix. Half of the "
        "cells, drawn anew for each instance, replace the big matrix, the others the small one. "
        if partial
        else "Big matrix: contexts and vectors; small matrix: rewards. "
    )
    return Figure(
        "kuairec",
        "KuaiRec as the log grows" + (", on part of its data" if partial else ""),
        "Figure 5; Appendix, KuaiRec",
        (
            Panel("Learning", problem, "opl", (*PAPER, "sDM, no data")),
            Panel("Evaluation, target by hindsight", problem, "ope", (*PAPER, CROSS_FITTED)),
            Panel("Evaluation, target by context", by_context, "ope", (*PAPER, CROSS_FITTED)),
        ),
        _kuairec_claims(problem, by_context, PART_ONLY if partial else ""),
        note=(
            f"{part}Watch ratios clipped at 10 and divided by the user's maximum; rank-5 factorisation, with an "
            "intercept in the contexts and the mean prior score of each video in its vector; sDM: a mixture with 5 "
            "components on these vectors; MIPS: categories; eligible are the videos for which a user has a cell; half "
            "of the users are logged, policies are evaluated on the others. The target by hindsight takes, half the "
            "time, what the user really watched most, which no context tells; the target by context takes what is best "
            f"by the vectors. {BASELINES}"
        ),
        data="kuairec",
    )


def _kuairec_claims(
    problem: problems.KuaiRecProblem, by_context: problems.KuaiRecProblem, untestable: str
) -> tuple[Claim, ...]:
    label = problem.label
    learning = (
        ("sDM learns the best policy among the direct methods.", text.KUAIREC_DM, "sDM", DIRECT_RIVALS, ROUNDS),
        (
            "sDM learns a better policy than IPS, snIPS, DR and PC.",
            text.KUAIREC_IPS,
            "sDM",
            (*IPS_FAMILY, "PC"),
            ROUNDS,
        ),
        (
            "At n = 100 to 1,000 sDM learns a better policy than MIPS.",
            text.KUAIREC_SMALL_N,
            "sDM",
            ("MIPS",),
            ROUNDS[:3],
        ),
        (
            "At n = 5,000 and above MIPS learns a better policy than sDM.",
            text.KUAIREC_LARGE_N,
            "MIPS",
            ("sDM",),
            ROUNDS[4:],
        ),
        ("At n = 2,000 sDM learns a better policy than MIPS.", text.KUAIREC_2000, "sDM", ("MIPS",), (2000,)),
        (
            "MIPS learns a better policy than every baseline.",
            text.KUAIREC_OPL,
            "MIPS",
            tuple(name for name in RIVALS if name != "MIPS"),
            ROUNDS,
        ),
        (
            "sDM learns a better policy than every baseline but MIPS.",
            text.KUAIREC_OPL,
            "sDM",
            tuple(name for name in RIVALS if name != "MIPS"),
            ROUNDS,
        ),
    )
    return (
        *(
            Claim(words, (BetterThanEach(label, "opl", ours, rivals, rounds),), "", (quote,), untestable)
            for words, quote, ours, rivals, rounds in learning
        ),
        *(
            Claim(
                f"sDM has a smaller squared error than every baseline, for the target by {name}.",
                (BetterThanEach(target.label, "ope", "sDM", RIVALS),),
                "",
                (text.KUAIREC_OPE,),
                untestable,
            )
            for name, target in (("hindsight", problem), ("context", by_context))
        ),
    )


def _jester(data: str | None) -> Figure:
    """The figure on Jester: a fully observed matrix."""
    problem = problems.JesterProblem(data)
    return Figure(
        "jester",
        "Jester: a fully observed matrix of ratings",
        "",
        (
            Panel("Learning", problem, "opl", (*PAPER, "sDM, no data", CROSS_FITTED, *LEARNERS_BEYOND)),
            Panel("Evaluation, target by hindsight", problem, "ope", (*PAPER, CROSS_FITTED, *BEYOND)),
        ),
        (
            learns_best(problem),
            Claim(
                "With a target by hindsight, reward models are far off: snIPS has a smaller squared error than sDM.",
                (BetterThanEach(problem.label, "ope", "snIPS", ("sDM",), (1000, 2000, 5000, 10_000)),),
            ),
        ),
        note=(
            "7,200 users who rated all 100 jokes: contexts come from 50 jokes, the other 50 are the actions, and "
            "rewards are the real ratings. sDM: a mixture with 5 components on regression weights of 100 users who "
            "appear nowhere else."
        ),
        data="jester",
    )


def _open_bandit(data: str | None) -> Figure:
    """The figure on the Open Bandit Dataset: two policies that really ran."""
    problem = problems.OpenBanditProblem(data)
    methods = ("sDM (learned prior)", "DM (Freq)", "IPS", "snIPS", "DR", CROSS_FITTED, "MIPS", "DR (sDM)")
    return Figure(
        "open-bandit",
        "Open Bandit Dataset: the value of bts from the log of random",
        "",
        (Panel("Campaign all", problem, "ope", (*methods, "logged"), rounds=(2000, 5000, 10_000), factor=0.4),),
        (
            Claim(
                "The log of random shows that bts earns more clicks.",
                (AboveLogged(problem.label, methods, 10_000),),
                "About 40 clicks are too few. The penalty of DM (Freq) pulls click rates towards zero.",
            ),
            Claim(
                "Estimates are within two joint standard errors of what bts really earned.",
                (NearTruth(problem.label, methods, 10_000),),
            ),
        ),
        note=(
            "Target: the shares of items by position in half of the log of bts, drawn anew for each instance; "
            "truth: the click rate of the other half, with an error of its own. n rounds of the log of random are "
            "drawn for each instance. The published sample has 10,000 rounds of each policy and about 40 clicks: we "
            "expect these to be too few to tell the two apart. Error bars show the spread over splits, not the error "
            "of the one log."
        ),
        data="obd",
    )


def _digits() -> Figure:
    """The figure on handwritten digits: a classification set."""
    problem = problems.DigitsProblem()
    methods = ("sDM (learned prior)", "DM (Freq)", "IPS", "snIPS", "DR", CROSS_FITTED, "DR (sDM)")
    return Figure(
        "digits",
        "Handwritten digits as bandit feedback: a classification set",
        "",
        (Panel("Learning", problem, "opl", methods), Panel("Evaluation", problem, "ope", methods)),
        (
            Claim(
                "With a learned prior, sDM learns a better policy than DM (Freq), IPS, snIPS and DR.",
                (BetterThanEach(problem.label, "opl", "sDM (learned prior)", ("DM (Freq)", "IPS", "snIPS", "DR")),),
                "Ten actions share nothing that a prior could learn beyond one scale, which the tuned penalty of DM "
                "(Freq) has as well.",
            ),
            Claim(
                "snIPS or DR has a smaller squared error than sDM: the linear model is wrong, the weights are small.",
                (BestIsBetter(problem.label, "ope", ("snIPS", "DR"), ("sDM (learned prior)",)),),
            ),
        ),
        note="1,797 images of 64 pixels, K = 10, uniform logging, reward 1 for the right digit; σ starts at 0.3.",
    )


def _is_partial(data: str | None) -> bool:
    """True if only the published part of KuaiRec is there, judging by file names: nothing is opened yet."""
    folder = problems.data_path(data, "kuairec") or cache_folder()
    whole = any((folder / name).exists() for name in (SMALL, KUAIREC.archive))
    return not whole and (folder / PART).exists()
