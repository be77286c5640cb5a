"""Search for prompts with GEPA (`--search gepa`), with a budget of real rollouts.

GEPA picks which prompt to improve and which to keep. The rollouts are run and graded by our runner;
the prompts are written, parsed and checked as without a search. What GEPA gets wrong on its own is
guarded here, each point by a test:

- An adapter that it does not recognise spends the whole budget silently: ours inherits from its
  own class.
- A model that fails is swallowed: it ends the search, and the error is raised afterwards.
- A cut or unfenced answer, a copy or a repetition becomes a prompt: the usual checks come first.
- Its budget is looked at between iterations only: ours is never exceeded.
- A rollout without a reward is an error to it: such a rollout counts as the mean of the others.
- The best score of many is too high: it is called that, and only the gate promotes.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from gepa.api import optimize
from gepa.core.adapter import EvaluationBatch, GEPAAdapter

from otel_lightning.collector.terminal.progress import Progress
from otel_lightning.collector.terminal.quantities import number_of
from otel_lightning.learner.errors import DataError
from otel_lightning.learner.prompts.logged.records import Record
from otel_lightning.learner.prompts.proposals.ask import Proposal, Proposer, Task, read_proposal
from otel_lightning.learner.prompts.proposals.plan import (
    Judged,
    Names,
    Plan,
    Request,
    check_proposal,
    taken_names,
)
from otel_lightning.learner.prompts.search.record import SearchRecord, evaluation_key
from otel_lightning.learner.prompts.serving.share import Candidate
from otel_lightning.learner.prompts.serving.variants import WHOLE_TEXT, Variant
from otel_lightning.learner.rollout_runner.tasks import Task as AgentTask
from otel_lightning.learner.score.judges.asking import (
    Question,
    Session,
    Usage,
    answer_all,
    question_key,
)
from otel_lightning.learner.score.judges.cache import AnswerCache

if TYPE_CHECKING:
    from gepa.core.result import GEPAResult

MINIBATCH = 3
"""Number of tasks on which a new prompt is compared with its parent first."""
MAX_VALIDATION_TASKS = 20
"""Largest number of tasks on which a prompt is scored that was better on the first ones."""
TRIES = 3
"""Number of answers that may be refused before a proposal is given up."""
WHOLE = "prompt"
"""GEPA's name for the only component of a variant that is a text."""
Texts = dict[str, str]


@dataclass(frozen=True, slots=True)
class Evaluated:
    """The results of a prompt on some tasks."""

    rewards: Mapping[str, float]
    """Reward of each graded task, by its id."""
    records: Mapping[str, Record]
    """The record that the proposing model sees, by task id; tasks without text have none."""


Evaluate = Callable[[Sequence[AgentTask], Any, int], Evaluated]
"""Runs the agent with a variant's value on tasks; the number counts the evaluations."""


