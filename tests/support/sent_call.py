"""The beginning of an agent of a few lines: it reads its task, and can send a model call.

It imports only modules that load fast, because tests start hundreds of agents.
"""

SEND_CALL = """
import json, os, socket, sys, time
task = json.load(sys.stdin)

def attributes(**named):
    kind = {str: "stringValue", float: "doubleValue"}
    return [{"key": k.replace("__", "."), "value": {kind[type(v)]: v}} for k, v in named.items()]

def message(role, text):
    return json.dumps([{"role": role, "parts": [{"type": "text", "content": text}]}])

def send_call(question, answer, *events):
    now = time.time_ns()
    span = {
        "traceId": os.urandom(16).hex(), "spanId": os.urandom(8).hex(), "name": "chat m",
        "startTimeUnixNano": str(now), "endTimeUnixNano": str(now + 1000),
        "attributes": attributes(
            lightning__rollout__id=os.environ["LIGHTNING_ROLLOUT_ID"],
            lightning__task__id=os.environ["LIGHTNING_TASK_ID"],
            gen_ai__operation__name="chat", gen_ai__request__model="m",
            gen_ai__input__messages=message("user", question),
            gen_ai__output__messages=message("assistant", answer),
        ),
        "events": [
            {"name": name, "timeUnixNano": str(now + 2000 * i), "attributes": attributes(**named)}
            for i, (name, named) in enumerate(events)
        ],
    }
    body = {"resourceSpans": [{"scopeSpans": [{"scope": {"name": "test"}, "spans": [span]}]}]}
    body = json.dumps(body).encode()
    place = os.environ["OTEL_EXPORTER_OTLP_ENDPOINT"].removeprefix("http://")
    host, port = place.split(":")
    head = f"POST /v1/traces HTTP/1.1\\r\\nHost: {place}\\r\\nConnection: close\\r\\n"
    head += f"Content-Type: application/json\\r\\nContent-Length: {len(body)}\\r\\n"
    if token := os.environ.get("OTEL_EXPORTER_OTLP_HEADERS"):
        head += token.replace("=", ": ", 1) + "\\r\\n"
    with socket.create_connection((host, int(port)), timeout=250) as connection:
        connection.sendall(head.encode() + b"\\r\\n" + body)
        assert b" 200 " in connection.recv(4096)
"""
