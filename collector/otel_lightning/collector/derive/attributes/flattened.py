"""Rebuild values that were flattened into attributes, such as `gen_ai.prompt.0.role`.

The keys alone decide the place of each attribute. So for a shape that repeats, a function is
compiled once that builds the value as one literal of dictionaries and lists.
"""

import ast
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from otel_lightning.collector.derive.attributes.shapes import Shape, shape_of
from otel_lightning.collector.derive.rows import Attributes

Build = Callable[[Attributes], Any]
USES = 3
"""Threshold: a shape is compiled at its third use. Compiling costs as much as about a hundred reads
of one attribute, and a growing history makes a new shape for each length."""
DEEPEST = 16
"""Maximum number of nested levels to compile, because Python's compiler recurses."""


@dataclass(frozen=True, slots=True)
class Leaf:
    """The place of one attribute's value."""

    key: str
    """The key of the attribute."""


@dataclass(slots=True)
class _Plan:
    """The tree of the attributes under one prefix of a shape, and its compiled function."""

    tree: Any
    uses: int = 0
    build: Build | None = None


def nested(attributes: Attributes, prefix: str) -> Any:
    """Rebuild the value flattened under a prefix; numbered keys become lists without gaps.

    Example:
        >>> nested({"p.0.role": "user", "p.7.role": "tool"}, "p.")
        [{'role': 'user'}, {'role': 'tool'}]
    """
    shape = shape_of(attributes)
    plan: _Plan | None = shape.plans.get(prefix)
    if plan is None:
        plan = shape.plans[prefix] = _Plan(_tree(shape, prefix))
    if plan.build is not None:
        return plan.build(attributes)
    plan.uses += 1
    if plan.uses < USES or _depth(plan.tree) > DEEPEST:
        return filled(plan.tree, attributes)
    plan.build = _compiled(plan.tree)
    return plan.build(attributes)


def items(shape: Shape, prefix: str) -> list[Any]:
    """Return the trees of a list that was flattened under a prefix: `filled` makes its items."""
    tree = _tree(shape, prefix)
    if isinstance(tree, dict):  # xAI's SDK writes `gen_ai.completion.start_time` beside messages
        return [tree[number] for number in sorted(filter(str.isdecimal, tree), key=int)]
    return tree if isinstance(tree, list) else []


def lost_beginning(shape: Shape, prefix: str, role: str = "role") -> bool:
    """Return whether a flattened list lacks its beginning.

    OpenTelemetry's SDK for Python keeps 128 attributes of a span by default, and drops the oldest:
    the first messages of a long history, and all that was written before them.

    Args:
        shape: The keys of the span.
        prefix: The beginning of the keys, up to the number of the message.
        role: The key of a message's role, below its number.
    """
    known = shape.known
    if f"{prefix}0.{role}" in known:
        return False
    numbers = {
        key.removeprefix(prefix).partition(".")[0] for key in shape.keys if key.startswith(prefix)
    }
    listed = {number for number in numbers if number.isdecimal()}
    # A message of the user alone may have no role.
    return bool(listed) and ("0" not in listed or f"{prefix}1.{role}" in known)


def _tree(shape: Shape, prefix: str) -> Any:
    tree: dict[str, Any] = {}
    for key in shape.keys:
        if key.startswith(prefix):
            _insert(tree, key.removeprefix(prefix).split("."), Leaf(key))
    return _listed(tree)


def _insert(tree: dict[str, Any], path: list[str], value: Leaf) -> None:
    *branches, leaf = path
    for branch in branches:
        below = tree.setdefault(branch, {})
        # Both `p.0` and `p.0.role` are present: the first of them counts.
        if not isinstance(below, dict):
            return
        tree = below
    tree.setdefault(leaf, value)


def _listed(node: Any) -> Any:
    if not isinstance(node, dict):
        return node
    # By number and not as text, so that 10 follows 9. Packages leave numbers out.
    if node and all(key.isdecimal() for key in node):
        return [_listed(node[key]) for key in sorted(node, key=int)]
    return {key: _listed(below) for key, below in node.items()}


def filled(node: Any, attributes: Attributes) -> Any:
    """Return a tree with the values of attributes in the places of their keys."""
    if isinstance(node, Leaf):
        return attributes[node.key]
    if isinstance(node, list):
        return [filled(below, attributes) for below in node]
    return {key: filled(below, attributes) for key, below in node.items()}


def _depth(node: Any) -> int:
    if isinstance(node, Leaf):
        return 0
    below = node if isinstance(node, list) else node.values()
    return 1 + max(map(_depth, below), default=0)


def _compiled(tree: Any) -> Build:
    """Return a function of attributes that is one literal: `lambda a: [{"role": a["p.0.role"]}]`.

    It is built as a syntax tree in which the keys are constants, so no key is executed as code.
    """
    names = ast.arguments([], [ast.arg("a")], None, [], [], None, [])
    function = ast.Expression(ast.Lambda(names, _literal(tree)))
    code = compile(ast.fix_missing_locations(function), "<flattened attributes>", "eval")
    build: Build = eval(code)  # noqa: S307 - a literal of constants and look-ups, see above
    return build


def _literal(node: Any) -> ast.expr:
    if isinstance(node, Leaf):
        return ast.Subscript(ast.Name("a", ast.Load()), ast.Constant(node.key), ast.Load())
    if isinstance(node, list):
        return ast.List([_literal(below) for below in node], ast.Load())
    keys: list[ast.expr | None] = [ast.Constant(key) for key in node]
    return ast.Dict(keys, [_literal(below) for below in node.values()])