@dataclass(frozen=True, slots=True)
class Search:
    """A search: the tasks, the number of rollouts and how to run them."""

    tasks: Sequence[AgentTask]
    """Tasks to search by, of the train split only."""
    budget: int
    """Largest number of rollouts of all starts together."""
    evaluate: Evaluate
    record: SearchRecord = field(default_factory=SearchRecord)
    """The record of earlier starts; a new one by default."""

    @property
    def validation(self) -> int:
        """Number of tasks on which a promising prompt is scored."""
        return min(MAX_VALIDATION_TASKS, len(self.tasks) // 2)

    @property
    def iteration(self) -> int:
        """Largest number of rollouts of one iteration of GEPA."""
        return 2 * MINIBATCH + self.validation

    def check(self) -> None:
        """Refuse a search that could not try a single prompt: it would look like a success.

        Raises:
            DataError: If there are too few tasks, or the budget is too small.
        """
        if self.validation < MINIBATCH:
            raise DataError(
                f"A search needs at least {2 * MINIBATCH} training tasks, and there are "
                f"{len(self.tasks)}."
            )
        minimum = self.validation + self.iteration
        if self.budget < minimum:
            raise DataError(
                f"--budget {self.budget} does not suffice to try one prompt: scoring the present "
                f"one takes {number_of(self.validation, 'rollout')}, and a new one up to "
                f"{self.iteration}. Give at least {minimum}."
            )


class NoProposalError(Exception):
    """All answers were refused; GEPA then goes on with its next iteration."""


@dataclass(slots=True)
class _ProposalState:
    """The inputs of each request for a prompt, and the proposals so far."""

    plan: Plan
    request: Request
    proposer: Proposer
    names: Names
    session: Session
    judged: list[Judged] = field(default_factory=list)


class Adapter(GEPAAdapter[AgentTask, Any, Any]):
    """GEPA's view of the agent: it inherits, because a look-alike would be ignored silently."""

    def __init__(self, search: Search, state: _ProposalState, parent: Variant) -> None:
        self._search, self._state, self._parent = search, state, parent
        self.spent = 0
        self.missing = 0
        """Rollouts without a reward."""
        self.failure: Exception | None = None
        self._evaluations = 0

    def evaluate(
        self,
        batch: list[AgentTask],
        candidate: Texts,
        capture_traces: bool = False,  # noqa: FBT001, FBT002 - GEPA's signature
    ) -> EvaluationBatch[Any, Any]:
        """Run the agent with a prompt on tasks.

        Raises:
            DataError: If no rollout has a reward, or the budget would be exceeded.
        """
        # GEPA may draw a task twice into a batch; it is run once.
        tasks = {task.task_id: task for task in batch}
        value = value_of(self._parent, candidate)
        self._begin(list(tasks.values()), value)
        result = self._search.evaluate(list(tasks.values()), value, self._evaluations)
        self._evaluations += 1
        rewards = [result.rewards[task] for task in tasks if task in result.rewards]
        if not rewards:
            raise DataError(
                "No rollout of the search has a reward. Give a grader, or let the agent send "
                "rewards."
            )
        self.missing += len(tasks) - len(rewards)
        # The mean of the others neither rewards nor punishes a prompt for a grader's failure.
        mean = sum(rewards) / len(rewards)
        scores = [result.rewards.get(task.task_id, mean) for task in batch]
        shown = [result.records.get(task.task_id) for task in batch]
        return EvaluationBatch(
            outputs=[None] * len(batch),
            scores=scores,
            trajectories=shown if capture_traces else None,
            num_metric_calls=len(tasks),
        )

    def _begin(self, tasks: Sequence[AgentTask], value: Any) -> None:
        """Take an evaluation from the budget, and note that it begins."""
        record, number = self._search.record, self._evaluations
        key = evaluation_key(tasks, value)
        unused = record.cost(number, key)
        self.spent += len(tasks) + unused
        if self.spent > self._search.budget:
            # Only if this walk is another than that of an earlier start: `should_stop` comes first.
            raise DataError(
                f"The budget of {number_of(self._search.budget, 'rollout')} is spent. An earlier "
                f"start ran {unused} of them for prompts that do not come up again, since the "
                "model's answers or the rollouts' records are not those of then. Give a larger "
                "--budget."
            )
        record.begin(number, key, len(tasks))

    def make_reflective_dataset(
        self,
        candidate: Texts,
        eval_batch: EvaluationBatch[Any, Any],
        components_to_update: list[str],
    ) -> Mapping[str, Sequence[Mapping[str, Any]]]:
        """Pass the records on to `propose_new_texts`."""
        del candidate
        records = [
            {"record": record} for record in eval_batch.trajectories or () if record is not None
        ]
        return dict.fromkeys(components_to_update, records)

    def propose_new_texts(
        self,
        candidate: Texts,
        reflective_dataset: Mapping[str, Sequence[Mapping[str, Any]]],
        components_to_update: list[str],
    ) -> Texts:
        """Ask the model for other texts, until one passes the checks.

        Raises:
            NoProposalError: If all answers were refused.
            DataError: If the model gives no answer. GEPA swallows it, so it is kept in `failure`.
        """
        new = {}
        for component in components_to_update:
            records = tuple(row["record"] for row in reflective_dataset[component])
            try:
                new[component] = self._proposed(candidate, component, records)
            except NoProposalError:
                raise
            except Exception as error:
                self.failure = error
                raise
        return new

    def should_stop(self) -> bool:
        """Return whether the next iteration could exceed the budget, or the model has failed."""
        # Asked before each iteration: one begins only if the budget covers the most that it may
        # take.
        return self.failure is not None or self.spent + self._search.iteration > self._search.budget

    def _proposed(self, candidate: Texts, component: str, records: tuple[Record, ...]) -> str:
        state = self._state
        name = WHOLE_TEXT if component == WHOLE else component
        for _ in range(TRIES):
            task = Task(
                parent=self._parent.name,
                component=name,
                prompt=candidate[component],
                longest=state.request.max_length,
                tried=state.plan.history.failed,
            )
            proposal = self._answer(task, records)
            judged = check_proposal(
                proposal, (task, records), state.plan, state.names, state.request
            )
            state.judged.append(judged)
            if judged.candidate is not None:
                return str(proposal.prompt)
        raise NoProposalError

    def _answer(self, task: Task, records: tuple[Record, ...]) -> Proposal:
        state = self._state
        payload = state.proposer.prepare(task, records)
        # Part of the cache's key, so that a repeated question gets another answer.
        number = state.plan.history.count + len(state.judged)
        question = Question(question_key(payload, number), payload)
        return read_proposal(answer_all(state.session, [question])[question.key])


@dataclass(frozen=True, slots=True)
class _Stop:
    """GEPA's form of a stop rule."""

    adapter: Adapter

    def __call__(self, gepa_state: Any) -> bool:
        del gepa_state
        return self.adapter.should_stop()


class _Quiet:
    """A logger for GEPA that prints nothing: the command prints the results itself."""

    def log(self, _: str) -> None:
        """Take a line."""


def searching(
    search: Search,
) -> Callable[[Plan, Request, Proposer, str], tuple[tuple[Judged, ...], Usage]]:
    """Return a way to get proposals: the best prompts of a search, for `propose_prompts`.

    Raises:
        DataError: If the budget or the tasks are too few, when it is returned.
    """
    search.check()

    def ask(
        plan: Plan, request: Request, proposer: Proposer, _: str
    ) -> tuple[tuple[Judged, ...], Usage]:
        plan = search.record.pinned(plan)
        parent = plan.variants[plan.parent]
        with closing(AnswerCache(request.cache)) as cache:
            session = Session(proposer, cache, Progress("Search", 0), request.concurrency)
            state = _ProposalState(plan, request, proposer, taken_names(plan, request), session)
            adapter = Adapter(search, state, parent)
            scored = _optimized(search, adapter, parent, request.seed)
        return _chosen(scored, state, min(request.candidates, plan.room)), session.usage

    return ask


def _optimized(
    search: Search, adapter: Adapter, parent: Variant, seed: int
) -> list[tuple[float, Texts]]:
    """Return the prompts of GEPA's pool with their scores, without the first one, best first."""
    tasks = list(search.tasks)
    result: GEPAResult[Any, Any] = optimize(
        seed_candidate={name or WHOLE: text for name, text in parent.texts.items()},
        # The tasks of validation are not trained on. Both are of the train split: the gate has
        # others.
        trainset=tasks[search.validation :],
        valset=tasks[: search.validation],
        adapter=adapter,
        reflection_minibatch_size=MINIBATCH,
        skip_perfect_score=False,
        max_metric_calls=search.budget,
        stop_callbacks=_Stop(adapter),
        cache_evaluation=False,  # agents are random
        logger=_Quiet(),
        seed=seed,
    )
    if adapter.failure is not None:
        raise adapter.failure
    # The first candidate is the prompt that the search began with.
    scored = zip(result.val_aggregate_scores[1:], result.candidates[1:], strict=True)
    return sorted(scored, key=lambda pair: -pair[0])


def _chosen(
    scored: Sequence[tuple[float, Texts]], state: _ProposalState, count: int
) -> tuple[Judged, ...]:
    """Keep the proposals that are in the best prompts of the pool; the others are refused.

    Args:
        scored: Score and texts of each prompt of the pool, best first.
        state: The proposals of the search.
        count: Number of prompts to keep.
    """
    parent = state.plan.variants[state.plan.parent]
    best: dict[str, tuple[float, Any]] = {}
    for score, texts in scored[: max(count, 0)]:
        value = value_of(parent, texts)
        best[str(value)] = score, value
    return tuple(
        _chosen_or_refused(answer, answer.candidate, best) if answer.candidate else answer
        for answer in state.judged
    )


def _chosen_or_refused(
    judged: Judged, candidate: Candidate, best: dict[str, tuple[float, Any]]
) -> Judged:
    """Give a proposal the first of the best prompts that has its text, or refuse it.

    That prompt is taken out of `best`, so each is used once. It may combine several proposals: the
    first of them stands for it.
    """
    for key, (score, value) in best.items():
        texts = value.values() if isinstance(value, dict) else [value]
        if judged.proposal.prompt in texts:
            del best[key]
            note = f"(Search: {score:.3f} on the tasks that chose it, so too high.)"
            proposal = judged.proposal._replace(reason=f"{judged.proposal.reason} {note}")
            return replace(judged, proposal=proposal, candidate=replace(candidate, value=value))
    refused = judged.proposal._replace(refused="the search found better ones")
    return replace(judged, proposal=refused, candidate=None)


def value_of(parent: Variant, texts: Texts) -> Any:
    """Return a variant's value with the texts of a prompt of GEPA's."""
    if isinstance(parent.value, str):
        return texts[WHOLE]
    return {**parent.value, **texts}
