"""Propose prompts: read rollouts, ask a model, check its answers, write new variants."""

from collections.abc import Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from otel_lightning.collector.progress import Progress
from otel_lightning.collector.store import Store, StoreLike, opened, quote_literal
from otel_lightning.learner.errors import DataError
from otel_lightning.learner.named_sql import arrow
from otel_lightning.learner.policy import flag_file
from otel_lightning.learner.prompts.ask import Proposal, Proposer, Task, fitting, read_proposal
from otel_lightning.learner.prompts.checks import Limits, refusal
from otel_lightning.learner.prompts.history import (
    History,
    history,
    proposals_of,
    replace_proposals,
    retired_variants,
    unfinished,
)
from otel_lightning.learner.prompts.records import Record, make_records
from otel_lightning.learner.prompts.rollouts import (
    Rollouts,
    Window,
    choose,
    parents,
    read_rollouts,
)
from otel_lightning.learner.prompts.ruled_out import ruled_out
from otel_lightning.learner.prompts.share import (
    Candidate,
    Change,
    add_candidates,
    candidates_of,
    check_flag,
    diluted,
    shares_of,
)
from otel_lightning.learner.prompts.variants import (
    WHOLE_TEXT,
    Variant,
    new_name,
    text_hash,
    variants_with_text,
)
from otel_lightning.learner.runs import Run, fingerprint, recorded_in
from otel_lightning.learner.score import rules
from otel_lightning.learner.score.judges.asking import (
    Question,
    Session,
    Usage,
    answer_all,
    question_key,
)
from otel_lightning.learner.score.judges.cache import AnswerCache

OTHER_PARENT_FROM = 3
"""Number of candidates from which the last one improves the second best variant."""


@dataclass(frozen=True, slots=True)
class Request:
    """The flag, the rollouts to read, how to ask, and how much traffic to give."""

    window: Window
    flags: Path
    cache: Path
    candidates: int = 3
    share: float = 0.1
    records: int = 24
    max_length: int = 4000
    max_prompt: int = 60_000
    max_arms: int = 6
    concurrency: int = 8
    seed: int = 0
    dry_run: bool = False
    run_id: str | None = None
    """Id of the run; a run with this id that was killed goes on. None makes a new id."""


@dataclass(frozen=True, slots=True)
class Judged:
    """A proposal, and the new variant that it becomes unless it is refused."""

    task: Task
    proposal: Proposal
    records: tuple[str, ...]
    candidate: Candidate | None = None


@dataclass(frozen=True, slots=True)
class Proposed:
    """Result of a run."""

    run_id: str
    rollouts: Rollouts
    judged: tuple[Judged, ...]
    retired: tuple[str, ...]
    """Proposed variants that proved worse than their parent and get no traffic any more."""
    change: Change | None
    """The shares before and after; None if they stay."""
    usage: Usage
    rule: str | None = None

    @property
    def candidates(self) -> list[Candidate]:
        """The new variants."""
        return [one.candidate for one in self.judged if one.candidate]


@dataclass(frozen=True, slots=True)
class Plan:
    """What to ask: the tasks of the calls and the records of each."""

    rollouts: Rollouts
    history: History
    variants: dict[str, Variant]
    retired: tuple[str, ...]
    calls: tuple[tuple[Task, tuple[Record, ...]], ...]
    rule: str | None = None


@dataclass(slots=True)
class _Names:
    """Names and texts that are taken, by the flag file and by earlier proposals."""

    taken: dict[str, Any]
    candidates: dict[str, str]
    hashes: set[str] = field(default_factory=set)


def propose_prompts(store: StoreLike, request: Request, proposer: Proposer) -> Proposed:
    """Let a model propose prompts, and write those that pass all checks into the flag file.

    Args:
        store: Path of the store, which is open only while it is read or written; or an open store.
        request: The flag, the rollouts and the settings.
        proposer: The model.

    Returns:
        The proposals with the reason of each refusal, and the change of the flag's shares.

    Raises:
        DataError: If there is nothing to learn from, the flag cannot be used, or the model gives
            no answer. Answers so far stay in the cache. The flag file is unchanged.
        StoreError: If the store cannot be read or written.
    """
    key = request.window.key
    with opened(store) as found:
        resumed = unfinished(found, key) if request.run_id is None else request.run_id
    run = Run("prompts", _config(request), name=resumed)
    with recorded_in(store, run):
        with opened(store) as found:
            plan = _plan(found, request)
            before = proposals_of(found, run.run_id)
        judged, usage = (
            (_judged_before(before, plan), Usage()) if before else _ask(plan, request, proposer)
        )
        result = Proposed(run.run_id, plan.rollouts, judged, plan.retired, None, usage, plan.rule)
        if request.dry_run:
            return replace(result, change=_previewed(result, request))
        with opened(store) as found:
            return _write(found, run, result, request)


