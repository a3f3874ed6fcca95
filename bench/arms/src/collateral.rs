//! One appraisal, and where its endorsements come from: fetched for it, kept by a source, stapled.
//!
//! They are fetched over real HTTP from a *simulated* service (`confide collateral serve
//! --simulate`), whose latency is set. What is measured is one session: from evidence in memory to
//! accepted, or to giving up because the endorsements could not be had.

use std::{
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    thread,
    time::{Duration, Instant},
};

use crate::clock::unix_now;
use crate::version::VERSION;
use confide_appraiser::{AppraisalError, PolicyAppraiser};
use confide_arm_line::{Hello, Outcome, Report, Run, Sample, Stopwatch, serve_runs};
use confide_collateral::{
    BaseUrl, Client, CollateralCounts, CollateralError, Document, Platform, Services, Source,
    SourceOptions, TcbEvaluation,
};
use confide_evidence::{Appraise, BindingKind, PresentedEvidence, ReportData, claims::Claims};
use confide_fake_attester::FakeAttester;
use confide_verifier::{AwsLc, Endorsements, Policy, UnixTime};
use serde_json::{Map, Value, json};
use tokio::runtime;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// The folder of a simulated attester.
    #[arg(long)]
    simulate: PathBuf,
    /// Address and port of the service that supplies its endorsements.
    #[arg(long)]
    pccs: String,
    /// `sequence` (each session fetches, one document after the other), `fetched` (each session
    /// fetches, all documents at once), `cached` or `stapled`.
    #[arg(long)]
    mode: String,
    /// Number of sessions per request of the harness: cheap sessions are repeated.
    #[arg(long, default_value_t = 1)]
    sessions: u64,
}

pub(crate) fn run(args: Args) -> Outcome {
    let (arm, note) = CollateralArm::new(&args)?;
    let hello = Hello {
        simulated: true,
        threads: 128,
        note: Some(format!("simulated evidence; {note}")),
        ..Hello::new(format!("confide collateral, {}", args.mode), VERSION)
    };
    serve_runs(&hello, |order| arm.measure(order))
}

struct CollateralArm {
    endorsements: EndorsementSource,
    policy: Policy,
    services: Services,
    peers: Vec<PeerEvidence>,
    stapled: String,
    sessions: u64,
}

/// The source of endorsements, with everything that is kept between sessions.
enum EndorsementSource {
    Sequence,
    Fetched,
    Cached { source: Arc<Source>, appraiser: PolicyAppraiser },
    Stapled { appraiser: PolicyAppraiser },
}

/// The evidence that a peer shows on one connection.
struct PeerEvidence {
    quote: Vec<u8>,
    claims: Vec<u8>,
    report_data: ReportData,
}

/// The outcome of one session. Evidence that is rejected is an error of the run.
struct SessionResult {
    accepted: bool,
    requests: u64,
}

impl CollateralArm {
    fn new(args: &Args) -> Outcome<(Self, &'static str)> {
        let attester = FakeAttester::load(&args.simulate)?;
        let policy = Policy::from_toml(&attester.dangerous_policy_toml())?;
        let base = BaseUrl::parse(&format!("http://{}", args.pccs), false)?;
        let services = Services::from_base(&base);
        let peers: Vec<PeerEvidence> =
            (0..PEERS).map(|number| PeerEvidence::new(&attester, number)).collect();
        let appraiser = || PolicyAppraiser::new(policy.clone(), None, unix_now);
        let (endorsements, note) = match args.mode.as_str() {
            "sequence" => (
                EndorsementSource::Sequence,
                "a client for each session, one document after the other",
            ),
            "fetched" => {
                (EndorsementSource::Fetched, "a client for each session, four documents at once")
            }
            "cached" => {
                let source = Arc::new(start_source(&services, &policy)?);
                let platform = peer_platform(&peers[0])?;
                prefetch(&source, &platform)?;
                let appraiser =
                    PolicyAppraiser::with_source(policy.clone(), source.clone(), unix_now);
                let note = "fetched once before; each run begins four hours later, when a refresh \
                            is due; sessions do not wait for it";
                (EndorsementSource::Cached { source, appraiser }, note)
            }
            "stapled" => {
                let appraiser = appraiser()?;
                (
                    EndorsementSource::Stapled { appraiser },
                    "the evidence comes with its endorsements",
                )
            }
            other => {
                return Err(
                    format!("--mode {other}: wanted sequence, fetched, cached or stapled").into()
                );
            }
        };
        let (sessions, stapled) = (args.sessions, attester.collateral_json());
        Ok((Self { endorsements, policy, services, peers, stapled, sessions }, note))
    }

