//! An attested session inside an ordinary one.
//!
//! The outer session ends at the holder of its certificate, for example a load balancer; the inner
//! one ends in the attested program. Both use the clients and servers of this crate.

use confide_evidence::Appraise;
use tokio::io::{AsyncRead, AsyncWrite, BufReader};
use tokio_rustls::{client, server};

use crate::{
    attested::AttestedServerStream,
    client::Client,
    error::ChannelError,
    options::RecordTuning,
    plain::PlainClient,
    server::{Server, ServerStream},
};

/// The stream that carries the inner session at the connecting end. The buffer lets the inner
/// session read whole outer records at once.
pub type NestedClient<S> = BufReader<client::TlsStream<S>>;

/// The stream that carries the inner session at the accepting end.
pub type NestedServer<S> = BufReader<server::TlsStream<S>>;

/// Opens the outer session to `outer_name`, then the attested one inside it. Each has its own
/// deadline. `tuning` is for the inner session: see [`RecordTuning::for_nested_tls`].
///
/// # Errors
/// [`ChannelError`] of the outer session as [`PlainClient::connect`], or of the inner one as
/// [`Client::connect`].
pub async fn nested_connect<S, A>(
    outer: &PlainClient,
    outer_name: &str,
    inner: &Client<A>,
    inner_name: &str,
    tuning: RecordTuning,
    io: S,
) -> Result<AttestedServerStream<NestedClient<S>, A::Appraised>, ChannelError>
where
    S: AsyncRead + AsyncWrite + Unpin + Send,
    A: Appraise,
{
    let carrier = outer.connect(outer_name, io).await?;
    let io = BufReader::with_capacity(tuning.buffer_bytes, carrier.stream);
    let mut attested = inner.connect_with_tuning(inner_name, io, tuning).await?;
    attested.timings.handshake += carrier.timings.handshake;
    attested.timings = attested.timings.with_carrier_round_trips(carrier.timings.round_trips);
    Ok(attested)
}

/// The accepting end of [`nested_connect`].
///
/// # Errors
/// [`ChannelError`] of either session, as [`Server::accept`].
pub async fn nested_accept<S>(
    outer: &Server,
    inner: &Server,
    tuning: RecordTuning,
    io: S,
) -> Result<ServerStream<NestedServer<S>>, ChannelError>
where
    S: AsyncRead + AsyncWrite + Unpin + Send,
{
    let carrier = outer.accept(io).await?;
    let io = BufReader::with_capacity(tuning.buffer_bytes, carrier.stream);
    let mut accepted = inner.accept_with_tuning(io, tuning).await?;
    accepted.timings.handshake += carrier.timings.handshake;
    accepted.timings = accepted.timings.with_carrier_round_trips(carrier.timings.round_trips);
    Ok(accepted)
}
