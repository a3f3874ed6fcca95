"""The error that an adapter raises. Apart, so that hosts of adapters can raise it where there is no torch."""


class AdapterError(Exception):
    """An adapter gives no delta. `kind` is a word for programs, the text one for people."""

    def __init__(self, message: str, kind: str = "adapter") -> None:
        super().__init__(message)
        self.kind = kind
