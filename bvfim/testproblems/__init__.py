"""Bilevel problems with known optima."""

from bvfim.testproblems.base import TestProblem, starts
from bvfim.testproblems.collection import collection
from bvfim.testproblems.constrained import constrained
from bvfim.testproblems.coupled import coupled, pessimistic, unattained
from bvfim.testproblems.judge import Judged, judged, lower_gap, solved
from bvfim.testproblems.planted import planted, planted_family
from bvfim.testproblems.scalable import bic_gaffa, lv_hba, sipba, sto_sipba
from bvfim.testproblems.toy import sine

__all__ = [
    "Judged",
    "TestProblem",
    "bic_gaffa",
    "collection",
    "constrained",
    "coupled",
    "judged",
    "lower_gap",
    "lv_hba",
    "pessimistic",
    "planted",
    "planted_family",
    "sine",
    "sipba",
    "solved",
    "starts",
    "sto_sipba",
    "unattained",
]
