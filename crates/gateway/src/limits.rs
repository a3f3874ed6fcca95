//! Every limit of the gateway, with its reason.

use std::time::Duration;

use confide_http::{BodyPace, WebSocketLimits};

/// Lengths, counts and deadlines of the gateway. The keys of a file's `[listener.limits]` replace the defaults.
#[derive(Clone, Copy, Debug)]
pub struct GatewayLimits {
    /// The deadline of the TLS handshake and the evidence together.
    pub handshake: Duration,
    /// The longest time from the end of the handshake to the first complete request head. It is
    /// short, because the peer has proved nothing yet.
    pub first_head: Duration,
    /// The longest time from the end of one answer to the complete head of the next request. It is
    /// long, because a kept session saves the client an appraisal, and people pause between
    /// messages.
    pub idle: Duration,
    /// The largest number of bytes of request line and header fields together.
    pub head_bytes: usize,
    /// The largest number of header fields of a request.
    pub head_fields: usize,
    /// The largest number of bytes of a request body, enough for a few images in base64.
    pub request_body_bytes: u64,
    /// The longest pause between two pieces of a request body, and its lowest rate. The default
    /// rate is a tenth of the slowest mobile network's. A body that trickles more slowly ends after
    /// the grace.
    pub request_body_pace: BodyPace,
    /// The longest time for which the unread rest of a body is read and discarded, so that its
    /// sender receives the early answer instead of a reset. A slower sender sees a broken
    /// connection.
    pub request_body_linger: Duration,
    /// The largest number of bytes of request bodies that are read whole before they are sent, of
    /// all requests together: four of the longest ones.
    pub buffered_bytes: usize,
    /// The same for the requests of one [`Peer`](confide_http::Peer): a quarter, enough for one of
    /// the longest ones. A body that is longer is refused where bodies are read whole.
    pub buffered_bytes_per_peer: usize,
    /// The longest time for such a body to arrive, so that slow senders do not hold the memory. The
    /// longest body has to arrive with half a MiB a second, a prompt of 1 MiB with 9 KiB a second.
    pub buffered_body: Duration,
    /// The largest number of requests that wait for a server of one group.
    pub queued_requests: usize,
    /// The same for the requests of one [`Peer`](confide_http::Peer): a quarter.
    pub queued_requests_per_peer: usize,
    /// The longest time for which a request waits for a server. Clients and load balancers often
    /// give up after a minute.
    pub queue_wait: Duration,
    /// The longest pause between two pieces of an answer. A model may think between tokens.
    pub response_body_pause: Duration,
    /// The longest time for which a client may not read before its connection is closed.
    pub write_stall: Duration,
    /// The deadline of a WebSocket's handshake with the upstream, for which no token is made.
    pub upgrade: Duration,
    /// The longest time in which nothing moves through a WebSocket, as between the requests of a
    /// connection. Clients that wait longer send pings.
    pub upgraded_idle: Duration,
    /// The shortest time between two pieces of fresh evidence on one connection, each of which costs
    /// a quote or a part of one.
    pub evidence_interval: Duration,
    /// The longest time for which a WebSocket is open, so that keys and configurations that are gone
    /// are not used for longer.
    pub websocket: Duration,
    /// Limits of HTTP/2 towards clients. Sizes and deadlines above hold in HTTP/2 too.
    pub http2: Http2Limits,
    /// The deadline of a connection to the upstream, with the TLS handshake of an https one.
    pub upstream_connect: Duration,
    /// The longest time from sending a request to the head of its answer. An answer that is not
    /// streamed starts when its last token is made, so this covers a whole long generation.
    pub upstream_start: Duration,
    /// The longest time for which the kernel of an upstream's machine may give no sign of life while
    /// an answer is awaited: a machine that has vanished is noticed then, and not after
    /// `upstream_start`. A server that is alive answers these probes however busy it is.
    pub upstream_silence: Duration,
    /// The largest number of idle connections that are kept to each upstream.
    pub upstream_idle_connections: usize,
    /// The longest time for which an idle connection is kept if the upstream announces no time. It
    /// is shorter than that of common servers (uvicorn and Node close after 5 s), so that requests
    /// rarely cross their close.
    pub upstream_idle: Duration,
    /// The largest number of requests at once on one HTTP/2 connection to an upstream; beyond it, or
    /// the upstream's own limit, another connection is opened.
    pub upstream_http2_streams: usize,
    /// The largest number of bytes of status line and header fields of the upstream's answer
    /// together.
    pub upstream_head_bytes: usize,
    /// The longest time from one request for the upstream's list of models to the next, if a
    /// model is in the configuration. Every new connection asks as well.
    pub upstream_check: Duration,
    /// The time for which a server is tried last after no connection to it could be used.
    pub upstream_retry: Duration,
    /// The time from one health check of a server to the next, and the deadline of each, if its
    /// group has several servers.
    pub health_check: Duration,
    /// The deadline of a request for the list of models.
    pub upstream_question: Duration,
    /// The time that running answers may take after the signal to stop.
    pub drain: Duration,
    /// Limits of signed receipts.
    pub receipts: ReceiptLimits,
    /// Limits of requests with encrypted bodies.
    pub encrypted_bodies: EncryptedBodyLimits,
}

