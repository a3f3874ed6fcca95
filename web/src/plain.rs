//! The verifier for hosts that open TLS themselves and run WebAssembly without JavaScript: the Go module (`go/`).
//!
//! An input is a sequence of fields, each a length as big-endian u32 and that many bytes; the length
//! 2^32 - 1 stands for a field that is absent. An answer is JSON, `{"accepted": …}` or `{"error": …}`,
//! and its place in memory is `address << 32 | length`. The host makes an instance for each call and
//! ends it afterwards, so nothing is freed.

use std::{
    future::Future,
    io,
    pin::{Pin, pin},
    task::{Context, Poll, Waker},
    time::Duration,
};

use confide_channel::{Binding, TlsSession, appraise_server};
use confide_evidence::ReportData;
use confide_verifier::Evidence;
use rustls::CipherSuite;
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::{
    appraiser::{PeerAppraisal, PolicyAppraiser},
    error::{WebError, check_guarantee},
    plain::host::Host,
    provider::signatures::SUPPORTED,
};

#[cfg(target_arch = "wasm32")]
mod exports;
mod host;

/// The length of a field that is absent.
const ABSENT: u32 = u32::MAX;

/// Reads exactly `N` fields.
fn read_fields<const N: usize>(mut input: &[u8]) -> Result<[Option<&[u8]>; N], WebError> {
    let unreadable = || WebError::Usage("input of the host is not readable".into());
    let mut fields = [None; N];
    for field in &mut fields {
        let (length, rest) = input.split_first_chunk().ok_or_else(unreadable)?;
        input = rest;
        let length = u32::from_be_bytes(*length);
        if length != ABSENT {
            let (bytes, rest) = input.split_at_checked(length as usize).ok_or_else(unreadable)?;
            *field = Some(bytes);
            input = rest;
        }
    }
    match input {
        [] => Ok(fields),
        _ => Err(unreadable()),
    }
}

fn missing(field: &str) -> WebError {
    WebError::Usage(format!("{field} is missing"))
}

fn read_policy<H: Host>(
    policy: Option<&[u8]>,
    collateral: Option<&[u8]>,
) -> Result<PolicyAppraiser, WebError> {
    let unreadable = |error: &dyn std::fmt::Display| WebError::Usage(format!("policy: {error}"));
    let policy = policy.ok_or_else(|| missing("policy"))?;
    let policy = std::str::from_utf8(policy).map_err(|error| unreadable(&error))?;
    PolicyAppraiser::new(policy, collateral.map(<[u8]>::to_vec), H::unix_seconds)
        .map_err(|error| unreadable(&error))
}

fn binding_name(binding: Binding) -> &'static str {
    match binding {
        Binding::Session => "session",
        _ => "key",
    }
}

fn to_answer(result: Result<Value, WebError>) -> Vec<u8> {
    let answer = match result {
        Ok(accepted) => json!({ "accepted": accepted }),
        Err(error) => json!({ "error": error.to_json() }),
    };
    answer.to_string().into_bytes()
}

fn describe(appraised: &PeerAppraisal) -> Value {
    let mut described = appraised.to_json();
    described["pubkey_hash"] = appraised.pubkey_hash().map(|hash| hex(&hash)).into();
    described
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Reads a policy: `policy`. Accepted is the binding to connect with if the caller names none.
fn answer_policy<H: Host>(input: &[u8]) -> Result<Value, WebError> {
    let [policy] = read_fields(input)?;
    let appraiser = read_policy::<H>(policy, None)?;
    Ok(json!({ "binding": binding_name(appraiser.default_binding()) }))
}

/// Judges evidence: `policy`, `collateral`, `evidence`, `report data`. Only the policy and the evidence
/// have to be there.
fn answer_evidence<H: Host>(input: &[u8]) -> Result<Value, WebError> {
    let [policy, collateral, evidence, report_data] = read_fields(input)?;
    // They came with the call, so they are the caller's own.
    let appraiser = read_policy::<H>(policy, collateral)?;
    let report_data = report_data.map(|bytes| {
        let wanted =
            || WebError::Usage(format!("report data has {} bytes, wanted 64", bytes.len()));
        bytes.try_into().map(ReportData).map_err(|_| wanted())
    });
    let evidence = Evidence {
        quote: evidence.ok_or_else(|| missing("evidence"))?,
        claims: None,
        report_data: report_data.transpose()?,
        gpu: None,
        binding: None,
    };
    let appraised = appraiser.judge(&evidence, None).map_err(WebError::Evidence)?;
    Ok(describe(&appraised))
}

/// Appraises the server of the session that the host has opened: `policy`, `collateral`, `binding`,
/// `certificate` (DER), `protocol` (ALPN), `cipher suite` (two bytes). The collateral may be absent,
/// and the protocol with key binding.
fn answer_server<H: Host>(input: &[u8]) -> Result<Value, WebError> {
    let [policy, collateral, binding, certificate, protocol, suite] = read_fields(input)?;
    let appraiser = read_policy::<H>(policy, collateral)?;
    let binding = match binding {
        Some(b"key") => Binding::Key,
        Some(b"session") => Binding::Session,
        _ => return Err(WebError::Usage("binding: wanted \"key\" or \"session\"".into())),
    };
    let suite = suite.and_then(|bytes| bytes.try_into().ok()).map(u16::from_be_bytes);
    let mut session = HostSession::<H> {
        certificate,
        protocol,
        suite: suite.map(CipherSuite::from),
        host: std::marker::PhantomData,
    };
    // The host keeps the deadline: its reads and writes fail when it is over.
    let appraising = appraise_server(&mut session, binding, &appraiser, SUPPORTED, Duration::ZERO);
    let appraised = run(appraising).map_err(WebError::Channel)?;
    Ok(describe(&appraised))
}

/// Compares what a later connection promises with the first one: two verdicts as `answer_server` gives them.
fn answer_guarantee(input: &[u8]) -> Result<Value, WebError> {
    let [first, later] = read_fields(input)?;
    let text = |field: Option<_>| {
        let unreadable = |error| WebError::Usage(format!("verdict is not readable: {error}"));
        std::str::from_utf8(field.ok_or_else(|| missing("verdict"))?).map_err(unreadable)
    };
    check_guarantee(text(first)?, text(later)?)?;
    Ok(Value::Null)
}

/// Runs a future that waits for nothing but the host, whose calls return when they are done.
fn run<T>(future: impl Future<Output = T>) -> T {
    let mut future = pin!(future);
    let mut context = Context::from_waker(Waker::noop());
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut context) {
            return output;
        }
    }
}

