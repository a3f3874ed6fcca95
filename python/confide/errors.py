"""The exceptions of the client and of the verdicts; a refusal carries the verification document."""

from __future__ import annotations

import json

from confide.verification import Verification


class ConfideError(Exception):
    """The root of this package's exceptions; `hint` says what to try next, where there is something."""

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.hint = hint

    def __str__(self) -> str:
        message = super().__str__()
        return f"{message}\nhint: {self.hint}" if self.hint else message


class InputError(ConfideError):
    """What was given cannot be used, or does not suffice for a verdict."""


class PolicyError(ConfideError):
    """The policy cannot be used."""


class VerificationError(ConfideError):
    """Something was judged and refused.

    `check` is the name of the check that failed, `verification` the whole verdict.
    """

    def __init__(self, message: str, *, check: str, hint: str | None, document: str) -> None:
        super().__init__(message, hint=hint)
        self.check = check
        self.verification = Verification(json.loads(document))


class AttestationError(VerificationError):
    """Evidence was refused. Nothing was sent to the peer that showed it."""


class ReceiptError(VerificationError):
    """A receipt was refused, or an answer has none: nobody vouches for the answer.

    The request was sent and the answer was read when this is raised.
    """


class TransportFault(ConfideError):
    """The network failed; transports raise `exception` of their HTTP library instead."""

    def __init__(self, message: str, *, exception: str) -> None:
        super().__init__(message)
        self.exception = exception
