import shlex
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import polars as pl
import pytest
from click.testing import CliRunner, Result
from hypothesis import given
from hypothesis import strategies as st
from support.examples import examples

from otel_lightning.collector.store import open_store
from otel_lightning.learner.cli import cli
from otel_lightning.learner.score.judges.agreement import (
    agree,
    cohen_kappa,
    cross,
    kendall_tau_b,
    spearman_rho,
)
from otel_lightning.learner.score.table import replace_scores

if TYPE_CHECKING:
    from conftest import Traces

RATINGS = st.lists(st.tuples(st.integers(1, 5), st.integers(1, 5)), min_size=2, max_size=30).map(
    lambda pairs: tuple(np.array(pairs, dtype=np.float64).T)
)


def table(x: list[float], y: list[float]) -> tuple[np.ndarray, np.ndarray]:
    levels = np.unique([*x, *y]).astype(np.float64)
    return cross(x, y, levels), levels


def test_kappa_is_that_of_the_published_table() -> None:
    # Two readers of 50 proposals, 20 yes/yes, 5 yes/no, 10 no/yes, 15 no/no: 0.7 seen, 0.5 by
    # chance (https://en.wikipedia.org/wiki/Cohen%27s_kappa, first example).
    assert cohen_kappa(np.array([[20.0, 5.0], [10.0, 15.0]])) == pytest.approx(0.4)


def test_spearman_is_that_of_the_published_table() -> None:
    # IQ and hours of television: rho = -29/165
    # (https://en.wikipedia.org/wiki/Spearman%27s_rank_correlation_coefficient, example).
    iq = [106, 100, 86, 101, 99, 103, 97, 113, 112, 110]
    hours = [7, 27, 2, 50, 28, 29, 20, 12, 6, 17]
    assert spearman_rho(table(iq, hours)[0]) == pytest.approx(-29 / 165)


def test_kendall_is_that_of_the_scipy_manual() -> None:
    # The example of scipy.stats.kendalltau's documentation, ties in both.
    counts, _ = table([12, 2, 1, 12, 2], [1, 4, 7, 1, 0])
    assert kendall_tau_b(counts) == pytest.approx(-0.47140452079103173)


def test_all_four_are_those_of_scikit_learn_and_scipy() -> None:
    # cohen_kappa_score of scikit-learn 1.9.1; spearmanr and kendalltau of scipy 1.17.1.
    judge = [5, 4, 4, 3, 1, 2, 5, 5, 3, 2, 1, 4, 4, 2, 3, 5, 1, 3, 4, 2]
    labels = [5, 5, 4, 3, 2, 2, 4, 5, 2, 2, 1, 3, 4, 1, 3, 4, 1, 4, 4, 3]
    found = agree(judge, labels)
    assert found.n == 20
    assert found.kappa.value == pytest.approx(0.43217665615141954)
    assert found.weighted_kappa.value == pytest.approx(0.8721590909090909)
    assert found.spearman.value == pytest.approx(0.8741698474774479)
    assert found.kendall.value == pytest.approx(0.7848258458921973)


def test_a_step_of_the_scale_that_nobody_used_still_counts_as_distance() -> None:
    # cohen_kappa_score(…, labels=[1, 2, 3, 4, 5], weights="quadratic") of scikit-learn 1.9.1.
    counts, levels = table([5, 4, 2, 5, 1, 5, 2], [5, 2, 1, 5, 1, 4, 2])
    assert cohen_kappa(counts, levels) == pytest.approx(0.8455882352941176)


@examples(50)
@given(RATINGS)
def test_kendall_is_its_definition_over_pairs(ratings: tuple[np.ndarray, np.ndarray]) -> None:
    x, y = (np.sign(np.subtract.outer(r, r))[np.triu_indices(len(r), 1)] for r in ratings)
    product = np.sum(x**2) * np.sum(y**2)
    expected = np.sum(x * y) / np.sqrt(product) if product else np.nan
    assert kendall_tau_b(table(*ratings)[0]) == pytest.approx(expected, nan_ok=True)


@examples(50)
@given(RATINGS)
def test_spearman_is_the_correlation_of_mean_ranks(
    ratings: tuple[np.ndarray, np.ndarray],
) -> None:
    x, y = (pl.Series(r).rank("average").to_numpy() for r in ratings)
    constant = np.ptp(x) == 0 or np.ptp(y) == 0
    expected = np.nan if constant else np.corrcoef(x, y)[0, 1]
    assert spearman_rho(table(*ratings)[0]) == pytest.approx(expected, nan_ok=True)


def test_means_of_samples_are_rounded_for_kappa_and_ranked_as_they_are() -> None:
    found = agree([1.4, 1.6, 2.4, 3.0], [1, 2, 2, 3])
    assert found.kappa.value == 1
    assert found.kendall.value == pytest.approx(5 / (6 * 5) ** 0.5)  # 5 of 6 pairs, 1 tied


def test_full_agreement_is_one_and_its_interval_a_point() -> None:
    found = agree([1, 2, 3] * 10, [1, 2, 3] * 10)
    assert found.kappa == pytest.approx((1, 1, 1))
    assert found.kendall == pytest.approx((1, 1, 1))


