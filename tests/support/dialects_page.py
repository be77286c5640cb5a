"""The table of docs/reference/dialects.md: what the conformance test finds in the recordings.

`PYTHONPATH=tests python -m support.dialects_page` writes it into the page, whose other text is
written by hand.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable
from pathlib import Path

from support.facts import derived_of, facts_of

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "reference" / "dialects.md"
DATA = ROOT / "tests" / "data"
COLUMNS = {
    "calls": ("call",),
    "messages": ("input texts", "output texts"),
    "tool calls": ("input tool calls", "output tool calls"),
    "tool results": ("input tool results",),
    "executions": ("execution",),
    "tools": ("tools",),
    "response id": ("response_id",),
    "finish reason": ("finish_reason",),
    "usage": ("input_tokens", "output_tokens"),
    "token ids": ("prompt_token_ids", "completion_token_ids"),
    "logprobs": ("completion_logprobs",),
}
BEGIN, END = "<!-- recordings: begin -->\n", "<!-- recordings: end -->\n"


def written() -> str:
    """Return the page with its table as it should be."""
    before, rest = PAGE.read_text().split(BEGIN)
    after = rest.split(END)[1]
    return f"{before}{BEGIN}\n{table()}\n{END}{after}"


def table() -> str:
    """Write the table: a row for each folder of recordings."""
    names = ["recorded with", "read as", *COLUMNS]
    lines = ["| " + " | ".join(names) + " |", "|---" * len(names) + "|"]
    lines += [row(folder) for folder in sorted(DATA.iterdir()) if any(folder.glob("*.truth.json"))]
    return "\n".join(lines) + "\n"


def row(folder: Path) -> str:
    verdicts: dict[str, Counter[str]] = defaultdict(Counter)
    families: Counter[str] = Counter()
    for truth in sorted(folder.glob("*.truth.json")):
        families.update(call.dialect for call in derived_of(truth).llm_calls)
        for fact in facts_of(truth):
            verdicts[fact.name][fact.verdict] += 1
    cells = [cell(verdicts[name] for name in of) for of in COLUMNS.values()]
    return f"| `{folder.name}` | {', '.join(sorted(families)) or '-'} | {' | '.join(cells)} |"


def cell(counted: Iterable[Counter[str]]) -> str:
    total = sum(counted, Counter[str]())
    right, absent = total["right"], total["not on the wire"] + total["missed"]
    if not right:
        return "no" if absent else "-"
    return f"partly ({absent} of {right + absent})" if absent else "yes"


if __name__ == "__main__":
    PAGE.write_text(written())
