"""The stages of a round. Each is an existing command, called in the same process.

A stage that is killed runs again from its beginning, so each finds what it did before: rollouts by
their journal, proposals, decisions and models by ids that follow from the loop and the round.

Each function takes the loop and the number of the round, from 1, and returns the outcome of the
stage with its details, which `state.State` keeps.
"""

import shutil
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np

from otel_lightning.collector.store import opened, statement
from otel_lightning.instrumentation.attributes import POLICY_VERSION
from otel_lightning.learner.errors import DataError
from otel_lightning.learner.evaluate.gate import Verdict
from otel_lightning.learner.evaluate.paired import PairedComparison, compare_sides
from otel_lightning.learner.evaluate.reward_range import reward_range
from otel_lightning.learner.loop.config import POLICY, PROMPTS, WEIGHTS, PromptsPart, required
from otel_lightning.learner.loop.loop import Loop
from otel_lightning.learner.loop.state import DONE, NOTHING, REFUSED, WON, Result
from otel_lightning.learner.named_sql import read
from otel_lightning.learner.policy.serving import flag_document, flag_file
from otel_lightning.learner.policy.serving.versions import mark_promoted
from otel_lightning.learner.prompts.compare import Comparison, apply_decision, decide
from otel_lightning.learner.rollout_runner import Report
from otel_lightning.learner.weights import pointer
from otel_lightning.learner.weights.eligible import BY_RUNNING


def run_train(loop: Loop, number: int) -> Result:
    """Run the training tasks with everything that is live; for a policy also the held-out tasks."""
    loop.serve(loop.model)
    flag, live = loop.config.flag, loop.live
    learns_shares = POLICY in loop.config.learn.what
    report = loop.run(
        f"{number}.train",
        # A policy is judged by logged choices, so it needs rollouts of held-out tasks too. The
        # other gates run held-out tasks themselves, and keep them unseen until then.
        [*loop.split.train, *(loop.split.held_out if learns_shares else ())],
        loop.config.run.samples,
        arms=[live] if live and not learns_shares else [],
        flags=flag.flags if flag and learns_shares else None,
        number=number,
    )
    _check_range(loop, report)
    return DONE, {
        "rollouts": report.planned,
        "graded": len(report.rewards),
        "mean": report.mean,
        "reward": report.reward_name,
        "statuses": dict(report.statuses),
        "arm": live,
        "model": str(loop.model) if loop.model else None,
    }


def _check_range(loop: Loop, report: Report) -> None:
    """Refuse rewards that every gate would refuse, before a round is spent on them.

    Raises:
        DataError: If a reward is outside the range, or the range is not known.
    """
    rewards = reward_range(np.array(list(report.rewards.values())), loop.config.gate.range)
    for reason in rewards.refusals:
        raise DataError(
            f"No gate of this loop would pass: {reason}, which is reward_range = [LOW, HIGH] of "
            "[gate] in the loop's file. Then start the loop again: it goes on from here."
        )


def make_transitions(loop: Loop, number: int) -> Result:
    """Build transitions of all rollouts so far."""
    from otel_lightning.learner.transitions.make import Settings, make_transitions

    settings = Settings(
        reward=loop.state.details(number, "run")["reward"],
        credit=loop.config.learn.credit,
        agents=loop.config.learn.agents,
        held_out=loop.config.split.held_out,
    )
    summary = make_transitions(loop.store, settings)
    return DONE, {"transitions": summary.transitions, "rollouts": summary.rewarded}


def propose(loop: Loop, number: int) -> Result:
    """Let a model propose prompts from the training rollouts."""
    from otel_lightning.learner.prompts.proposals.ask import Proposer
    from otel_lightning.learner.prompts.propose import propose_prompts
    from otel_lightning.learner.score.judges.endpoint import Endpoint

    part = required(loop.config.prompts)
    endpoint = Endpoint(part.endpoint, part.model, part.temperature, part.retries, part.timeout)
    with closing(Proposer(endpoint)) as proposer:
        result = propose_prompts(loop.store, _proposal_request(loop, number, part), proposer)
    names = [candidate.name for candidate in result.candidates]
    refused = [judged.proposal.refused for judged in result.judged if judged.proposal.refused]
    return (DONE if names else NOTHING), {
        "candidates": names,
        "against": loop.state.details(number, "run")["arm"],
        "refused": refused,
    }


def _proposal_request(loop: Loop, number: int, part: PromptsPart) -> Any:
    """Return what `propose_prompts` takes: the flag, the rollouts to show and the limits."""
    from otel_lightning.learner.prompts.logged.rollouts import Window
    from otel_lightning.learner.prompts.proposals.plan import Request

    return Request(
        window=Window(
            key=part.key,
            reward=loop.state.details(number, "run")["reward"],
            held_out=loop.config.split.held_out,
            failed_below=part.failed_below,
        ),
        flags=part.flags,
        cache=Path(f"{loop.store}.judge"),
        candidates=part.candidates,
        share=part.share,
        records=part.records,
        max_length=part.max_length,
        max_prompt=part.max_prompt,
        max_arms=part.max_arms,
        concurrency=part.concurrency,
        seed=loop.config.run.seed,
        run_id=f"{loop.config.name}.{number}.prompts",
    )


