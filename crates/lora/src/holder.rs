//! The key holder: runs the base model, holds the secret key, and asks an adapter host about
//! vectors that the host cannot read.
//!
//! [`RemoteAdapter`] is an adapter as an engine meets it. Masks are prepared in the background, on
//! threads of their own, while tokens run; online each input of a layer is one round trip, driven by
//! the thread that waits for it.

mod batch;
mod connect;
mod connection;
mod deltas;
mod error;
mod options;
mod pool;
mod preparer;
mod remote;
mod session;

pub use connect::{Connect, HostStream, NotAccepted, Stream, StreamFuture};
pub use error::HolderError;
pub use options::HolderOptions;
pub use remote::{Progress, RemoteAdapter};
