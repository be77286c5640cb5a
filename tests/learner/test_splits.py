from otel_lightning.learner.splits import HELD_OUT, TRAIN, split_of


def test_split_is_by_the_hash_of_the_task() -> None:
    # SHA-256 of nothing begins with e3b0c44298fc1c14, 0.889 of the way from 0 to 2**64.
    assert split_of("", held_out=0.88) == TRAIN
    assert split_of("", held_out=0.89) == HELD_OUT


def test_share_of_held_out_tasks_is_as_asked() -> None:
    held_out = sum(split_of(f"task-{i}", 0.3) == HELD_OUT for i in range(2000))
    # Three binomial standard deviations of 2000 draws at 0.3 are 61.
    assert abs(held_out - 600) < 61


def test_task_held_out_at_a_small_share_is_held_out_at_a_larger_one() -> None:
    tasks = [f"task-{i}" for i in range(200)]
    small = {task for task in tasks if split_of(task, 0.2) == HELD_OUT}
    assert small < {task for task in tasks if split_of(task, 0.4) == HELD_OUT}
