//! Errors in starting metrics, the admin socket or traces.

use std::{io, net::SocketAddr, path::PathBuf};

/// The reason why metrics, the admin socket or traces cannot be started.
#[derive(Debug, thiserror::Error)]
pub enum TelemetryError {
    /// The address of the trace collector is malformed or unsupported.
    #[error(
        "trace collector `{url}` is not usable: wanted http://HOST[:PORT][/PATH] on loopback, got \
         {got}; run a collector on this machine that forwards the spans"
    )]
    Collector {
        /// The address as it was given.
        url: String,
        /// The part that does not fit.
        got: String,
    },
    /// The ratio of sampled requests is not usable.
    #[error("ratio of traces is not usable: wanted more than 0 and at most 1, got {got}")]
    TraceRatio {
        /// The ratio as it was given.
        got: f64,
    },
    /// The address of the metrics is not a loopback address.
    #[error(
        "metrics cannot be served at {address}: wanted a loopback address, because metrics travel \
         in the clear"
    )]
    MetricsAddress {
        /// The address as it was given.
        address: SocketAddr,
    },
    /// The address of the metrics cannot be listened on.
    #[error("metrics cannot be served at {address}: {source}")]
    MetricsListen {
        /// The address as it was given.
        address: SocketAddr,
        /// The error of the operating system.
        source: io::Error,
    },
    /// The folder or the path of the admin socket does not fit.
    #[error("admin socket `{path}` is not usable: wanted {wanted}, got {got}")]
    SocketPath {
        /// The path as it was given.
        path: PathBuf,
        /// The state in which the path must be.
        wanted: &'static str,
        /// The state that was found.
        got: String,
    },
    /// Another process serves the admin socket.
    #[error(
        "admin socket `{path}` is in use by a running process: stop it, or choose another path"
    )]
    SocketInUse {
        /// The path as it was given.
        path: PathBuf,
    },
    /// The admin socket cannot be made.
    #[error("admin socket `{path}` cannot be made: {source}")]
    Socket {
        /// The path as it was given.
        path: PathBuf,
        /// The error of the operating system.
        source: io::Error,
    },
}
