from pathlib import Path

import polars as pl
import pytest

from otel_lightning.learner import DataError
from otel_lightning.learner.rollout_runner import Task, read_tasks
from otel_lightning.learner.rollout_runner.attempts import Attempt, agent_fields, command
from otel_lightning.learner.rollout_runner.plan import Arms, Job, plan
from otel_lightning.learner.rollout_runner.tasks import copies_of, copies_warning, tasks_in_split
from otel_lightning.learner.transitions.splits import split


def written(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('{"id": "a", "input": 1}\n{"id": "b", "inp', r"t.jsonl:2: the last line is cut off"),
        ('{"id": "a"\n{"id": "b"}\n', r"t.jsonl:1: not a JSON object"),
        ('{"id": "a"}\n{"id": "a"}\n', r"t.jsonl:2: has the id 'a' of .*t.jsonl:1"),
        ('{"x": 1}\n\n{"x": 1}\n', r"t.jsonl:3: has no id, and the same fields as .*t.jsonl:1"),
        ("[1]\n", r"t.jsonl:1: is '\[1\]', not a JSON object"),
        ('{"id": [1], "x": 1}\n', r"t.jsonl:1: has the id '\[1\]'"),
        ('{"expected": 4}\n', r"t.jsonl:1: has neither an id nor a field"),
        ("\n", r"t.jsonl: has no task"),
    ],
)
def test_file_that_is_no_tasks_is_refused_with_its_line(
    tmp_path: Path, text: str, says: str
) -> None:
    with pytest.raises(DataError, match=says):
        read_tasks(written(tmp_path / "t.jsonl", text))


def test_task_without_id_gets_a_hash_of_its_fields(tmp_path: Path) -> None:
    found = read_tasks(written(tmp_path / "t.jsonl", '{"q": "1"}\n{"q": "2"}\n'))
    assert found.without_id == 2
    assert len({task.task_id for task in found.tasks}) == 2
    again = read_tasks(written(tmp_path / "u.jsonl", '{"q": "2"}\n'))
    assert again.tasks[0].task_id == found.tasks[1].task_id


def test_all_formats_give_the_same_tasks(tmp_path: Path) -> None:
    frame = pl.DataFrame({"id": ["a", "b"], "question": ["1+1", "2+2"], "expected": ["2", "4"]})
    frame.write_csv(tmp_path / "t.csv")
    frame.write_parquet(tmp_path / "t.parquet")
    frame.write_ndjson(tmp_path / "t.jsonl")
    (tmp_path / "t.json").write_text(frame.write_json())
    read = [read_tasks(tmp_path / f"t.{form}") for form in ("csv", "parquet", "jsonl", "json")]
    assert read == [read[0]] * 4
    assert read[0].tasks[1] == Task("b", {"question": "2+2"}, expected="4")


def test_agent_is_shown_neither_what_is_expected_nor_the_metadata() -> None:
    task = Task("a", {"q": 1}, expected="gold", metadata={"hint": "gold"})
    assert agent_fields(task) == {"id": "a", "q": 1}
    assert Task("a", {"input": "x"}).input == "x"
    assert task.input == {"q": 1}


def test_split_is_that_of_transitions() -> None:
    tasks = [Task(str(i), {"q": i}) for i in range(200)]
    held = {task.task_id for task in tasks_in_split(tasks, "heldout", 0.3)}
    train = {task.task_id for task in tasks_in_split(tasks, "train", 0.3)}
    assert held | train == {task.task_id for task in tasks}
    hashes = pl.DataFrame(
        {"task_id": [t.task_id for t in tasks], "task_hash": [hash_of(t) for t in tasks]},
        schema_overrides={"task_hash": pl.UInt64},
    )
    ours = hashes.filter(split(0.3) == "heldout")["task_id"].to_list()
    assert set(ours) == held


def hash_of(task: Task) -> int:
    from hashlib import sha256

    return int(sha256(task.task_id.encode()).hexdigest()[:16], 16)


def test_shards_part_the_rollouts() -> None:
    tasks = [Task(str(i), {"q": i}) for i in range(40)]
    whole = {one.key for one in plan(Job((), ["x"], samples=3), tasks)}
    parts = [
        {one.key for one in plan(Job((), ["x"], samples=3, shard=(n, 4)), tasks)}
        for n in range(1, 5)
    ]
    assert sum(map(len, parts)) == len(whole) == 120
    assert set().union(*parts) == whole
    assert all(parts)


