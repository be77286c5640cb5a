"""The plan of a run of `prompts`, and the checks of the model's answers."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from otel_lightning.learner.policy.serving import flag_file
from otel_lightning.learner.prompts.logged.records import Record
from otel_lightning.learner.prompts.logged.rollouts import Rollouts, Window
from otel_lightning.learner.prompts.proposals.ask import Proposal, Task
from otel_lightning.learner.prompts.proposals.checks import Limits, refusal
from otel_lightning.learner.prompts.proposals.history import History
from otel_lightning.learner.prompts.serving.share import Candidate, Change, candidates_of
from otel_lightning.learner.prompts.serving.variants import Variant, new_name, text_hash
from otel_lightning.learner.score.judges.asking import Usage


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
        return [judged.candidate for judged in self.judged if judged.candidate]


@dataclass(frozen=True, slots=True)
class Plan:
    """The calls to make: the task and the records of each."""

    rollouts: Rollouts
    history: History
    variants: dict[str, Variant]
    retired: tuple[str, ...]
    calls: tuple[tuple[Task, tuple[Record, ...]], ...]
    parent: str
    """The variant with the best lower bound of its mean reward."""
    room: int
    """Number of variants that may be added."""
    flags_text: str
    """The flag file as it was read."""
    rule: str | None = None


@dataclass(slots=True)
class Names:
    """Names and texts that are taken, by the flag file and by earlier proposals."""

    taken: dict[str, Any]
    candidates: dict[str, str]
    hashes: set[str] = field(default_factory=set)


def taken_names(plan: Plan, request: Request) -> Names:
    """Collect the names and texts that a new variant may not have."""
    key = request.window.key
    document = flag_file.read_flag_file(request.flags, key)
    return Names(
        taken=dict(document["flags"][key].get("variants") or {}),
        candidates=candidates_of(document, key),
        hashes={text_hash(t) for v in plan.variants.values() for t in v.texts.values()}
        | set(plan.history.hashes),
    )


def check_proposal(
    proposal: Proposal,
    call: tuple[Task, tuple[Record, ...]],
    plan: Plan,
    names: Names,
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
    # Noted at once, so that a later proposal of the same run cannot repeat the name or the text.
    names.taken[name] = value
    names.hashes.add(digest)
    return Judged(task, proposal, ids, Candidate(name, task.parent, value, parent.value))
