"""Batched linear algebra that knows nothing about bandits: factors, index arithmetic, top-k, threads."""
