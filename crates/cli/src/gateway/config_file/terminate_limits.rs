//! The table `[listener.limits]` of a listener of the kind `terminate`.

use std::{ops::RangeInclusive, time::Duration};

use confide_gateway::{GatewayLimits, ReceiptLimits};
use toml::{Table, Value};

/// The longest deadline in seconds: a day.
const SECONDS_MAX: u64 = 86_400;
/// The shortest silence of an upstream in seconds: probes come a second apart at least.
const SILENCE_MIN_S: u64 = 6;
/// The longest head of a request or an answer, in bytes.
const HEAD_BYTES: RangeInclusive<u64> = 1024..=1 << 20;
/// The largest number of fields of a head.
const HEAD_FIELDS: RangeInclusive<u64> = 8..=1000;
/// The longest body of a request in bytes: 16 GiB.
const BODY_BYTES: RangeInclusive<u64> = 1..=1 << 34;
/// The largest number of requests at once on a connection of HTTP/2.
const HTTP2_STREAMS: RangeInclusive<u64> = 1..=10_000;
/// A window or a buffer of HTTP/2 in bytes. The least is the one that every client starts with.
const WINDOW_BYTES: RangeInclusive<u64> = 65_535..=1 << 30;
/// The largest number of streams that were reset or broke the protocol.
const HTTP2_FAULTS: RangeInclusive<u64> = 1..=100_000;
/// The largest number of requests that wait for a server of one group.
const QUEUED_REQUESTS: RangeInclusive<u64> = 0..=65_536;
/// The largest number of idle connections to one upstream.
const UPSTREAM_STREAMS: RangeInclusive<u64> = 1..=10_000;
/// The largest number of receipts that are kept, at some 1.2 KiB each.
const KEPT_RECEIPTS: RangeInclusive<u64> = 1..=1 << 20;
/// The largest number of encrypted bodies that one key opens, at some 20 bytes each, and of those of one
/// address in a minute.
const ENCRYPTED_BODIES: RangeInclusive<u64> = 8..=1 << 23;
const IDLE_CONNECTIONS: RangeInclusive<u64> = 0..=65_536;

/// The part of a limit that one address gets unless its own limit is given: a quarter.
const SHARES: usize = 4;

/// Reads the limits; a key that is absent keeps its default.
pub(super) fn parse_terminate_limits(table: Table) -> Result<GatewayLimits, String> {
    let mut limits = GatewayLimits::default();
    let has_memory_share = table.contains_key("buffered_bytes_per_address");
    let has_queue_share = table.contains_key("queued_requests_per_address");
    let has_receipt_share = table.contains_key("receipts_kept_per_client");
    for (key, value) in table {
        let number = match value {
            Value::Integer(number) => u64::try_from(number).ok(),
            _ => None,
        };
        let number = number.ok_or_else(|| format!("limits.{key}: wanted a whole number from 0"))?;
        set_limit(&mut limits, &key, number)?;
    }
    if !has_memory_share {
        limits.buffered_bytes_per_peer = limits.buffered_bytes.div_ceil(SHARES);
    }
    if !has_queue_share {
        limits.queued_requests_per_peer = limits.queued_requests.div_ceil(SHARES);
    }
    if !has_receipt_share {
        limits.receipts.kept_per_client = limits.receipts.kept.div_ceil(SHARES);
    }
    check_order(&limits)?;
    Ok(limits)
}

/// Refuses limits that can never be reached, because another one around them is lower.
fn check_order(limits: &GatewayLimits) -> Result<(), String> {
    let GatewayLimits { buffered_bytes, buffered_bytes_per_peer, http2, .. } = *limits;
    let GatewayLimits { queued_requests, queued_requests_per_peer, .. } = *limits;
    let ReceiptLimits { kept, kept_per_client, .. } = limits.receipts;
    let [idle, websocket, connect, question, start, health_check] = [
        limits.upgraded_idle,
        limits.websocket,
        limits.upstream_connect,
        limits.upstream_question,
        limits.upstream_start,
        limits.health_check,
    ]
    .map(|deadline| deadline.as_secs());
    let [stream, connection] =
        [http2.stream_window_bytes, http2.connection_window_bytes].map(u64::from);
    for (inner, got, outer, most) in [
        (
            "buffered_bytes_per_address",
            buffered_bytes_per_peer as u64,
            "buffered_bytes",
            buffered_bytes as u64,
        ),
        (
            "queued_requests_per_address",
            queued_requests_per_peer as u64,
            "queued_requests",
            queued_requests as u64,
        ),
        ("receipts_kept_per_client", kept_per_client as u64, "receipts_kept", kept as u64),
        ("websocket_idle_s", idle, "websocket_s", websocket),
        ("upstream_connect_s", connect, "upstream_start_s", start),
        ("upstream_question_s", question, "upstream_start_s", start),
        ("upstream_connect_s", connect, "health_check_s", health_check),
        ("http2_stream_bytes", stream, "http2_connection_bytes", connection),
    ] {
        if got > most {
            return Err(format!(
                "limits.{inner}: wanted at most limits.{outer}, {most}, got {got}"
            ));
        }
    }
    Ok(())
}

