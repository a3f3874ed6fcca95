//! Decides on evidence by a policy, with endorsements prepared once and what is known of platforms
//! kept.
//!
//! [`PolicyAppraiser`] is what a program holds. The deciding is `confide-verifier`'s; here are the
//! memory, the locks and the clock that it does without.

mod accepted;
mod appraiser;
mod chips;
mod error;
mod limits;
mod newest;
mod platforms;
mod sets;

pub use accepted::{PeerAppraisal, SharedAppraisal};
pub use appraiser::PolicyAppraiser;
pub use error::AppraisalError;
pub use limits::*;
pub use platforms::PlatformMemory;