/// The host's TLS session.
struct HostSession<'a, H> {
    certificate: Option<&'a [u8]>,
    protocol: Option<&'a [u8]>,
    suite: Option<CipherSuite>,
    host: std::marker::PhantomData<fn() -> H>,
}

impl<H: Host> TlsSession for HostSession<'_, H> {
    fn export(
        &self,
        output: &mut [u8],
        label: &[u8],
        context: Option<&[u8]>,
    ) -> Result<(), rustls::Error> {
        match H::export(output, label, context) {
            true => Ok(()),
            false => Err(rustls::Error::General("the host exports nothing of its session".into())),
        }
    }

    fn peer_certificate(&self) -> Option<&[u8]> {
        self.certificate
    }

    fn alpn_protocol(&self) -> Option<&[u8]> {
        self.protocol
    }

    fn cipher_suite(&self) -> Option<CipherSuite> {
        self.suite
    }
}

impl<H: Host> AsyncRead for HostSession<'_, H> {
    fn poll_read(
        self: Pin<&mut Self>,
        _context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let room = into.initialize_unfilled();
        let read = H::read(room).filter(|read| *read <= room.len()).ok_or_else(session_error)?;
        into.advance(read);
        Poll::Ready(Ok(()))
    }
}

impl<H: Host> AsyncWrite for HostSession<'_, H> {
    fn poll_write(
        self: Pin<&mut Self>,
        _context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match H::write(bytes) {
            true => Poll::Ready(Ok(bytes.len())),
            false => Poll::Ready(Err(session_error())),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, _context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    /// The host closes its session itself.
    fn poll_shutdown(self: Pin<&mut Self>, _context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

/// The host knows the cause, and reports it in place of this one.
fn session_error() -> io::Error {
    io::Error::other("the host's session broke")
}

#[cfg(test)]
mod tests {
    use super::*;

    struct NoHost;

    impl Host for NoHost {
        fn export(_output: &mut [u8], _label: &[u8], _context: Option<&[u8]>) -> bool {
            false
        }

        fn read(_room: &mut [u8]) -> Option<usize> {
            None
        }

        fn write(_bytes: &[u8]) -> bool {
            false
        }

        fn unix_seconds() -> u64 {
            1_800_000_000
        }
    }

    fn input(fields: &[Option<&[u8]>]) -> Vec<u8> {
        let mut input = Vec::new();
        for field in fields {
            input.extend(field.map_or(ABSENT, |field| field.len() as u32).to_be_bytes());
            input.extend(field.unwrap_or_default());
        }
        input
    }

    #[test]
    fn fields_are_read_as_they_were_written_and_nothing_else_is() {
        let fields = [Some(b"one".as_slice()), None, Some(b"")];
        let written = input(&fields);
        assert_eq!(read_fields::<3>(&written).unwrap(), fields);
        assert!(read_fields::<2>(&written).is_err(), "bytes are left over");
        assert!(read_fields::<4>(&written).is_err(), "a field is missing");
        for length in 0..written.len() {
            assert!(read_fields::<3>(&written[..length]).is_err(), "{length} bytes");
        }
    }

    #[test]
    fn a_policy_that_cannot_be_read_is_an_error_of_the_caller() {
        for policy in [None, Some(b"roots = 1".as_slice()), Some(b"\xff")] {
            let refused = answer_policy::<NoHost>(&input(&[policy]));
            assert!(matches!(refused, Err(WebError::Usage(_))), "{refused:?}");
        }
    }

    #[test]
    fn a_session_that_breaks_is_no_accepted_one() {
        let policy = Some(b"roots = [\"intel-production\"]\n".as_slice());
        let protocol = Some(b"confide-session/2".as_slice());
        let fields =
            [policy, None, Some(b"session".as_slice()), Some(b"".as_slice()), protocol, None];
        let refused = answer_server::<NoHost>(&input(&fields));
        assert!(matches!(refused, Err(WebError::Channel(_))), "{refused:?}");
    }
}
