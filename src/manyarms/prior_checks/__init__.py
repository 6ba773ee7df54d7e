"""Checks of a prior against the logs: predictive checks, comparison of several priors, sensitivity of a value."""
