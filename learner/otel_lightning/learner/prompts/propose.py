"""Propose prompts: read rollouts, ask a model, check its answers, write new variants."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from otel_lightning.collector.store import Store, StoreLike, opened, quote_literal
from otel_lightning.collector.terminal.progress import Progress
from otel_lightning.collector.terminal.quantities import number_of
from otel_lightning.learner.errors import DataError
from otel_lightning.learner.named_sql import arrow
from otel_lightning.learner.policy.serving import flag_document, flag_file
from otel_lightning.learner.prompts.logged.records import Record, make_records
from otel_lightning.learner.prompts.logged.rollouts import (
    Rollouts,
    choose,
    parents,
    read_rollouts,
)
from otel_lightning.learner.prompts.logged.ruled_out import ruled_out
from otel_lightning.learner.prompts.proposals.ask import (
    Proposal,
    Proposer,
    Task,
    fitting,
    read_proposal,
)
from otel_lightning.learner.prompts.proposals.history import (
    history,
    proposals_of,
    replace_proposals,
    retired_variants,
    unfinished,
)
from otel_lightning.learner.prompts.proposals.plan import (
    Judged,
    Plan,
    Proposed,
    Request,
    check_proposal,
    taken_names,
)
from otel_lightning.learner.prompts.serving.share import (
    Candidate,
    Change,
    VariantChange,
    candidates_of,
    change_variants,
    check_flag,
    diluted,
    shares_of,
)
from otel_lightning.learner.prompts.serving.variants import (
    WHOLE_TEXT,
    Variant,
    text_hash,
    variants_with_text,
)
from otel_lightning.learner.runs import Run, fingerprint, recorded
from otel_lightning.learner.score import rules
from otel_lightning.learner.score.judges.asking import (
    Question,
    Session,
    Usage,
    answer_all,
    question_key,
    stopped,
)
from otel_lightning.learner.score.judges.cache import AnswerCache

Ask = Callable[[Plan, Request, Proposer, str], tuple[tuple[Judged, ...], Usage]]
"""How to get proposals: from the plan, the settings, the model and the id of the run."""
OTHER_PARENT_FROM = 3
"""Number of candidates from which the last one improves the second best variant."""


def propose_prompts(
    store: StoreLike, request: Request, proposer: Proposer, ask: Ask | None = None
) -> Proposed:
    """Let a model propose prompts, and write those that pass all checks into the flag file.

    Args:
        store: Path of the store, which is open only while it is read or written; or an open store.
        request: The flag, the rollouts and the settings.
        proposer: The model.
        ask: How to get proposals; by default each call of the model is one.

    Returns:
        The proposals with the reason of each refusal, and the change of the flag's shares.

    Raises:
        DataError: If there is nothing to learn from, the flag cannot be used, or the model gives
            no answer. Answers so far stay in the cache. The flag file is unchanged.
        StoreError: If the store cannot be read or written.
    """
    key = request.window.key
    with opened(store) as db:
        # A run that was killed after it recorded its proposals is finished first: its answers are
        # paid for.
        resumed = unfinished(db, key) if request.run_id is None else request.run_id
    run = Run("prompts", _config(request), name=resumed)
    with recorded(store, run):
        with opened(store) as db:
            plan = _plan(db, request)
            before = proposals_of(db, run.run_id)
        judged, usage = (
            (_judged_before(before, plan), Usage())
            # The recorded proposals count, and the model is not asked again.
            if before
            else (ask or ask_once)(plan, request, proposer, run.run_id)
        )
        result = Proposed(run.run_id, plan.rollouts, judged, plan.retired, None, usage, plan.rule)
        if request.dry_run:
            return replace(result, change=_previewed(result, request))
        changed = _has_changed(request.flags, plan.flags_text)
        with opened(store) as db:
            written = _write(db, run, result, request)
    if changed and written.change:
        change = replace(written.change, attempts=written.change.attempts + 1)
        return replace(written, change=change)
    return written


def _has_changed(path: Path, text: str) -> bool:
    try:
        return path.read_bytes() != text.encode()
    except OSError:
        return True  # writing it will tell


def _plan(store: Store, request: Request) -> Plan:
    """Choose the variants to improve and the records to show, as far as the flag has room."""
    key = request.window.key
    file = flag_file.read_with_text(request.flags, key)
    document = file.document
    check_flag(request.flags, document, key)
    variants = variants_with_text(document, key)
    live = flag_document.live_shares(document, key)
    serving = _serving(live, variants, request)
    name, rule = rules.resolve_reward(store, request.window.reward)
    rollouts = read_rollouts(store, replace(request.window, reward=name))
    # Rollouts whose variants are all gone say nothing about a prompt of today.
    logged = rollouts.rows["arm"].unique().to_list()
    flag_document.check_logged(logged, flag_document.variants(document, key), key, request.flags)
    proposed = {arm: parent for arm, parent in candidates_of(document, key).items() if arm in live}
    losers = ruled_out(rollouts, proposed)
    remaining = {arm: share for arm, share in live.items() if arm not in losers}
    if not remaining:
        raise _all_ruled_out(live, proposed, request)
    # May be 0 or negative: then no call is planned.
    room = min(request.candidates, request.max_arms - len(remaining))
    retired = retired_variants(document, key, remaining)
    past = history(store, key, frozenset(retired))
    # If all serving variants were ruled out, one of them has to be the parent nevertheless.
    ordered = parents(rollouts, [arm for arm in serving if arm in remaining] or serving)
    chosen = _tasks(request, room, ordered, variants)
    tasks = [replace(task, tried=past.failed) for task in chosen] if rollouts.failed else []
    calls = _with_records(store, request, rollouts, tasks, past.count)
    return Plan(
        rollouts=rollouts,
        history=past,
        variants=variants,
        retired=tuple(sorted(losers)),
        calls=calls,
        parent=ordered[0],
        room=room,
        flags_text=file.text,
        rule=str(rule) if rule else None,
    )


def _serving(
    live: Mapping[str, float], variants: Mapping[str, Variant], request: Request
) -> list[str]:
    """List the variants with traffic that are texts.

    Raises:
        DataError: If there is none.
    """
    serving = [arm for arm in live if arm in variants]
    if not serving:
        raise DataError(
            f"Flag '{request.window.key}' in '{request.flags}' serves no variant that is a text, "
            "so there is no prompt to improve. Give such a variant a weight."
        )
    return serving


def _all_ruled_out(
    live: Mapping[str, float], parents_of: Mapping[str, str], request: Request
) -> DataError:
    return DataError(
        f"All variants that flag '{request.window.key}' in '{request.flags}' serves are worse "
        "than their parents beyond chance, so none would be left beside new ones: "
        f"{', '.join(live)}. Give a weight to {' or '.join(sorted(set(parents_of.values())))}."
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
        # In turn, so that each component of a variant is improved.
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
    rollout_ids = sorted({rollout for some in chosen for rollout in some})
    records = make_records(store, rollouts, rollout_ids) if rollout_ids else {}
    if rollout_ids and not records:
        raise DataError(
            f"None of {number_of(len(rollout_ids), 'chosen rollout')} has messages, so there is "
            "nothing to show to the model. Let the instrumentation record content."
        )
    calls = []
    for task, some in zip(tasks, chosen, strict=True):
        shown = [records[rollout] for rollout in some if rollout in records]
        calls.append((task, tuple(fitting(task, shown, request.max_prompt))))
    return tuple(calls)


def ask_once(
    plan: Plan, request: Request, proposer: Proposer, _: str
) -> tuple[tuple[Judged, ...], Usage]:
    """Ask for each proposal with one call of the model."""
    questions = []
    for call, (task, records) in enumerate(plan.calls):
        payload = proposer.prepare(task, records)
        # A killed run finds its answers in the cache; a later run asks for other ones.
        questions.append(Question(question_key(payload, plan.history.count + call), payload))
    progress = Progress("Prompts", len(questions))
    with closing(AnswerCache(request.cache)) as cache:
        session = Session(proposer, cache, progress, request.concurrency)
        try:
            answers = answer_all(session, questions)
        except DataError as error:
            raise stopped(session, error, "The flag file was not changed.") from error
    names = taken_names(plan, request)
    judged = [
        check_proposal(read_proposal(answers[question.key]), call, plan, names, request)
        for question, call in zip(questions, plan.calls, strict=True)
    ]
    return tuple(judged), session.usage


def _previewed(result: Proposed, request: Request) -> Change | None:
    """Compute the shares that a run would give, without writing them."""
    if not result.candidates and not result.retired:
        return None
    key = request.window.key
    document = flag_file.read_flag_file(request.flags, key)
    new = shares_of(result.candidates, request.share)
    weights = diluted(document, key, new, result.retired)
    part = flag_document.policy_part(document, key, weights, result.run_id)
    after = flag_document.live_shares(flag_document.with_flag_part(document, key, part), key)
    return Change(flag_document.live_shares(document, key), after)


def _judged_before(rows: Sequence[dict[str, Any]], plan: Plan) -> tuple[Judged, ...]:
    """Read the proposals that a run recorded before it was killed."""
    judged = []
    for row in rows:
        parent = plan.variants.get(row["parent"])
        component, candidate = row["component"] or WHOLE_TEXT, None
        texts = parent.texts if parent else {}
        if row["variant"] and parent:
            value = parent.with_text(component, row["text"])
            candidate = Candidate(row["variant"], row["parent"], value, parent.value)
        task = Task(row["parent"], component, texts.get(component, ""), 0)
        proposal = Proposal(row["text"], row["reason"] or "", row["refused"])
        judged.append(Judged(task, proposal, tuple(row["records"]), candidate))
    return tuple(judged)


def _write(store: Store, run: Run, result: Proposed, request: Request) -> Proposed:
    """Write the proposals into the store, then the new variants into the flag file.

    A run that is killed in between is finished by the next one.
    """
    key, now = request.window.key, datetime.now(UTC).replace(tzinfo=None)
    rows = [_row(call, judged, run.run_id, key, now) for call, judged in enumerate(result.judged)]
    # First the store, then the file: what is served can always be traced to its proposal.
    replace_proposals(store, run.run_id, rows)
    if result.candidates or result.retired:
        variant_change = VariantChange(
            request.flags, key, run.run_id, result.candidates, request.share, result.retired
        )
        try:
            change = change_variants(store, variant_change)
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


def _row(call: int, judged: Judged, run_id: str, key: str, now: datetime) -> dict[str, Any]:
    prompt = judged.proposal.prompt
    return {
        "run_id": run_id,
        "key": key,
        "call": call,
        "variant": judged.candidate.name if judged.candidate else None,
        "parent": judged.task.parent,
        "component": judged.task.component or None,
        "text_hash": None if prompt is None else text_hash(prompt),
        "text": None if prompt is None else _storable(prompt),
        "reason": _storable(judged.proposal.reason) or None,
        "records": list(judged.records),
        "refused": None if judged.proposal.refused is None else _storable(judged.proposal.refused),
        "created": now,
    }


def _storable(text: str) -> str:
    """Replace surrogates, which JSON of a model may have and UTF-8 cannot express."""
    return text.encode("utf-8", "replace").decode()


def _config(request: Request) -> dict[str, Any]:
    since = str(request.window.since or "") or None
    files = {"flags": str(request.flags), "cache": str(request.cache)}
    return asdict(request) | files | {"window": asdict(request.window) | {"since": since}}
