//! Errors in making or starting a gateway.

/// The reason why a gateway cannot be made or started.
#[derive(Debug, thiserror::Error)]
pub enum GatewayError {
    /// The address of the upstream is malformed or unsupported.
    #[error("upstream `{url}` is not usable: wanted {wanted}, got {got}")]
    UpstreamUrl {
        /// The address as it was given.
        url: String,
        /// The form that an address must have.
        wanted: &'static str,
        /// The part that does not fit.
        got: String,
    },
    /// The address of the upstream has the scheme `https`, which is not supported.
    #[error("upstream `{url}` is not usable: https upstreams are not supported")]
    UpstreamHttps {
        /// The address as it was given.
        url: String,
    },
    /// The address of the upstream ends with `/v1`, which request paths already contain.
    #[error(
        "upstream `{url}` is not usable: wanted the address without `/v1`, because every request's \
         path begins with it"
    )]
    UpstreamApiPath {
        /// The address as it was given.
        url: String,
        /// The address to give instead.
        without: String,
    },
    /// A route names an upstream that is not in the configuration.
    #[error("route `{route}` names upstream `{upstream}`, which is not in the configuration")]
    UnknownUpstream {
        /// The path of the route.
        route: String,
        /// The upstream that the route names.
        upstream: String,
    },
    /// The route cannot match a request, or is listed twice.
    #[error(
        "route `{route}` is not usable: wanted `PATH` or `METHOD[,METHOD] PATH` with a normalised \
         path, in which `*` stands for one segment and `**` at the end for the rest, got {got}"
    )]
    Route {
        /// The route as it was given.
        route: String,
        /// The part that does not fit.
        got: String,
    },
    /// The configuration has no route.
    #[error("configuration has no route: wanted at least one")]
    NoRoute,
    /// A certificate or its key cannot be read.
    #[error("{part} is not usable: wanted PEM (RFC 7468), got {got}")]
    Certificate {
        /// The part that cannot be read.
        part: &'static str,
        /// The text of the failure.
        got: String,
    },
    /// The channel could not be set up.
    #[error("attested channel cannot be opened: {0}")]
    Channel(#[from] confide_channel::ChannelError),
    /// The upstream did not answer the request for its list of models.
    #[error("upstream `{url}` did not list its models: {reason}")]
    Models {
        /// The address of the upstream.
        url: String,
        /// The upstream's answer, or the failure.
        reason: String,
        /// Whether a later try may succeed, because the upstream was silent or busy.
        is_transient: bool,
    },
}

impl GatewayError {
    /// Whether a later try may succeed.
    pub fn is_transient(&self) -> bool {
        matches!(self, Self::Models { is_transient: true, .. })
    }
}
