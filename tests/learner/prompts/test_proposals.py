"""Which answers of the proposing model are refused, and what the next one is told."""

import json
import time
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from support.prompt_server import (
    PromptServer,
    Reply,
    proposal,
)
from support.prompted_flag import FIRST, TEXT, Serve, ask, log, new_variants, numbered
from support.running import serving

from otel_lightning.learner.prompts.proposals.ask import read_proposal
from otel_lightning.learner.prompts.proposals.checks import Limits, refusal
from otel_lightning.learner.prompts.serving.variants import text_hash
from otel_lightning.learner.score.judges.answers import Answer

if TYPE_CHECKING:
    from conftest import Traces


NONSENSE = {
    "chatter": Reply("What a nice agent!"),
    "empty": Reply(""),
    "no prompt in the object": Reply('{"reason": "x"}'),
    "prompt is a number": Reply('{"reason": "x", "prompt": 4}'),
    "cut off": Reply('{"reason": "x", "prompt": "You answer', "length"),
    "cut off where it looks whole": Reply('{"reason": "x", "prompt": "Be kind."}', "length"),
    "empty prompt": proposal("  "),
    "thinking in the prompt": proposal("<think>hmm the user wants me to</think> Be kind."),
    "fence around all of it": proposal("```\nBe kind.\n```"),
    "unclosed fence": Reply("```\nYou answer the requests"),
    "fence whose first line may be text": Reply("```Careful\nsecond line\n```"),
    "a placeholder that the agent does not fill": proposal("Be kind to {name}."),
    "a secret": proposal("Use the key sk-abcdefghijklmnop1234."),
    "an address of a customer": proposal("Write to ada@example.com."),
    "too long": proposal("Be kind. " * 1000),
    "broken unicode": Reply('{"reason": "x", "prompt": "Be kind \\ud800."}'),
    "copied": proposal("Say: one two three four five six seven eight nine"),
    "the same as its parent": proposal(FIRST),
    "the same as another, but for white space": proposal("Be\n brief. "),
    "deeply nested": Reply("[" * 5000 + '{"prompt"'),
    "ten megabytes": Reply("You are an agent. " * 600_000),
    "fences that are never closed": Reply("```a\n" * 200_000),
    "objects that are never closed": Reply('{"a":' * 150_000),
    "no finish reason": Reply('{"reason": "x", "prompt": "Be kind."}', None),
}


SAID = "One two three four five six seven eight nine"


@pytest.mark.parametrize("reply", NONSENSE.values(), ids=NONSENSE)
def test_nonsense_is_refused_with_a_reason(reply: Reply) -> None:
    kept = {"content": reply.content, "finish_reason": reply.finish_reason}
    found = read_proposal(Answer(json.dumps(kept)))
    limits = Limits(FIRST, 4000, {text_hash(FIRST), text_hash("Be brief.")}, [SAID])
    assert found.refused or refusal(str(found.prompt), limits)


def test_equal_refusals_are_one_line_with_their_number(
    traces: "Traces", flags: Path, serve: Serve
) -> None:
    log(traces, 20)
    result = ask(traces, flags, serve(lambda _, __: NONSENSE["chatter"]))
    # Of three calls the last one is for the second best variant.
    assert "Refused 2 times, for careful: " in result.stderr
    assert "Refused, for brief: " in result.stderr
    assert result.stderr.count("Refused") == 2
    assert len(traces.ask("SELECT refused FROM prompts")) == 3


def test_nonsense_changes_nothing_and_is_recorded(
    traces: "Traces", flags: Path, serve: Serve
) -> None:
    log(traces, 20)
    replies = [NONSENSE["chatter"], NONSENSE["a secret"], NONSENSE["broken unicode"]]
    result = ask(traces, flags, serve(lambda _, n: replies[n]))
    assert result.exit_code == 3, result.output
    assert result.stderr.count("Refused, for ") == 3
    assert "Nothing to try: 3 proposals were refused, and none is left." in result.stderr
    assert flags.read_text() == TEXT
    rows = traces.ask("SELECT variant, refused FROM prompts")
    assert [row["variant"] for row in rows] == [None] * 3
    assert all(row["refused"] for row in rows)
    assert traces.ask("SELECT outcome FROM runs") == [{"outcome": "nothing"}]