    fn measure(&self, order: &Run) -> Outcome<Report> {
        order.refuse_unknown_params(&["workers"])?;
        let workers = order.integer_param_within("workers", 1, 1..=WORKERS_MAX)?;
        let before = self.source_counts();
        if self.is_cached() {
            LATER_S.fetch_add(REFRESH_S, Relaxed);
        }
        let watch = Stopwatch::start();
        let each = order.requests * self.sessions;
        let outcomes: Vec<Outcome<(Vec<Sample>, u64)>> = thread::scope(|scope| {
            let threads: Vec<_> = (0..workers)
                .map(|worker| scope.spawn(move || self.run_sessions(worker, each)))
                .collect();
            let died = || Err("a worker panicked".into());
            threads.into_iter().map(|thread| thread.join().unwrap_or_else(|_| died())).collect()
        });
        let mut report = watch.report();
        let mut requests = self.count_refresh_requests(&before);
        for outcome in outcomes {
            let (samples, asked) = outcome?;
            report.samples.extend(samples);
            requests += asked;
        }
        let count = report.samples.len() as f64;
        report.answer = json!({ "rejected": 0 });
        report.set("rate_per_s", count / report.wall_s);
        report.set("requests_per_session_ratio", requests as f64 / count);
        report.set("cpu_ms_per_session", report.cpu_s * 1e3 / count);
        Ok(report)
    }

    /// Runs sessions one after the other; gives their samples and the number of requests made.
    fn run_sessions(&self, worker: u64, sessions: u64) -> Outcome<(Vec<Sample>, u64)> {
        let (mut samples, mut requests) = (Vec::new(), 0);
        for number in 0..sessions {
            let at = (worker.wrapping_mul(31).wrapping_add(number) % PEERS) as usize;
            let began = Instant::now();
            let ended = self.run_session(&self.peers[at])?;
            samples.push(Sample::new([
                ("verify_ms", began.elapsed().as_secs_f64() * 1e3),
                ("answered_ratio", f64::from(u8::from(ended.accepted))),
            ]));
            requests += ended.requests;
        }
        Ok((samples, requests))
    }

    fn run_session(&self, peer: &PeerEvidence) -> Outcome<SessionResult> {
        match &self.endorsements {
            EndorsementSource::Sequence => self.fetch_in_sequence(peer),
            EndorsementSource::Fetched => {
                let source = Arc::new(start_source(&self.services, &self.policy)?);
                let policy = self.policy.clone();
                let appraiser = PolicyAppraiser::with_source(policy, source.clone(), unix_now);
                let accepted = is_accepted(appraiser.appraise(&peer.presentation(None)))?;
                Ok(SessionResult { accepted, requests: requests_sent(&source.counts()) })
            }
            EndorsementSource::Cached { appraiser, .. } => {
                let accepted = is_accepted(appraiser.appraise(&peer.presentation(None)))?;
                Ok(SessionResult { accepted, requests: 0 })
            }
            EndorsementSource::Stapled { appraiser } => {
                let collateral = Some(self.stapled.as_bytes());
                let accepted = is_accepted(appraiser.appraise(&peer.presentation(collateral)))?;
                Ok(SessionResult { accepted, requests: 0 })
            }
        }
    }

    /// Fetches one document after the other, as the verifier of the published report does.
    fn fetch_in_sequence(&self, peer: &PeerEvidence) -> Outcome<SessionResult> {
        let client = Client::new(self.services.clone())?;
        let runtime = runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime?;
        let fetched: Result<Vec<Document>, CollateralError> = runtime.block_on(async {
            let mut documents = Vec::new();
            for key in
                Platform::from_evidence(&peer.quote, None)?.document_keys(TcbEvaluation::Standard)
            {
                documents.push(client.fetch_document(&key, stepped_clock_s()).await?);
            }
            Ok(documents)
        });
        let Ok(documents) = fetched else {
            return Ok(SessionResult {
                accepted: false,
                requests: requests_sent(&client.counts()),
            });
        };
        let collateral = collateral_json(&documents)?;
        let appraiser = PolicyAppraiser::new(self.policy.clone(), None, unix_now);
        let appraiser = appraiser?;
        let accepted =
            is_accepted(appraiser.appraise(&peer.presentation(Some(collateral.as_bytes()))))?;
        Ok(SessionResult { accepted, requests: requests_sent(&client.counts()) })
    }

    fn source_counts(&self) -> CollateralCounts {
        match &self.endorsements {
            EndorsementSource::Cached { source, .. } => source.counts(),
            _ => CollateralCounts::default(),
        }
    }

    /// The requests that a source made for the sessions of a run, after the clock has stopped: a
    /// refresh that they set off is waited for, so that it is counted whole.
    fn count_refresh_requests(&self, before: &CollateralCounts) -> u64 {
        let began = Instant::now();
        loop {
            let counts = self.source_counts();
            let made = requests_sent(&counts) - requests_sent(before);
            let ended = counts.refreshes + counts.failures - before.refreshes - before.failures;
            let waited = began.elapsed();
            // A source that backs off after a failure makes none.
            let none = made == 0 && waited > Duration::from_millis(100);
            if none || ended >= DOCUMENTS || waited > REFRESH_WAIT || !self.is_cached() {
                return made;
            }
            thread::sleep(Duration::from_millis(2));
        }
    }

    fn is_cached(&self) -> bool {
        matches!(self.endorsements, EndorsementSource::Cached { .. })
    }
}

