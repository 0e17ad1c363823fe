"""Data sets, label noise and balanced splits, as plain NumPy arrays."""

from bvfim.core.extras import require_extras

require_extras("bvfim.data", "app", "labels", "reproduce")

from bvfim.data.cifar10n import human
from bvfim.data.dataset import Dataset, Split
from bvfim.data.files import folder
from bvfim.data.noise import pair_flip, symmetric, transition
from bvfim.data.sources import load
from bvfim.data.splits import balanced_split

__all__ = ["Dataset", "Split", "balanced_split", "folder", "human", "load", "pair_flip", "symmetric", "transition"]
