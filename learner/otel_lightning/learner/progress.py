"""The progress bar of the learner is that of the collector."""

from otel_lightning.collector.progress import Progress

__all__ = ["Progress"]