/// Quotes made before the clock starts; no cache is keyed on one.
const PEERS: u64 = 64;

/// More callers than this measure the scheduler.
const WORKERS_MAX: u64 = 512;

/// Documents in one set of Intel's endorsements.
const DOCUMENTS: u64 = 4;

/// Longer than five attempts for a document take, with the waits between them.
const REFRESH_WAIT: Duration = Duration::from_secs(15);

/// The product's own interval between refreshes.
const REFRESH_S: u64 = 4 * 3600;

/// How far the clock of this process's sources has stepped ahead of the wall clock.
static LATER_S: AtomicU64 = AtomicU64::new(0);

/// The clock of a source: evidence and endorsements are appraised by the wall clock.
fn stepped_clock_s() -> u64 {
    unix_now() + LATER_S.load(Relaxed)
}

impl PeerEvidence {
    fn new(attester: &FakeAttester, number: u64) -> Self {
        let now = unix_now();
        let mut pubkey_hash = [0; 32];
        pubkey_hash[..8].copy_from_slice(&number.to_le_bytes());
        let claims = Claims {
            config_digest: [7; 32],
            guarantee: "none".into(),
            nonce: None,
            // Longer than a suite takes, and within a day, which a policy allows at most.
            not_after: now + 12 * 3600,
            not_before: now.saturating_sub(60),
            pubkey_hash,
            gpu_evidence_hash: None,
            weights: None,
        };
        let mut report_data = ReportData::ZERO;
        report_data.0[..8].copy_from_slice(&number.to_le_bytes());
        Self { quote: attester.quote(&report_data), claims: claims.encode(), report_data }
    }

    fn presentation<'a>(&'a self, collateral: Option<&'a [u8]>) -> PresentedEvidence<'a> {
        PresentedEvidence {
            binding: BindingKind::TlsExporter,
            claims: &self.claims,
            collateral,
            expected_report_data: self.report_data,
            gpu: None,
            quote: &self.quote,
        }
    }
}

/// Whether evidence was accepted; false for want of endorsements.
///
/// # Errors
/// When it was rejected for another reason, which is a fault of this arm.
fn is_accepted<T>(outcome: Result<T, AppraisalError>) -> Outcome<bool> {
    match outcome {
        Ok(_) => Ok(true),
        Err(AppraisalError::Fetch(_)) => Ok(false),
        Err(error) => Err(format!("the evidence is rejected: {error}").into()),
    }
}

fn peer_platform(peer: &PeerEvidence) -> Outcome<Platform> {
    Ok(Platform::from_evidence(&peer.quote, None)?)
}

/// A source as the product's programs start it: it keeps only sets whose signatures hold.
fn start_source(services: &Services, policy: &Policy) -> Outcome<Source> {
    let mut options = SourceOptions::new(services.clone(), Arc::new(stepped_clock_s));
    let roots = policy.roots.clone();
    options.refresh_every = Duration::from_secs(REFRESH_S);
    options.check = Some(Arc::new(move |_, json, now| {
        let now = UnixTime::since_unix_epoch(Duration::from_secs(now));
        let endorsements = Endorsements::parse(json).map_err(|error| error.to_string())?;
        let prepared = endorsements.prepare(&roots, now, &AwsLc);
        prepared.map(drop).map_err(|rejection| rejection.reason().to_string())
    }));
    Ok(Source::start(options)?)
}

/// Has a set at hand before the first run, however often the service fails.
fn prefetch(source: &Source, platform: &Platform) -> Outcome {
    let until = Instant::now() + Duration::from_secs(25);
    loop {
        match source.find_or_fetch_blocking(platform, Duration::from_secs(10)) {
            Ok(_) => return Ok(()),
            Err(error) if Instant::now() > until => return Err(error.into()),
            Err(_) => thread::sleep(Duration::from_millis(100)),
        }
    }
}

/// Requests sent, retries included.
fn requests_sent(counts: &CollateralCounts) -> u64 {
    counts.hosts.values().map(|host| host.requests).sum()
}

/// The object that the appraiser reads, from the four documents of a platform in their order.
fn collateral_json(documents: &[Document]) -> Outcome<String> {
    let [root_crl, pck_crl, tcb_info, qe_identity] = documents else {
        return Err(format!("wanted {DOCUMENTS} documents, got {}", documents.len()).into());
    };
    let mut object = Map::new();
    let mut put = |name: &str, value: String| object.insert(name.into(), Value::String(value));
    put("pck_crl_issuer_chain", pck_crl.chain.clone());
    put("root_ca_crl", hex::encode(&root_crl.content));
    put("pck_crl", hex::encode(&pck_crl.content));
    for (name, document) in [("tcb_info", tcb_info), ("qe_identity", qe_identity)] {
        put(&format!("{name}_issuer_chain"), document.chain.clone());
        let text = std::str::from_utf8(&document.content)?;
        put(name, text.to_owned());
        put(&format!("{name}_signature"), document.signature.clone());
    }
    Ok(Value::Object(object).to_string())
}
