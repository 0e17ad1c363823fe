"""What the arrays of label cleaning are called."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Float32 = NDArray[np.float32]
Labels = NDArray[np.int64]
Mask = NDArray[np.bool_]
