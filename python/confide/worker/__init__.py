"""The torch worker: an engine of `confide serve` in a process of its own (docs/worker.md)."""

PROTOCOL = 1
