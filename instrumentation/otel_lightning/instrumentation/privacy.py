"""Privacy: the switches for recording content, and a redactor that runs before export."""

import json
import logging
import os
import re
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, Final, NamedTuple

_logger = logging.getLogger(__name__)

CONTENT_VARIABLE: Final = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"
"""OpenTelemetry's content switch: a value other than those in `_ON_SPANS` switches content off."""

BUNDLED_CONTENT_VARIABLE: Final = "TRACELOOP_TRACE_CONTENT"
"""Content switch of the bundled OpenAI instrumentation."""

REDACT_VARIABLE: Final = "LIGHTNING_REDACT"
"""Kinds of text to redact, separated by commas: `keys`, `emails`, `phones`, `cards`; or `all`."""

PATTERNS_VARIABLE: Final = "LIGHTNING_REDACT_PATTERNS"
"""Path of a file with one regular expression per line; matching text is redacted."""

WITHHELD: Final = "[redacted:error]"
"""Replaces a value that could not be redacted."""

WITHHELD_HEADERS: Final = "[redacted:headers]"
"""Replaces the HTTP headers of a model call, which may hold its key, whatever is configured."""

WITHHELD_CONTENT: Final = "[redacted:content]"
"""Replaces the text of an error where content is switched off: it may quote a prompt or answer."""

_ON: Final = frozenset({"true", "1", "yes", "on"})
_ON_SPANS: Final = _ON | {"span_only", "span_and_event"}
# keys: of OpenAI, Stripe, AWS, GitHub, Slack and Google, JSON Web Tokens, bearer tokens, and
# passwords in URLs. cards: 13 to 19 digits, with single spaces or dashes. phones: with a country
# code, or in the North American forms. URLs write an `@` as `%40` and a plus sign as `%2B`. Each
# pattern takes time in proportion to the text: it starts once per word, or is of bounded length.
_KINDS: Final = {
    "keys": (
        r"\b(?:sk|pk|rk)[-_][A-Za-z0-9_-]{16,}|\bAKIA[0-9A-Z]{16}\b|\bgh[pousr]_[A-Za-z0-9]{20,}"
        r"|\bxox[abprs]-[A-Za-z0-9-]{10,}|\bAIza[0-9A-Za-z_-]{30,}"
        r"|\beyJ[A-Za-z0-9_-]{8,2048}\.[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]+|(?<=Bearer )[^\s\"'\\]{8,}"
        r"|(?<=://)[^\s/:@\"'\\]*:[^\s/@\"'\\]+(?=@)"
    ),
    "emails": (
        r"(?<![A-Za-z0-9._%+-])[A-Za-z0-9._%+-]+(?:@|%40)"
        r"[A-Za-z0-9-]+(?:\.[A-Za-z0-9-]+)*\.[A-Za-z]{2,}\b"
    ),
    "cards": r"(?<![\d.-])\d(?:[ -]?\d){12,18}(?![\d.-]*\d)",
    "phones": (
        r"(?<![\w.])(?:(?:\+|%2[Bb])\d{1,3}[ .-]?)(?:\(\d{1,4}\)[ .-]?)?"
        r"\d{1,4}(?:[ .-]?\d{2,4}){1,5}(?![\w])"
        r"|(?<![\w.])\(\d{3}\) ?\d{3}[ .-]\d{4}(?![\w])|(?<![\w.-])\d{3}[.-]\d{3}[.-]\d{4}(?![\w-])"
    ),
}

_KEY_MAY_MATCH: Final = re.compile(
    # Without their first letters, which vary: a search for a set of letters is quick.
    r"k[-_][A-Za-z0-9_-]{16}|KIA[0-9A-Z]{16}|h[pousr]_[A-Za-z0-9]{20}|xox[abprs]-"
    r"|Iza[0-9A-Za-z_-]{30}|yJ[A-Za-z0-9_-]{8}|earer |://[^\s/@]*@"
).search
_NUMBER_MAY_MATCH: Final = re.compile(r"(?:\+|%2[Bb])\d|\d(?:[ .()-]{0,3}\d){9}").search
_DIGITS: Final = bytes(ord("0") if chr(code).isdecimal() else code for code in range(256))
"""Translates every digit of ASCII to 0."""


def _may_hold_key(text: str) -> bool:
    return _KEY_MAY_MATCH(text) is not None


