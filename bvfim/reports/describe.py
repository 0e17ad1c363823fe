"""Tensors and trees in a few words, for messages and tables."""

from __future__ import annotations

from typing import Any

import optree
import torch
from torch import Tensor

from bvfim.tree import Tree

ENTRIES = 8
"""Up to how many entries of a tensor, or leaves of a tree, are written out."""


def named(name: str, variable: Tree) -> list[tuple[str, Any]]:
    """The leaves of a tree with a path for each: ``x``, ``x/weight``, ``x/0``.

    Example:
        >>> import torch
        >>> from bvfim.reports.describe import named
        >>> [path for path, _ in named("y", {"layers": [torch.ones(1), torch.ones(1)]})]
        ['y/layers/0', 'y/layers/1']
    """
    paths, leaves, _ = optree.tree_flatten_with_path(variable)
    return [("/".join([name, *map(str, path)]), leaf) for path, leaf in zip(paths, leaves, strict=True)]


def slug(label: str) -> str:
    """A label as the name of a file.

    Example:
        >>> from bvfim.reports.describe import slug
        >>> slug("RHG, one graph")
        'rhg-one-graph'
    """
    return label.lower().replace(", ", "-").replace(" ", "-")


def short(tensor: Tensor) -> str:
    """A tensor in a few words: its entries where they are few, else its shape and range.

    Example:
        >>> import torch
        >>> from bvfim.reports.describe import short
        >>> short(torch.tensor([1.0, 2.5])), short(torch.arange(20.0))
        ('[1, 2.5]', 'shape (20,), norm 49.6991, from 0 to 19')
    """
    if tensor.dim() == 0:
        return f"{float(tensor):.6g}"
    if tensor.numel() <= ENTRIES:
        entries = ", ".join(f"{v:.6g}" for v in tensor.flatten().tolist())
        return f"[{entries}]" + ("" if tensor.dim() == 1 else f" of shape {tuple(tensor.shape)}")
    norm, low, high = (float(t) for t in (torch.linalg.vector_norm(tensor), tensor.min(), tensor.max()))
    return f"shape {tuple(tensor.shape)}, norm {norm:.6g}, from {low:.6g} to {high:.6g}"


def point(x: Tree, y: Tree) -> str:
    """The point (x, y) in a few words, on one line.

    Example:
        >>> import torch
        >>> from bvfim.reports.describe import point
        >>> point(torch.tensor([1.0]), {"w": torch.tensor(2.0)})
        'x = [1], y/w = 2'
    """
    words = [f"{path} = {short(leaf)}" for name, v in (("x", x), ("y", y)) for path, leaf in named(name, v)]
    return few(words)


def shapes(x: Tree, y: Tree) -> str:
    """The shapes of x and y, a line each.

    Example:
        >>> import torch
        >>> from bvfim.reports.describe import shapes
        >>> print(shapes(torch.ones(3), {"w": torch.ones(2, 2)}))
        x has shape (3,)
        y/w has shape (2, 2)
    """
    lines = (
        few([f"{path} has shape {tuple(leaf.shape)}" for path, leaf in named(name, v) if isinstance(leaf, Tensor)])
        for name, v in (("x", x), ("y", y))
    )
    return "\n".join(line for line in lines if line)


def few(words: list[str]) -> str:
    """The first words of a list.

    Example:
        >>> from bvfim.reports.describe import few
        >>> few([str(i) for i in range(100)])
        '0, 1, 2, 3, 4, 5, 6, 7, and 92 more'
    """
    more = [f"and {len(words) - ENTRIES} more"] if len(words) > ENTRIES else []
    return ", ".join(words[:ENTRIES] + more)