def test_more_rollouts_narrow_the_interval() -> None:
    few = agree([1, 0, 1, 0] * 5, [1, 0, 0, 0] * 5).kappa
    many = agree([1, 0, 1, 0] * 50, [1, 0, 0, 0] * 50).kappa
    assert few.value == many.value == pytest.approx(0.5)
    assert few.lower < many.lower < 0.5 < many.upper < few.upper


def judged(traces: "Traces", scores: dict[str, float | None]) -> None:
    rows = [
        {"rollout_id": rollout, "value": value, "label": label(value)}
        for rollout, value in scores.items()
    ]
    frame = pl.DataFrame(rows).with_columns(name=pl.lit("tone"), source=pl.lit("judge:tone@1"))
    with open_store(traces.path) as store:
        replace_scores(store, "judge:tone", frame)


def label(value: float | None) -> str:
    return "error" if value is None else "pass" if value >= 3 else "fail"


def agreement(traces: "Traces", labels: str) -> Result:
    options = ["agreement", "--store", str(traces.path), "--judge", "tone", "--labels", labels]
    return CliRunner().invoke(cli, options)


def test_scores_are_compared_with_rewards_by_rollout_and_errors_are_left_out(
    traces: "Traces",
) -> None:
    for rollout, value in {"a": 1, "b": 2, "c": 5, "d": 4}.items():
        traces.call(rollout)
        traces.reward(rollout, value, name="human", source="feedback")
    traces.store()
    judged(traces, {"a": 1, "b": 2.4, "c": 4.6, "d": None, "e": 3})
    lines = agreement(traces, "human").output.splitlines()
    assert lines[0] == "3 rollouts have both, by value; 4 judged, 4 labelled."
    assert [line.split("  ")[0] for line in lines[1:]] == [
        "Cohen's kappa",
        "Cohen's kappa, quadratic",
        "Spearman's rho",
        "Kendall's tau-b",
    ]
    assert all("+1.000  [+1.000, +1.000]" in line for line in lines[1:])


def test_labels_in_words_are_compared_with_the_judges_own(traces: "Traces", tmp_path: Path) -> None:
    traces.store()
    judged(traces, dict(zip("abcdef", [5, 5, 4, 1, 2, None], strict=True)))
    file = tmp_path / "labels.csv"
    file.write_text("rollout_id,label\na,pass\nb,pass\nc,fail\nd,fail\ne,fail\nf,fail\n")
    lines = agreement(traces, str(file)).output.splitlines()
    assert lines[0] == "5 rollouts have both, by label; 5 judged, 6 labelled."
    (kappa,) = lines[1:]
    assert kappa.startswith("Cohen's kappa              +0.615")  # (4/5 - 12/25) / (1 - 12/25)


def test_a_constant_rating_has_no_agreement_and_says_so(traces: "Traces", tmp_path: Path) -> None:
    traces.store()
    judged(traces, {"a": 4, "b": 4})
    file = tmp_path / "labels.csv"
    file.write_text("rollout_id,value\na,4\nb,4\n")
    assert "undefined: a rating is constant" in agreement(traces, str(file)).output


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("rollout_id,value\nz,4\n", "None of 1 judged and 1 labelled rollouts has both"),
        ("id,value\na,4\n", "It needs rollout_id, and value or label."),
        ("rollout_id,value\na,good\n", "cannot be read as labels"),
        ("rollout_id,value\na,4\n", "Only 1 rollout has both a score and a label."),
    ],
)
def test_labels_that_say_nothing_are_one_sentence(
    traces: "Traces", tmp_path: Path, text: str, error: str
) -> None:
    traces.store()
    judged(traces, {"a": 4})
    file = tmp_path / "labels.csv"
    file.write_text(text)
    result = agreement(traces, str(file))
    assert result.exit_code == 1
    assert error in result.stderr


def test_an_unknown_name_lists_those_that_are_known(traces: "Traces") -> None:
    traces.store()
    judged(traces, {"a": 4})
    result = agreement(traces, "human")
    assert result.exit_code == 1
    assert "--labels 'human' names nothing in the store." in result.stderr


def test_a_store_that_no_judge_has_scored_names_the_command_that_does(traces: "Traces") -> None:
    traces.store()
    result = agreement(traces, "human")
    assert result.exit_code == 1
    advised = result.stderr.partition("Make some with: ")[2].strip()
    where = f"--store {traces.path} --endpoint URL --model NAME"
    assert advised == f"lightning-learn judge {where}"
    program, *words = shlex.split(advised)
    tried = CliRunner().invoke(cli, words)
    assert program == "lightning-learn"
    assert tried.exit_code == 1, tried.output  # 2 would be wrong usage: the URL is none yet


def test_a_file_of_labels_that_is_missing_is_named_as_in_other_errors(traces: "Traces") -> None:
    traces.store()
    judged(traces, {"a": 4})
    result = agreement(traces, "no-such.csv")
    assert (result.exit_code, result.stderr) == (
        2,
        "Error: There is no file 'no-such.csv' with labels.\n",
    )
