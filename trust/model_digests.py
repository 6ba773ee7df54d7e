"""Digests of models, policies, scores and decisions that are made in this process, printed as JSON.

The check of determinism runs this file in processes with other hash seeds, threads and cores, and compares the digests.
"""

from __future__ import annotations

import hashlib
import json
import sys
import tempfile
import warnings
from pathlib import Path

import numpy as np
import pyarrow as pa

import manyarms as ma


def main() -> None:
    """Fit, learn, score and decide on made-up logs, and print a digest of every result."""
    warnings.simplefilter("ignore")
    rng = np.random.default_rng(1620)
    n_rounds, n_actions, dim = (int(size) for size in sys.argv[1:4])
    contexts = rng.normal(size=(n_rounds, dim))
    actions = rng.integers(n_actions, size=n_rounds)
    rewards = contexts[:, 0] * (actions % 3) + rng.normal(size=n_rounds)
    propensities = np.full(n_rounds, 1 / n_actions)
    logs = ma.LoggedData(contexts, actions, rewards, propensities, n_actions=n_actions)
    clicks = ma.LoggedData(contexts, actions, (rewards > 1).astype(float), propensities, n_actions=n_actions)
    prior = ma.priors.from_categories(np.arange(n_actions) % 12, dim=dim, shared_std=1.0)
    gaussian, bernoulli = ma.fit(logs, prior), ma.fit(clicks, prior, ma.Bernoulli())
    learned = ma.learn_prior(logs, prior).posterior
    names = [f"x{number}" for number in range(dim)]
    table = pa.table({name: contexts[:, number] for number, name in enumerate(names)} | {"a": actions, "r": rewards})
    stream = ma.read_logs(table, names, "a", "r", n_actions=n_actions)
    read = ma.fit(stream, ma.priors.independent(n_actions, dim=stream.dim))
    decision = ma.decide({"greedy": ma.Greedy(gaussian), "uniform": ma.Uniform(n_actions)}, logs, gaussian)
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        digests = dict[str, str]()
        models = {"Gaussian": gaussian, "clicks": bernoulli, "learned prior": learned, "read from a table": read}
        policies = {"greedy": ma.Greedy(gaussian), "softmax": ma.Softmax(bernoulli, 0.3)}
        for name, model in {**models, **policies}.items():
            model.save(folder / "model")
            digests[name] = _digest((folder / "model").read_bytes())
        ma.score(read, table.slice(0, 2000), folder / "scores.parquet", top_k=5)
        digests["scores"] = _digest((folder / "scores.parquet").read_bytes())
    figures = decision.as_json()
    figures.pop("made_with", None)
    digests["decision"] = _digest(json.dumps(figures, sort_keys=False, default=str).encode())
    print(json.dumps(digests))


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:16]


if __name__ == "__main__":
    main()
