"""The one error for data, files and settings that nothing can be learned from."""


class DataError(ValueError):
    """Nothing can be learned from what was given; the message says what, which and what next."""
