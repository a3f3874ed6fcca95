//! An attester and an appraiser that only compare report data, and streams to try them on.
#![allow(dead_code, reason = "each test file uses its part")]

pub(crate) mod cheat;

use std::{
    sync::{
        Arc, Condvar, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use confide_channel::{Binding, Client, ClientEvidence, ClientOptions, Server, ServerOptions};
use confide_evidence::{
    Appraise, Attest, AttestError, PresentedEvidence, ReportData, claims::Claims,
};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, DuplexStream, duplex};

/// The time of both ends, in Unix seconds, unless a test sets another.
pub(crate) const NOW: u64 = 1_800_000_000;

/// The deadline of calls that are to succeed.
pub(crate) const LONG: Duration = Duration::from_secs(60);

/// The deadline of calls that are to stall; it runs on paused time if nothing blocks.
pub(crate) const SHORT: Duration = Duration::from_millis(300);

pub(crate) fn clock() -> u64 {
    NOW
}

/// A quote is the word `quote` and the report data.
#[derive(Default)]
pub(crate) struct FakeAttester {
    pub(crate) collateral: Option<Vec<u8>>,
    pub(crate) empty: bool,
    pub(crate) failing: AtomicBool,
    /// The bytes of its GPU's evidence before the nonce, if it has a GPU.
    pub(crate) gpu: Option<Vec<u8>>,
    pub(crate) made: AtomicU64,
    pub(crate) panicking: AtomicBool,
    pub(crate) takes: Duration,
}

impl Attest for FakeAttester {
    fn attest(&self, report_data: &ReportData) -> Result<Vec<u8>, AttestError> {
        std::thread::sleep(self.takes);
        self.made.fetch_add(1, Ordering::SeqCst);
        assert!(!self.panicking.load(Ordering::SeqCst), "told to panic");
        if self.failing.load(Ordering::SeqCst) {
            let (device, reason) = ("fake".into(), "told to fail".into());
            return Err(AttestError::Device { device, reason });
        }
        Ok(if self.empty { Vec::new() } else { quote(report_data) })
    }

    fn collateral(&self) -> Option<Vec<u8>> {
        self.collateral.clone()
    }

    fn gpu_evidence(&self, nonce: &[u8; 32]) -> Result<Option<Vec<u8>>, AttestError> {
        Ok(self.gpu.as_ref().map(|says| [says.as_slice(), nonce].concat()))
    }

    fn is_simulated(&self) -> bool {
        true
    }
}

/// An attester that makes a quote only when it is let: a slow device without a clock.
#[derive(Default)]
pub(crate) struct GatedAttester {
    pub(crate) failing: AtomicBool,
    pub(crate) panicking: AtomicBool,
    /// The report data that it was asked for, in order.
    pub(crate) asked: Mutex<Vec<ReportData>>,
    lets: Mutex<u64>,
    changed: Condvar,
}

impl GatedAttester {
    /// Allows it to make `more` quotes.
    pub(crate) fn let_through(&self, more: u64) {
        *self.lets.lock().unwrap() += more;
        self.changed.notify_all();
    }

    pub(crate) fn requests(&self) -> Vec<ReportData> {
        self.asked.lock().unwrap().clone()
    }

    /// Waits until it was asked for `quotes` quotes in all.
    pub(crate) async fn until_asked(&self, quotes: usize) {
        while self.requests().len() < quotes {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
}

impl Attest for GatedAttester {
    fn attest(&self, report_data: &ReportData) -> Result<Vec<u8>, AttestError> {
        self.asked.lock().unwrap().push(*report_data);
        let lets = self.lets.lock().unwrap();
        *self.changed.wait_while(lets, |lets| *lets == 0).unwrap() -= 1;
        assert!(!self.panicking.load(Ordering::SeqCst), "told to panic");
        if self.failing.load(Ordering::SeqCst) {
            let (device, reason) = ("gated".into(), "told to fail".into());
            return Err(AttestError::Device { device, reason });
        }
        Ok(quote(report_data))
    }

    fn collateral(&self) -> Option<Vec<u8>> {
        Some(b"{}".to_vec())
    }

    fn is_simulated(&self) -> bool {
        true
    }
}

pub(crate) fn quote(report_data: &ReportData) -> Vec<u8> {
    [b"quote", report_data.as_ref()].concat()
}

/// Accepts quotes of [`FakeAttester`] over the expected report data within their validity.
#[derive(Default)]
pub(crate) struct FakeAppraiser {
    pub(crate) now: Option<u64>,
    pub(crate) seen: Mutex<Vec<Vec<u8>>>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FakeAppraised {
    pub(crate) claims: Claims,
    pub(crate) collateral: Option<Vec<u8>>,
    pub(crate) gpu: Option<Vec<u8>>,
}

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum FakeRejection {
    #[error("gpu")]
    Gpu,
    #[error("report data")]
    ReportData,
    #[error("validity")]
    Validity,
}

impl Appraise for FakeAppraiser {
    type Appraised = FakeAppraised;
    type Rejection = FakeRejection;

    fn appraise(&self, presented: &PresentedEvidence<'_>) -> Result<FakeAppraised, FakeRejection> {
        self.seen.lock().unwrap().push(presented.quote.to_vec());
        if presented.quote != quote(&presented.expected_report_data) {
            return Err(FakeRejection::ReportData);
        }
        let gpu = presented.gpu;
        if gpu.is_some_and(|gpu| !gpu.evidence.ends_with(&gpu.nonce)) {
            return Err(FakeRejection::Gpu);
        }
        let claims = Claims::decode(presented.claims).expect("the channel has read the claims");
        if !(claims.not_before..claims.not_after).contains(&self.now.unwrap_or(NOW)) {
            return Err(FakeRejection::Validity);
        }
        let collateral = presented.collateral.map(<[u8]>::to_vec);
        Ok(FakeAppraised { claims, collateral, gpu: gpu.map(|gpu| gpu.evidence.to_vec()) })
    }
}

pub(crate) fn server_options(binding: Binding) -> ServerOptions {
    ServerOptions {
        binding,
        config_digest: [5; 32],
        guarantee: "operator is outside the TEE".into(),
        key_validity: Duration::from_secs(3600),
        deadline: LONG,
        names: vec!["localhost".into()],
        weights: None,
    }
}

pub(crate) fn server(binding: Binding) -> Server {
    server_with(binding, LONG, FakeAttester::default())
}

pub(crate) fn server_with(binding: Binding, deadline: Duration, attester: FakeAttester) -> Server {
    let options = ServerOptions { deadline, ..server_options(binding) };
    Server::new(options, Some(Arc::new(attester)), clock).unwrap()
}

pub(crate) fn client(binding: Binding) -> Client<FakeAppraiser> {
    client_within(binding, LONG)
}

pub(crate) fn client_within(binding: Binding, deadline: Duration) -> Client<FakeAppraiser> {
    let options = ClientOptions { binding, deadline };
    Client::new(options, Arc::new(FakeAppraiser::default())).unwrap()
}

pub(crate) fn client_evidence() -> ClientEvidence {
    ClientEvidence {
        attester: Arc::new(FakeAttester::default()),
        clock,
        config_digest: [6; 32],
        guarantee: "a client in a TEE".into(),
        key_validity: Duration::from_secs(3600),
    }
}

/// A byte stream in memory; its buffer is smaller than a handshake, so both ends have to wait.
pub(crate) fn wire() -> (DuplexStream, DuplexStream) {
    duplex(4096)
}

/// Sends bytes in both directions, then ends both in order.
pub(crate) async fn echo<A, B>(a: A, b: B)
where
    A: AsyncRead + AsyncWrite + Unpin,
    B: AsyncRead + AsyncWrite + Unpin,
{
    let (mut a, mut b) = (a, b);
    let sent: Vec<u8> = (0..200_000u32).map(|n| n as u8).collect();
    let asking = async {
        a.write_all(&sent).await.unwrap();
        a.shutdown().await.unwrap();
        let mut got = Vec::new();
        a.read_to_end(&mut got).await.unwrap();
        got
    };
    let answering = async {
        let mut got = Vec::new();
        b.read_to_end(&mut got).await.unwrap();
        b.write_all(&got).await.unwrap();
        b.shutdown().await.unwrap();
        got
    };
    let (back, there) = tokio::join!(asking, answering);
    assert!(there == sent && back == sent, "bytes changed on the way");
}
