"""The one error for data, files and settings that nothing can be learned from."""


class DataError(ValueError):
    """Nothing can be learned from what was given; the message says what, which and what next."""


def no_transitions(store: str) -> DataError:
    """Say that transitions have to be built first, and how."""
    return DataError(
        "The store has no transitions, so there is nothing to learn from. Build them with: "
        f"lightning-learn transitions --store {store}"
    )
