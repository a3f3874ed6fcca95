"""confide for Python: attested clients for models in confidential VMs, and what runs next to a model on a GPU.

    from openai import OpenAI
    client = OpenAI(base_url="https://HOST:8443/v1", http_client=confide.http_client(policy="policy.toml"))

`http_client` and `async_http_client` send requests only to ends whose evidence a policy accepts; `verify` and
`verify_receipt` judge files (docs/python.md). They need the native part of the package, which is imported when they
are used.

`confide.worker` speaks to `confide serve` (docs/worker.md), `confide.cuda` holds the kernels and is the only place that
names CUDA, `confide.blind` the key holder and the adapter host (docs/blind-protocol.md). Nothing is imported here, so
that the kernels can be compiled and checked where there is no torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from confide.errors import (
        AttestationError,
        ConfideError,
        InputError,
        PolicyError,
        ReceiptError,
        VerificationError,
    )
    from confide.transport import AnswerReceipt, async_http_client, http_client
    from confide.verification import Verification, verify, verify_receipt

__all__ = [
    "AnswerReceipt",
    "AttestationError",
    "ConfideError",
    "InputError",
    "PolicyError",
    "ReceiptError",
    "Verification",
    "VerificationError",
    "async_http_client",
    "http_client",
    "verify",
    "verify_receipt",
]

_MODULES = {
    "AnswerReceipt": "transport",
    "Verification": "verification",
    "async_http_client": "transport",
    "http_client": "transport",
    "verify": "verification",
    "verify_receipt": "verification",
}


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"confide.{_MODULES.get(name, 'errors')}"), name)
