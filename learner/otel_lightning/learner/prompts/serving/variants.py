"""The texts of a flag's variants: a string, or an object with one text per component."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

from otel_lightning.learner.errors import DataError

WHOLE_TEXT = ""
"""Name of the only component of a variant that is a string."""
HEX = 4
"""Number of hexadecimal digits in the name of a new variant; more if that name is taken."""
# The hash at the end of the name of a variant that was proposed before.
_SUFFIX = re.compile(r"-[0-9a-f]{4,64}$")


@dataclass(frozen=True, slots=True)
class Variant:
    """A variant of a flag with at least one text."""

    name: str
    value: Any
    """Its value in the flag file."""

    @property
    def texts(self) -> dict[str, str]:
        """The text of each component."""
        if isinstance(self.value, str):
            return {WHOLE_TEXT: self.value}
        return {name: text for name, text in self.value.items() if isinstance(text, str)}

    def with_text(self, component: str, text: str) -> Any:
        """Return the variant's value with another text of one component."""
        return text if component == WHOLE_TEXT else {**self.value, component: text}


def variants_with_text(document: Mapping[str, Any], key: str) -> dict[str, Variant]:
    """Read the variants of a flag that have a text.

    Raises:
        DataError: If none has.
    """
    values = document["flags"][key].get("variants") or {}
    variants = {
        name: Variant(name, value)
        for name, value in values.items()
        if isinstance(value, str) or (isinstance(value, dict) and _has_text(value))
    }
    if not variants:
        raise DataError(
            f"No variant of flag '{key}' is a text or an object of texts, so there is no prompt "
            "to improve. Choose another flag with --key."
        )
    return variants


def text_hash(text: str) -> str:
    r"""Hash a prompt without regard to white space: a reformatted prompt is the same idea.

    Example:
        >>> text_hash("Be brief. ") == text_hash("Be\n brief.")
        True
    """
    return sha256(" ".join(text.split()).encode("utf-8", "surrogatepass")).hexdigest()


def new_name(parent: str, digest: str, taken: Mapping[str, Any], *, is_candidate: bool) -> str:
    """Name a new variant after its parent and its text.

    Args:
        parent: Name of the variant that it improves.
        digest: Hash of its text.
        taken: The variants that exist.
        is_candidate: Whether the parent's own name ends with a hash, which is replaced.

    Example:
        >>> new_name("careful", "2a91ffff", {}, is_candidate=False)
        'careful-2a91'
        >>> new_name("careful-2a91", "77f0ffff", {}, is_candidate=True)
        'careful-77f0'
    """
    root = _SUFFIX.sub("", parent) if is_candidate else parent
    names = (f"{root}-{digest[:length]}" for length in range(HEX, len(digest) + 1))
    return next(name for name in names if name not in taken)


def _has_text(value: Mapping[str, Any]) -> bool:
    return any(isinstance(text, str) for text in value.values())
