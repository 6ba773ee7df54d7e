"""Batched linear algebra that knows nothing of bandits: factors, groups of rows, tiles of a product."""
