import json
import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from pydantic import TypeAdapter
from support.late import Late

from otel_lightning.collector.store import open_store, server_file, write_server
from otel_lightning.learner import DataError
from otel_lightning.learner.cli import cli
from otel_lightning.learner.commands.export import FORM
from otel_lightning.learner.export.formats import FORMATS
from otel_lightning.learner.export.write import export_transitions as write
from otel_lightning.learner.transitions.make import Settings, make_transitions

if TYPE_CHECKING:
    from conftest import Traces

datasets: Any = Late("datasets")
chat: Any = Late("openai.types.chat")

LOOKUP = {"name": "lookup", "parameters": {"type": "object", "properties": {"order": {}}}}
REFUND = {"name": "refund", "parameters": {"type": "object", "properties": {"amount": {}}}}


def text(role: str, content: str) -> dict[str, Any]:
    return {"role": role, "parts": [{"type": "text", "content": content}]}


def asks(name: str, **arguments: Any) -> dict[str, Any]:
    part = {"type": "tool_call", "id": "call-1", "name": name, "arguments": arguments}
    return {"role": "assistant", "parts": [part]}


RESULT = {
    "role": "tool",
    "parts": [{"type": "tool_call_response", "id": "call-1", "response": "shipped"}],
}


@pytest.fixture
def learned(traces: "Traces") -> "Traces":
    """One task, tried three times: in one state two good answers and a bad one."""
    for rollout, tool, value in (("a", "lookup", 1.0), ("b", "refund", 0.0), ("c", "lookup", 1.0)):
        question = text("user", "Where is order 7?")
        asked = asks(tool, order=7) if tool == "lookup" else asks(tool, amount="12.50")
        told = {"tool_definitions": json.dumps([LOOKUP, REFUND])}
        first = json.dumps([question]), json.dumps([asked])
        last = json.dumps([question, asked, RESULT]), json.dumps([text("assistant", "On its way.")])
        traces.call(rollout, 0, input_messages=first[0], output_messages=first[1], **told)
        traces.call(rollout, 1, input_messages=last[0], output_messages=last[1], **told)
        traces.reward(rollout, value)
        traces.task(rollout, "order-7")
    make_transitions(traces.store(), Settings(credit="group", held_out=0.0))
    return traces


def export(traces: "Traces", form: str, name: str, *options: str) -> Path:
    output = traces.path.parent / name
    said = ["export", "--store", str(traces.path), "--form", form, "--output", str(output)]
    result = CliRunner().invoke(cli, [*said, *options])
    assert result.exit_code == 0, result.output
    return output


def load(path: Path) -> Any:
    kind = {".parquet": "parquet", ".jsonl": "json"}[path.suffix]
    cache = str(path.parent / "cache")
    return datasets.load_dataset(kind, data_files=str(path), split="train", cache_dir=cache)


def test_command_offers_every_format() -> None:
    assert list(FORM.choices) == list(FORMATS)


@pytest.mark.parametrize("suffix", ["parquet", "jsonl"])
def test_only_answers_that_earned_something_are_shown_to_sft(
    learned: "Traces", suffix: str
) -> None:
    rows = load(export(learned, "trl-sft", f"sft.{suffix}"))
    assert {row["rollout_id"] for row in rows} == {"a", "c"}
    first = min(rows, key=lambda row: (row["rollout_id"], row["step"]))
    assert first["prompt"] == [{"role": "user", "content": "Where is order 7?"}]
    [call] = first["completion"][0]["tool_calls"]
    assert call["function"] == {"name": "lookup", "arguments": {"order": 7}}
    offered = [tool["function"] for tool in json.loads(first["tools"])]
    assert offered == [LOOKUP, REFUND]


def test_pairs_hold_one_better_and_one_worse_answer_of_one_state(learned: "Traces") -> None:
    [pair] = load(export(learned, "trl-dpo", "dpo.parquet"))
    names = [pair[side][0]["tool_calls"][0]["function"]["name"] for side in ("chosen", "rejected")]
    assert names == ["lookup", "refund"]
    assert pair["margin"] == 1.5  # leave-one-out advantages of 0.5, -1, 0.5


