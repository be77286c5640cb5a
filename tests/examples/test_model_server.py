"""`lightning-learn serve`: its sampling, its wire format, the real OpenAI client."""

import math
import shutil
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from support.late import Late
from tokenizers import AddedToken
from tools import TOOLS

from otel_lightning.learner.cli import cli
from otel_lightning.learner.model_server.chat import (
    Reply,
    ToolCall,
    decode,
    parse_reply,
    prompt_ids,
)

openai: Any = Late("openai")


def ask(server: Any, **options: Any) -> Any:
    messages = [
        {"role": "system", "content": "You work at a support desk. Be careful."},
        {"role": "user", "content": "Where is order A11?"},
    ]
    defaults = {"model": server.name, "messages": messages, "tools": TOOLS, "seed": 7}
    return server.client.chat.completions.create(**(defaults | options))


@pytest.mark.parametrize(
    "text",
    [
        '<tool_call>{"name": "lookup", "argu',
        '<tool_call>{"name": "lookup"}</tool_call>',
        '<tool_call>["lookup"]</tool_call>',
        '<tool_call>{"name": 5, "arguments": {}}</tool_call>',
        '<tool_call>{"name": "lookup", "arguments": "A11"}</tool_call>',
        '<tool_call>{"name": "lookup", "arguments": {}}</tool_call> and so on',
        "<tool_call><tool_call>",
        "",
    ],
)
def test_a_malformed_tool_call_is_plain_text(text: str) -> None:
    assert parse_reply(text) == Reply(content=text)


def test_text_before_two_tool_calls_is_kept() -> None:
    call = '<tool_call>{"name": "lookup", "arguments": {"order": "A1%d"}}</tool_call>'
    calls = tuple(ToolCall("lookup", f'{{"order": "A1{number}"}}') for number in (1, 2))
    assert parse_reply("Let me see." + call % 1 + call % 2) == Reply("Let me see.", calls)


def test_a_served_malformed_tool_call_is_text_content(beginner: Path) -> None:
    from transformers import AutoTokenizer

    from otel_lightning.learner.model_server.answer import make_choice
    from otel_lightning.learner.model_server.sampling import Completion

    tokenizer = AutoTokenizer.from_pretrained(beginner)
    text = '<tool_call>{"name": "lookup", "argu'
    ids = tuple(tokenizer.encode(text))
    choice = make_choice(0, Completion(ids, (0.0,) * len(ids), "length"), tokenizer)
    assert choice.message == {"role": "assistant", "content": text}
    assert choice.finish_reason == "length"
    assert "".join(choice.pieces) == text


def test_a_streamed_character_of_several_tokens_is_never_cut(beginner: Path) -> None:
    from transformers import AutoTokenizer

    from otel_lightning.learner.model_server.answer import make_choice
    from otel_lightning.learner.model_server.sampling import Completion

    tokenizer = AutoTokenizer.from_pretrained(beginner)
    ids = tuple(tokenizer.encode("5 €!"))
    choice = make_choice(0, Completion(ids, (0.0,) * len(ids), "length"), tokenizer)
    assert [piece for piece in choice.pieces if piece] == ["5", " ", "€", "!"]


def test_tokens_are_drawn_by_inverting_the_cumulative_distribution() -> None:
    import torch

    from otel_lightning.learner.model_server.sampling import draw

    uniforms = torch.tensor([0.0, 0.49, 0.51, 0.74, 0.76, 0.999], dtype=torch.float64)
    logits = torch.tensor([0.5, 0.25, 0.25]).log().expand(6, 3)
    tokens, logprobs = draw(logits, torch.ones(6), uniforms)
    assert tokens.tolist() == [0, 0, 1, 1, 2, 2]
    assert logprobs.exp().tolist() == pytest.approx([0.5, 0.5, 0.25, 0.25, 0.25, 0.25])


def test_temperature_is_part_of_the_logprob_and_zero_is_certain() -> None:
    import torch

    from otel_lightning.learner.model_server.sampling import draw

    logits = torch.tensor([0.8, 0.2]).log().expand(2, 2)
    uniforms = torch.tensor([0.95, 0.95], dtype=torch.float64)
    tokens, logprobs = draw(logits, torch.tensor([0.5, 0.0]), uniforms)
    # At temperature 1/2 the probabilities are squared and normalised: 0.64 and 0.04 of 0.68.
    assert tokens.tolist() == [1, 0]
    assert logprobs.exp().tolist() == pytest.approx([0.04 / 0.68, 1.0])


