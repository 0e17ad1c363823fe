"""Data sets, label noise and balanced splits, as plain NumPy arrays."""

from bvfim.data.noise import pair_flip, symmetric, transition
from bvfim.data.sources import Dataset, Split, folder, load
from bvfim.data.splits import balanced_split

__all__ = ["Dataset", "Split", "balanced_split", "folder", "load", "pair_flip", "symmetric", "transition"]
