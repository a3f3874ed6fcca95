//! Fields of a request that are not the client's to write.

/// Fields that concern one connection, frame a message or name the host. The notary writes those
/// that are needed itself; a client that could write them would make two messages out of one.
const NOT_THE_CLIENTS: &[&str] = &[
    "connection",
    "content-length",
    "expect",
    "host",
    "http2-settings",
    "keep-alive",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

/// Whether a client may send a field of this name (lower case).
pub(crate) fn may_be_sent(name: &str) -> bool {
    !NOT_THE_CLIENTS.contains(&name)
}
