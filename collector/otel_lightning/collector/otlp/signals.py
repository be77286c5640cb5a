"""The signals that are stored."""

from typing import Literal

Signal = Literal["traces", "logs"]
