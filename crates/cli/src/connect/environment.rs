//! The proxy that the environment names.

use confide_client::{Endpoint, HttpProxy};

use crate::error::CliError;

/// The proxy on the way to an endpoint, if there is one.
pub(super) fn find_proxy(endpoint: &Endpoint) -> Result<Option<HttpProxy>, CliError> {
    HttpProxy::from_environment(endpoint).map_err(|error| {
        CliError::new(format!("HTTPS_PROXY or ALL_PROXY: {error}"))
            .with_hint("NO_PROXY=HOST exempts a host from the proxy")
    })
}