def test_a_seeded_request_is_answered_alike_alone_and_in_a_batch(beginner: Path) -> None:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    from otel_lightning.learner.model_server.sampling import Request, sample

    model = AutoModelForCausalLM.from_pretrained(beginner)
    tokenizer = AutoTokenizer.from_pretrained(beginner)
    texts = ["Where is order A11?", "Hello", "Please refund order B12. " * 4]
    prompts = [prompt_ids(tokenizer, [{"role": "user", "content": text}], TOOLS) for text in texts]
    requests = [Request(tuple(prompt), seed=str(len(prompt))) for prompt in prompts]
    batch = sample(model, requests)
    for request, together in zip(requests, batch, strict=True):
        (alone,) = sample(model, [request])
        assert alone.token_ids == together.token_ids
        assert alone.logprobs == pytest.approx(together.logprobs, abs=1e-4)


def test_a_later_prompt_begins_with_the_ids_of_the_earlier_prompt_and_reply(beginner: Path) -> None:
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(beginner)
    messages: list[dict[str, Any]] = [{"role": "user", "content": "Where is order A11?"}]
    function = {"name": "lookup", "arguments": '{"order": "A11"}'}
    later = [
        *messages,
        {"role": "assistant", "content": None, "tool_calls": [{"function": function}]},
        {"role": "tool", "content": '{"case": "missing-packed"}'},
    ]
    text = '<tool_call>{"name": "lookup", "arguments": {"order": "A11"}}</tool_call><|end|>'
    earlier = prompt_ids(tokenizer, messages, TOOLS) + tokenizer.encode(text)
    assert prompt_ids(tokenizer, later, TOOLS)[: len(earlier)] == earlier


def test_an_openai_client_finds_the_model(server: Any) -> None:
    assert [entry.id for entry in server.client.models.list()] == [server.name]


def test_token_ids_decode_to_the_text(server: Any, beginner: Path) -> None:
    from transformers import AutoTokenizer

    answer = ask(server, logprobs=True, extra_body={"return_token_ids": True}, tools=[])
    tokenizer = AutoTokenizer.from_pretrained(beginner)
    choice = answer.choices[0]
    assert decode(tokenizer, choice.token_ids) == text_of(choice.message)
    assert [token.token for token in choice.logprobs.content] == [
        tokenizer.decode([token]) for token in choice.token_ids
    ]
    assert answer.usage.completion_tokens == len(choice.token_ids)
    assert answer.usage.prompt_tokens == len(answer.prompt_token_ids)
    assert "Where is order A11?<|end|>" in tokenizer.decode(answer.prompt_token_ids)


def text_of(message: Any) -> str:
    calls = "".join(
        f'<tool_call>{{"name": "{call.function.name}", "arguments": {call.function.arguments}}}'
        "</tool_call>"
        for call in message.tool_calls or []
    )
    return (message.content or "") + calls


@pytest.mark.parametrize("temperature", [0.7, 1.0])
def test_logprobs_are_those_of_a_forward_pass_at_the_temperature(
    server: Any, beginner: Path, temperature: float
) -> None:
    import torch
    from transformers import AutoModelForCausalLM

    answer = ask(
        server, temperature=temperature, logprobs=True, extra_body={"return_token_ids": True}
    )
    prompt, completion = answer.prompt_token_ids, answer.choices[0].token_ids
    model = AutoModelForCausalLM.from_pretrained(beginner)
    with torch.no_grad():
        logits = model(torch.tensor([prompt + completion])).logits[0, len(prompt) - 1 : -1]
    logprobs = torch.log_softmax(logits / temperature, dim=-1)
    expected = sum(logprobs[step, token].item() for step, token in enumerate(completion))
    served = math.fsum(token.logprob for token in answer.choices[0].logprobs.content)
    assert served == pytest.approx(expected, abs=1e-3)


