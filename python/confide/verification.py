"""Verdicts on evidence of every kind and on receipts, and the verification document that describes them."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

# Bytes, or the path of a file with them.
Document = bytes | str | os.PathLike[str]

# The longest file that is read: the body of an answer.
DOCUMENT_BYTES_MAX = 256 * 1024 * 1024


@dataclass(frozen=True)
class Verification:
    """A verification document: what was checked, with which outcome, and what it covers.

    `document` has every field, in the form that `confide verify --json` prints.
    """

    document: Mapping[str, Any]

    @property
    def scope(self) -> str:
        """The scope of an acceptance: `workload`, or `platform` where the program is not known."""
        return self._text("scope")

    @property
    def checks(self) -> Mapping[str, str]:
        """The outcome of each check by its name: `passed`, `failed` or `not_evaluated`."""
        return {check["name"]: check["outcome"] for check in self.document.get("checks") or []}

    @property
    def is_simulated(self) -> bool | None:
        """Whether the evidence says of itself that it is simulated, so that it protects nothing.

        `None` where the document does not say: evidence that was refused, or of a GPU alone.
        """
        simulated = self.document.get("simulated")
        return None if simulated is None else bool(simulated)

    @property
    def guarantee(self) -> str:
        """The guarantee in words: who is protected from whom. Empty where the document is not about a connection."""
        return self._text("guarantee")

    def _text(self, name: str) -> str:
        return str(self.document.get(name) or "")


@dataclass(frozen=True)
class _EvidenceRequest:
    """Evidence with all that judges it, as the native part reads it."""

    evidence: bytes
    policy: str | None
    root: bytes | None
    collateral: bytes | None
    endorsement_key: bytes | None
    chain: bytes | None
    crl: bytes | None
    claims: bytes | None
    report_data: bytes | None
    nonce: bytes | None
    at: int | None
    dangerous_accept_any_tcb_status: bool
    dangerous_accept_debug: bool
    dangerous_skip_revocation: bool
    rims: list[bytes] = field(default_factory=list)
    ocsp: list[bytes] = field(default_factory=list)


@dataclass(frozen=True)
class _ReceiptRequest:
    """A receipt with all that judges it, as the native part reads it."""

    receipt: bytes
    report: bytes
    policy: str
    root: bytes | None
    nonce: bytes | None
    request: bytes | None
    response: bytes | None
    collateral: bytes | None
    at: int | None
    dangerous_skip_config_digest: bool


def verify(
    evidence: Document,
    *,
    policy: Document | None = None,
    collateral: Document | None = None,
    root: Document | None = None,
    endorsement_key: Document | None = None,
    chain: Document | None = None,
    crl: Document | None = None,
    claims: Document | None = None,
    report_data: bytes | None = None,
    nonce: bytes | None = None,
    rim: Iterable[Document] = (),
    ocsp: Iterable[Document] = (),
    at: int | None = None,
    dangerous_accept_any_tcb_status: bool = False,
    dangerous_accept_debug: bool = False,
    dangerous_skip_revocation: bool = False,
) -> Verification:
    """Judges evidence of any kind; its bytes tell the kind.

    It takes what `confide verify evidence` takes, as bytes or as the path of a file. Without `policy`, any program on
    an up-to-date platform is accepted; compare `scope` of the result with `workload`.

    Raises `AttestationError` if the evidence is refused, and `InputError` if it cannot be judged.
    """
    from confide._extension import native

    request = _EvidenceRequest(
        evidence=read_document(evidence),
        policy=None if policy is None else read_policy(policy),
        root=read_optional(root),
        collateral=read_optional(collateral),
        endorsement_key=read_optional(endorsement_key),
        chain=read_optional(chain),
        crl=read_optional(crl),
        claims=read_optional(claims),
        report_data=report_data,
        nonce=nonce,
        at=at,
        dangerous_accept_any_tcb_status=dangerous_accept_any_tcb_status,
        dangerous_accept_debug=dangerous_accept_debug,
        dangerous_skip_revocation=dangerous_skip_revocation,
        rims=[read_document(document) for document in rim],
        ocsp=[read_document(document) for document in ocsp],
    )
    return parse_document(native.verify_evidence(request))


def verify_receipt(
    receipt: Document,
    *,
    report: Document,
    policy: Document,
    nonce: bytes | None = None,
    request: Document | None = None,
    response: Document | None = None,
    collateral: Document | None = None,
    root: Document | None = None,
    at: int | None = None,
    dangerous_skip_config_digest: bool = False,
) -> Verification:
    """Judges a receipt, or an excerpt of one, with the report of the gateway that signed it.

    It takes what `confide verify receipt` takes, as bytes or as the path of a file.

    Raises `ReceiptError` if it is refused, and `InputError` if it cannot be judged.
    """
    from confide._extension import native

    document = _ReceiptRequest(
        receipt=read_document(receipt),
        report=read_document(report),
        policy=read_policy(policy),
        root=read_optional(root),
        nonce=nonce,
        request=read_optional(request),
        response=read_optional(response),
        collateral=read_optional(collateral),
        at=at,
        dangerous_skip_config_digest=dangerous_skip_config_digest,
    )
    return parse_document(native.verify_receipt(document))


def parse_document(text: str) -> Verification:
    """Reads a verification document, JSON."""
    return Verification(json.loads(text))


def read_policy(policy: Document) -> str:
    """Reads a policy, TOML, from a file or from bytes."""
    return read_document(policy).decode("utf-8", "replace")


def read_document(document: Document) -> bytes:
    """Reads a file of bounded length, or passes bytes on."""
    if isinstance(document, bytes):
        return document
    with Path(document).open("rb") as file:
        content = file.read(DOCUMENT_BYTES_MAX + 1)
    if len(content) > DOCUMENT_BYTES_MAX:
        raise ValueError(
            f"{os.fspath(document)} is too long: wanted at most {DOCUMENT_BYTES_MAX} bytes"
        )
    return content


def read_optional(document: Document | None) -> bytes | None:
    """Reads a document where one is given."""
    return None if document is None else read_document(document)
