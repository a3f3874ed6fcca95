//! The key holder: it runs the base model, holds the secret key, and requests products from an
//! adapter host that cannot read the vectors.
//!
//! [`RemoteAdapter`] is the adapter that an engine uses. Background threads prepare masks while
//! tokens are generated. Online, each input of a layer takes one round trip, which runs on the thread
//! that waits for it.

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

pub use connect::{ByteStream, EvidenceRefused, HostConnector, HostStream, StreamFuture};
pub use error::HolderError;
pub use options::KeyHolderOptions;
pub use remote::{PreparationProgress, RemoteAdapter};