def test_lost_placeholder_is_refused(traces: "Traces", flags: Path, serve: Serve) -> None:
    flags.write_text(TEXT.replace("requests of", "requests of {{name}} and other"))
    log(traces)
    result = ask(traces, flags, serve(numbered), "--candidates", "1", "--records", "3")
    assert result.exit_code == 3
    assert "it lost the placeholder {{name}}" in result.stderr


def test_a_plain_fence_is_read_where_the_model_knows_no_json(
    traces: "Traces", flags: Path, serve: Serve
) -> None:
    log(traces)
    reply = Reply("It is too vague.\n```text\nCheck twice.\n```")
    assert ask(traces, flags, serve(lambda *_: reply), "--candidates", "1").exit_code == 0
    assert list(new_variants(flags).values()) == ["Check twice."]


def test_model_that_fails_is_no_success_and_its_answers_are_kept(
    traces: "Traces", flags: Path, serve: Serve
) -> None:
    log(traces)

    def breaks(request: dict[str, Any], number: int) -> Reply:
        return numbered(request, number) if number == 0 else Reply("forbidden", None, 403)

    server = serve(breaks)
    result = ask(traces, flags, server, "--concurrency", "1")
    assert result.exit_code == 1
    assert f"'{server.url}' gave no answer by model 'gpt-writer'" in result.stderr
    assert flags.read_text() == TEXT
    (run,) = traces.ask("SELECT outcome FROM runs")
    assert run["outcome"] == "failed"
    server.script = numbered
    again = ask(traces, flags, server)
    assert "2 answers asked for, 1 known before" in again.stdout


class Drips(BaseHTTPRequestHandler):
    """Sends a byte of its answer now and then, and never ends."""

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.end_headers()
        with suppress(OSError):  # until nobody reads any more
            while True:
                self.wfile.write(b" ")
                self.wfile.flush()
                time.sleep(0.05)

    def log_message(self, *_: object) -> None:
        """Keep the tests' output clean."""


def test_answer_that_never_ends_is_given_up_and_one_that_cannot_be_asked_for_is_told(
    traces: "Traces", flags: Path
) -> None:
    log(traces)
    server = PromptServer(numbered)
    with serving(ThreadingHTTPServer(("127.0.0.1", 0), Drips)) as url:
        server.url = f"{url}/v1"
        result = ask(traces, flags, server, "--timeout", "1", "--retries", "0")
    assert result.exit_code == 1
    assert "the whole answer had not come after 1 s" in result.stderr
    refused = ask(traces, flags, server, "--retries", "0")
    assert refused.exit_code == 1
    assert "Connection refused" in refused.stderr
    assert "The flag file was not changed. At least 0 of 3 answers are kept" in refused.stderr
    assert flags.read_text() == TEXT


def test_ideas_of_before_are_not_tried_again_and_the_losers_are_shown(
    traces: "Traces", flags: Path, serve: Serve
) -> None:
    log(traces)
    server = serve(lambda *_: proposal("A new prompt."))
    assert ask(traces, flags, server, "--candidates", "1").exit_code == 0
    again = ask(traces, flags, server, "--candidates", "1")
    assert again.exit_code == 3
    assert "it equals a variant, or a proposal of before" in again.stderr
    assert len(server.requests) == 2
    (name,) = new_variants(flags)
    document = json.loads(flags.read_text())
    document["flags"]["support-prompt"]["targeting"] = {
        "fractional": [["careful", 1], ["brief", 1], [name, 0]]
    }
    flags.write_text(json.dumps(document))
    ask(traces, flags, server, "--candidates", "1")
    system = server.requests[-1]["messages"][0]["content"]
    assert '# Tried before, did not help\n\n- "A new prompt."' in system