def test_every_answer_has_a_label_for_kto(learned: "Traces") -> None:
    rows = load(export(learned, "trl-kto", "kto.parquet"))
    assert {(row["rollout_id"], row["label"]) for row in rows} == {
        ("a", True),
        ("b", False),
        ("c", True),
    }
    assert len(rows) == 6


@pytest.mark.parametrize("suffix", ["parquet", "jsonl"])
def test_transitions_as_they_are_have_all_columns_of_the_view(
    learned: "Traces", suffix: str
) -> None:
    written = load(export(learned, "transitions", f"all.{suffix}"))
    stored = learned.ask("FROM transitions ORDER BY rollout_id, step")
    assert sorted(written, key=lambda row: (row["rollout_id"], row["step"])) == stored


def test_pieces_of_a_large_store_give_the_same_as_reading_it_whole(
    learned: "Traces", monkeypatch: pytest.MonkeyPatch
) -> None:
    learned.ask("DELETE FROM llm_calls WHERE span_id = 'b.1'")
    whole = load(export(learned, "transitions", "whole.parquet"))
    monkeypatch.setattr("otel_lightning.learner.export.write.CALLS_A_BUCKET", 1)
    monkeypatch.setattr("otel_lightning.learner.export.write.PIECE", 4)
    pieces = load(export(learned, "transitions", "pieces.parquet"))
    assert sorted(pieces, key=repr) == sorted(whole, key=repr)
    assert [row["messages"] for row in pieces].count(None) == 1


def test_prompts_are_distinct_and_say_how_often_they_were_met(learned: "Traces") -> None:
    rows = load(export(learned, "trl-grpo", "grpo.parquet"))
    assert sorted(row["visits"] for row in rows) == [1, 2, 3]
    assert {row["task_id"] for row in rows} == {"order-7"}


def test_verl_rows_have_an_advantage_at_each_token(traces: "Traces") -> None:
    traces.call(
        "a",
        prompt_token_ids=[1, 2],
        completion_token_ids=[3, 4, 5],
        completion_logprobs=[-0.1, -0.2, -0.3],
    )
    traces.reward("a", 0.5)
    make_transitions(traces.store(), Settings(held_out=0.0))
    [row] = load(export(traces, "verl", "verl.parquet"))
    assert row["response_token_ids"] == [3, 4, 5]
    assert row["advantages"] == [0.5, 0.5, 0.5]
    assert row["rollout_log_probs"] == [-0.1, -0.2, -0.3]
    assert row["extra_info"]["rollout_id"] == "a"


@pytest.mark.parametrize("tokens", [None, [3, 4, 5]])
def test_logprobs_of_verl_rows_that_do_not_fit_the_tokens_are_left_out(
    traces: "Traces", tokens: list[int] | None
) -> None:
    """Some servers count the end token in one of the two lists only."""
    said = {"input_messages": json.dumps([text("user", "Hm?")])}
    said["output_messages"] = json.dumps([text("assistant", "Yes.")])
    traces.call("a", completion_token_ids=tokens, completion_logprobs=[-0.1, -0.2], **said)
    traces.reward("a", 0.5)
    make_transitions(traces.store(), Settings(held_out=0.0))
    [row] = load(export(traces, "verl", "verl.parquet"))
    assert (row["response_token_ids"], row["rollout_log_probs"]) == (tokens, None)


def test_lines_for_openai_are_what_its_library_calls_chat_messages(learned: "Traces") -> None:
    lines = export(learned, "openai", "chat.jsonl").read_text().splitlines()
    assert len(lines) == 4
    for line in map(json.loads, lines):
        TypeAdapter(list[chat.ChatCompletionMessageParam]).validate_python(line["messages"])
        asked = [call for m in line["messages"] for call in m.get("tool_calls", ())]
        # pydantic's choice among the kinds of messages would also let an object pass.
        assert asked
        assert all(isinstance(call["function"]["arguments"], str) for call in asked)
        TypeAdapter(list[chat.ChatCompletionFunctionToolParam]).validate_python(line["tools"])
        weights = [m.get("weight", 1) for m in line["messages"] if m["role"] == "assistant"]
        assert weights == [0] * (len(weights) - 1) + [1]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*checkpointing:FutureWarning")  # within TRL 1.16
