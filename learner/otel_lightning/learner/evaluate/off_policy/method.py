"""The declaration of an off-policy estimator: its function, and the inputs that it uses."""

from collections.abc import Callable
from dataclasses import dataclass

from otel_lightning.learner.arrays import Floats
from otel_lightning.learner.evaluate.off_policy.logged import Estimate, Logged


def unchanged(weights: Floats) -> Floats:
    """Use importance weights as they are."""
    return weights


@dataclass(frozen=True, slots=True)
class Method:
    """An off-policy estimator: its function, and the properties that its intervals depend on."""

    function: Callable[[Logged], Estimate]
    """Takes N logged rollouts, and returns an estimate of the evaluated policy's value."""
    weights: Callable[[Floats], Floats] = unchanged
    """The importance weights as the estimator uses them: unchanged, clipped, shrunk or left out.
    Shape [N] in and out."""
    uses_model: bool = False
    """Whether it reads the predictions of the reward model."""
    biased: bool = False
    """Whether its expectation may differ from the value. Then its intervals say how precise it is,
    not where the value is."""
    is_ratio: bool = False
    """Whether it divides by the sum of the weights, so that scores of rollouts have no known
    limits."""

    def __call__(self, logged: Logged) -> Estimate:
        """Estimate the value of the evaluated policy."""
        return self.function(logged)

    @property
    def name(self) -> str:
        """Name of the estimator, as users write it."""
        return self.function.__name__

    @property
    def depends_on_model(self) -> bool:
        """Whether an error of the reward model moves its value; `doubly_robust` corrects it."""
        return self.uses_model and self.biased
