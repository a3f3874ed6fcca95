"""Errors that an adapter raises. This module imports no torch, since hosts of adapters do without it."""


class AdapterError(Exception):
    """An adapter gives no delta. `kind` is a word for programs (docs/worker.md), the text one for people."""

    def __init__(self, message: str, kind: str = "adapter") -> None:
        super().__init__(message)
        self.kind = kind


class AdapterRefused(AdapterError):
    """A folder that is not an adapter this package reads, or one beyond a limit."""
