"""Features of the input that cannot be learned from are named."""

from pathlib import Path

import numpy as np
import pytest

from otel_lightning.learner.errors import DataError
from otel_lightning.learner.policy.softmax.features import Features, check_leaks, read_spec


@pytest.mark.parametrize("content", [b"[features]\n# \xe9\n", b"[features", None])
def test_file_that_cannot_be_read_is_named(tmp_path: Path, content: bytes | None) -> None:
    file = tmp_path / "features.toml"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(DataError, match=f"'{file}' is not a readable TOML file"):
        read_spec(file)


def features(column: np.ndarray) -> Features:
    return Features(("kind",), column[:, None].astype(float))


def test_leak_in_any_order_of_the_values_is_refused() -> None:
    """Codes 1 and 3 are successes, 0 and 2 failures: the correlation alone is small."""
    rng = np.random.default_rng(0)
    rewards = (rng.random(400) < 0.5).astype(float)
    codes = 2 * rng.integers(2, size=400) + rewards
    assert abs(np.corrcoef(codes, rewards)[0, 1]) < 0.6
    with pytest.raises(DataError, match="its values alone tell the reward") as raised:
        check_leaks(features(codes), rewards)
    assert "over 400 rollouts" in str(raised.value)


def test_number_of_its_own_for_each_rollout_is_no_leak() -> None:
    """Each value has one reward, so its mean is that reward; this says nothing."""
    rng = np.random.default_rng(1)
    check_leaks(features(rng.random(400)), rng.random(400))


def test_feature_that_decides_with_the_arm_is_no_leak() -> None:
    rng = np.random.default_rng(2)
    kind, arm = rng.integers(2, size=(2, 400))
    check_leaks(features(kind), (kind == arm).astype(float))


def test_unknown_and_constant_features_are_counted() -> None:
    column = np.array([1.0, np.nan, 1.0, np.nan])
    assert features(column).notes == [
        "Feature 'kind' is NULL for 2 of 4 rollouts, which count as false.",
        "Feature 'kind' is 1 wherever it is known, so nothing can be learned from it.",
    ]
    numbers = Features(("size",), np.array([[1.5], [2.0], [np.nan]]))
    assert numbers.notes == ["Feature 'size' is NULL for 1 of 3 rollouts, which count as its mean."]
    assert features(np.array([0.0, 1.0])).notes == []
