"""The position in the spool up to which requests are stored: where to continue, and its storing."""

import logging
from contextlib import suppress

from otel_lightning.collector.load.position import spool_position
from otel_lightning.collector.spool.format import Position
from otel_lightning.collector.spool.spool import Spool
from otel_lightning.collector.store import Store, statement

logger = logging.getLogger(__name__)


def resume(store: Store, spool: Spool) -> Position:
    """Return the spool position at which to continue, give the spool a new id and store that.

    The stored position is used if it belongs to this spool. If not, the store was restored without
    its spool, or the spool was deleted. Then the whole spool is read; rows that are stored already
    are recognised as duplicates by their ids.
    """
    rows = store.column("SELECT spool_id FROM spool_identity")
    position = spool_position(store)
    is_same = rows in ([], [spool.id])  # release 0.1.0 stored no spool id
    if not is_same or position > spool.end:
        logger.warning("This store was fed from another spool: all of '%s' is read.", spool.folder)
        position = spool.start
    with suppress(OSError):  # such as a full disk: then the id stays
        spool.renew_id()
    with store.transaction():
        store.execute(statement(__package__, "keep_spool_identity", spool_id=spool.id))
        store.execute(keep_position(position))
    return position


def move_to(store: Store, position: Position) -> None:
    """Store a later position of the spool, up to which nothing is left to store."""
    with store.transaction():
        store.execute(keep_position(position))


def keep_position(position: Position) -> str:
    """Return the statement that stores a position of the spool."""
    return statement(
        __package__, "keep_spool_position", segment=position.segment, byte_offset=position.offset
    )
