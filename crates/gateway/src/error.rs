//! Why a gateway cannot be made or started.

/// What went wrong, by the party at fault.
#[derive(Debug, thiserror::Error)]
pub enum GatewayError {
    /// The address of the upstream is not one that this gateway can proxy to.
    #[error("upstream `{url}` is not usable: wanted {wanted}, got {got}")]
    UpstreamUrl {
        /// The address as it was given.
        url: String,
        /// What an address has to be.
        wanted: &'static str,
        /// What it was.
        got: String,
    },
    /// The address of the upstream has a scheme that nothing here speaks.
    #[error("upstream `{url}` is not usable: https upstreams are not supported")]
    UpstreamHttps {
        /// The address as it was given.
        url: String,
    },
    /// The address of the upstream ends where the paths of its interface begin.
    #[error(
        "upstream `{url}` is not usable: wanted the address without `/v1`, which every request's \
         path begins with"
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
        /// The upstream it names.
        upstream: String,
    },
    /// A route is not one that a request could take, or stands twice.
    #[error(
        "route `{route}` is not usable: wanted `PATH` or `METHOD[,METHOD] PATH`, the path \
         normalised, `*` for one segment, `**` at its end for the rest, got {got}"
    )]
    Route {
        /// The route as it was given.
        route: String,
        /// What it was.
        got: String,
    },
    /// No route leads anywhere.
    #[error("configuration has no route: wanted at least one")]
    NoRoute,
    /// The channel could not be set up.
    #[error("attested channel cannot be opened: {0}")]
    Channel(#[from] confide_channel::ChannelError),
    /// The upstream did not answer the question for its models.
    #[error("upstream `{url}` did not list its models: {reason}")]
    Models {
        /// The address asked.
        url: String,
        /// What came instead.
        reason: String,
        /// Whether a later try may go better: it was silent, not of another opinion.
        may_pass: bool,
    },
}

impl GatewayError {
    /// Whether a later try may go better.
    pub fn may_pass(&self) -> bool {
        matches!(self, Self::Models { may_pass: true, .. })
    }
}
