"""Flag files that each serve one arm, to compare arms on the same tasks and seeds."""

import copy
import json
from collections.abc import Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

from otel_lightning.instrumentation.attributes import POLICY_VERSION, PROPENSITY
from otel_lightning.learner.errors import DataError
from otel_lightning.learner.policy.serving.flag_document import variants
from otel_lightning.learner.policy.serving.flag_file import read_flag_file
from otel_lightning.learner.rollout_runner.plan import Arms

WAY_OUT = (
    "Set LIGHTNING_ACCEPT_ARMS=true for the server, let it evaluate the flag with "
    "LightningProvider in the context of the request, from the same flag file, and run again under "
    "another name (--name, or that of the loop); or give a command instead, or workers that stay."
)


def check(arms: Arms) -> None:
    """Refuse arms that the flag file does not have.

    Raises:
        DataError: If there is no such flag or variant, or an arm is named twice.
    """
    names = variants(read_flag_file(arms.flags, arms.key), arms.key)
    unknown = [name for name in arms.names if name not in names]
    if unknown:
        raise DataError(
            f"'{arms.flags}' has no variant '{unknown[0]}' of '{arms.key}'. Known: "
            f"{', '.join(names)}."
        )
    if len(set(arms.names)) != len(arms.names) or not arms.names:
        raise DataError("Comparing needs different arms: --arm A --arm B.")


def fingerprints(arms: Arms) -> dict[str, str]:
    """Hash the content of each arm, such as the text of a prompt, as it is in the flag file now."""
    contents = read_flag_file(arms.flags, arms.key)["flags"][arms.key]["variants"]
    texts = {name: json.dumps(contents[name], sort_keys=True) for name in arms.names}
    return {name: sha256(text.encode()).hexdigest() for name, text in texts.items()}


def write_flags(arms: Arms, run_id: str, folder: Path) -> dict[str, Path]:
    """Write a flag file for each arm, which serves that arm only.

    Each task is run with every arm, so the propensity of an arm is one by the number of arms.
    All other flags stay as they are.

    Args:
        arms: The flag, its file and the arms.
        run_id: Name of the run, for the version of the policy.
        folder: Where to write.

    Returns:
        The file of each arm.
    """
    document = read_flag_file(arms.flags, arms.key)
    share = 1 / len(arms.names)
    files = {}
    for number, arm in enumerate(arms.names):
        one_arm = copy.deepcopy(document)
        flag = one_arm["flags"][arms.key]
        # Without targeting the default variant has all traffic.
        flag.pop("targeting", None)
        other_metadata = {
            name: value
            for name, value in (flag.get("metadata") or {}).items()
            if not name.startswith(f"{PROPENSITY}.")
        }
        own_metadata = {f"{PROPENSITY}.{arm}": share, POLICY_VERSION: version_of(run_id)}
        flag |= {
            "state": "ENABLED",
            "defaultVariant": arm,
            "metadata": other_metadata | own_metadata,
        }
        files[arm] = folder.resolve() / f"flags-{number}.json"
        files[arm].write_text(json.dumps(one_arm, indent=2), encoding="utf-8")
    return files


def version_of(run_id: str) -> str:
    """Return the version of the policy that a run serves its arms by."""
    return f"run-{run_id}"


def check_served(rows: Sequence[Mapping[str, Any]], requested: Mapping[str, str], key: str) -> None:
    """Refuse a run whose server did not serve the arms that it was asked for.

    Args:
        rows: Rollouts and the arms that their traces have for this flag.
        requested: The arm that each rollout asked for, by its id.
        key: The flag.

    Raises:
        DataError: If a trace has another arm, or none has any.
    """
    for row in rows:
        if row["arm"] != requested[row["rollout_id"]]:
            raise DataError(
                f"The server behind --url did not serve the arm that it was asked for: "
                f"'{requested[row['rollout_id']]}' of '{key}' was asked for in rollout "
                f"'{row['rollout_id']}', and its trace has '{row['arm']}'. {WAY_OUT}"
            )
    if requested and not rows:
        raise DataError(
            f"The arms that the server behind --url served are unknown: no trace of this run has "
            f"an evaluation of the flag '{key}'. {WAY_OUT}"
        )


def flag_variables(flags: Path) -> dict[str, str]:
    """Return the variables that make an agent read a flag file."""
    path = str(flags.resolve())
    return {
        "FLAGD_RESOLVER": "file",
        "FLAGD_OFFLINE_FLAG_SOURCE_PATH": path,
        "LIGHTNING_POLICY": path,
    }
