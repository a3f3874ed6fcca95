//! A notary in a TEE: opens TLS to a named host and signs what it saw.