def judge_prompts(loop: Loop, number: int) -> Result:
    """Compare the proposals with the live prompt on held-out tasks, and serve the winner."""
    part, proposed = required(loop.config.prompts), loop.state.details(number, "prompts")
    if not proposed["candidates"]:
        return NOTHING, {}
    gate = loop.config.gate
    comparison = Comparison(
        key=part.key,
        flags=part.flags,
        candidates=proposed["candidates"],
        against=proposed["against"],
        alpha=loop.alpha(number),
        least_gain=gate.least_gain,
        reward_range=gate.range,
    )
    # All arms on the same held-out tasks and seeds, which pairs them.
    report = loop.run(
        f"{number}.gate",
        loop.split.held_out,
        gate.samples,
        arms=[proposed["against"], *proposed["candidates"]],
        number=number,
    )
    decision = decide(comparison, report, f"{loop.config.name}.{number}.gate")
    decision = apply_decision(loop.store, comparison, decision)
    details = {
        "alpha": comparison.alpha,
        "winner": decision.winner,
        "against": decision.against,
        "verdicts": {arm: _summary(verdict) for arm, verdict in decision.verdicts.items()},
        "rollouts": report.planned,
    }
    return (WON if decision.winner else REFUSED), details


def learn_shares(loop: Loop, number: int) -> Result:
    """Learn the shares of the variants from the rollouts so far, and promote them if they pass."""
    from otel_lightning.learner.policy.learn import learn_policy
    from otel_lightning.learner.policy.request import Request
    from otel_lightning.learner.policy.softmax.choice_arrays import Settings

    part = required(loop.config.policy)
    document = flag_file.read_flag_file(part.flags, part.key)
    if len(flag_document.live_shares(document, part.key)) < 2:  # noqa: PLR2004 - a choice needs two
        return NOTHING, {"why": "the flag serves a single variant"}
    alpha, run_id = loop.alpha(number), f"{loop.config.name}.{number}.policy"
    if (document["flags"][part.key].get("metadata") or {}).get(POLICY_VERSION) == run_id:
        # A killed loop got this far, but perhaps not to its last record.
        with opened(loop.store) as db:
            mark_promoted(db, run_id, part.flags)
        return WON, {"alpha": alpha, "version": run_id}
    learned = learn_policy(
        loop.store,
        Request(
            key=part.key,
            flags=part.flags,
            output=part.flags,
            reward=loop.state.details(number, "run")["reward"],
            held_out=loop.config.split.held_out,
            reward_range=loop.config.gate.range,
            least_gain=loop.config.gate.least_gain,
            promote=True,
            alpha=alpha,
            run_id=run_id,
            settings=Settings(exploration=part.exploration, kl_weight=part.kl_weight),
        ),
    )
    details = {"alpha": alpha, "verdict": _summary(learned.verdict), "version": learned.version}
    return (WON if learned.promoted else REFUSED), details


def learn_model(loop: Loop, number: int) -> Result:
    """Fine-tune the live model on the transitions."""
    from otel_lightning.learner.weights.learn import learn_weights
    from otel_lightning.learner.weights.settings import Training

    part = required(loop.config.weights)
    if loop.server is not None:
        # The loop serves again at its next run.
        loop.server.stop()  # it would share the memory of the machine with training
    output = part.output / f"{loop.config.name}.{number}"
    run_id = f"{loop.config.name}.{number}.weights"
    if not _was_trained(loop.store, run_id, output):
        training = Training(required(loop.model), **part.settings)
        learn_weights(loop.store, part.algorithm, training, output, run_id=run_id)
    return DONE, {"output": str(output)}


def _was_trained(store: Path, run_id: str, output: Path) -> bool:
    """Return whether a start that was killed had trained a model; if not, remove what it left."""
    with opened(store) as db:
        ended = read(db, __package__ or "", "trained", run_id=run_id)
        if ended.height and output.exists():
            return True
        db.execute(str(statement(__package__ or "", "forget_training", run_id=run_id)))
    # Also the folder under its temporary name, if training was killed while it wrote.
    for leftover in (output, *output.parent.glob(f".{output.name}-*")):
        shutil.rmtree(leftover, ignore_errors=True)
    return False


def judge_model(loop: Loop, number: int) -> Result:
    """Compare the new model with the live one on held-out tasks; the winner is served from then."""
    part = required(loop.config.weights)
    output = Path(loop.state.details(number, "weights")["output"])
    gate, alpha, reports = loop.config.gate, loop.alpha(number), []
    for label, model in (("live", loop.model), ("new", output)):
        loop.serve(model)
        reports.append(
            loop.run(
                f"{number}.{label}",
                loop.split.held_out,
                gate.samples,
                arms=[loop.live] if loop.live else [],
                model=str(model),
                number=number,
            )
        )
    live, new = reports
    verdict = compare_sides(
        live.side(str(loop.model), live.only_arm),
        new.side(output.name, new.only_arm),
        gate.least_gain,
        alpha=alpha,
        reward_range=gate.range,
    )
    # A loop that is killed between here and the record of the stage judges again: `pointer.change`
    # then finds that the pointer leads there already.
    if verdict.passed:
        with opened(loop.store) as store:
            pointer.change(store, part.output / pointer.LIVE, output, gate=BY_RUNNING)
    details = {
        "alpha": alpha,
        "output": str(output),
        "verdicts": {output.name: _summary(verdict)},
        "rollouts": live.planned + new.planned,
    }
    return (WON if verdict.passed else REFUSED), details


def _summary(verdict: Verdict | PairedComparison) -> dict[str, Any]:
    """Return what later stages, hooks and the report of the loop need of a verdict."""
    names = ("gain", "lower", "upper", "tasks", "passed")
    return {name: getattr(verdict, name) for name in names} | {"refusals": list(verdict.refusals)}


STAGES: Mapping[str, Sequence[tuple[str, Any]]] = {
    PROMPTS: (("prompts", propose), ("prompts_gate", judge_prompts)),
    POLICY: (("policy", learn_shares),),
    WEIGHTS: (("weights", learn_model), ("weights_gate", judge_model)),
}
"""The stages that learn each thing; `run` and `transitions` come before them."""