def test_trl_trains_on_each_of_its_formats(learned: "Traces", tokenizer: Any) -> None:
    pytest.importorskip("trl")
    from transformers import Qwen3Config, Qwen3ForCausalLM
    from trl import DPOConfig, DPOTrainer, KTOConfig, KTOTrainer, SFTConfig, SFTTrainer

    size = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "head_dim": 8}
    heads = {"num_attention_heads": 2, "num_key_value_heads": 2}
    folder = str(learned.path.with_name("model"))
    Qwen3ForCausalLM(Qwen3Config(vocab_size=len(tokenizer), **size, **heads)).save_pretrained(
        folder
    )
    trainers: Any = (
        ("trl-sft", SFTTrainer, SFTConfig),
        ("trl-dpo", DPOTrainer, DPOConfig),
        ("trl-kto", KTOTrainer, KTOConfig),
    )
    for form, trainer, settings in trainers:
        rows = load(export(learned, form, f"{form}.parquet"))
        plain = {"bf16": False, "activation_checkpointing": False, "use_cpu": True}
        arguments = settings(
            output_dir=str(learned.path.with_name(form)),
            max_steps=1,
            per_device_train_batch_size=2,
            report_to=[],
            save_strategy="no",
            disable_tqdm=True,
            **plain,
        )
        done = trainer(
            model=folder, args=arguments, train_dataset=rows, processing_class=tokenizer
        ).train()
        assert done.training_loss > 0, form


def test_export_with_nothing_to_write_says_why_and_leaves_no_file_or_folder(
    learned: "Traces",
) -> None:
    output = learned.path.parent / "none" / "none.parquet"
    said = ["--store", str(learned.path), "--form", "trl-sft", "--output", str(output)]
    result = CliRunner().invoke(cli, ["export", *said, "--threshold", "99"])
    assert result.exit_code == 1
    assert "the highest is 0.5. Lower --threshold." in result.output
    assert not list(learned.path.parent.glob("*none*"))


def test_export_of_a_store_without_transitions_says_how_to_build_them(traces: "Traces") -> None:
    traces.call("a")
    said = ["--store", traces.store(), "--form", "openai", "--output", "none.jsonl"]
    result = CliRunner().invoke(cli, ["export", *said])
    assert result.exit_code == 1
    assert "lightning-learn transitions --store" in result.output


def test_export_above_no_number_is_refused(learned: "Traces") -> None:
    said = ["--store", str(learned.path), "--form", "openai", "--output", "none.jsonl"]
    result = CliRunner().invoke(cli, ["export", *said, "--threshold", "nan"])
    assert result.exit_code == 2
    assert "nan is not a finite number" in result.output
    form, output = FORMATS["openai"], learned.path.with_name("none.jsonl")
    with pytest.raises(DataError, match="must be a finite number"):
        write(str(learned.path), form, output, split="train", threshold=math.nan)


def test_export_without_a_pair_says_what_pairs_are(learned: "Traces") -> None:
    said = ["--store", str(learned.path), "--form", "trl-dpo", "--output", "none.parquet"]
    result = CliRunner().invoke(cli, ["export", *said, "--threshold", "99"])
    assert result.exit_code == 1
    assert "No two different answers to one prompt" in result.output


def test_export_to_an_unknown_kind_of_file_is_refused(learned: "Traces") -> None:
    said = ["--store", str(learned.path), "--form", "trl-sft", "--output", "rows.csv"]
    result = CliRunner().invoke(cli, ["export", *said])
    assert result.exit_code == 1
    assert "must end with .parquet or .jsonl" in result.output


def test_columns_of_a_parquet_file_are_those_the_format_names(learned: "Traces") -> None:
    for form in FORMATS:
        file = export(learned, form, f"{form}.parquet")
        assert pq.read_schema(file).names == list(FORMATS[form].columns)


def test_running_ingester_is_exported_from_too(learned: "Traces") -> None:
    direct = load(export(learned, "transitions", "direct.parquet"))
    with open_store(learned.path) as ingester:
        write_server(learned.path, ingester.serve("http://127.0.0.1:4318"))
        try:
            through = load(export(learned, "transitions", "through.parquet"))
        finally:
            server_file(learned.path).unlink()
    assert sorted(through, key=repr) == sorted(direct, key=repr)


