"""Compare the outcome with the other rollouts of the same task."""

from otel_lightning.learner.arrays import Floats
from otel_lightning.learner.credit.compare import compare
from otel_lightning.learner.credit.steps import Method, Options, Steps, sums, tasks_of_rollouts


def group(steps: Steps, options: Options) -> Floats:
    """Compare the return of each rollout with its task's; all its calls get the same advantage.

    A[i,t] = (R[i] - b[i]) / s for each call t of rollout i, where R[i] is the sum of all rewards of
    rollout i. b and s are computed from the rollouts j of the same task.

    | baseline | scale | b[i] | s | known as |
    |---|---|---|---|---|
    | mean | std | mean of all R[j] | standard deviation | GRPO |
    | mean | none | mean of all R[j] | 1 | Dr. GRPO |
    | leave_one_out | none | mean of the other R[j] | 1 | RLOO |

    The standard deviation has n - 1 degrees of freedom, and 1e-6 is added to it (`compare`). With
    leave_one_out and std, GRPO's advantage is multiplied by n / (n - 1). The only rollout of a task
    has nothing to be compared with and gets 0.

    Args:
        steps: N calls, of any number of tasks.
        options: `baseline` and `scale` are read.

    Returns:
        The advantage of each call, shape [N].

    Source:
        GRPO: Shao et al., DeepSeekMath (2024, arXiv:2402.03300), section 4.1.2. Dr. GRPO: Liu et
        al., Understanding R1-Zero-Like Training (2025, arXiv:2503.20783). RLOO: Ahmadian et al.,
        Back to Basics (2024, arXiv:2402.14740).
    """
    returns = sums(steps.rewards, steps.rollouts)
    return compare(returns, tasks_of_rollouts(steps), options)[steps.rollouts]


# `divides`: under `scale` std the advantage is divided by a standard deviation, so has no unit.
METHOD = Method(group, per_rollout=True, compares=True, divides=True)