fn set_limit(limits: &mut GatewayLimits, key: &str, number: u64) -> Result<(), String> {
    let seconds = || check_seconds(key, number);
    let within = |range| check_range(key, number, range);
    let (pace, bodies) = (&mut limits.request_body_pace, &mut limits.encrypted_bodies);
    match key {
        "handshake_s" => limits.handshake = seconds()?,
        "first_head_s" => limits.first_head = seconds()?,
        "idle_s" => limits.idle = seconds()?,
        "head_bytes" => limits.head_bytes = within(HEAD_BYTES)? as usize,
        "head_fields" => limits.head_fields = within(HEAD_FIELDS)? as usize,
        "request_body_bytes" => limits.request_body_bytes = within(BODY_BYTES)?,
        "request_body_pause_s" => pace.pause = seconds()?,
        "request_body_grace_s" => pace.grace = seconds()?,
        "request_body_bytes_per_s" => pace.bytes_per_s = within(0..=u64::from(u32::MAX))?,
        "request_body_linger_s" => limits.request_body_linger = seconds()?,
        "response_body_pause_s" => limits.response_body_pause = seconds()?,
        "write_stall_s" => limits.write_stall = seconds()?,
        "upstream_connect_s" => limits.upstream_connect = seconds()?,
        "upstream_start_s" => limits.upstream_start = seconds()?,
        "upstream_silence_s" => limits.upstream_silence = check_silence(key, number)?,
        "upstream_idle_connections" => {
            limits.upstream_idle_connections = within(IDLE_CONNECTIONS)? as usize;
        }
        "upstream_http2_streams" => {
            limits.upstream_http2_streams = within(UPSTREAM_STREAMS)? as usize;
        }
        "upstream_idle_s" => limits.upstream_idle = seconds()?,
        "upstream_head_bytes" => limits.upstream_head_bytes = within(HEAD_BYTES)? as usize,
        "upstream_retry_s" => limits.upstream_retry = seconds()?,
        "health_check_s" => limits.health_check = seconds()?,
        "queued_requests" => limits.queued_requests = within(QUEUED_REQUESTS)? as usize,
        "queued_requests_per_address" => {
            limits.queued_requests_per_peer = within(QUEUED_REQUESTS)? as usize;
        }
        "queue_wait_s" => limits.queue_wait = seconds()?,
        "buffered_bytes" => limits.buffered_bytes = within(BODY_BYTES)? as usize,
        "buffered_bytes_per_address" => {
            limits.buffered_bytes_per_peer = within(BODY_BYTES)? as usize;
        }
        "buffered_body_s" => limits.buffered_body = seconds()?,
        "upstream_question_s" => limits.upstream_question = seconds()?,
        "drain_s" => limits.drain = seconds()?,
        "evidence_interval_s" => limits.evidence_interval = seconds()?,
        "receipts_kept" => limits.receipts.kept = within(KEPT_RECEIPTS)? as usize,
        "receipts_kept_per_client" => {
            limits.receipts.kept_per_client = within(KEPT_RECEIPTS)? as usize;
        }
        "encrypted_bodies_per_key" => bodies.per_key = within(ENCRYPTED_BODIES)? as usize,
        "encrypted_bodies_per_minute_per_address" => {
            bodies.per_minute_per_peer = within(ENCRYPTED_BODIES)?;
        }
        "receipts_s" => limits.receipts.age = seconds()?,
        "websocket_open_s" => limits.upgrade = seconds()?,
        "websocket_idle_s" => limits.upgraded_idle = seconds()?,
        "websocket_s" => limits.websocket = seconds()?,
        "http2_streams" => limits.http2.streams = within(HTTP2_STREAMS)? as u32,
        "http2_stream_bytes" => limits.http2.stream_window_bytes = within(WINDOW_BYTES)? as u32,
        "http2_connection_bytes" => {
            limits.http2.connection_window_bytes = within(WINDOW_BYTES)? as u32;
        }
        "http2_answer_bytes" => limits.http2.send_buffer_bytes = within(WINDOW_BYTES)? as usize,
        "http2_unread_resets" => limits.http2.unread_resets = within(HTTP2_FAULTS)? as usize,
        "http2_errors" => limits.http2.errors = within(HTTP2_FAULTS)? as usize,
        "http2_ping_s" => limits.http2.ping_interval = seconds()?,
        "http2_ping_answer_s" => limits.http2.ping_timeout = seconds()?,
        "http2_goaway_s" => limits.http2.goaway = seconds()?,
        _ => return Err(format!("limits: unknown key `{key}`")),
    }
    Ok(())
}

/// Reads a deadline of at least a second and at most a day.
pub(super) fn check_seconds(key: &str, seconds: u64) -> Result<Duration, String> {
    match seconds {
        1..=SECONDS_MAX => Ok(Duration::from_secs(seconds)),
        _ => Err(format!("limits.{key}: wanted 1 to {SECONDS_MAX} seconds, got {seconds}")),
    }
}

