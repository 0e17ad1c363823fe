"""Bilevel problems with known optima."""

from bvfim.testproblems.base import TestProblem, lower_gap, solved, starts
from bvfim.testproblems.collection import collection
from bvfim.testproblems.planted import planted, planted_family
from bvfim.testproblems.toy import sine

__all__ = ["TestProblem", "collection", "lower_gap", "planted", "planted_family", "sine", "solved", "starts"]