def refused(traces: "Traces", form: str, *options: str) -> str:
    """Export in vain; return what is said."""
    output = traces.path.with_name("none.jsonl")
    said = ["export", "--store", str(traces.path), "--form", form, "--output", str(output)]
    result = CliRunner().invoke(cli, [*said, *options])
    assert result.exit_code == 1, result.output
    assert not output.exists()
    return result.output


def test_rollouts_without_a_second_one_of_their_task_are_not_taught_by_a_lower_threshold(
    traces: "Traces",
) -> None:
    for rollout, value in (("a", 1.0), ("b", 0.0)):
        traces.call(rollout)
        traces.reward(rollout, value)
    make_transitions(traces.store(), Settings(credit="group", held_out=0.0))
    message = refused(traces, "trl-sft")
    assert "All 2 advantages in split 'train' are 0: credit 'group'" in message
    assert "none of 2 tasks has two rollouts" in message
    assert "Collect several rollouts per task" in message
    assert "Lower --threshold" not in message


def test_rollouts_that_all_failed_are_not_taught_by_a_lower_threshold(traces: "Traces") -> None:
    traces.call("a")
    traces.reward("a", 0.0)
    make_transitions(traces.store(), Settings(held_out=0.0))
    message = refused(traces, "openai")
    assert "so no answer is known to be good" in message
    assert "Lower --threshold" not in message


def test_answers_that_were_compared_with_nothing_have_no_label_for_kto(traces: "Traces") -> None:
    for rollout, task, value in (("a", "1", 1.0), ("b", "1", 0.0), ("c", "2", 1.0)):
        traces.call(rollout)
        traces.reward(rollout, value)
        traces.task(rollout, task)
    make_transitions(traces.store(), Settings(credit="group", held_out=0.0))
    output = traces.path.with_name("kto.jsonl")
    written = write(str(traces.path), FORMATS["trl-kto"], output, split="train", threshold=0.0)
    rows = [json.loads(line) for line in output.read_text().splitlines()]
    assert {row["rollout_id"]: row["label"] for row in rows} == {"a": True, "b": False}
    assert written.left_out == {"an advantage of 0 by credit 'group', which is no label": 1}


def test_equal_answers_whose_means_differ_by_rounding_are_no_pair(learned: "Traces") -> None:
    learned.ask("UPDATE transition_rows SET advantage = 0.3 + 5e-17 WHERE rollout_id = 'b'")
    learned.ask("UPDATE transition_rows SET advantage = 0.1 + 0.2 WHERE rollout_id <> 'b'")
    assert "No two different answers" in refused(learned, "trl-dpo")


BROKEN = {"type": "tool_call", "id": "call-1", "name": "lookup", "arguments": None}
BROKEN |= {"arguments_raw": '{"order": 7'}
IMAGE = {"type": "uri", "modality": "image", "uri": "https://example.org/parcel.png"}


@pytest.fixture
def uncarried(traces: "Traces") -> "Traces":
    """An answer with broken arguments, a prompt with an image, an odd tool, and a plain call."""
    question = text("user", "Where is order 7?")
    photo = {"role": "user", "parts": [{"type": "text", "content": "What is this?"}, IMAGE]}
    broken = {"role": "assistant", "parts": [BROKEN]}
    answer = text("assistant", "A parcel.")
    search = json.dumps([{"type": "web_search"}])
    for rollout, prompt, said, tools in (
        ("arguments", question, broken, None),
        ("image", photo, answer, None),
        ("tool", question, answer, search),
        ("plain", question, answer, None),
    ):
        messages = {"input_messages": json.dumps([prompt]), "output_messages": json.dumps([said])}
        traces.call(rollout, **messages, tool_definitions=tools)
        traces.reward(rollout, 1.0)
    make_transitions(traces.store(), Settings(held_out=0.0))
    return traces