def test_another_input_is_another_rollout_and_more_samples_keep_the_former() -> None:
    def keys(question: str, samples: int) -> set[str]:
        return {o.key for o in plan(Job((), ["x"], samples=samples), [Task("a", {"q": question})])}

    assert keys("1", 2) < keys("1", 3)
    assert keys("1", 1).isdisjoint(keys("2", 1))


def test_other_content_behind_the_name_of_an_arm_or_a_model_is_another_rollout() -> None:
    arms = Arms("prompt", Path("flags.json"), ["a", "b"])

    def keys(prints: dict[str, str], model: str | None = None) -> dict[str | None, str]:
        job = Job((), ["x"], name="n", arms=arms, model="models/live", model_fingerprint=model)
        return {o.arm: o.key for o in plan(job, [Task("a", {"q": 1})], prints)}

    before, edited = keys({"a": "1", "b": "2"}), keys({"a": "1", "b": "3"})
    assert edited["a"] == before["a"]
    assert edited["b"] != before["b"]
    moved = keys({"a": "1", "b": "2"}, model="4")
    assert moved["a"] != before["a"]


def test_held_out_task_with_the_input_of_a_task_to_learn_from_is_named() -> None:
    learning = [Task("a", {"q": 1}), Task("only an id", {})]
    judging = [Task("b", {"q": 1}), Task("c", {"q": 2}), Task("another id", {})]
    told = copies_warning(judging, learning)
    assert told is not None
    assert told.startswith("1 held-out task has the same input as a task to learn from")
    assert "such as 'b' and 'a'" in told
    assert copies_warning(judging[1:], learning) is None


def test_task_that_differs_in_its_id_only_is_a_copy_and_counts_once() -> None:
    judging = [Task(name, {"q": q}) for name, q in (("a", "x y"), ("b", 2), ("c", "X  y"))]
    judging += [Task("d", {"q": "x y"}), Task("only an id", {}), Task("another id", {})]
    assert copies_of(judging) == {"c": ("a", 1), "d": ("a", 2)}
    told = copies_warning(judging, [])
    assert told is not None
    assert told.startswith("2 held-out tasks repeat another one under another id, such as 'c' and")
    assert copies_warning(judging[:2], []) is None


def test_tasks_that_are_all_equal_are_told_apart_by_their_ids() -> None:
    equal = [Task(name, {"q": "Solve it."}) for name in "abc"]
    assert copies_of(equal) == {}
    told = copies_warning(equal, [])
    assert told is not None
    assert told.startswith("3 held-out tasks have the same input as another held-out task")


def test_held_out_tasks_with_equal_inputs_and_other_answers_are_named() -> None:
    judging = [
        Task(name, {"q": q}, expected=name) for name, q in (("a", 1), ("b", 2), ("c", 1), ("d", 1))
    ]
    assert copies_of(judging) == {}
    told = copies_warning(judging, [])
    assert told is not None
    assert told.startswith("3 held-out tasks have the same input as another held-out task")
    assert "such as 'a' and 'c'" in told


def filled(words: list[str], task: Task) -> list[str]:
    (one,) = plan(Job((), words), [task])
    return command(words, Attempt(one), {"file": Path("/t.json"), "flags": None})


def test_fields_are_filled_into_arguments_without_a_shell() -> None:
    task = Task("a", {"question": "it's $HOME; rm -rf {id}", "n": 3})
    assert filled(["x", "{question}", "--n={n}", "{file}", "{{id}}"], task) == [
        "x",
        "it's $HOME; rm -rf {id}",
        "--n=3",
        "/t.json",
        "{id}",
    ]


def test_unknown_field_and_too_long_an_argument_are_refused() -> None:
    with pytest.raises(DataError, match=r"'\{quest\}', but task 'a' has no such field. Known: .*q"):
        filled(["{quest}"], Task("a", {"q": 1}))
    with pytest.raises(DataError, match=r"140000 characters, .* Give the agent \{file\}"):
        filled(["{q}"], Task("a", {"q": "x" * 140_000}))
