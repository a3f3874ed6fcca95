//! iperf3's `-J`, of a client over TCP.

use super::{excerpt, number, object};
use crate::error::ReadError;

const TOOL: &str = "iperf3";

/// What one transfer gave.
#[derive(Clone, Debug, PartialEq)]
pub struct Transfer {
    /// iperf3's version, `iperf 3.12`.
    pub version: String,
    /// Streams side by side.
    pub streams: usize,
    /// Bits in a second that arrived, all streams.
    pub received_bits_per_s: f64,
    /// Bytes that arrived, all streams.
    pub received_bytes: f64,
    /// Segments sent again; `None` where the sender's system does not count them.
    pub retransmits: Option<f64>,
    /// CPU of the client's process, in percent of one core.
    pub client_cpu_percent: f64,
    /// CPU of the server's process, in percent of one core.
    pub server_cpu_percent: f64,
    /// The sender's congestion control.
    pub congestion: String,
}

/// Reads the output of one client.
///
/// # Errors
/// When it is no JSON of iperf3, tells of an error, or lacks a figure.
pub fn read(text: &str) -> Result<Transfer, ReadError> {
    let whole = object(TOOL, text)?;
    if let Some(message) = whole["error"].as_str() {
        return Err(ReadError::Failed { tool: TOOL, message: excerpt(message) });
    }
    let end = &whole["end"];
    let (sent, received) = (&end["sum_sent"], &end["sum_received"]);
    let cpu = &end["cpu_utilization_percent"];
    Ok(Transfer {
        version: whole["start"]["version"].as_str().unwrap_or_default().to_owned(),
        streams: end["streams"].as_array().map_or(0, Vec::len),
        received_bits_per_s: number(TOOL, "received rate", &received["bits_per_second"])?,
        received_bytes: number(TOOL, "received bytes", &received["bytes"])?,
        retransmits: match &sent["retransmits"] {
            serde_json::Value::Null => None,
            told => Some(number(TOOL, "retransmits", told)?),
        },
        client_cpu_percent: number(TOOL, "client CPU", &cpu["host_total"])?,
        server_cpu_percent: number(TOOL, "server CPU", &cpu["remote_total"])?,
        congestion: end["sender_tcp_congestion"].as_str().unwrap_or_default().to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_streams_are_summed_with_retransmits_and_cpu_of_both_ends() {
        let transfer = read(include_str!("../../recorded/iperf3-two.json")).expect("recorded");
        assert_eq!((transfer.streams, transfer.retransmits), (2, Some(16.0)));
        assert_eq!(transfer.received_bytes, 1_665_794_048.0);
        assert!((transfer.received_bits_per_s / 1e9 - 13.295).abs() < 1e-3);
        assert!((transfer.client_cpu_percent - 34.73).abs() < 0.01);
        assert!((transfer.server_cpu_percent - 24.29).abs() < 0.01);
        assert_eq!(transfer.congestion, "bbr");
    }

    #[test]
    fn a_reversed_transfer_counts_what_arrived_here() {
        let transfer = read(include_str!("../../recorded/iperf3-reverse.json")).expect("recorded");
        assert_eq!(transfer.received_bytes, 3_923_378_070.0);
        assert_eq!(transfer.streams, 1);
    }

    #[test]
    fn a_refused_connection_is_told_in_its_own_words() {
        let refused = read(include_str!("../../recorded/iperf3-refused.json"));
        assert!(matches!(refused, Err(ReadError::Failed { .. })));
        assert!(matches!(read("{}"), Err(ReadError::Missing { .. })));
    }
}
