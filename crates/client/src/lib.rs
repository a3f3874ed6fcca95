//! The verifying client: no connection without an accepted attestation.
//!
//! [`PolicyAppraiser`] decides on evidence, [`Connector`] opens one attested connection,
//! [`HttpClient`] keeps some of them, and [`serve`] puts an ordinary loopback address before it
//! for programs that know nothing of attestation.

mod connector;
mod endpoint;
mod error;
mod limits;
mod origin;
mod pool;
mod proxy;

pub use confide_appraiser::{AppraisalError, PeerAppraisal, PolicyAppraiser, SharedAppraisal};
pub use confide_channel::{Binding, Timings};
pub use confide_http::{BodyPace, Drained, with_causes};
pub use connector::{
    BodyError, ConnectTimings, Connection, Connector, RequestBody, no_body, streamed_body,
    whole_body,
};
pub use endpoint::Endpoint;
pub use error::{Blame, ClientError, RequestBodyError, failed_check};
pub use limits::ClientLimits;
pub use origin::Origins;
pub use pool::{Answer, AnswerBody, AnswerError, HttpClient};
pub use proxy::serve;
