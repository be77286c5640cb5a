"""The watch of the symbolic link by which the user named the store."""

from pathlib import Path

from otel_lightning.collector.alarms import LINKING, Alarms
from otel_lightning.collector.serve.watches.store_link import LinkWatch


def test_a_link_that_leads_elsewhere_is_an_alarm_until_it_leads_back(tmp_path: Path) -> None:
    """Storing goes on into the file that the link led to at the start."""
    store, other, link = tmp_path / "runs.v1.duckdb", tmp_path / "other", tmp_path / "link"
    link.symlink_to(store)
    alarms = Alarms()
    watch = LinkWatch(link, store, alarms)
    watch.look()
    assert not alarms.raised()
    link.unlink()
    link.symlink_to(other)
    watch.look()
    (alarm,) = alarms.raised()
    assert alarm.name == LINKING
    assert f"leads to '{other}' now" in alarm.reason
    assert f"stored in '{store}'" in alarm.reason
    link.unlink()
    link.symlink_to(store)
    watch.look()
    assert not alarms.raised()
