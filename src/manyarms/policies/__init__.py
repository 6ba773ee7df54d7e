"""Rules for choosing an action."""

from manyarms.policies.epsilon_greedy import EpsilonGreedy
from manyarms.policies.logged import Logged
from manyarms.policies.pessimistic import Pessimistic
from manyarms.policies.scored_policy import Greedy, Softmax
from manyarms.policies.table import TablePolicy, Uniform
from manyarms.policies.thompson import Thompson

__all__ = ["EpsilonGreedy", "Greedy", "Logged", "Pessimistic", "Softmax", "TablePolicy", "Thompson", "Uniform"]
