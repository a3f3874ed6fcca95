//! The verifying client, which opens no connection without an accepted attestation.
//!
//! [`PolicyAppraiser`] decides on evidence, [`Connector`] opens one attested connection,
//! [`HttpClient`] pools them, [`ReplicaSet`] spreads requests over several ends, and [`serve`]
//! offers them on an ordinary loopback address to programs without attestation support.

mod answer_error;
mod connection;
mod connector;
mod encapsulated_body;
mod encrypted_client;
mod endpoint;
mod error;
mod gateway_report;
mod http_proxy;
mod idle_connections;
mod key_problem;
mod limits;
mod origin;
mod pool;
mod proxy;
mod relay;
mod remote_end;
mod remote_stream;
mod replica_health;
mod replica_set;
mod request_body;
mod running_request;
mod sealed_body;
mod shared_key;
mod unanswered_request;
mod websocket;

pub use answer_error::AnswerError;
pub use confide_appraiser::{AppraisalError, PeerAppraisal, PolicyAppraiser, SharedAppraisal};
pub use confide_channel::{Binding, ChannelTimings, SessionVersion, tunnel::AllowedOrigins};
pub use confide_http::{BodyPace, DrainOutcome, ExchangeError, error_chain, http1::Http1Error};
pub use connection::{ConnectTimings, Connection, ConnectionAnswer};
pub use connector::Connector;
pub use encrypted_client::{EncryptedClient, EncryptedForm};
pub use endpoint::Endpoint;
pub use error::{Blame, ClientError, RequestBodyError, failed_check};
pub use gateway_report::{REPORT_NONCE_BYTES, ReportJudge};
pub use http_proxy::HttpProxy;
pub use limits::ClientLimits;
pub use pool::{AnswerBody, HttpClient, PooledAnswer, RequestDeadlines};
pub use proxy::{VERIFICATION_PATH, VerificationSource, serve};
pub use relay::{Relay, RelayUrl};
pub use remote_end::RemoteEnd;
pub use replica_health::ReplicaFailure;
pub use replica_set::{REPLICAS_MAX, ReplicaSet, ReplicaStatus};
pub use request_body::{BodyError, RequestBody, empty_body, streamed_body, whole_body};
pub use shared_key::JudgedKey;