def test_a_stream_says_what_the_whole_answer_says(server: Any) -> None:
    options = {"logprobs": True, "extra_body": {"return_token_ids": True}, "n": 2}
    whole = ask(server, **options)
    chunks = list(ask(server, stream=True, stream_options={"include_usage": True}, **options))
    assert {chunk.id for chunk in chunks} == {chunks[0].id}
    assert chunks[-1].usage == whole.usage
    for choice in whole.choices:
        parts = [part for chunk in chunks for part in chunk.choices if part.index == choice.index]
        assert "".join(text_of(part.delta) for part in parts) == text_of(choice.message)
        assert [
            token for part in parts for token in (part.model_extra or {}).get("token_ids", [])
        ] == choice.token_ids
        assert parts[-1].finish_reason == choice.finish_reason


def test_every_answer_and_every_tool_call_has_an_id_of_its_own(server: Any) -> None:
    answers = [ask(server, n=8, seed=number) for number in range(4)]
    calls = [
        call.id
        for answer in answers
        for choice in answer.choices
        for call in choice.message.tool_calls or []
    ]
    ids = [answer.id for answer in answers] + calls
    assert calls
    assert len(set(ids)) == len(ids)
    assert all(answer.id.startswith("chatcmpl-") for answer in answers)
    assert all(call.startswith("call_") for call in calls)


def test_max_tokens_cuts_the_answer(server: Any) -> None:
    answer = ask(server, max_tokens=1)
    assert answer.choices[0].finish_reason == "length"
    assert answer.usage.completion_tokens == 1


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"temperature": -1}, "temperature"),
        ({"n": 0}, "n"),
        ({"top_p": 0.5}, "top_p"),
        ({"messages": []}, "messages"),
        ({"messages": [{"role": "poet", "content": "x"}]}, "messages.0.role"),
        ({"max_tokens": 10_000}, "messages"),
    ],
)
def test_a_bad_request_is_refused_and_told_why(
    server: Any, options: dict[str, Any], says: str
) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        ask(server, **options)
    assert caught.value.param == says


def test_an_unknown_model_or_route_is_not_found(server: Any) -> None:
    with pytest.raises(openai.NotFoundError, match=f"Known: {server.name}"):
        ask(server, model="other")
    with pytest.raises(openai.NotFoundError):
        server.client.embeddings.create(model=server.name, input="x")


def test_a_request_without_messages_is_told_that_they_are_missing(server: Any) -> None:
    with pytest.raises(openai.BadRequestError, match=r"'messages' is missing\.$"):
        server.client.post("/chat/completions", body={"model": server.name}, cast_to=object)


def test_an_address_of_another_machine_is_no_matter_of_the_port(beginner: Path) -> None:
    said = serve_badly(beginner, "--host", "192.0.2.1")
    assert "Cannot listen on 192.0.2.1:0: " in said
    assert said.endswith(". Give --host an address of this machine.\n")
    assert said.count("192.0.2.1") == 1


def serve_badly(model: Path, *options: str) -> str:
    """Serve what cannot be served; return the message."""
    finished = CliRunner().invoke(
        cli, ["serve", "--port", "0", "--model", str(model), *options], catch_exceptions=False
    )
    assert finished.exit_code == 1
    return finished.stderr


def test_a_folder_without_a_model_is_refused(tmp_path: Path) -> None:
    assert "holds no model: it has no config.json" in serve_badly(tmp_path)


def test_a_tokenizer_without_a_chat_template_is_refused(beginner: Path, tmp_path: Path) -> None:
    shutil.copytree(beginner, tmp_path / "plain")
    (tmp_path / "plain" / "chat_template.jinja").unlink()
    assert "has no chat template" in serve_badly(tmp_path / "plain")


CALL = '<tool_call>{"name": "lookup", "arguments": {"order": "A11"}}</tool_call>'


