//! Errors in making or starting a gateway.

use confide_weights::WeightsError;

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
    /// The roots that verify an https upstream cannot be used.
    #[error("root certificates for upstream `{url}` are not usable: {reason}")]
    UpstreamRoots {
        /// The address of the upstream.
        url: String,
        /// The text of the failure, which names the file if one was given.
        reason: String,
    },
    /// The weights of a model server cannot be measured.
    #[error("weights of model server `{url}` cannot be measured: {source}")]
    Weights {
        /// The address of the server.
        url: String,
        /// The file, and what is wrong with it.
        source: WeightsError,
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
    /// A model server has a field that is out of range.
    #[error("model server `{url}` is not usable: wanted {wanted}, got {got}")]
    Server {
        /// The address of the server.
        url: String,
        /// The range or form that the field must have.
        wanted: &'static str,
        /// The part that does not fit.
        got: String,
    },
    /// There are no model servers, or too many.
    #[error("configuration has {got} model servers: wanted 1 to 64")]
    ServerCount {
        /// The number of servers.
        got: usize,
    },
    /// A route leads to a group without a model server.
    #[error("route `{route}` leads to group `{group}`, which has no model server")]
    UnknownGroup {
        /// The path of the route.
        route: String,
        /// The group that the route names.
        group: String,
    },
    /// No route leads to a group, so that its servers would get no request.
    #[error("group `{group}` has model servers, but no route leads to it")]
    UnusedGroup {
        /// The name of the group.
        group: String,
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
    /// The shape of answers has another form, or a number that is out of its range.
    #[error("answer shape is not usable: wanted {wanted}, got {got}")]
    AnswerShape {
        /// The form or range.
        wanted: String,
        /// What was given.
        got: String,
    },
    /// The messages of a WebSocket have no shape, so a shaped listener must not pass them.
    #[error("route `{route}` allows WebSockets, whose messages an answer shape does not cover")]
    UnshapedWebSocket {
        /// The path of the route.
        route: String,
    },
    /// The messages of a WebSocket get no cache salt.
    #[error("route `{route}` allows WebSockets, whose messages get no cache salt")]
    UnsaltedWebSocket {
        /// The path of the route.
        route: String,
    },
    /// A route selects the server by key, and something else of the configuration cannot hold for requests
    /// that are not read.
    #[error(
        "route `{route}` selects the server by key, and its requests are not read: wanted at most 16 \
         servers in its group, without models and cache salts, no answer shape, no WebSockets and no \
         encrypted bodies of this gateway's, got {got}"
    )]
    KeyedRoute {
        /// The path of the route.
        route: String,
        /// The part that does not fit.
        got: String,
    },
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
    /// A receipt is believed because evidence vouches for its key.
    #[error("receipts need evidence: wanted key or session binding, got none")]
    ReceiptsWithoutEvidence,
    /// The key for encrypted bodies is in the keyset, which comes with receipts.
    #[error("encrypted bodies need receipts, whose keyset has the key")]
    EncryptedBodiesWithoutReceipts,
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
