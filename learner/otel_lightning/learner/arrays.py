"""Types of numpy arrays; docstrings and comments give their shapes, such as [N]."""

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Booleans = NDArray[np.bool_]
