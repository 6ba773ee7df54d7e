"""Models of every kind for the tests of model files, and their results in a form that compares bit by bit."""

import numpy as np
from scipy import sparse

import manyarms as ma
from manyarms import errors
from manyarms.core.action_covariance import ActionCovariance
from manyarms.core.feature_map import Categorical, FeatureMap, Numeric

K, D, N = 24, 3, 90


def bits(value):
    """Anything public as something that is equal only when every bit is."""
    if isinstance(value, np.ndarray):
        return value.dtype.str, value.shape, value.tolist() if value.dtype.hasobject else value.tobytes()
    if sparse.issparse(value):
        return [bits(part) for part in (value.data, value.indices, value.indptr)], value.shape
    if isinstance(value, float):
        return float(value).hex()
    if isinstance(value, ma.Estimate):
        value = vars(value) | {"interval": value.interval(), "shape": None, "posterior_shape": None}
    if isinstance(value, dict):
        return {name: bits(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [bits(one) for one in value]
    return value


def of_weights(weights):
    everyone = np.arange(weights.n_actions)
    return dict(
        repr=repr(weights), effects=weights.effects, seen=weights.observed.actions, evidence=weights.log_evidence,
        latent_mean=weights.latent_mean, latent_cov=weights.latent_cov, mean=weights.action_mean(),
        cov=weights.action_cov(everyone), cross=weights.cross_cov(everyone, everyone[::-1]),
        draws=weights.sample(np.random.default_rng(3), 2), marginal=weights.marginal().action_cov(everyone),
        base=weights.base.action_mean(),
    )  # fmt: skip


def of_posterior(posterior, x):
    greedy, uniform = ma.Greedy(posterior), ma.Uniform(posterior.n_actions)
    actions = np.arange(len(x)) % posterior.n_actions
    return dict(
        repr=repr(posterior), evidence=posterior.log_evidence, learned_from=posterior.learned_from,
        warnings=posterior.warnings, converged=posterior.converged, rewards=posterior.expected_reward(x),
        stds=posterior.reward_std(x, actions), value=posterior.value(greedy, x), uniform=posterior.value(uniform, x),
        difference=posterior.difference(greedy, uniform, x), top=greedy.top_k(x, 3),
        drawn=posterior.value_draws(greedy, x, n_draws=4, rng=np.random.default_rng(5)),
    )  # fmt: skip


def of_reward(posterior, x):
    statistics = posterior.statistics
    return of_posterior(posterior, x) | dict(
        trace=posterior.trace, likelihood=posterior.likelihood, statistics=repr(statistics),
        rows=[statistics.rows.actions, statistics.rows.features, statistics.rows.rewards],
        sums=[statistics.sums.actions, statistics.sums.gram, statistics.sums.moment],
        weights=of_weights(posterior.weights), prior=of_weights(posterior.prior), check=repr(posterior.check),
        features=posterior.features,
    )  # fmt: skip


def grown(posterior):
    """With two more actions, of the kinds that these have."""
    prior = posterior.prior
    mixing = prior.mixing
    extra = mixing.matrices[:2] if hasattr(mixing, "matrices") else ma.MixedEffects(mixing.weights[[0, 1]], prior.dim)
    cov = None if prior.action_covariance.each is None else prior.action_covariance.each[:2]
    offset = prior.offset[:2] if prior.offset is not None and prior.offset.ndim == 2 else None
    return posterior.with_actions(extra, cov, offset)


def results(posterior, logs):
    """All that users can ask of it, now and after more logs and more actions."""
    x = logs.contexts[:7]
    if isinstance(posterior, ma.HurdlePosterior):
        parts = {name: of_reward(getattr(posterior, name), x) for name in ("occurs", "amount")}
        later = [summary(posterior.update(logs), x), summary(posterior.refit(logs), x)]
        return bits(dict(now=of_posterior(posterior, x), later=later, **parts))
    later = [posterior.update(logs.take(np.arange(30))), posterior.refit(logs), grown(posterior)]
    return bits(dict(now=of_reward(posterior, x), later=[summary(one, x) for one in later]))


def summary(posterior, x):
    """What cannot be the same unless all that it is made of is."""
    return posterior.log_evidence, posterior.value(ma.Greedy(posterior), x), posterior.warnings


def again(posterior, tmp_path):
    posterior.save(tmp_path / "model.arrow")
    return ma.load(tmp_path / "model.arrow")


def rounds(rng, rewards=None, **more):
    actions = np.minimum(rng.integers(0, K, N), rng.integers(0, K, N))
    return ma.LoggedData(
        rng.normal(size=(N, D)), actions, rng.normal(size=N) if rewards is None else rewards, n_actions=K, **more
    )


def cube(rng, k, spread=0.2):
    roots = spread * rng.normal(size=(k, D, D))
    return roots @ roots.swapaxes(1, 2)


CATEGORIES = np.array([["tea", "mug", "pot", None][k % 4] for k in range(K)], dtype=object)
PATHS = [("home", f"room {k % 4}", f"shelf {k}") for k in range(K)]


def full_catalog():
    return ma.Catalog(
        [f"item {k}" for k in range(K)],
        categories=CATEGORIES,
        tags=[["new"] if k % 2 else {"old": 0.5, "red": 2} for k in range(K)],
        paths=PATHS,
        embeddings=np.vander(np.linspace(-1, 1, K), 4)[:, :3],
    )


def with_features(rng):
    phi = FeatureMap([Numeric("age", 30.0, 1 / 3), Categorical("city", ("Oslo", "Riga", 3))], intercept=False)
    logs = ma.LoggedData(
        rng.normal(size=(N, phi.dim)), rng.integers(0, K, N), rng.normal(size=N), n_actions=K, features=phi,
        catalog=full_catalog(), weights=rng.uniform(size=N),
    )  # fmt: skip
    return ma.fit(logs, ma.priors.from_categories(CATEGORIES, dim=phi.dim)), logs


def posterior_as_prior(rng):
    first, second = rounds(rng), rounds(rng)
    early = ma.fit(first, ma.priors.from_categories(CATEGORIES, dim=D))
    return ma.fit(second, early.weights, ma.Gaussian(0.7)), second


def learned(rng):
    logs = rounds(rng)
    return ma.learn_prior(logs, ma.priors.from_categories(CATEGORIES, dim=D)).posterior, logs


def updated(rng):
    logs, more = rounds(rng), rounds(rng)
    return grown(ma.fit(logs, ma.priors.from_tags([["a", "b"][k % 2 :] for k in range(K)], dim=D)).update(more)), more


def under(prior, likelihood=None, rewards=None):
    def make(rng):
        logs = rounds(rng, None if rewards is None else rewards(rng))
        return ma.fit(logs, prior(rng), likelihood), logs

    return make


def categories(rng):
    return ma.priors.from_categories(CATEGORIES, dim=D, effect_std=0.5, action_std=0.3)


def clicks(rng):
    return rng.integers(0, 2, N).astype(float)


def amounts(rng):
    return np.exp(rng.normal(size=N))


FORMS = {
    "one category each": under(categories),
    "tags": under(lambda rng: ma.priors.from_tags([["a", "b", "c"][k % 3 :] for k in range(K)], dim=D)),
    "taxonomy": under(lambda rng: ma.priors.from_taxonomy(PATHS, dim=D, shared_std=1.0)),
    "tree with a dense core": under(
        lambda rng: (
            ma.priors.from_taxonomy([path[2:] for path in PATHS], dim=D)
            + ma.priors.from_tags([list(range(12)) if k == 0 else [k % 12] for k in range(K)], dim=D)
        )
    ),
    "clusters": under(lambda rng: ma.priors.from_embeddings(rng.normal(size=(K, D)), 3, rng=rng)),
    "linear in embeddings": under(lambda rng: ma.priors.linear_in_embeddings(rng.normal(size=(K, 4)), dim=D)),
    "low rank": under(lambda rng: ma.priors.low_rank(rng.normal(size=(K, D, 2)))),
    "sum": under(lambda rng: categories(rng) + ma.priors.low_rank(rng.normal(size=(K, D, 2)))),
    "joint": under(lambda rng: ma.priors.from_joint(np.zeros(K * D), np.eye(K * D) + 0.5, K)),
    "independent": under(lambda rng: ma.priors.independent(K, mean=rng.normal(size=(K, D)), cov=cube(rng, K))),
    "a root of its own": under(
        lambda rng: ma.HierarchicalGaussian(
            np.zeros(4), np.eye(4), rng.normal(size=(K, D, 4)), ActionCovariance.from_root(rng.normal(size=(D, D)))
        )
    ),
    "no rounds": lambda rng: (ma.fit(rounds(rng).take(np.arange(0)), categories(rng)), rounds(rng)),
    "statistics": lambda rng: (ma.fit(ma.fit(rounds(rng), categories(rng)).statistics, categories(rng)), rounds(rng)),
    "posterior as prior": posterior_as_prior,
    "learned": learned,
    "updated and grown": updated,
    "features, catalog, weights": with_features,
    "LogNormal": under(categories, ma.LogNormal(0.5), amounts),
    "Bernoulli": under(categories, ma.Bernoulli(), clicks),
    "Bernoulli, Laplace": under(categories, ma.Bernoulli("laplace", expected="probit"), clicks),
    "Bernoulli, paper": under(categories, ma.Bernoulli("paper"), clicks),
    "Poisson": under(categories, ma.Poisson(), lambda rng: rng.poisson(2.0, N).astype(float)),
    "StudentT": under(categories, ma.StudentT(0.5, 2.5)),
    "Hurdle": under(categories, ma.Hurdle(), lambda rng: clicks(rng) * amounts(rng)),
}


def policies(posterior):
    rng = np.random.default_rng(1)
    return {
        "greedy": ma.Greedy(posterior),
        "pessimistic": ma.Pessimistic(posterior, delta=0.1),
        "softmax": ma.Softmax(posterior, temperature=0.3),
        "thompson": ma.Thompson(posterior, 40, rng=rng),
        "epsilon greedy": ma.EpsilonGreedy(ma.EpsilonGreedy(ma.Pessimistic(posterior), 0.1), 0.2),
        "uniform": ma.Uniform(K),
        "table": ma.TablePolicy(rng.dirichlet(np.ones(K))),
        "linear softmax": ma.LinearSoftmax(rng.normal(size=(K, D)), learned_from=posterior.learned_from),
    }


def brief(policy):
    """Some of every array and number of `model`, cheap enough for thousands of files."""
    posterior = policy.policy.posterior
    weights = posterior.weights
    return bits(
        [
            policy.epsilon, weights.action_mean(), weights.latent_mean, weights.action_cov([0, 5]), weights.effects,
            weights.log_evidence, weights.misfit, weights.log_det, posterior.statistics.sums.gram,
            posterior.statistics.sums.reward_sq, posterior.statistics.rows.features, posterior.fit_warnings,
            posterior.learned_from, posterior.likelihood, posterior.trace, posterior.evidence_offset,
            posterior.features, posterior.prior.action_mean(),
        ]
    )  # fmt: skip


def refused(path, content):
    """Whether a file with such content is refused, by a line that names it; if not, what it holds."""
    path.write_bytes(content)
    try:
        return brief(ma.load(path))
    except errors.ModelFileError as error:
        assert str(path) in str(error)
        assert "\n" not in str(error)
        return None