def _may_hold_email(text: str) -> bool:
    return "@" in text or "%40" in text


def _may_hold_number(text: str) -> bool:
    if not text.isascii():
        return _NUMBER_MAY_MATCH(text) is not None
    # The shortest numbers have ten digits, or begin with a plus sign and have four.
    digits = text.encode().translate(_DIGITS, b" .-()")
    return b"0000000000" in digits or b"+0000" in digits or "%2B" in text or "%2b" in text


_MAY_HOLD: Final[Mapping[str, Callable[[str], bool]]] = {
    "keys": _may_hold_key,
    "emails": _may_hold_email,
    "cards": _may_hold_number,
    "phones": _may_hold_number,
}
"""A quick test for each of `_KINDS`. If it is False, no part of the text matches the pattern.

Most texts hold none, so they need no parsing and no search for the patterns themselves.
"""

_LONGEST_REMEMBERED: Final = 1 << 15
"""Longest text, in characters, whose redaction is cached: this bounds the memory."""


class _Pattern(NamedTuple):
    name: str
    expression: re.Pattern[str]


_logged_faults: set[str] = set()
_EVERYTHING: Final = _Pattern("error", re.compile("(?s).+"))
"""Replaces any text by `WITHHELD`, if nobody knows what must not leave."""


def content_allowed() -> bool:
    """Return whether messages, tool results and token ids may be written to spans."""
    bundled = os.environ.get(BUNDLED_CONTENT_VARIABLE)
    if bundled is not None and bundled.strip().lower() not in _ON:
        return False
    stock = os.environ.get(CONTENT_VARIABLE)
    return not stock or stock.strip().lower() in _ON_SPANS


def share_switch() -> None:
    """Switch off the bundled instrumentation's content too if OpenTelemetry's switch is off."""
    # The bundled instrumentation does not read OpenTelemetry's switch.
    if BUNDLED_CONTENT_VARIABLE not in os.environ and not content_allowed():
        os.environ[BUNDLED_CONTENT_VARIABLE] = "false"


def redactor() -> Callable[[Any], Any] | None:
    """Build the function that redacts an attribute's value, as the variables configure it.

    Returns:
        The function, which returns the same object if nothing matches; None if no redaction is
        configured.
    """
    named, own = _named_kinds(), _own_patterns()
    return _Redactor(named, own) if named or own else None


def safe_redactor() -> Callable[[Any], Any] | None:
    """Build the function that redacts a value, or withholds it if it cannot be redacted.

    Returns:
        The function, which never raises; None if no redaction is configured.
    """
    redact = redactor()
    return None if redact is None else partial(_redacted, redact)


def _redacted(redact: Callable[[Any], Any], value: Any) -> Any:
    try:
        return redact(value)
    except Exception:
        _logger.exception("A value could not be redacted, so it is left out.")
        return WITHHELD  # it may contain a secret


def secrets_in(text: str) -> set[tuple[str, str]]:
    """Find texts that redaction of all kinds would replace, as pairs of kind and text.

    Example:
        >>> sorted(secrets_in("Write to a@example.com, order 1234567890123456."))
        [('emails', 'a@example.com')]
    """
    patterns = [_Pattern(name, re.compile(pattern)) for name, pattern in _KINDS.items()]
    return {
        (name, match[0])
        for name, expression in (*patterns, *_own_patterns())
        for match in expression.finditer(text)
        if name != "cards" or _card(match) != match[0]
    }


def _named_kinds() -> list[_Pattern]:
    names = [name.strip() for name in os.environ.get(REDACT_VARIABLE, "").lower().split(",")]
    kinds = list(_KINDS) if "all" in names or "true" in names else [n for n in names if n]
    for unknown in set(kinds) - set(_KINDS) - {"false", "none"}:
        _log_once(
            f"{REDACT_VARIABLE}: unknown kind {unknown!r}. Known: all, {', '.join(_KINDS)}. All "
            "kinds are redacted."
        )
        kinds = list(_KINDS)  # a misspelt kind must not let its secrets through
    return [_Pattern(name, re.compile(_KINDS[name])) for name in kinds if name in _KINDS]


