//! The slots of the engine, and the errors of the queue for them.

use confide_engine::EngineError;
use confide_http::{AdmissionPermit, QueueError};

use crate::error::ApiError;

/// The permission to run one generation. Dropping it frees the slot.
pub type Slot = AdmissionPermit;

impl From<QueueError> for ApiError {
    fn from(error: QueueError) -> Self {
        match error {
            QueueError::Full { queued } => EngineError::QueueFull { limit: queued }.into(),
            QueueError::TimedOut { waited } => Self::Busy { waited },
        }
    }
}

#[cfg(test)]
mod tests {
    use http::StatusCode;

    use super::*;

    #[test]
    fn a_full_queue_is_429_and_a_wait_that_ended_503() {
        let full = ApiError::from(QueueError::Full { queued: 1 });
        assert!(matches!(full, ApiError::Engine(EngineError::QueueFull { limit: 1 })));
        assert_eq!(full.status(), StatusCode::TOO_MANY_REQUESTS);
        let late = ApiError::from(QueueError::TimedOut { waited: std::time::Duration::ZERO });
        assert!(matches!(late, ApiError::Busy { .. }));
        assert_eq!(late.status(), StatusCode::SERVICE_UNAVAILABLE);
    }
}
