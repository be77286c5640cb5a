"""Clients of an ingester that is killed: what they sent, and which of it was acknowledged.

A request's number is its trace id and a span's position its span id, so SQL can name what is
missing. Requests that got no answer are sent again after some of the crashes, as exporters do.
"""

import http.client
import itertools
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field

import grpc
import psutil
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from support.running import LIMIT_S, Ingester
from support.sending import post

SPANS = 60
WORKERS = ("http", "http", "http", "grpc")


def request(number: int) -> bytes:
    """One request of many spans."""
    message = ExportTraceServiceRequest()
    spans = message.resource_spans.add().scope_spans.add().spans
    for position in range(1, SPANS + 1):
        span = spans.add(trace_id=number.to_bytes(16), span_id=position.to_bytes(8), name="work")
        span.start_time_unix_nano = 1_700_000_000_000_000_000 + number
        span.attributes.add(key="text").value.string_value = f"{number}/{position} " * 20
    call = spans[0].attributes.add(key="gen_ai.operation.name")
    call.value.string_value = "chat"
    return message.SerializeToString()


@dataclass
class Clients:
    """Threads that send without pause; they end when their server dies."""

    numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1))
    acknowledged: set[int] = field(default_factory=set)
    unanswered: set[int] = field(default_factory=set)

    def start(self, ingester: Ingester, again: list[int]) -> list[threading.Thread]:
        """Send `again` and then new requests until the ingester is gone."""
        queue = iter(again)
        senders: dict[str, Callable[[bytes], bool]] = {
            "http": lambda body: post(ingester.http, body) == http.client.OK,
            "grpc": lambda body: export(ingester.grpc, body),
        }
        threads = [
            threading.Thread(target=self._send, args=(senders[kind], queue), daemon=True)
            for kind in WORKERS
        ]
        for thread in threads:
            thread.start()
        return threads

    def _send(self, send: Callable[[bytes], bool], queue: Iterator[int]) -> None:
        with suppress(OSError, http.client.HTTPException, grpc.RpcError):
            while True:
                number = next(queue, None) or next(self.numbers)
                self.unanswered.add(number)
                if send(request(number)):
                    self.acknowledged.add(number)
                    self.unanswered.discard(number)


def export(address: str, body: bytes) -> bool:
    """Send one request over gRPC."""
    with grpc.insecure_channel(address) as channel:
        call = channel.unary_unary("/opentelemetry.proto.collector.trace.v1.TraceService/Export")
        call(body, timeout=LIMIT_S)
    return True


def has_workers(running: Ingester) -> bool:
    """Whether the ingester has started processes that derive."""
    for child in psutil.Process(running.process.pid).children():
        with suppress(psutil.Error):  # it has ended meanwhile
            if "worker_process" in " ".join(child.cmdline()):
                return True
    return False