def _own_patterns() -> list[_Pattern]:
    path = os.environ.get(PATTERNS_VARIABLE)
    if not path:
        return []
    try:
        lines = Path(path).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or error  # without the system's number
        _log_once(
            f"{PATTERNS_VARIABLE}={path} cannot be read ({reason}), so every text is withheld "
            f"({WITHHELD}). Correct the file, or unset the variable."
        )
        return [_EVERYTHING]
    patterns = []
    for number, line in enumerate(lines, 1):
        if line.strip() and not line.startswith("#"):
            try:
                patterns.append(_Pattern("own", re.compile(line)))
            except re.error as error:
                _log_once(f"{path}:{number}: not a regular expression ({error}); line left out.")
    return patterns


def _log_once(fault: str) -> None:
    """Warn of a fault in the variables, which are read for spans, logs and each reward."""
    if fault not in _logged_faults:
        _logged_faults.add(fault)
        _logger.warning("%s", fault)


class _Redactor:
    """Redacts the values of attributes.

    Args:
        named: Patterns of the kinds that we know.
        own: The user's own patterns.
    """

    def __init__(self, named: Sequence[_Pattern], own: Sequence[_Pattern]) -> None:
        self._patterns = [(one, _MAY_HOLD[one.name]) for one in named]
        self._own = own
        self._tests = tuple(dict.fromkeys(test for _, test in self._patterns))
        # Each call repeats the conversation's history, so most texts were redacted before.
        self._remembered = lru_cache(maxsize=512)(self._redact_text)

    def __call__(self, value: Any) -> Any:
        """Redact a value: a text, or the texts within a sequence or a mapping."""
        kind = type(value)
        if isinstance(value, str):
            return self._text(value) if kind is str else self._redact_text(value)
        if kind is bytes:
            # In Latin-1, each byte is a character, and back.
            return self._redact_text(value.decode("latin-1")).encode("latin-1", "replace")
        if isinstance(value, Mapping):
            return {self(key): self(one) for key, one in value.items()}
        if isinstance(value, list | tuple):
            # The elements of a tuple have one type. Token ids may be thousands of numbers.
            if kind is tuple and value and type(value[0]) in (int, float, bool):
                return value
            return kind([self(one) for one in value])
        return value

    def _text(self, text: str) -> str:
        if len(text) > _LONGEST_REMEMBERED:
            return self._redact_text(text)
        return self._remembered(text)

    def _redact_text(self, text: str) -> str:
        if not self._may_match(text):
            return text
        if text.lstrip()[:1] in ("{", "["):
            try:
                parsed = json.loads(text)
            except (ValueError, RecursionError):  # no JSON, or nested too deeply
                return self._replace(text)
            redacted = self._leaves(parsed)
            # Written again only if something changed: else the spacing of the original would be
            # lost.
            return text if redacted == parsed else json.dumps(redacted)
        return self._replace(text)

    def _may_match(self, text: str) -> bool:
        # JSON may escape any character, such as an `@`, as `\\u0040`.
        return bool(self._own) or "\\u" in text or any(test(text) for test in self._tests)

    def _leaves(self, value: Any) -> Any:
        if isinstance(value, dict):
            return {self._text(key): self._leaves(one) for key, one in value.items()}
        if isinstance(value, list):
            return [self._leaves(one) for one in value]
        if isinstance(value, str):
            return self._text(value)
        if isinstance(value, int | float) and not isinstance(value, bool):
            # A card number may stand in JSON as a number.
            text = str(value)
            replaced = self._replace(text)
            return value if replaced == text else replaced
        return value

    def _replace(self, text: str) -> str:
        for (name, expression), may_hold in self._patterns:
            if may_hold(text):
                replacement = _card if name == "cards" else f"[redacted:{name}]"
                text = expression.sub(replacement, text)
        for name, expression in self._own:
            text = expression.sub(f"[redacted:{name}]", text)
        return text


def _card(match: re.Match[str]) -> str:
    """Redact digits only if they have the checksum of a card number (Luhn, ISO/IEC 7812-1)."""
    digits = [int(digit) for digit in match[0] if digit.isdigit()]
    # Every second digit from the right, doubled; above 9 its two digits are added (2d - 9).
    doubled = [2 * digit - 9 * (digit > 4) for digit in digits[-2::-2]]  # noqa: PLR2004
    total = sum(digits[-1::-2]) + sum(doubled)
    return match[0] if total % 10 else "[redacted:cards]"
