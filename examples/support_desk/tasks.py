"""The support desk: customers' requests, and the right answer to each.

A customer writes about an order. `lookup` shows the order's case; the case decides which of six
actions is right, by a table that only this file knows; a last sentence tells the customer.
There are 960 tasks. A third of them, chosen by their ids, are held out: they combine the same
twenty cases with orders and wordings in ways that the training tasks do not.

    python tasks.py --count 100 --seed 1 --output tasks.jsonl --answers-key key.jsonl
    python tasks.py --split held-out --output new.jsonl --answers-key new-key.jsonl
"""

import argparse
import hashlib
import itertools
import random
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from lines import write_lines

Split = Literal["train", "held-out"]

REQUESTS = {
    "refund": ("I want my money back for order {order}.", "Please refund order {order}."),
    "broken": ("Order {order} arrived broken.", "The item in order {order} does not work."),
    "missing": ("Where is order {order}?", "Order {order} has not come yet."),
    "mistake": ("Order {order} holds the wrong item.", "I did not ask for this: order {order}."),
    "cancel": ("Please cancel order {order}.", "I no longer need order {order}."),
}
STATUSES = ("packed", "shipped", "delivered", "lost")
ORDERS = tuple(f"{letter}{number}" for letter in "ABCD" for number in range(11, 17))

# The right action for a request while its order is packed, shipped, delivered, lost.
RIGHT_ACTIONS = {
    "refund": ("cancel_order", "escalate", "refund_order", "refund_order"),
    "broken": ("replace_item", "give_credit", "replace_item", "escalate"),
    "missing": ("give_credit", "trace_parcel", "escalate", "replace_item"),
    "mistake": ("replace_item", "trace_parcel", "give_credit", "refund_order"),
    "cancel": ("cancel_order", "trace_parcel", "escalate", "refund_order"),
}
SENTENCES = {
    "refund_order": "Order {order} is refunded.",
    "replace_item": "A new item for order {order} is on its way.",
    "cancel_order": "Order {order} is cancelled.",
    "trace_parcel": "We are tracing order {order}.",
    "give_credit": "A voucher for order {order} is yours.",
    "escalate": "A colleague will call about order {order}.",
}


@dataclass(frozen=True, slots=True)
class Task:
    """One customer's request, with all that decides the right answer."""

    task_id: str
    kind: str
    status: str
    order: str
    phrasing: int

    @property
    def request(self) -> str:
        """What the customer writes."""
        return REQUESTS[self.kind][self.phrasing].format(order=self.order)

    @property
    def case(self) -> str:
        """What `lookup` shows for the order."""
        return f"{self.kind}-{self.status}"

    @property
    def action(self) -> str:
        """The one right action."""
        return RIGHT_ACTIONS[self.kind][STATUSES.index(self.status)]

    @property
    def split(self) -> Split:
        """Whether the task is for training or held out: its id alone decides."""
        digest = hashlib.sha256(self.task_id.encode()).digest()
        return "held-out" if digest[0] % 3 == 0 else "train"


def all_tasks() -> list[Task]:
    """Name every task that exists, always in the same order."""
    world = itertools.product(REQUESTS, STATUSES, ORDERS, (0, 1))
    return [Task(f"desk-{number:03}", *parts) for number, parts in enumerate(world)]


def choose_tasks(count: int, seed: int, split: Split = "train") -> list[Task]:
    """Draw different tasks of one split; the same seed draws the same ones.

    Raises:
        ValueError: If the split does not hold that many.
    """
    pool = [task for task in all_tasks() if task.split == split]
    if not 0 < count <= len(pool):
        raise ValueError(f"Cannot draw {count} tasks: '{split}' holds 1 to {len(pool)}.")
    return random.Random(seed).sample(pool, count)


def final_text(action: str, order: str) -> str:
    """Word the sentence that closes a request after an action."""
    return SENTENCES[action].format(order=order)


def task_line(task: Task) -> dict[str, Any]:
    """Write a task as the agent may see it: `cases` is the data behind its tools."""
    return {"task_id": task.task_id, "request": task.request, "cases": {task.order: task.case}}


def key_line(task: Task) -> dict[str, Any]:
    """Write the right answer to a task, for the grader only."""
    text = final_text(task.action, task.order)
    return {"task_id": task.task_id, "order": task.order, "action": task.action, "text": text}


def main() -> None:
    """Write a file of tasks and, beside it, the answers that the agent must not see."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--split", choices=["train", "held-out"], default="train")
    parser.add_argument("--output", type=Path, required=True, help="the tasks")
    parser.add_argument("--answers-key", type=Path, required=True, help="their right answers")
    options = parser.parse_args()
    try:
        tasks = choose_tasks(options.count, options.seed, options.split)
        write_lines(options.output, map(task_line, tasks))
        write_lines(options.answers_key, map(key_line, tasks))
    except (OSError, ValueError) as error:
        sys.exit(f"tasks.py: {error}")
    print(f"{len(tasks)} tasks in {options.output}, their answers in {options.answers_key}")


if __name__ == "__main__":
    main()
