"""Rules for choosing an action, one family per file."""

from manyarms.policies.capped import CappedPolicy
from manyarms.policies.greedy import BlendedGreedy, EpsilonGreedy, Greedy
from manyarms.policies.logged import Logged
from manyarms.policies.pessimistic import Pessimistic
from manyarms.policies.softmax import Softmax
from manyarms.policies.table import TablePolicy
from manyarms.policies.thompson import Thompson
from manyarms.policies.uniform import Uniform

__all__ = [
    "BlendedGreedy",
    "CappedPolicy",
    "EpsilonGreedy",
    "Greedy",
    "Logged",
    "Pessimistic",
    "Softmax",
    "TablePolicy",
    "Thompson",
    "Uniform",
]
