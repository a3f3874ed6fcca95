//! HTTP as every program of this project uses it. For servers: who gets a connection, how
//! connections are accepted, served and drained, how requests queue for work that only a few can do
//! at once, what becomes of a peer that does not read or speak, and the metrics of a service. For
//! proxies: which header fields pass, and when the end of an answer can be trusted to be its end.
//! For clients: the URL of a service, and work that many callers share.

mod accept;
mod admission;
mod causes;
mod connection;
mod hop;
mod idle;
mod linger;
pub mod metrics;
mod pace;
mod peer_stream;
mod percent;
mod proxy_protocol;
mod queue;
mod single_flight;
mod stall;
mod turns;
mod url;
mod watched_stream;

pub use accept::{Closing, Drained, accept_until};
pub use admission::{Admission, AdmissionLimits, Busy, BusyAnswer, BusyBody, Occupancy, Peer};
pub use causes::with_causes;
pub use connection::{
    ConnectionDeadlines, UNBOUNDED, serve_connection, serve_upgradeable, wait_until_closing,
};
pub use hop::{asks_for_websocket, has_known_codings, has_marked_end, remove_hop_by_hop};
pub use idle::IdleGuard;
pub use linger::Lingering;
pub use pace::{BodyClock, BodyPace, PaceFault, PacedBody, pace_fault_behind};
pub use peer_stream::PeerStream;
pub use percent::{decode_percent, encode_percent};
pub use proxy_protocol::{AnnouncedPeer, ProxyHeaderError, parse_proxy_header};
pub use queue::{AdmissionPermit, AdmissionQueue, QueueError, QueueLimits};
pub use single_flight::{Flight, SingleFlight};
pub use stall::StallGuard;
pub use turns::TurnWatch;
pub use url::{HttpUrl, Scheme, URL_BYTES_MAX, UrlError, uri_host};
pub use watched_stream::{Watch, WatchedStream};
