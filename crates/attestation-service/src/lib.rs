//! Appraises evidence over HTTP and signs the result (RFC 9711).