/// Limits of requests with encrypted bodies, each of which is remembered so that it is opened once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EncryptedBodyLimits {
    /// The largest number of requests that one key opens, at some 20 bytes of memory each, and 17
    /// MiB in all. After three quarters of them the key is renewed.
    pub per_key: usize,
    /// The requests a minute of one [`Peer`](confide_http::Peer), so that it does not use up keys: at
    /// this rate it takes 43 minutes to the renewal, where a key of the default validity is renewed
    /// after 40 in any case. A proxy in front that does not name its clients is one peer.
    pub per_minute_per_peer: u64,
}

impl Default for EncryptedBodyLimits {
    fn default() -> Self {
        Self { per_key: 917_504, per_minute_per_peer: 15_360 }
    }
}

/// Limits of the signed receipts that a listener keeps. One takes about 1.2 KiB, and 3 KiB at most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReceiptLimits {
    /// The largest number of receipts that are kept at once; 0 keeps none.
    pub kept: usize,
    /// The same for one API key, or for one [`Peer`](confide_http::Peer) without a key: a quarter.
    pub kept_per_client: usize,
    /// The time for which a receipt is kept.
    pub age: Duration,
}

impl Default for ReceiptLimits {
    fn default() -> Self {
        Self { kept: 16_384, kept_per_client: 4096, age: Duration::from_secs(3600) }
    }
}

impl GatewayLimits {
    /// The limits of an accepted WebSocket.
    pub(crate) fn websocket_limits(&self) -> WebSocketLimits {
        WebSocketLimits {
            idle: self.upgraded_idle,
            write_stall: self.write_stall,
            lifetime: self.websocket,
        }
    }
}

impl Default for GatewayLimits {
    fn default() -> Self {
        Self {
            handshake: Duration::from_secs(10),
            first_head: Duration::from_secs(15),
            idle: Duration::from_secs(300),
            head_bytes: 64 * 1024,
            head_fields: 100,
            request_body_bytes: 64 * 1024 * 1024,
            request_body_pace: BodyPace {
                pause: Duration::from_secs(60),
                grace: Duration::from_secs(30),
                bytes_per_s: 1024,
            },
            request_body_linger: Duration::from_secs(5),
            buffered_bytes: 256 * 1024 * 1024,
            buffered_bytes_per_peer: 64 * 1024 * 1024,
            buffered_body: Duration::from_secs(120),
            queued_requests: 256,
            queued_requests_per_peer: 64,
            queue_wait: Duration::from_secs(30),
            response_body_pause: Duration::from_secs(300),
            write_stall: Duration::from_secs(60),
            upgrade: Duration::from_secs(30),
            upgraded_idle: Duration::from_secs(300),
            evidence_interval: Duration::from_secs(1),
            websocket: Duration::from_secs(24 * 60 * 60),
            http2: Http2Limits::default(),
            upstream_connect: Duration::from_secs(5),
            upstream_start: Duration::from_secs(600),
            upstream_silence: Duration::from_secs(60),
            upstream_idle_connections: 256,
            upstream_idle: Duration::from_secs(4),
            upstream_http2_streams: 100,
            upstream_head_bytes: 64 * 1024,
            upstream_check: Duration::from_secs(10),
            upstream_retry: Duration::from_secs(5),
            health_check: Duration::from_secs(5),
            upstream_question: Duration::from_secs(10),
            drain: Duration::from_secs(20),
            receipts: ReceiptLimits::default(),
            encrypted_bodies: EncryptedBodyLimits::default(),
        }
    }
}

/// Limits of one HTTP/2 connection of a client.
#[derive(Clone, Copy, Debug)]
pub struct Http2Limits {
    /// The largest number of requests at once; RFC 9113 section 6.5.2 recommends at least 100. Each
    /// beyond the first also needs a place, as a connection does.
    pub streams: u32,
    /// The number of bytes of one request body that the client may send unread: 25 Mbit/s to a
    /// client 80 ms away.
    pub stream_window_bytes: u32,
    /// The same for all requests of the connection, which bounds its memory.
    pub connection_window_bytes: u32,
    /// The largest number of bytes of one answer that wait for the connection.
    pub send_buffer_bytes: usize,
    /// The number of streams that were reset by the client before they were looked at. A client that
    /// opens and resets streams as fast as it can (CVE-2023-44487) reaches it at once; one that
    /// gives up a request does not.
    pub unread_resets: usize,
    /// The number of streams that the gateway reset for a fault in the client's protocol, over the
    /// life of the connection. A correct client causes none.
    pub errors: usize,
    /// The interval between two pings, which find a client that is gone without closing.
    pub ping_interval: Duration,
    /// The deadline of the answer to a ping.
    pub ping_timeout: Duration,
    /// The time for which a connection without a running request is kept after GOAWAY. A client that
    /// is alive acknowledges within a round trip.
    pub goaway: Duration,
}

impl Default for Http2Limits {
    fn default() -> Self {
        Self {
            streams: 128,
            stream_window_bytes: 256 * 1024,
            connection_window_bytes: 1024 * 1024,
            send_buffer_bytes: 64 * 1024,
            unread_resets: 20,
            errors: 128,
            ping_interval: Duration::from_secs(60),
            ping_timeout: Duration::from_secs(20),
            goaway: Duration::from_secs(5),
        }
    }
}
