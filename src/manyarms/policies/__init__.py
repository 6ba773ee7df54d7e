"""Rules for choosing an action."""

from manyarms.policies.fixed_policies import EpsilonGreedy, Logged, TablePolicy, Uniform
from manyarms.policies.pessimistic import Pessimistic
from manyarms.policies.scored_policy import Greedy, Softmax
from manyarms.policies.thompson import Thompson

__all__ = ["EpsilonGreedy", "Greedy", "Logged", "Pessimistic", "Softmax", "TablePolicy", "Thompson", "Uniform"]
