"""Ask a judge many questions at once, each only once, and keep every answer as it comes."""

import json
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field
from hashlib import sha256

from otel_lightning.collector.progress import Progress
from otel_lightning.learner.errors import DataError
from otel_lightning.learner.score.judges.answers import Answer, read_answer
from otel_lightning.learner.score.judges.cache import AnswerCache
from otel_lightning.learner.score.judges.endpoint import Judge, Payload
from otel_lightning.learner.score.judges.rubric import Rubric


@dataclass(frozen=True, slots=True)
class Question:
    """One sample of one rubric on one rollout."""

    key: str
    payload: Payload
    rubric: Rubric


@dataclass(slots=True)
class Usage:
    """What asking took."""

    asked: int = 0
    cached: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    without_count: int = 0
    """Answers that came without their number of tokens."""

    def add(self, answer: Answer) -> None:
        """Count one more answer."""
        self.asked += 1
        self.without_count += answer.input_tokens is None or answer.output_tokens is None
        self.input_tokens += answer.input_tokens or 0
        self.output_tokens += answer.output_tokens or 0

    def cost(self, input_price: float, output_price: float) -> float:
        """Price the tokens; prices are for a million.

        Example:
            >>> Usage(input_tokens=2_000_000, output_tokens=500_000).cost(0.4, 1.6)
            1.6
        """
        return (self.input_tokens * input_price + self.output_tokens * output_price) / 1e6


@dataclass(slots=True)
class Session:
    """A judge at work: whom to ask, where answers are kept, and how far it is."""

    judge: Judge
    cache: AnswerCache
    progress: Progress
    concurrency: int
    retry_errors: bool = False
    """Ask again where the kept answer has no score."""
    usage: Usage = field(default_factory=Usage)

    def report(self) -> None:
        """Show how far it is."""
        usage = self.usage
        tokens = usage.input_tokens + usage.output_tokens
        self.progress.report(usage.asked + usage.cached, f"{tokens:,} tokens")


def question_key(payload: Payload, sample: int) -> str:
    """Hash all that an answer depends on."""
    return sha256(json.dumps([payload, sample], sort_keys=True).encode()).hexdigest()


def answer_all(session: Session, questions: Sequence[Question]) -> dict[str, Answer]:
    """Answer questions: from the cache, else by the judge.

    Args:
        session: Whom to ask.
        questions: What to ask; of those with one key only one is asked.

    Returns:
        The answers by the keys of the questions.

    Raises:
        DataError: If the judge gives no answers any more. What it answered is in the cache.
    """
    known = _known(session, questions)
    todo = {question.key: question for question in questions if question.key not in known}
    session.usage.cached += len(questions) - len(todo)
    session.report()
    return known | _ask(session, list(todo.values()))


def _known(session: Session, questions: Sequence[Question]) -> dict[str, Answer]:
    found = session.cache.get({question.key for question in questions})
    if not session.retry_errors:
        return found
    rubrics = {question.key: question.rubric for question in questions}
    return {k: a for k, a in found.items() if read_answer(a, rubrics[k]).score is not None}


def _ask(session: Session, todo: Sequence[Question]) -> dict[str, Answer]:
    answers = {}
    with ThreadPoolExecutor(session.concurrency) as pool:
        futures: dict[Future[Answer], str] = {
            pool.submit(_ask_one, session, question): question.key for question in todo
        }
        try:
            for future in as_completed(futures):
                answers[futures[future]] = answer = future.result()
                session.usage.add(answer)
                session.report()
        except BaseException:
            pool.shutdown(cancel_futures=True)  # the first failure stops the rest
            raise
    return answers


def _ask_one(session: Session, question: Question) -> Answer:
    answer = session.judge.ask(question.payload)
    if not answer.refused:
        session.cache.put(question.key, answer)
    return answer


def stopped(session: Session, error: DataError) -> DataError:
    """Say what is left of a run that failed."""
    usage = session.usage
    return DataError(
        f"{error} No score was changed. At least {usage.asked + usage.cached} of "
        f"{session.progress.total} answers are kept, and the same command goes on from there."
    )
