"""Which method for a problem, and why: cheap probes, a small table of rules, and a trial of the two best."""

from bvfim.adviser.advice import Advice, advise
from bvfim.adviser.facts import Facts
from bvfim.adviser.rules import Candidate

__all__ = ["Advice", "Candidate", "Facts", "advise"]
