"""A rule in Python: a function that takes a polars frame of rollouts or calls, returns scores."""

import inspect
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from traceback import extract_tb
from types import ModuleType
from typing import Any

import polars as pl

from otel_lightning.collector.store import Store
from otel_lightning.collector.terminal.quantities import number_of
from otel_lightning.learner.errors import DataError
from otel_lightning.learner.score.rules.frames import scan
from otel_lightning.learner.score.rules.outcome import Exclusion, Scored
from otel_lightning.learner.score.rules.results import aligned, as_scores
from otel_lightning.learner.score.rules.spec import Rule

IDS = {"rollouts": ["rollout_id"], "calls": ["rollout_id", "span_id"]}
MAX_FAILURES = 100
"""A function that raises on this many rollouts is refused."""


@dataclass(frozen=True, slots=True)
class Function:
    """A loaded function, and the frame it takes: `wants` is rollouts or calls, lazy or not."""

    rule: Rule
    call: Callable[[Any], Any]
    begins: int
    wants: str
    lazily: bool

    def __call__(self, frame: pl.LazyFrame) -> Any:
        """Run the function and collect its result. Its exceptions pass through."""
        result = self.call(frame if self.lazily else frame.collect())
        return result.collect() if isinstance(result, pl.LazyFrame) else result

    def describe(self, error: Exception) -> str:
        """Describe an exception, with the last line of the rule's file in its traceback."""
        frames = extract_tb(error.__traceback__)
        # The innermost line of the user's file, not one of polars.
        lines = [frame.lineno for frame in frames if frame.filename == str(self.rule.path)]
        line = [self.begins, *lines][-1]
        words = " ".join(str(error).split())
        return f"{type(error).__name__} at {self.rule.path.name}:{line}: {words}"


def run(store: Store, rule: Rule, rollout_ids: Sequence[str] | None = None) -> Scored:
    """Run the function of a rule, and leave out the rollouts on which it raises.

    Args:
        store: An open store.
        rule: A rule in Python.
        rollout_ids: Ids of the rollouts to give to the function; all by default.

    Raises:
        DataError: If there is no such function, it raises on too many rollouts, or it does not
            return scores.
    """
    function = load(rule)
    return scored(function, scan(store, function.wants, rollout_ids))


def scored(function: Function, frame: pl.LazyFrame) -> Scored:
    """Run a function on a frame, and leave out the rollouts on which it raises.

    Raises:
        DataError: If it raises on too many rollouts, or does not return scores.
    """
    try:
        return _scored(function, function(frame), frame)
    except DataError:
        raise
    except Exception as error:  # noqa: BLE001 - a user's code may raise any exception
        failed = error
    # Only now: a function that works is run once, on the lazy frame.
    return _without_failures(function, frame.collect(), failed)


def load(rule: Rule) -> Function:
    """Run the file of a rule and find its function.

    Raises:
        DataError: If the file raises, has no such function, or the function's first parameter is
            neither `rollouts` nor `calls`.
    """
    module = _module(rule)
    function = getattr(module, rule.function or "", None)
    if not inspect.isfunction(function):
        names = ", ".join(name for name, value in vars(module).items() if inspect.isfunction(value))
        raise DataError(
            f"'{rule.path}' has no function '{rule.function}'. Its functions: {names or 'none'}."
        )
    first = next(iter(inspect.signature(function).parameters.values()), None)
    if first is None or first.name not in IDS:
        raise DataError(
            f"{rule.spec}: takes '{first.name if first else 'nothing'}'. Name its parameter "
            "'rollouts' or 'calls': the frame that it is to be given."
        )
    begins = function.__code__.co_firstlineno
    return Function(rule, function, begins, first.name, "LazyFrame" in str(first.annotation))


def _module(rule: Rule) -> ModuleType:
    """Execute exactly the fingerprinted text; an import could run bytecode of an older one."""
    module = ModuleType(f"lightning_rule_{rule.path.stem}")
    module.__file__ = str(rule.path)
    sys.modules[module.__name__] = module  # dataclasses look up their module here
    try:
        with _importing_from(str(rule.path.resolve().parent)):
            exec(compile(rule.text, str(rule.path), "exec"), vars(module))  # noqa: S102 - the user named the file
    except Exception as error:
        raise DataError(f"'{rule.path}' cannot be run: {type(error).__name__}: {error}") from error
    return module


@contextmanager
def _importing_from(folder: str) -> Iterator[None]:
    # A rule may import modules beside its file.
    sys.path.insert(0, folder)
    try:
        yield
    finally:
        sys.path.remove(folder)


def _scored(function: Function, result: Any, frame: pl.LazyFrame) -> Scored:
    ids = frame.select(IDS[function.wants])
    return Scored(as_scores(function.rule, aligned(function.rule, result, ids)))


def _without_failures(function: Function, frame: pl.DataFrame, failed: Exception) -> Scored:
    """Find the rollouts on which the function raises, and score all others in one call."""
    failures = _failures(function, frame)
    remaining = frame.filter(~pl.col("rollout_id").is_in(list(failures))).lazy()
    # It fails on too many rollouts, or on all: the function is wrong and not the data.
    if len(failures) in {MAX_FAILURES, frame["rollout_id"].n_unique()}:
        raise _beyond_repair(function, failed, len(failures))
    try:
        result = function(remaining)
    except Exception as error:
        raise _beyond_repair(function, error, len(failures)) from error
    scores = _scored(function, result, remaining).scores
    return Scored(scores, tuple(_named(function, failures)))


def _failures(function: Function, frame: pl.DataFrame) -> dict[str, Exception]:
    def attempt(some: Sequence[str]) -> Exception | None:
        try:
            function(frame.lazy().filter(pl.col("rollout_id").is_in(list(some))))
        except Exception as error:  # noqa: BLE001 - a user's code may raise any exception
            return error
        return None

    rollouts = frame["rollout_id"].unique(maintain_order=True).to_list()
    return dict(islice(find_failures(rollouts, attempt), MAX_FAILURES))


def find_failures(
    items: Sequence[str], attempt: Callable[[Sequence[str]], Exception | None]
) -> Iterator[tuple[str, Exception]]:
    """Find the items on which an attempt fails by bisection, which needs few attempts if few fail.

    Example:
        >>> fails = lambda some: ValueError() if "c" in some else None
        >>> [item for item, _ in find_failures("abcdef", fails)]
        ['c']
    """
    # If the whole part works, none of its items is tried alone.
    error = attempt(items) if items else None
    if error is None:
        return
    if len(items) == 1:
        yield items[0], error
        return
    half = len(items) // 2
    yield from find_failures(items[:half], attempt)
    yield from find_failures(items[half:], attempt)


def _named(function: Function, failures: dict[str, Exception]) -> Iterator[Exclusion]:
    groups: dict[str, list[str]] = {}
    for rollout, error in failures.items():
        groups.setdefault(function.describe(error), []).append(rollout)
    for reason, rollouts in groups.items():
        yield Exclusion(reason, tuple(rollouts))


def _beyond_repair(function: Function, error: Exception, failures: int) -> DataError:
    return DataError(
        f"{function.rule.spec}: raises {function.describe(error)} (on "
        f"{number_of(failures, 'rollout')}, also when given alone). Correct it, or return null "
        "where it cannot tell."
    )