def _plan(store: Store, request: Request) -> Plan:
    key = request.window.key
    document = flag_file.read_flag_file(request.flags, key)
    check_flag(request.flags, document, key)
    variants = variants_with_text(document, key)
    live = flag_file.live_shares(document, key)
    name, rule = rules.chosen(store, request.window.reward)
    rollouts = read_rollouts(store, replace(request.window, reward=name))
    serving = [arm for arm in live if arm in variants]
    if not serving:
        raise DataError(
            f"Flag '{key}' in '{request.flags}' serves no variant that is a text, so there is no "
            "prompt to improve. Give such a variant a weight."
        )
    proposed = {arm: parent for arm, parent in candidates_of(document, key).items() if arm in live}
    losers = ruled_out(rollouts, proposed)
    left = {arm: share for arm, share in live.items() if arm not in losers}
    room = min(request.candidates, request.max_arms - len(left))
    retired = retired_variants(document, key, left)
    before = history(store, key, frozenset(retired))
    chosen = _tasks(request, room, parents(rollouts, [a for a in serving if a in left]), variants)
    tasks = [replace(task, tried=before.failed) for task in chosen] if rollouts.failed else []
    calls = _with_records(store, request, rollouts, tasks, before.count)
    return Plan(
        rollouts=rollouts,
        history=before,
        variants=variants,
        retired=tuple(sorted(losers)),
        calls=calls,
        rule=str(rule) if rule else None,
    )


def _tasks(
    request: Request, room: int, ordered: Sequence[str], variants: dict[str, Variant]
) -> list[Task]:
    """Divide the calls: all for the best variant, from three on the last one for the second."""
    tasks = []
    for call in range(room):
        other = call == room - 1 and room >= OTHER_PARENT_FROM and len(ordered) > 1
        parent = variants[ordered[1] if other else ordered[0]]
        components = list(parent.texts.items())
        component, text = components[call % len(components)]
        tasks.append(Task(parent.name, component, text, request.max_length))
    return tasks


def _with_records(
    store: Store, request: Request, rollouts: Rollouts, tasks: Sequence[Task], before: int
) -> tuple[tuple[Task, tuple[Record, ...]], ...]:
    seed = request.seed + before  # another run shows other failures first
    chosen = [
        choose(rollouts, task.parent, request.records, call, seed)
        for call, task in enumerate(tasks)
    ]
    wanted = sorted({rollout for some in chosen for rollout in some})
    records = make_records(store, rollouts, wanted) if wanted else {}
    if wanted and not records:
        raise DataError(
            f"None of the {len(wanted)} chosen rollouts has messages, so there is nothing to show "
            "to the model. Let the instrumentation record content."
        )
    calls = []
    for task, some in zip(tasks, chosen, strict=True):
        there = [records[rollout] for rollout in some if rollout in records]
        calls.append((task, tuple(fitting(task, there, request.max_prompt))))
    return tuple(calls)


def _ask(plan: Plan, request: Request, proposer: Proposer) -> tuple[tuple[Judged, ...], Usage]:
    questions = []
    for call, (task, records) in enumerate(plan.calls):
        payload = proposer.prepare(task, records)
        # A killed run finds its answers in the cache; a later run asks for other ones.
        questions.append(Question(question_key(payload, plan.history.count + call), payload))
    progress = Progress("Prompts", len(questions))
    with closing(AnswerCache(request.cache)) as cache:
        session = Session(proposer, cache, progress, request.concurrency)
        answers = answer_all(session, questions)
    names = _Names(
        taken={name: variant.value for name, variant in plan.variants.items()},
        candidates={},
        hashes={text_hash(t) for v in plan.variants.values() for t in v.texts.values()}
        | set(plan.history.hashes),
    )
    document = flag_file.read_flag_file(request.flags, request.window.key)
    names.taken |= document["flags"][request.window.key].get("variants") or {}
    names.candidates |= candidates_of(document, request.window.key)
    judged = [
        _check(read_proposal(answers[question.key]), call, plan, names, request)
        for question, call in zip(questions, plan.calls, strict=True)
    ]
    return tuple(judged), session.usage


