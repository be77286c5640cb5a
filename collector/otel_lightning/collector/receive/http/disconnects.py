"""Notice that the client of a request has closed its connection, and end the work for it."""

import asyncio
from collections.abc import Awaitable
from typing import Any, TypeVar

from otel_lightning.collector.store.clients.cancellation import Cancellation

AGAIN_SECONDS = 0.2
T = TypeVar("T")


async def while_client_waits(protocol: Any, work: Awaitable[T], cancellation: Cancellation) -> T:
    """Return the result of some work, and cancel its statements once the client has gone.

    Args:
        protocol: The protocol of a request whose body is read.
        work: Waits for the work, which is done in a thread.
        cancellation: Ends the statements of the work.
    """
    working = asyncio.ensure_future(work)
    leaving = asyncio.ensure_future(protocol.client_disconnect())
    try:
        await asyncio.wait({working, leaving}, return_when=asyncio.FIRST_COMPLETED)
        while not working.done():
            cancellation.cancel()
            await asyncio.wait({working}, timeout=AGAIN_SECONDS)
    finally:
        leaving.cancel()
    return await working
