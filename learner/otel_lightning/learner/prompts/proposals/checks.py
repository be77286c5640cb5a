"""Checks of a proposed prompt. Each refuses with its own reason."""

import re
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from otel_lightning.collector.terminal.quantities import number_of
from otel_lightning.instrumentation.privacy import secrets_in
from otel_lightning.learner.prompts.serving.variants import text_hash

COPIED_WORDS = 8
"""A run of this many words from a record counts as copied."""
THINKING = re.compile(r"</?think(?:ing)?>", re.IGNORECASE)
# A text that is one fenced block from its first to its last character; `\1` is the same fence.
FENCED = re.compile(r"\s*(```|~~~).*\1\s*", re.DOTALL)
# Control characters but tab, line feed and carriage return; and halves of surrogate pairs.
CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]|[\ud800-\udfff]")
PLACEHOLDER = re.compile(
    r"\{\{.*?\}\}|\$\{\w+\}|\{[A-Za-z_]\w*(?:[.\[][^{}]*)?(?:![rsa])?(?::[^{}]*)?\}|\{\}"
    r"|%\(\w+\)[sdfr]|(?<!%)%[sdfr]\b"
)
"""Placeholders of Jinja and mustache, shell and JavaScript, `str.format`, and `%` formatting."""
UNSPACED = "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
"""Range of the characters of Chinese and Japanese, which are written without spaces."""
WORD = re.compile(rf"[{UNSPACED}]|[^\W{UNSPACED}]+")
BETWEEN_UNSPACED = re.compile(rf"(?<=[{UNSPACED}]) (?=[{UNSPACED}])")


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits that a proposal is checked against."""

    parent: str
    """The text that it improves."""
    longest: int
    """Largest number of characters."""
    hashes: Collection[str]
    """Hashes of the texts that exist or were proposed before."""
    records: Sequence[str]
    """The texts of the records that the model was shown."""


def refusal(text: str, limits: Limits) -> str | None:
    """Return why a proposed prompt is refused, or None if it may be tried.

    Args:
        text: The proposed prompt.
        limits: What to compare it with.
    """
    checks = (_empty, _thinking, _fence, _characters, _length, _placeholders, _repeated, _copy)
    reasons = (check(text, limits) for check in (*checks, _secret))
    return next((reason for reason in reasons if reason), None)


def placeholders(text: str) -> Counter[str]:
    """Count the placeholders of a template.

    Example:
        >>> sorted(placeholders("Dear {name}, {{ today }} %s {name} 50%").items())
        [('%s', 1), ('{name}', 2), ('{{ today }}', 1)]
    """
    return Counter(PLACEHOLDER.findall(text))


def copied(text: str, parent: str, shown: Iterable[str]) -> str | None:
    """Find a run of `COPIED_WORDS` words that a record has and the parent has not.

    Example:
        >>> copied("Say one two three four five six seven eight.", "", ["One two three four five "
        ...     "six seven eight nine"])
        'one two three four five six seven eight'
        >>> record = "订单七号昨天已经从上海仓库发出了"
        >>> copied(f"答: {record}", "", [record]) == record
        True
    """
    allowed = set(_runs(parent))
    # Words that the parent has too are not copied from a record.
    of_records = {run for record in shown for run in _runs(record)} - allowed
    copied_run = next((run for run in _runs(text) if run in of_records), None)
    return None if copied_run is None else BETWEEN_UNSPACED.sub("", " ".join(copied_run))


def _runs(text: str) -> list[tuple[str, ...]]:
    """List all runs of `COPIED_WORDS` words; a character of Chinese or Japanese is half a word."""
    words: list[str] = WORD.findall(text.lower())
    sizes = [0.5 if re.match(f"[{UNSPACED}]", word) else 1.0 for word in words]
    runs, end, size = [], 0, 0.0
    for start in range(len(words)):
        while size < COPIED_WORDS and end < len(words):
            size += sizes[end]
            end += 1
        if size < COPIED_WORDS:
            break
        runs.append(tuple(words[start:end]))
        size -= sizes[start]
    return runs


def _empty(text: str, _: Limits) -> str | None:
    return None if text.strip() else "it is empty"


def _thinking(text: str, _: Limits) -> str | None:
    return "it holds the model's thinking (<think>)" if THINKING.search(text) else None


def _fence(text: str, limits: Limits) -> str | None:
    if FENCED.fullmatch(text) and not FENCED.fullmatch(limits.parent):
        return "it is wrapped in a code fence as a whole"
    return None


def _characters(text: str, _: Limits) -> str | None:
    return "it has control characters or broken Unicode" if CONTROL.search(text) else None


def _length(text: str, limits: Limits) -> str | None:
    longest = max(2 * len(limits.parent), limits.longest)
    if len(text) <= longest:
        return None
    count = number_of(len(text), "character")
    return f"it has {count}, more than {longest:,} (--max-length, or twice its parent)"


def _placeholders(text: str, limits: Limits) -> str | None:
    of_parent, of_proposal = placeholders(limits.parent), placeholders(text)
    # Counters: a placeholder that occurs less often than before is missing as well.
    if missing := of_parent - of_proposal:
        return f"it lost the placeholder {min(missing)}"
    if added := of_proposal - of_parent:
        return f"it has the new placeholder {min(added)}, which the agent does not fill in"
    return None


def _repeated(text: str, limits: Limits) -> str | None:
    if text_hash(text) in limits.hashes:
        return "it equals a variant, or a proposal of before"
    return None


def _copy(text: str, limits: Limits) -> str | None:
    run = copied(text, limits.parent, limits.records)
    return None if run is None else f"it copies {COPIED_WORDS} words of a record: '{run}'"


def _secret(text: str, limits: Limits) -> str | None:
    # A key that the present prompt holds is not new.
    secrets = sorted(secrets_in(text) - secrets_in(limits.parent))
    kinds = ", ".join(sorted({kind for kind, _ in secrets}))
    return f"it holds what looks like a secret ({kinds})" if secrets else None
