"""Grade the agent's answers and report each grade as an OpenTelemetry event.

The event is OpenTelemetry's own `gen_ai.evaluation.result`, which any language can send. The usual
OTEL_EXPORTER_OTLP_* variables say where to send it.

    python grade.py --answers answers.jsonl --key key.jsonl
"""

import argparse
import os
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from lines import read_lines
from opentelemetry.sdk._logs import LoggerProvider
from opentelemetry.sdk._logs.export import (
    InMemoryLogRecordExporter,
    LogRecordExporter,
    LogRecordExportResult,
    SimpleLogRecordProcessor,
)

EVENT = "gen_ai.evaluation.result"
NAME = "task_success"
BATCH = 500
ANSWER_FIELDS = ("task_id", "response_id", "actions", "text")
KEY_FIELDS = ("task_id", "order", "action", "text")

Row = Mapping[str, Any]


def is_success(answer: Row, key: Row) -> bool:
    """Judge one attempt: a lookup, then the right action on the right order and the right text."""
    arguments = {"order": key["order"]}
    expected = [
        {"name": "lookup", "arguments": arguments},
        {"name": key["action"], "arguments": arguments},
    ]
    return bool(answer["actions"] == expected and answer["text"] == key["text"])


def grade(answers: Sequence[Row], keys: Mapping[str, Row]) -> list[bool]:
    """Judge every attempt.

    Raises:
        ValueError: If an answer belongs to a task that the key does not hold.
    """
    unknown = {answer["task_id"] for answer in answers} - set(keys)
    if unknown:
        raise ValueError(f"The key has no task '{min(unknown)}': was it written with these tasks?")
    return [is_success(answer, keys[answer["task_id"]]) for answer in answers]


def event_attributes(answer: Row, *, success: bool) -> dict[str, str | float]:
    """Word a grade as OpenTelemetry's attributes; the response id says what is judged."""
    return {
        "gen_ai.evaluation.name": NAME,
        "gen_ai.evaluation.score.value": float(success),
        "gen_ai.evaluation.score.label": "pass" if success else "fail",
        "gen_ai.response.id": answer["response_id"],
        "lightning.task.id": answer["task_id"],
    }


def make_exporter() -> LogRecordExporter:
    """Make the exporter for the protocol that OTEL_EXPORTER_OTLP_PROTOCOL names.

    Raises:
        ValueError: If the protocol has no exporter here.
    """
    protocol = os.environ.get("OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf")
    protocol = os.environ.get("OTEL_EXPORTER_OTLP_LOGS_PROTOCOL", protocol)
    if protocol == "http/protobuf":
        from opentelemetry.exporter.otlp.proto.http._log_exporter import OTLPLogExporter as Http

        return Http()
    if protocol == "grpc":
        from opentelemetry.exporter.otlp.proto.grpc._log_exporter import OTLPLogExporter as Grpc

        return Grpc()
    raise ValueError(f"Unknown protocol '{protocol}'. Known: grpc, http/protobuf.")


def report(events: Sequence[Mapping[str, str | float]], exporter: LogRecordExporter) -> None:
    """Send one event for each set of attributes, and see them arrive.

    Raises:
        ConnectionError: If a batch was not taken.
    """
    # Processors swallow what an exporter answers, and a lost grade must be seen.
    records = InMemoryLogRecordExporter()  # type: ignore[no-untyped-call]
    provider = LoggerProvider()
    provider.add_log_record_processor(SimpleLogRecordProcessor(records))
    logger = provider.get_logger("support_desk.grade")
    for attributes in events:
        logger.emit(event_name=EVENT, timestamp=time.time_ns(), attributes=attributes)
    finished = records.get_finished_logs()
    for start in range(0, len(finished), BATCH):
        if exporter.export(finished[start : start + BATCH]) is not LogRecordExportResult.SUCCESS:
            raise ConnectionError(
                f"The collector did not take the grades ({start} of {len(finished)} were sent). "
                "Is it running where OTEL_EXPORTER_OTLP_ENDPOINT says? Grade again once it is."
            )
    provider.shutdown()
    exporter.shutdown()  # type: ignore[no-untyped-call]


def main() -> None:
    """Grade an answers file, report the grades, and print how many attempts succeeded."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--answers", type=Path, required=True, help="what the agent wrote")
    parser.add_argument("--key", type=Path, required=True, help="the right answers")
    options = parser.parse_args()
    try:
        answers = read_lines(options.answers, *ANSWER_FIELDS)
        keys = {key["task_id"]: key for key in read_lines(options.key, *KEY_FIELDS)}
        successes = grade(answers, keys)
        print(f"success {sum(successes)}/{len(successes)}", flush=True)
        events = [
            event_attributes(answer, success=success)
            for answer, success in zip(answers, successes, strict=True)
            if answer["response_id"]
        ]
        report(events, make_exporter())
    except (OSError, ValueError) as error:
        sys.exit(f"grade.py: {error}")
    print(f"{len(events)} grades reported as '{EVENT}' events")


if __name__ == "__main__":
    main()
