"""Several flags as one: an arm is a combination of their variants.

`prompt+model` names the flags `prompt` and `model` together. In memory they are one flag whose
variants are combinations, such as `brief+large`. In the file each flag stays its own: the
`fractional` targeting of each lists the combinations in one order with one bucketing value, so any
flagd provider puts a unit into the same place of each list, and the unit gets one combination.
"""

from collections.abc import Iterable, Mapping, Sequence
from itertools import product
from math import prod
from typing import TYPE_CHECKING, Any

from otel_lightning.collector.terminal.next_command import next_command
from otel_lightning.instrumentation.attributes import POLICY, POLICY_VERSION, PROPENSITY
from otel_lightning.learner.errors import DataError
from otel_lightning.learner.policy.serving import flag_rules

if TYPE_CHECKING:
    from otel_lightning.collector.store import StoreLike

SEPARATOR = "+"
FLAGS = "lightning.flags"
"""Targeting and metadata of each real flag, in the combined one's metadata; never in a file."""
Part = dict[str, Any]


def flags_of(key: str, flags: Mapping[str, Any]) -> list[str]:
    """Return the keys of the flags that a key names: itself, or several with + between them."""
    parts = key.split(SEPARATOR)
    # A real flag may have a plus in its key: then it is that flag and no combination.
    together = key not in flags and len(parts) > 1 and all(part in flags for part in parts)
    return parts if together else [key]


def in_common(one: str, other: str) -> bool:
    """Return whether two keys name a common flag, such as `prompt` and `prompt+model`."""
    return bool(set(one.split(SEPARATOR)) & set(other.split(SEPARATOR)))


def check_alone(flags: Mapping[str, Any], key: str, store: "StoreLike | None" = None) -> None:
    """Refuse a flag that a policy of several flags serves together with others.

    Its variants were drawn with those of the other flags, so their rewards are those of the
    combinations. Other shares for this flag alone would give other combinations.

    Raises:
        DataError: If it is drawn together with a flag that the key does not name.
    """
    mine = flags_of(key, flags)
    for name in mine:
        for together in _bucketed(flags[name].get("targeting") or {}):
            if set(together.split(SEPARATOR)) - set(mine):
                undo = next_command("lightning-learn rollback", store, key=together)
                raise DataError(
                    f"Flag '{name}' is drawn together with the others of '{together}', so its "
                    f"variants cannot be judged or served alone. Use --key {together}, or first "
                    f"take the policy of '{together}' back with: {undo}"
                )


def _bucketed(targeting: Mapping[str, Any]) -> list[str]:
    """List the keys of several flags by which a flag's targeting draws."""
    if "if" in targeting:
        return [key for branch in targeting["if"][1:] for key in _bucketed(branch)]
    match flag_rules.bucketing(targeting.get("fractional")):
        case [{"cat": [str(key), _]} as value] if SEPARATOR in key and value == _bucketing([key]):
            return [key]
    return []


def combined(flags: Mapping[str, Any], keys: Sequence[str]) -> Part:
    """Return the combination of several flags as one flag.

    Raises:
        DataError: If their targeting cannot be combined.
    """
    parts = [flags[key] for key in keys]
    names = [list(part.get("variants") or {}) for part in parts]
    wrong = [name for of_flag in names for name in of_flag if SEPARATOR in name]
    if wrong:
        raise DataError(
            f"Variant '{wrong[0]}' has a '+', so it cannot be learned jointly. Rename it."
        )
    ready = [_targeting(key, part) for key, part in zip(keys, parts, strict=True)]
    metadata: Part = {FLAGS: {key: part_of(flags[key]) for key in keys}}
    versions = {(part.get("metadata") or {}).get(POLICY_VERSION) for part in parts}
    if len(versions) == 1 and None not in versions:
        metadata[POLICY_VERSION] = versions.pop()
    combinations = [SEPARATOR.join(variants) for variants in product(*names)]
    return {
        "state": "ENABLED",
        "variants": {name: name for name in combinations},
        "targeting": _merged(ready, _bucketing(keys)),
        "metadata": metadata,
    }