@pytest.mark.parametrize("form", ["trl-sft", "trl-kto", "verl"])
def test_what_a_format_cannot_carry_is_left_out_by_its_name(uncarried: "Traces", form: str) -> None:
    output = uncarried.path.with_name("rows.jsonl")
    written = write(str(uncarried.path), FORMATS[form], output, split="train", threshold=0.0)
    assert written.rows == 1
    assert written.left_out == {
        "arguments that are not a JSON object": 1,
        "a part that is not text: image": 1,
        "a tool that is not a function: web_search": 1,
    }


def test_command_names_and_counts_what_was_left_out(uncarried: "Traces") -> None:
    output = uncarried.path.with_name("rows.jsonl")
    said = ["export", "--store", str(uncarried.path), "--form", "trl-sft", "--output", str(output)]
    result = CliRunner().invoke(cli, said)
    assert "1 left out: a part that is not text: image." in result.output
    assert "1 left out: arguments that are not a JSON object." in result.output


def test_openai_takes_broken_arguments_as_the_model_wrote_them(uncarried: "Traces") -> None:
    lines = map(json.loads, export(uncarried, "openai", "rows.jsonl").read_text().splitlines())
    calls = [call for line in lines for call in line["messages"][-1].get("tool_calls", [])]
    assert [call["function"]["arguments"] for call in calls] == ['{"order": 7']


def test_reasoning_that_openai_cannot_hold_is_counted(traces: "Traces") -> None:
    parts = [{"type": "reasoning", "content": "Hm."}, {"type": "text", "content": "Sent."}]
    said = json.dumps([{"role": "assistant", "parts": parts}])
    traces.call("a", output_messages=said)
    traces.reward("a", 1.0)
    make_transitions(traces.store(), Settings(held_out=0.0))
    output = traces.path.with_name("rows.jsonl")
    written = write(str(traces.path), FORMATS["openai"], output, split="train", threshold=0.0)
    assert (written.rows, written.without) == (1, {"the reasoning of the answer": 1})


def test_text_beside_a_tool_result_in_one_message_is_kept(traces: "Traces") -> None:
    answered = {"role": "user", "parts": [*RESULT["parts"], {"type": "text", "content": "And?"}]}
    prompt = [text("user", "Where is order 7?"), asks("lookup", order=7), answered]
    traces.call("a", input_messages=json.dumps(prompt))
    traces.reward("a", 1.0)
    make_transitions(traces.store(), Settings(held_out=0.0))
    [row] = map(json.loads, export(traces, "trl-sft", "rows.jsonl").read_text().splitlines())
    assert row["prompt"][-2:] == [
        {"role": "tool", "tool_call_id": "call-1", "content": "shipped"},
        {"role": "user", "content": "And?"},
    ]


def test_openai_takes_broken_arguments_of_an_earlier_call_too(traces: "Traces") -> None:
    prompt = [text("user", "Where?"), {"role": "assistant", "parts": [BROKEN]}, RESULT]
    answer = [text("assistant", "On its way.")]
    traces.call("a", input_messages=json.dumps(prompt), output_messages=json.dumps(answer))
    traces.reward("a", 1.0)
    make_transitions(traces.store(), Settings(held_out=0.0))
    [row] = map(json.loads, export(traces, "openai", "rows.jsonl").read_text().splitlines())
    [call] = row["messages"][1]["tool_calls"]
    assert call["function"]["arguments"] == '{"order": 7'


def test_folders_of_the_output_are_made(learned: "Traces") -> None:
    path = export(learned, "openai", "new/and newer/chat.jsonl")
    assert len(path.read_text().splitlines()) == 4


@pytest.mark.parametrize("form", ["verl", "transitions"])
def test_lines_hold_no_number_that_json_lacks(traces: "Traces", form: str) -> None:
    traces.call("a", completion_token_ids=[3, 4], completion_logprobs=[-math.inf, -0.5])
    traces.reward("a", 1.0)
    make_transitions(traces.store(), Settings(held_out=0.0))

    def refuse(name: str) -> None:
        raise AssertionError(name)

    path = export(traces, form, "rows.jsonl")
    [row] = [json.loads(line, parse_constant=refuse) for line in path.read_text().splitlines()]
    logprobs = row["rollout_log_probs" if form == "verl" else "completion_logprobs"]
    assert logprobs == [None, -0.5]
    assert load(path)[0]["advantages" if form == "verl" else "advantage"] in (1.0, [1.0, 1.0])


