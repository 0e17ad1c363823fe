r"""Closed convex sets that constrain x or y.

A set constrains one tensor. A single set applies to every leaf of a tree; a tree of sets (with ``None`` for
no constraint) gives each leaf its own. A set provides its projection and, for implicit differentiation,
the tangent of that projection: at a stationary y of f over the set, the response of y
to a change of x solves :math:`\Pi (H + c I) \Pi\, \dot y = -\Pi\, \partial^2_{yx} f\, \dot x`, with
:math:`\Pi` the projection onto the directions that stay on the active face and c the face's curvature.
"""

from bvfim.sets.base import Set, Tangent
from bvfim.sets.made import Product, Projected
from bvfim.sets.shapes import Ball, Box, Simplex
from bvfim.sets.trees import SetTree, check_fit, entrywise, per_leaf, project, tangent

__all__ = [
    "Ball",
    "Box",
    "Product",
    "Projected",
    "Set",
    "SetTree",
    "Simplex",
    "Tangent",
    "check_fit",
    "entrywise",
    "per_leaf",
    "project",
    "tangent",
]
