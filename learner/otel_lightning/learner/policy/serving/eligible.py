"""Choose the policy to promote, and refuse one whose gate does not allow it."""

from collections.abc import Mapping
from pathlib import Path

from otel_lightning.collector.store import Store
from otel_lightning.collector.terminal.next_command import next_command
from otel_lightning.learner.errors import DataError, RefusedError
from otel_lightning.learner.evaluate.gate import recorded_verdict
from otel_lightning.learner.evaluate.to_pass import what_would_pass
from otel_lightning.learner.policy.serving.flag_document import SHARE_UNIT
from otel_lightning.learner.policy.serving.versions import policies_of
from otel_lightning.learner.promotions import Row


def chosen_policy(store: Store, key: str, flags: Path, version: str | None) -> Row:
    """Return the policy with a version, or the newest candidate whose gate passed.

    If the gate passed no candidate, the newest one is returned for its refusal to be reported.

    Args:
        store: An open store.
        key: The flag.
        flags: The flag file, for the command that an error names.
        version: Version of the policy; None chooses it.

    Raises:
        DataError: If there is no such policy.
    """
    learn = next_command("lightning-learn policy", store, key=key, flags=flags)
    policies = policies_of(store, key)
    if not policies:
        raise DataError(f"The store has no policy for flag '{key}'. Learn one with: {learn}")
    if version is not None:
        named = [row for row in policies if row["version"] == version]
        if not named:
            newest = ", ".join(row["version"] for row in policies[-5:])
            raise DataError(
                f"There is no policy '{version}' for flag '{key}'. The newest: {newest}."
            )
        return named[0]
    candidates = [row for row in policies if row["status"] in ("candidate", "canary")]
    if not candidates:
        raise DataError(
            f"Flag '{key}' has no candidate: its newest policy is {policies[-1]['status']}. Name "
            f"another with --version, or learn one with: {learn}"
        )
    passed = [row for row in candidates if row["gate"].get("passed") and not _is_control(row)]
    return (passed or candidates)[-1]


def _is_control(policy: Row) -> bool:
    """Return whether a policy was learned from shuffled rewards, so that its gate says nothing."""
    return policy["gate"].get("shuffled") is not None


def check_gate(policy: Row) -> None:
    """Refuse a policy that the gate did not pass.

    Raises:
        RefusedError: If the gate refused the policy or did not judge it, or it is a control.
    """
    gate = policy["gate"]
    if _is_control(policy):
        raise RefusedError(
            f"Policy {policy['version']} is a control: it was learned from shuffled rewards, by "
            "--shuffle-rewards. Learn again without that option."
        )
    if gate.get("passed"):
        return
    if not gate.get("refusals"):
        raise RefusedError(
            f"Policy {policy['version']} was never judged, so it is not promoted. Learn again, "
            "which judges it."
        )
    reasons = "; ".join(gate["refusals"])
    would_pass = what_would_pass(recorded_verdict(gate), "policy")
    raise RefusedError(
        f"The gate refused policy {policy['version']}: {reasons}. To pass: {would_pass}"
    )


def check_live(policy: Row, live: Mapping[str, float]) -> None:
    """Refuse a policy that the gate compared with another policy than the one that is live now.

    Args:
        policy: The policy.
        live: Share of the traffic that the live policy gives each arm.

    Raises:
        RefusedError: If a share differs by more than flagd's smallest one.
    """
    judged = policy["gate"].get("live")
    if judged is None:
        return
    moved = [
        arm for arm in {**live, **judged} if abs(live.get(arm, 0) - judged.get(arm, 0)) > SHARE_UNIT
    ]
    if moved:
        raise RefusedError(
            f"Policy {policy['version']} was judged against another live policy: arm '{moved[0]}' "
            f"had {judged.get(moved[0], 0):.2%} of the traffic and has {live.get(moved[0], 0):.2%} "
            "now. To pass: learn again, which compares with the live one."
        )
