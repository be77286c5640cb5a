"""The agent of `loop.py` that sends a span: `python loop_sender.py LOG TASK`, one request."""

import json
import os
import socket
import sys
import time

log, task = sys.argv[1:]
with open(log, "a") as file:  # noqa: PTH123 - pathlib would cost more than the agent
    file.write(f"started {task}\n")
# Without a runner nobody receives: then only the agent's own CPU is measured.
if endpoint := os.environ.get("OTEL_EXPORTER_OTLP_ENDPOINT"):
    now = time.time_ns()
    span = {
        "traceId": os.urandom(16).hex(),
        "spanId": os.urandom(8).hex(),
        "name": "agent",
        "startTimeUnixNano": str(now),
        "endTimeUnixNano": str(now + 1),
        "attributes": [
            {
                "key": "lightning.rollout.id",
                "value": {"stringValue": os.environ["LIGHTNING_ROLLOUT_ID"]},
            }
        ],
    }
    body = json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": [span]}]}]}).encode()
    host, port = endpoint.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=60) as connection:
        head = f"POST /v1/traces HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n"
        head += f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        connection.sendall(head.encode() + body)
        if b" 200 " not in connection.recv(4096):
            sys.exit("the span was refused")
with open(log, "a") as file:  # noqa: PTH123 - likewise
    file.write(f"ended {task}\n")