def parted(combination: Mapping[str, Any], flags: Mapping[str, Any], keys: Sequence[str]) -> Part:
    """Return the targeting and metadata of each real flag for those of the combination."""
    parts_before = combination["metadata"].get(FLAGS) or {}
    bucketing = _bucketing(keys)
    before = [_targeting(key, flags[key] | parts_before[key]) for key in keys]
    # The combination is what the flags as they are would give, so they need not be rewritten.
    if _merged(before, bucketing) == combination["targeting"]:
        return dict(parts_before)  # such as the state that a rollback restores
    version = combination["metadata"].get(POLICY_VERSION)
    parts = {}
    for number, key in enumerate(keys):
        targeting = _of_flag(combination["targeting"], number, bucketing)
        metadata = {
            name: value
            for name, value in parts_before[key]["metadata"].items()
            if name != POLICY and not name.startswith(f"{PROPENSITY}.")
        }
        shares = _marginals(targeting)
        metadata |= {f"{PROPENSITY}.{name}": share for name, share in shares.items()}
        parts[key] = {"targeting": targeting, "metadata": metadata | {POLICY_VERSION: version}}
    return parts


def part_of(flag: Mapping[str, Any]) -> Part:
    """Return the part of a flag that a policy writes: its targeting and its metadata."""
    return {"targeting": flag.get("targeting") or {}, "metadata": flag.get("metadata") or {}}


def _targeting(key: str, flag: Mapping[str, Any]) -> Part:
    """Return a flag's targeting; a flag without any serves its default variant."""
    targeting = dict(flag.get("targeting") or {})
    if POLICY in (flag.get("metadata") or {}):
        raise DataError(
            f"Flag '{key}' has a policy for our OpenFeature provider, which cannot be combined "
            "with another flag. Roll it back first."
        )
    default = flag.get("defaultVariant")
    if targeting or default is None:
        return targeting
    return {"fractional": [[default, 1]]}


def _bucketing(keys: Sequence[str]) -> Part:
    # flagd hashes this value to choose a bucket. By default it begins with the flag's own key, so
    # two flags would draw independently; with a common prefix they draw together.
    return {"cat": [SEPARATOR.join(keys), {"var": "targetingKey"}]}


def _merged(targetings: Sequence[Mapping[str, Any]], bucketing: Part) -> Part:
    """Combine the targeting of several flags, rule by rule, down to their lists of shares."""
    if all(set(rule) == {"if"} for rule in targetings):
        condition, *others = (rule["if"][0] for rule in targetings)
        if all(other == condition for other in others):
            branches = (_merged([rule["if"][i] for rule in targetings], bucketing) for i in (1, 2))
            return {"if": [condition, *branches]}
    if not all(set(rule) == {"fractional"} for rule in targetings):
        raise DataError(
            "The targeting of these flags is not of one form, so they cannot be learned jointly. "
            "Give each flag 'fractional' targeting."
        )
    combinations = _combinations([rule["fractional"] for rule in targetings], bucketing)
    return {"fractional": [[SEPARATOR.join(names), weight] for names, weight in combinations]}


def _combinations(
    lists: Sequence[list[Any]], bucketing: Part
) -> Iterable[tuple[tuple[str, ...], int]]:
    """Return the combinations of the variants that several lists name, each with its weight.

    Flags with our bucketing and equal weights draw together: the n-th entries belong together. All
    others draw independently, so every combination has the product of the shares.
    """
    pairs = [flag_rules.pairs(one) for one in lists]
    names = [[name for name, _ in of_flag] for of_flag in pairs]
    weights = [[weight for _, weight in of_flag] for of_flag in pairs]
    are_ours = all(one[:1] == [bucketing] for one in lists)
    if are_ours and all(of_flag == weights[0] for of_flag in weights):
        return zip(zip(*names, strict=True), weights[0], strict=True)
    return zip(product(*names), map(prod, product(*weights)), strict=True)


def _of_flag(targeting: Mapping[str, Any], number: int, bucketing: Part) -> Part:
    """Return the targeting of one flag: the variant of each combination, in the same order."""
    if "if" in targeting:
        condition, *branches = targeting["if"]
        return {"if": [condition, *(_of_flag(branch, number, bucketing) for branch in branches)]}
    pairs = flag_rules.pairs(targeting["fractional"])
    parts = [[name.split(SEPARATOR)[number], weight] for name, weight in pairs]
    return {"fractional": [bucketing, *parts]}


def _marginals(targeting: Mapping[str, Any]) -> flag_rules.Shares:
    """Return the share of each variant of one flag; nothing if it depends on the input."""
    return flag_rules.shares_of_cell(targeting, {}) if "fractional" in targeting else {}
