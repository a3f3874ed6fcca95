"""Compares what sslyze found at a TLS server with what `confide gateway` has to offer."""

import json
import sys
from typing import Any

# The findings that are wanted, by the names of sslyze.
WANTED: dict[str, Any] = {
    "protocols": ["tls_1_3"],
    "cipher suites": [
        "TLS_AES_128_GCM_SHA256",
        "TLS_AES_256_GCM_SHA384",
        "TLS_CHACHA20_POLY1305_SHA256",
    ],
    # sslyze's OpenSSL does not know X25519MLKEM768; crates/channel/tests/plain_and_nested.rs covers it.
    "groups": ["X25519", "secp256r1", "secp384r1"],
    "compression": False,
    "early data": False,
    "client renegotiations": 0,
    "resumptions by session id": 0,
    "resumptions by ticket": 0,
    "Heartbleed": False,
    "CCS injection": False,
    "ROBOT": "NOT_VULNERABLE_RSA_NOT_SUPPORTED",
}

PROTOCOLS = ["ssl_2_0", "ssl_3_0", "tls_1_0", "tls_1_1", "tls_1_2", "tls_1_3"]


def read_findings(scan: dict[str, Any]) -> dict[str, Any]:
    """The findings of one server's scan, under the names of `WANTED`."""

    def result(name: str) -> dict[str, Any]:
        attempt = scan["scan_result"][name]
        if attempt["status"] != "COMPLETED":
            raise SystemExit(f"tls-scan: {name} was not scanned: {attempt['status']}")
        return dict(attempt["result"])

    suites = {name: result(f"{name}_cipher_suites") for name in PROTOCOLS}
    resumption = result("session_resumption")
    return {
        "protocols": [name for name in PROTOCOLS if suites[name]["is_tls_version_supported"]],
        "cipher suites": sorted(
            suite["cipher_suite"]["name"]
            for name in PROTOCOLS
            for suite in suites[name]["accepted_cipher_suites"]
        ),
        "groups": sorted(
            curve["name"] for curve in result("elliptic_curves")["supported_curves"] or []
        ),
        "compression": result("tls_compression")["supports_compression"],
        "early data": result("tls_1_3_early_data")["supports_early_data"],
        "client renegotiations": result("session_renegotiation")[
            "client_renegotiations_success_count"
        ],
        "resumptions by session id": resumption["session_id_successful_resumptions_count"],
        "resumptions by ticket": resumption["tls_ticket_successful_resumptions_count"],
        "Heartbleed": result("heartbleed")["is_vulnerable_to_heartbleed"],
        "CCS injection": result("openssl_ccs_injection")["is_vulnerable_to_ccs_injection"],
        "ROBOT": result("robot")["robot_result"],
    }


def main() -> None:
    """Reads sslyze's JSON from the file that is named, and fails if a finding is another."""
    with open(sys.argv[1], encoding="utf-8") as file:
        (scan,) = json.load(file)["server_scan_results"]
    if scan["connectivity_status"] != "COMPLETED":
        raise SystemExit(f"tls-scan: no connection: {scan['connectivity_error_trace']}")
    found = read_findings(scan)
    wrong = [
        f"tls-scan: {name}: wanted {wanted}, found {found[name]}"
        for name, wanted in WANTED.items()
        if found[name] != wanted
    ]
    if wrong:
        raise SystemExit("\n".join(wrong))
    print(f"tls-scan: {len(WANTED)} of {len(WANTED)} findings as wanted")


if __name__ == "__main__":
    main()