@pytest.fixture(scope="module")
def special(beginner: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model in whose tokenizer the two marks of a tool call are special tokens.

    It has learned by heart to call `lookup` for order A11.
    """
    import torch
    from transformers import AutoTokenizer, Qwen3Config, Qwen3ForCausalLM

    folder = tmp_path_factory.mktemp("models") / "special"
    tokenizer = AutoTokenizer.from_pretrained(beginner)
    marks = [AddedToken(mark, special=True) for mark in ("<tool_call>", "</tool_call>")]
    tokenizer.add_tokens(marks, special_tokens=True)
    config = Qwen3Config(
        vocab_size=len(tokenizer),
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=2,
        head_dim=32,
        max_position_embeddings=256,
        tie_word_embeddings=True,
        pad_token_id=tokenizer.pad_token_id,
        eos_token_id=tokenizer.eos_token_id,
        bos_token_id=None,
    )
    torch.manual_seed(0)
    model = Qwen3ForCausalLM(config)
    messages = [{"role": "user", "content": "Where is order A11?"}]
    prompt = prompt_ids(tokenizer, messages, TOOLS)
    answer = tokenizer.encode(CALL + "<|end|>")
    ids = torch.tensor([prompt + answer])
    labels = torch.tensor([[-100] * len(prompt) + answer])
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    for _ in range(60):
        model(input_ids=ids, labels=labels).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def test_a_tool_call_is_found_where_its_marks_are_special_tokens(desk: Any, special: Path) -> None:
    options = ("--temperature", "0", "--seed", "3", "--name", "one", "--name", "two")
    with desk.serve(special, *options) as served:
        messages = [{"role": "user", "content": "Where is order A11?"}]
        answer = served.client.chat.completions.create(model="two", messages=messages, tools=TOOLS)
        names = [entry.id for entry in served.client.models.list()]
    (call,) = answer.choices[0].message.tool_calls
    assert (call.function.name, call.function.arguments) == ("lookup", '{"order": "A11"}')
    assert answer.choices[0].message.content is None
    assert answer.choices[0].finish_reason == "tool_calls"
    assert names == ["one", "two"]


def test_a_seeded_server_answers_alike_in_every_run(desk: Any, beginner: Path) -> None:
    def answers(**options: int) -> list[str]:
        with desk.serve_here(beginner, **options) as served:
            asked = [ask(served, seed=None, temperature=2) for _ in range(6)]
            return [text_of(answer.choices[0].message) for answer in asked]

    first = answers(seed=3)
    assert first == answers(seed=3)
    assert len(set(first)) > 1
    assert len(set(answers(temperature=0))) == 1


def test_a_completion_ends_at_any_of_several_end_tokens(beginner: Path) -> None:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    from otel_lightning.learner.model_server.sampling import Request, sample

    model = AutoModelForCausalLM.from_pretrained(beginner)
    tokenizer = AutoTokenizer.from_pretrained(beginner)
    messages = [{"role": "user", "content": "Where is order A11?"}]
    request = Request(tuple(prompt_ids(tokenizer, messages, TOOLS)), temperature=0)
    (whole,) = sample(model, [request])
    cut = whole.token_ids[2]
    first = whole.token_ids.index(cut) + 1
    model.generation_config.eos_token_id = [tokenizer.eos_token_id, cut]
    (short,) = sample(model, [request])
    assert short.token_ids == whole.token_ids[:first]
    assert short.finish_reason == "stop"
    model.generation_config.eos_token_id = None
    (long,) = sample(model, [Request(request.prompt_ids, temperature=0, max_tokens=40)])
    assert (len(long.token_ids), long.finish_reason) == (40, "length")


@pytest.mark.parametrize("name", ["past_key_values", "cache"])
def test_the_cache_is_passed_by_the_name_that_the_library_gives_it(name: str) -> None:
    import torch
    from transformers import GenerationConfig

    from otel_lightning.learner.model_server.sampling import Request, sample

    class Answer(dict[str, Any]):
        logits: Any

    class Summing:
        """Its next token is the sum of all tokens; it gets each of them once."""

        device, generation_config = "cpu", GenerationConfig()

        def __call__(self, input_ids: Any, **given: Any) -> Answer:
            assert set(given) <= {
                "attention_mask", "position_ids", "use_cache", "logits_to_keep", name
            }  # fmt: skip
            seen = [*given.get(name, []), *input_ids[0].tolist()]
            answer = Answer({name: seen})
            answer.logits = torch.nn.functional.one_hot(torch.tensor([[sum(seen)]]), 40).float()
            return answer

    model: Any = Summing()
    (completion,) = sample(model, [Request((1, 2), temperature=0, max_tokens=4)])
    assert completion.token_ids == (3, 6, 12, 24)