/// Reads a silence, whose half and sixth are whole seconds for the kernel.
fn check_silence(key: &str, seconds: u64) -> Result<Duration, String> {
    match seconds {
        SILENCE_MIN_S..=SECONDS_MAX => Ok(Duration::from_secs(seconds)),
        _ => Err(format!(
            "limits.{key}: wanted {SILENCE_MIN_S} to {SECONDS_MAX} seconds, got {seconds}"
        )),
    }
}

fn check_range(key: &str, number: u64, range: RangeInclusive<u64>) -> Result<u64, String> {
    let (least, most) = (*range.start(), *range.end());
    match range.contains(&number) {
        true => Ok(number),
        false => Err(format!("limits.{key}: wanted {least} to {most}, got {number}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &str = include_str!("../../../../../docs/gateway.md");

    /// The keys and defaults in the table of the documentation.
    fn documented_limits() -> Vec<(String, u64)> {
        let (_, table) = PAGE.split_once("| key in `[listener.limits]` of `terminate` |").unwrap();
        let rows = table.lines().skip(2).take_while(|line| line.starts_with("| `"));
        rows.map(|row| {
            let mut cells = row.split(" | ");
            let key = cells.next().unwrap().trim_start_matches("| `").trim_end_matches('`');
            let default = cells.next().unwrap().replace(',', "");
            (key.to_owned(), default.parse().expect(row))
        })
        .collect()
    }

    #[test]
    fn every_limit_is_documented_with_its_default() {
        let default = GatewayLimits::default();
        let documented = documented_limits();
        let mut table = Table::new();
        for (key, number) in &documented {
            let mut limits = default;
            set_limit(&mut limits, key, *number).unwrap();
            assert_eq!(format!("{limits:?}"), format!("{default:?}"), "{key} = {number}");
            table.insert(key.clone(), Value::Integer(*number as i64));
        }
        assert!(parse_terminate_limits(table).is_ok());
        let source = include_str!("terminate_limits.rs");
        let (_, arms) = source.split_once("match key {").unwrap();
        let (arms, _) = arms.split_once("_ => return").unwrap();
        assert_eq!(arms.matches("\" => ").count(), documented.len());
    }

    #[test]
    fn one_address_gets_a_quarter_unless_its_limit_is_given() {
        for (text, wanted) in [
            ("", (67_108_864, 64)),
            ("buffered_bytes = 10\nqueued_requests = 0", (3, 0)),
            ("buffered_bytes = 10\nbuffered_bytes_per_address = 9", (9, 64)),
            ("queued_requests = 10\nqueued_requests_per_address = 9", (67_108_864, 9)),
        ] {
            let limits = parse_terminate_limits(text.parse().unwrap()).unwrap();
            let shares = (limits.buffered_bytes_per_peer, limits.queued_requests_per_peer);
            assert_eq!(shares, wanted, "{text}");
        }
    }

    #[test]
    fn limits_that_contradict_each_other_are_refused_with_both_keys() {
        for (text, wanted) in [
            (
                "buffered_bytes = 9\nbuffered_bytes_per_address = 10",
                "limits.buffered_bytes_per_address: wanted at most limits.buffered_bytes, 9, got 10",
            ),
            (
                "queued_requests_per_address = 257",
                "limits.queued_requests_per_address: wanted at most limits.queued_requests, 256, got 257",
            ),
            (
                "websocket_s = 299",
                "limits.websocket_idle_s: wanted at most limits.websocket_s, 299, got 300",
            ),
            (
                "upstream_start_s = 4",
                "limits.upstream_connect_s: wanted at most limits.upstream_start_s, 4, got 5",
            ),
            (
                "upstream_question_s = 601",
                "limits.upstream_question_s: wanted at most limits.upstream_start_s, 600, got 601",
            ),
            (
                "health_check_s = 4",
                "limits.upstream_connect_s: wanted at most limits.health_check_s, 4, got 5",
            ),
            (
                "http2_stream_bytes = 1048577",
                "limits.http2_stream_bytes: wanted at most limits.http2_connection_bytes, 1048576, \
                 got 1048577",
            ),
        ] {
            let refused = parse_terminate_limits(text.parse().unwrap());
            assert_eq!(refused.err().as_deref(), Some(wanted));
        }
    }

    #[test]
    fn a_limit_out_of_range_or_unknown_is_refused() {
        for (text, wanted) in [
            ("idle_s = 0", "limits.idle_s: wanted 1 to 86400 seconds, got 0"),
            ("idle_s = 90000", "limits.idle_s: wanted 1 to 86400 seconds, got 90000"),
            ("idle_s = -1", "limits.idle_s: wanted a whole number from 0"),
            ("idle_s = '1'", "limits.idle_s: wanted a whole number from 0"),
            ("head_fields = 2", "limits.head_fields: wanted 8 to 1000, got 2"),
            ("idle = 3", "limits: unknown key `idle`"),
        ] {
            assert_eq!(
                parse_terminate_limits(text.parse().unwrap()).err().as_deref(),
                Some(wanted)
            );
        }
    }
}
