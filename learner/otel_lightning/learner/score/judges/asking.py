"""Ask a model many questions in parallel, without duplicates, and cache each answer at once."""

import json
import signal
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from hashlib import sha256
from queue import Empty, SimpleQueue
from threading import Thread
from typing import TypeAlias

from otel_lightning.collector.terminal.progress import Progress
from otel_lightning.learner.errors import DataError
from otel_lightning.learner.score.judges.answers import Answer, read_answer
from otel_lightning.learner.score.judges.cache import AnswerCache
from otel_lightning.learner.score.judges.endpoint import Model, Payload
from otel_lightning.learner.score.judges.rubric import Rubric

Done: TypeAlias = "SimpleQueue[tuple[str, Answer | Exception]]"
"""Keys of questions, each with its answer or the error of asking."""


@dataclass(frozen=True, slots=True)
class Question:
    """One request, for a judge one sample of one rubric on one rollout."""

    key: str
    payload: Payload
    rubric: Rubric | None = None
    """The rubric by which a judge's answer is read; None for another kind of question."""


@dataclass(slots=True)
class Usage:
    """Number of questions and tokens that a run took."""

    requested: int = 0
    cached: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    without_count: int = 0
    """Number of answers for which the endpoint reported no token count."""

    def add(self, answer: Answer) -> None:
        """Add one answer to the counts."""
        self.requested += 1
        self.without_count += answer.input_tokens is None or answer.output_tokens is None
        self.input_tokens += answer.input_tokens or 0
        self.output_tokens += answer.output_tokens or 0

    def cost(self, input_price: float, output_price: float) -> float:
        """Compute the cost of the tokens; prices are per million tokens.

        Example:
            >>> Usage(input_tokens=2_000_000, output_tokens=500_000).cost(0.4, 1.6)
            1.6
        """
        return (self.input_tokens * input_price + self.output_tokens * output_price) / 1e6


@dataclass(slots=True)
class Session:
    """One run that asks a model: the model, its cache, the progress and the usage."""

    model: Model
    cache: AnswerCache
    progress: Progress
    concurrency: int
    retry_errors: bool = False
    """Whether to ask again if the cached answer has no score."""
    usage: Usage = field(default_factory=Usage)

    def report(self) -> None:
        """Report the progress with the number of tokens."""
        usage = self.usage
        tokens = usage.input_tokens + usage.output_tokens
        self.progress.report(usage.requested + usage.cached, f"{tokens:,} tokens")


def question_key(payload: Payload, sample: int) -> str:
    """Hash all inputs of an answer: the key of the cache."""
    # The number of the sample is part of the key, so several samples of one question are kept
    # apart.
    return sha256(json.dumps([payload, sample], sort_keys=True).encode()).hexdigest()


def answer_all(session: Session, questions: Sequence[Question]) -> dict[str, Answer]:
    """Answer questions from the cache, and ask the model the others.

    Args:
        session: The model and its cache.
        questions: The questions; duplicates (equal keys) are asked once.

    Returns:
        The answer of each key.

    Raises:
        DataError: If the model stops answering. The answers so far are in the cache.
    """
    cached = _cached(session, questions)
    # By key, so that equal questions are asked once.
    todo = {question.key: question for question in questions if question.key not in cached}
    session.usage.cached += len(questions) - len(todo)
    session.report()
    return cached | _ask(session, list(todo.values()))


def _cached(session: Session, questions: Sequence[Question]) -> dict[str, Answer]:
    answers = session.cache.get({question.key for question in questions})
    if not session.retry_errors:
        return answers
    rubrics = {question.key: question.rubric for question in questions}
    return {key: answer for key, answer in answers.items() if _usable(answer, rubrics[key])}


def _usable(answer: Answer, rubric: Rubric | None) -> bool:
    return rubric is None or read_answer(answer, rubric).score is not None


def _ask(session: Session, questions: Sequence[Question]) -> dict[str, Answer]:
    answers: dict[str, Answer] = {}
    todo: SimpleQueue[Question] = SimpleQueue()
    done: Done = SimpleQueue()
    for question in questions:
        todo.put(question)
    # polars makes the system restart a wait after Ctrl-C (SA_RESTART), so the wait below would end
    # only when an answer came, which may take minutes.
    signal.siginterrupt(signal.SIGINT, True)  # noqa: FBT003
    # Daemons, since a process does not end before the threads of an executor have ended.
    threads = [
        Thread(target=_work, args=(session, todo, done), daemon=True)
        for _ in range(min(session.concurrency, len(questions)))
    ]
    for thread in threads:
        thread.start()
    try:
        while len(answers) < len(questions):
            key, answer = _answered(*done.get())
            answers[key] = answer
            session.usage.add(answer)
            session.report()
    except BaseException as error:
        with suppress(Empty):
            while True:  # do not pay for more answers after a failure
                todo.get_nowait()
        if isinstance(error, Exception):
            for thread in threads:  # what was asked already is cached
                thread.join()
        raise
    return answers


def _answered(key: str, answer: Answer | Exception) -> tuple[str, Answer]:
    if isinstance(answer, Exception):
        raise answer
    return key, answer


def _work(session: Session, todo: SimpleQueue[Question], done: Done) -> None:
    """Answer questions until there is none left."""
    with suppress(Empty):
        while True:
            question = todo.get_nowait()
            try:
                done.put((question.key, _ask_one(session, question)))
            except Exception as error:  # noqa: BLE001 - the thread that waits raises it
                done.put((question.key, error))


def _ask_one(session: Session, question: Question) -> Answer:
    answer = session.model.ask(question.payload)
    # A refusal is not cached: another limit or filter of the endpoint may accept it later.
    if not answer.refused:
        session.cache.put(question.key, answer)
    return answer


def stopped(session: Session, error: DataError, unchanged: str) -> DataError:
    """Add to an error what did not change, and how many answers of the failed run are kept."""
    usage = session.usage
    return DataError(
        f"{error} {unchanged} At least {usage.requested + usage.cached} of "
        f"{session.progress.total} answers are kept, and the same command goes on from there."
    )