@pytest.fixture
def incomplete(traces: "Traces") -> "Traces":
    """One task: a good answer of a call whose messages were cut, and a bad and a good whole one."""
    question = json.dumps([text("user", "Where is order 7?")])
    for rollout, content, said, value in (
        ("cut", "truncated", "In the", 1.0),
        ("bad", "full", "No idea.", 0.0),
        ("good", "full", "On its way.", 0.8),
    ):
        answer = json.dumps([text("assistant", said)])
        traces.call(rollout, input_messages=question, output_messages=answer, content=content)
        traces.reward(rollout, value)
        traces.task(rollout, "order-7")
    make_transitions(traces.store(), Settings(credit="group", held_out=0.0))
    return traces


@pytest.mark.parametrize(
    ("form", "rows", "left_out"),
    [
        ("trl-sft", 1, 1), ("trl-kto", 2, 1), ("openai", 1, 1), ("verl", 2, 1),
        ("trl-dpo", 1, 1), ("trl-grpo", 1, 0), ("transitions", 3, 0),
    ],
)  # fmt: skip
def test_call_with_incomplete_messages_is_left_out(
    incomplete: "Traces", form: str, rows: int, left_out: int
) -> None:
    output = incomplete.path.with_name("rows.jsonl")
    written = write(str(incomplete.path), FORMATS[form], output, split="train", threshold=0.0)
    assert written.rows == rows
    of_calls = "calls with " if form == "trl-dpo" else ""
    why = f"{of_calls}incomplete messages (truncated)"
    assert written.left_out == ({why: left_out} if left_out else {})
    assert form == "transitions" or "In the" not in output.read_text()


def test_incomplete_messages_of_a_call_with_token_ids_are_left_out_for_verl(
    traces: "Traces",
) -> None:
    tokens = {"prompt_token_ids": [4], "completion_token_ids": [20]}
    said = {
        "input_messages": json.dumps([text("user", "Hm?")]),
        "output_messages": json.dumps([text("assistant", "In the")]),
    }
    traces.call("cut", content="truncated", **said, **tokens)
    traces.reward("cut", 1.0)
    make_transitions(traces.store(), Settings(held_out=0.0))
    output = traces.path.with_name("rows.jsonl")
    write(str(traces.path), FORMATS["verl"], output, split="train", threshold=0.0)
    row = json.loads(output.read_text())
    assert (row["prompt"], row["responses"], row["response_token_ids"]) == ([], [], [20])


@pytest.fixture
def unread(traces: "Traces") -> "Traces":
    """A task tried twice: the calls of one state were cut, those of another have no text."""
    question = json.dumps([text("user", "Where is order 7?")])
    for rollout, value in (("good", 1.0), ("bad", 0.0)):
        answer = json.dumps([text("assistant", f"A {rollout} answer.")])
        traces.call(rollout, input_messages=question, output_messages=answer, content="redacted")
        nothing = {"input_messages": None, "output_messages": None, "has_completion": True}
        traces.call(rollout, 1, content="absent", **nothing)
        traces.reward(rollout, value)
        traces.task(rollout, "order-7")
    return traces


def test_states_of_incomplete_messages_alone_are_counted(unread: "Traces") -> None:
    unread.call("whole", input_messages=json.dumps([text("user", "Hm?")]))
    unread.reward("whole", 1.0)
    make_transitions(unread.store(), Settings(held_out=0.0))
    output = unread.path.with_name("rows.jsonl")
    written = write(str(unread.path), FORMATS["trl-grpo"], output, split="train", threshold=0.0)
    assert written.rows == 1
    assert written.left_out == {
        "incomplete messages (redacted)": 1,
        "calls with no text of the prompt or of the answer": 2,
    }


def test_calls_that_no_pair_is_made_from_are_named_where_there_is_none(unread: "Traces") -> None:
    make_transitions(unread.store(), Settings(held_out=0.0))
    message = refused(unread, "trl-dpo")
    assert "2 with incomplete messages (redacted)" in message
    assert "2 with no text of the prompt or of the answer" in message
    assert "Record message content" in message


