"""The default learning rate, and a search for a better one."""

from collections.abc import Callable

MAX_RATE, MIN_RATE = 3e-3, 1e-6
PROBED = (0.25, 0.5, 1.0, 2.0, 4.0)
"""Multiples of the default that `--find-lr` tries."""


def default_learning_rate(hidden_size: int, *, lora: bool) -> float:
    """Compute the learning rate for supervised fine-tuning of a model of a width.

    lr = 5e-5 * (10 for LoRA) * (2000 / hidden size)^0.781, within [1e-6, 3e-3].

    Args:
        hidden_size: Width of the model's hidden states.
        lora: Whether an adapter is trained instead of all weights.

    Source:
        Thinking Machines Lab, Tinker cookbook, `hyperparam_utils.get_lr`: a fit over Llama models
        of 1 to 70 billion parameters; the factor 10: LoRA Without Regret (2025). Far below that
        size it is an extrapolation: at width 96 it gives 5.4e-4, where 1e-3 was measured best.

    Example:
        >>> round(default_learning_rate(896, lora=False), 6)
        9.4e-05
    """
    rate: float = 5e-5 * (10 if lora else 1) * (2000 / hidden_size) ** 0.781
    return min(max(rate, MIN_RATE), MAX_RATE)


def find_learning_rate(middle: float, validation_loss: Callable[[float], float]) -> float:
    """Try learning rates around one, and name the one of the lowest validation loss.

    Args:
        middle: The default; multiples of it are tried.
        validation_loss: Trains shortly at a learning rate, and measures the loss on tasks that
            are neither trained on nor held out for the gate; NaN if training diverged.

    Returns:
        The best of the learning rates tried; the smallest if all diverged.

    Example:
        >>> find_learning_rate(1.0, lambda rate: abs(rate - 2))
        2.0
    """
    losses = {middle * factor: validation_loss(middle * factor) for factor in PROBED}
    # NaN is not equal to itself.
    finite = {rate: loss for rate, loss in losses.items() if loss == loss}  # noqa: PLR0124 - NaN
    return min(finite, key=finite.__getitem__) if finite else middle * PROBED[0]
