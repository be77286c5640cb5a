"""Suspicious data is warned about, with numbers."""

from typing import Any

from support.late import Late

from otel_lightning.learner.weights.examples import TEMPLATED, TOO_LONG, Example, Tokenized

checks: Any = Late("otel_lightning.learner.weights.preparation.checks")


def example(task: str, advantage: float, **columns: Any) -> Example:
    row = {
        "rollout_id": f"{task}/{advantage}",
        "task": task,
        "split": "train",
        "state_hash": None,
        "prompt": (ord(task[0]),),
        "completion": (20, 1),
        "logprobs": None,
        "temperature": 1.0,
        "reward": advantage,
        "outcome": advantage,
        "advantage": advantage,
        "model": "one",
    }
    return Example(**(row | columns))


def informative(tasks: int) -> list[Example]:
    return [example(chr(97 + n), a) for n in range(tasks) for a in (0.0, 1.0)]


def told(examples: list[Example]) -> list[str]:
    warnings: list[str] = checks.warnings(examples, Tokenized(examples))
    return warnings


def test_nothing_is_said_of_data_without_fault() -> None:
    assert told(informative(10)) == []


def test_tasks_whose_attempts_do_not_differ_teach_little() -> None:
    held_out = [example("x", a, split="heldout") for a in (0.0, 1.0)]
    (warning,) = told([*informative(9), example("w", 1.0), *held_out])
    assert warning.startswith("Only 9 tasks of the train split have completions of different")


def test_several_models_and_other_temperatures_are_counted() -> None:
    other = [example("y", 1.0, model="two"), example("z", 1.0, temperature=0.7)]
    models, temperatures = told([*informative(10), *other])
    assert models == "2 models wrote these transitions: one (21), two (1)."
    assert temperatures.startswith("1 of 22 transitions were sampled at another temperature than 1")


def test_transitions_with_rebuilt_token_ids_are_counted() -> None:
    rebuilt = [example(task, 1.0, source=TEMPLATED) for task in ("y", "z")]
    (warning,) = told([*informative(10), *rebuilt])
    assert warning.startswith("2 of 22 transitions have no logged token ids")
    assert checks.sources(
        [*informative(10), *rebuilt, example("x", 1.0, logprobs=(-1.0, -2.0))]
    ) == {
        "logged_tokens": 21,
        "rebuilt_tokens": 2,
        "logged_logprobs": 1,
    }


def test_held_out_rollouts_that_begin_like_trained_ones_are_counted() -> None:
    same = example("other", 1.0, split="heldout", prompt=(97,))
    new = example("new", 1.0, split="heldout", prompt=(5,))
    (warning,) = told([*informative(10), same, new])
    assert warning.startswith("1 held-out rollout begins with the same messages as rollouts")


def test_held_out_tasks_that_may_be_copies_of_each_other_are_counted() -> None:
    alike = [example(task, 1.0, split="heldout", prompt=(5,)) for task in ("one", "other")]
    twice = [example("twice", a, split="heldout", prompt=(6,)) for a in (0.0, 1.0)]
    (warning,) = told([*informative(10), *alike, *twice])
    assert warning.startswith("2 held-out tasks begin with the same messages as another held-out")


def test_transitions_that_were_left_out_are_counted_by_reason() -> None:
    tokenized = Tokenized(informative(10))
    for rollout in "ab":
        tokenized.leave_out(rollout, TOO_LONG)
    warnings = checks.warnings(tokenized.examples, tokenized)
    assert warnings == ["2 transitions left out: longer than --max-length."]


def test_held_out_turns_of_conversations_that_are_trained_on_are_counted() -> None:
    """An agent that gives each turn a rollout id of its own, and no task id."""
    turns = [
        example("y", 1.0, prompt=(7, 8), completion=(9, 1)),
        example("y2", 1.0, split="heldout", prompt=(7, 8, 9, 1, 5)),
        example("y3", 0.0, split="heldout", prompt=(7, 8, 9, 1, 5, 20, 1, 6)),
    ]
    (warning,) = told([*informative(10), *turns])
    assert warning.startswith("2 held-out rollouts continue a conversation that is trained on")


def test_conversations_that_only_begin_alike_are_no_leak() -> None:
    """They share the system prompt, or the answer differs, or it is a later call of a rollout."""
    turns = [
        example("y", 1.0, prompt=(7, 8), completion=(9, 1)),
        example("z", 1.0, split="heldout", prompt=(7, 8, 9, 2, 5)),
        example("w", 1.0, split="heldout", prompt=(7, 8, 9)),
        example("v", 1.0, split="heldout", prompt=(3,), rollout_id="v"),
        example("v", 0.0, split="heldout", prompt=(7, 8, 9, 1, 5), rollout_id="v"),
    ]
    assert told([*informative(10), *turns]) == []
