//! Which trailer fields a message announces (RFC 9110 section 6.6.2).

use http::{HeaderMap, HeaderName, header};

use crate::hop::list_members;

/// The names of the trailers that a message announces. Others are not sent.
#[derive(Debug)]
pub struct AnnouncedTrailers(Vec<HeaderName>);

impl AnnouncedTrailers {
    /// Finds the names in the fields of a message.
    pub fn find(headers: &HeaderMap) -> Self {
        Self(list_members(headers, &header::TRAILER).filter_map(|name| name.parse().ok()).collect())
    }

    /// The trailers that were announced.
    pub fn select(&self, mut trailers: HeaderMap) -> HeaderMap {
        while let Some(other) = trailers.keys().find(|name| !self.0.contains(name)).cloned() {
            trailers.remove(other);
        }
        trailers
    }
}