def test_absence_of_pairs_is_not_blamed_on_a_few_unread_calls(unread: "Traces") -> None:
    unread.call("whole")
    unread.reward("whole", 1.0)
    make_transitions(unread.store(), Settings(held_out=0.0))
    message = refused(unread, "trl-dpo")
    assert "No two different answers to one prompt" in message
    assert (
        "Calls that were left out: 2 with incomplete messages (redacted); 2 with no text" in message
    )


def test_ties_alone_give_no_labels_and_the_reason(traces: "Traces") -> None:
    for rollout in ("a", "b"):
        traces.call(rollout)
        traces.reward(rollout, 1.0)
        traces.task(rollout, "1")
    make_transitions(traces.store(), Settings(credit="group", held_out=0.0))
    message = refused(traces, "trl-kto")
    assert "All 2 advantages in split 'train' are 0: credit 'group'" in message
    assert "Record message content" not in message


@pytest.mark.parametrize("form", ["trl-sft", "trl-kto", "trl-dpo", "openai"])
def test_an_answer_that_was_cut_off_is_left_out_and_counted(traces: "Traces", form: str) -> None:
    asked = json.dumps([text("user", "Where is order 7?")])
    said = (
        ("a", "It is on", 1.0, "length"),
        ("b", "On its way.", 0.5, "stop"),
        ("c", "No.", 0, "stop"),
    )
    for rollout, answer, value, reason in said:
        answers = json.dumps([text("assistant", answer)])
        traces.call(rollout, input_messages=asked, output_messages=answers, finish_reason=reason)
        traces.reward(rollout, value)
        traces.task(rollout, "order-7")
    make_transitions(traces.store(), Settings(held_out=0.0))
    output = traces.path.with_name("rows.jsonl")
    done = write(str(traces.path), FORMATS[form], output, split="all", threshold=0.0)
    written = output.read_text()
    assert "On its way." in written
    assert "It is on" not in written
    assert sum(n for why, n in done.left_out.items() if "cut off (length)" in why) == 1


def test_export_of_a_control_says_that_its_rewards_are_shuffled(learned: "Traces") -> None:
    output = learned.path.with_name("rows.jsonl")
    said = ["export", "--store", str(learned.path), "--form", "trl-grpo", "--output", str(output)]
    assert "shuffle" not in CliRunner().invoke(cli, said).stderr
    make_transitions(str(learned.path), Settings(shuffle_rewards=3, held_out=0.0))
    result = CliRunner().invoke(cli, said)
    assert (result.exit_code, "built with --shuffle-rewards 3" in result.stderr) == (0, True)


def without_id(message: dict[str, Any]) -> dict[str, Any]:
    return message | {"parts": [part | {"id": None} for part in message["parts"]]}


def test_openai_gets_ids_for_tool_calls_of_providers_that_send_none(traces: "Traces") -> None:
    parallel = without_id(asks("lookup", order=7))
    parallel["parts"] *= 2
    results = without_id(RESULT), without_id(RESULT)
    prompt = [text("user", "Where?"), parallel, *results, asks("refund"), RESULT]
    answer = [without_id(asks("lookup", order=8))]
    traces.call("a", input_messages=json.dumps(prompt), output_messages=json.dumps(answer))
    traces.reward("a", 1.0)
    make_transitions(traces.store(), Settings(held_out=0.0))
    [row] = map(json.loads, export(traces, "openai", "rows.jsonl").read_text().splitlines())
    TypeAdapter(list[chat.ChatCompletionMessageParam]).validate_python(row["messages"])
    asked = [call["id"] for m in row["messages"] for call in m.get("tool_calls", ())]
    assert asked == ["call_1", "call_2", "call-1", "call_3"]
    answered = [m["tool_call_id"] for m in row["messages"] if m["role"] == "tool"]
    assert answered == ["call_1", "call_2", "call-1"]


def test_openai_gets_no_result_whose_call_was_cut_off(traces: "Traces") -> None:
    traces.call("a", input_messages=json.dumps([RESULT, text("user", "And?")]))
    traces.reward("a", 1.0)
    make_transitions(traces.store(), Settings(held_out=0.0))
    assert "1 with a tool result that answers no tool call" in refused(traces, "openai")