def _check(
    proposal: Proposal,
    call: tuple[Task, tuple[Record, ...]],
    plan: Plan,
    names: _Names,
    request: Request,
) -> Judged:
    """Check a proposal, and name the variant that it becomes."""
    task, records = call
    ids = tuple(record.rollout_id for record in records)
    if proposal.prompt is None:
        return Judged(task, proposal, ids)
    shown = [text for record in records for text in record.texts]
    reason = refusal(proposal.prompt, Limits(task.prompt, request.max_length, names.hashes, shown))
    if reason:
        return Judged(task, proposal._replace(refused=reason), ids)
    digest = text_hash(proposal.prompt)
    parent = plan.variants[task.parent]
    name = new_name(task.parent, digest, names.taken, is_candidate=task.parent in names.candidates)
    value = parent.with_text(task.component, proposal.prompt)
    names.taken[name] = value
    names.hashes.add(digest)
    return Judged(task, proposal, ids, Candidate(name, task.parent, value, parent.value))


def _previewed(result: Proposed, request: Request) -> Change | None:
    """Compute the shares that a run would give, without writing them."""
    if not result.candidates and not result.retired:
        return None
    key = request.window.key
    document = flag_file.read_flag_file(request.flags, key)
    new = shares_of(result.candidates, request.share)
    weights = diluted(document, key, new, result.retired)
    part = flag_file.policy_part(document, key, weights, result.run_id)
    after = flag_file.live_shares(flag_file.with_our_part(document, key, part), key)
    return Change(flag_file.live_shares(document, key), after)


def _judged_before(rows: Sequence[dict[str, Any]], plan: Plan) -> tuple[Judged, ...]:
    """Read the proposals that a run recorded before it was killed."""
    found = []
    for row in rows:
        parent = plan.variants.get(row["parent"])
        component, candidate = row["component"] or WHOLE_TEXT, None
        texts = parent.texts if parent else {}
        if row["variant"] and parent:
            value = parent.with_text(component, row["text"])
            candidate = Candidate(row["variant"], row["parent"], value, parent.value)
        task = Task(row["parent"], component, texts.get(component, ""), 0)
        proposal = Proposal(row["text"], row["reason"] or "", row["refused"])
        found.append(Judged(task, proposal, tuple(row["records"]), candidate))
    return tuple(found)


def _write(store: Store, run: Run, result: Proposed, request: Request) -> Proposed:
    """Write the proposals into the store, then the new variants into the flag file.

    A run that is killed in between is finished by the next one.
    """
    key, now = request.window.key, datetime.now(UTC).replace(tzinfo=None)
    rows = [_row(call, one, run.run_id, key, now) for call, one in enumerate(result.judged)]
    replace_proposals(store, run.run_id, rows)
    if result.candidates or result.retired:
        settings = (run.run_id, request.share)
        place = (request.flags, key)
        try:
            change = add_candidates(store, place, result.candidates, result.retired, settings)
        except DataError as error:
            refused = {"variant": None, "refused": f"not written: {error}"}
            rows = [row | refused if row["variant"] else row for row in rows]
            replace_proposals(store, run.run_id, rows)
            raise
        result = replace(result, change=change)
    ended = run.ended(
        outcome="written" if result.candidates else "nothing",
        fingerprint=fingerprint(result.rollouts.rows.drop("time")),
        metrics={
            "rollouts": result.rollouts.rows.height,
            "failed": result.rollouts.failed,
            "asked": len(result.judged),
            "refused": len(result.judged) - len(result.candidates),
            "usage": asdict(result.usage),
        },
        artifact=str(request.flags) if result.change else None,
    )
    store.replace("runs", arrow(ended), f"run_id = {quote_literal(run.run_id)}")
    return result


def _row(call: int, one: Judged, run_id: str, key: str, now: datetime) -> dict[str, Any]:
    prompt = one.proposal.prompt
    return {
        "run_id": run_id,
        "key": key,
        "call": call,
        "variant": one.candidate.name if one.candidate else None,
        "parent": one.task.parent,
        "component": one.task.component or None,
        "text_hash": None if prompt is None else text_hash(prompt),
        "text": None if prompt is None else _storable(prompt),
        "reason": _storable(one.proposal.reason) or None,
        "records": list(one.records),
        "refused": None if one.proposal.refused is None else _storable(one.proposal.refused),
        "created": now,
    }


def _storable(text: str) -> str:
    """Replace surrogates, which JSON of a model may have and UTF-8 cannot express."""
    return text.encode("utf-8", "replace").decode()


def _config(request: Request) -> dict[str, Any]:
    since = str(request.window.since or "") or None
    files = {"flags": str(request.flags), "cache": str(request.cache)}
    return asdict(request) | files | {"window": asdict(request.window) | {"since": since}}
