//! The HTTP building blocks of this project's programs. For servers: admission, the accept loop,
//! HTTP/1.1 on one connection ([`serve_http1`]), draining, a bounded queue of requests, guards against
//! silent or stalled peers, and metrics. For proxies: hop-by-hop header fields, and whether the end of
//! an answer is recognisable. For clients: URLs of services, connections of HTTP/1.1
//! ([`Http1Connection`]), work that callers share, and the choice among servers. With the feature
//! `websocket`, proxies also carry WebSockets.

mod accept;
mod activity;
mod admission;
mod announced_trailers;
mod client_stream;
mod closing;
mod connection;
mod date_line;
mod error_chain;
mod half_duplex;
mod hop;
pub mod http1;
mod http1_connection;
mod http1_request_body;
mod http1_server;
mod idle;
mod interrupt;
mod least_busy;
mod linger;
pub mod metrics;
mod observed_stream;
#[cfg_attr(windows, path = "os_windows.rs")]
mod os;
mod pace;
mod peer_stream;
mod percent;
mod proxy_protocol;
mod queue;
mod rewound_stream;
mod serving_threads;
mod single_flight;
mod stall;
mod url;
#[cfg(feature = "websocket")]
mod websocket;
#[cfg(feature = "websocket")]
mod websocket_relay;

pub use accept::{DrainOutcome, accept_on_threads, accept_until};
pub use activity::Activity;
pub use admission::{
    Admission, AdmissionLimits, BusyAnswer, BusyBody, BusyGuard, ConnectionPlace, Peer,
};
pub use announced_trailers::AnnouncedTrailers;
pub use closing::{ClosingSignal, wait_until_closing};
pub use connection::{
    ConnectionDeadlines, UNBOUNDED, serve_connection, serve_upgradeable, serve_with_deadlines,
};
pub use date_line::DateLine;
pub use error_chain::error_chain;
pub use half_duplex::HalfDuplexStream;
pub use hop::{
    has_explicit_end, has_supported_transfer_codings, list_members, remove_fields,
    remove_hop_by_hop, remove_underscored,
};
pub use http1_connection::{ExchangeError, Http1Answer, Http1Connection, UnansweredExchange};
pub use http1_request_body::{Http1RequestBody, RequestBodyFault};
pub use http1_server::{Http1Limits, Http1Service, serve_http1};
pub use idle::IdleGuard;
pub use interrupt::interrupt;
pub use least_busy::{LeastBusyChoice, ServerLoad};
pub use linger::LingeringBody;
pub use observed_stream::{ObservedStream, StreamObserver};
pub use pace::{BodyClock, BodyPace, PaceFault, PacedBody, find_pace_fault};
pub use peer_stream::PeerStream;
pub use percent::{decode_percent, encode_percent};
pub use proxy_protocol::{
    AnnouncedPeer, ProxyHeaderError, encode_proxy_header, parse_proxy_header,
};
pub use queue::{AdmissionPermit, AdmissionQueue, QueueError, QueueLimits};
pub use rewound_stream::RewoundStream;
pub use serving_threads::{
    Listener, ServingThreads, available_cores, bind_listener, serving_thread_index,
};
pub use single_flight::{SharedOutcome, SingleFlight};
pub use stall::StallGuard;
pub use url::{HttpUrl, Scheme, URL_BYTES_MAX, UrlError, uri_host};
#[cfg(feature = "websocket")]
pub use websocket::{ClientHandshake, HandshakeKey, WEBSOCKET_VERSION, is_websocket_request};
#[cfg(feature = "websocket")]
pub use websocket_relay::{WebSocketLimits, open_client_stream, relay_websocket};
