//! The source against `confide-pccs` over real HTTP, with the service's faults. *Simulated*: the
//! endorsements are those of a fake root.

mod service;

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::SeqCst},
        mpsc,
    },
    thread,
    time::Duration,
};

use confide_collateral::{BaseUrl, CollateralError, Platform, Services, Source, SourceOptions};
use confide_fake_attester::{FakeAttester, Fault, Mode};
use confide_pccs::{
    Document, DocumentRequest, Faults, Latency, PccsLimits, RequestLimit, ServedEdition, Service,
    SimulatedIssuer, Simulation, split_endorsements,
};
use service::{DAY, ISSUED_AT, eventually};

/// Each test has a service of its own; their clocks are one, and never go back.
static CLOCK: AtomicU64 = AtomicU64::new(ISSUED_AT + 60);
const WAIT: Duration = Duration::from_secs(60);

fn clock() -> u64 {
    CLOCK.load(SeqCst)
}

struct FakeRoot;

fn attester(issued_at: u64, fault: Option<Fault>) -> FakeAttester {
    let options = confide_fake_attester::FakeAttesterOptions {
        seed: [7; 32],
        tee: confide_fake_attester::Tee::Tdx,
        debug: false,
        issued_at,
        mode: Mode::Raw,
    };
    match fault {
        None => FakeAttester::new(options).unwrap(),
        Some(fault) => FakeAttester::with_fault(options, fault).unwrap(),
    }
}

impl SimulatedIssuer for FakeRoot {
    fn issue_document(
        &self,
        wanted: &DocumentRequest,
        edition: ServedEdition,
        now: u64,
    ) -> Result<Option<Document>, String> {
        let fault = match edition {
            ServedEdition::LateCrls => Some(Fault::ExpiredCrl),
            ServedEdition::RolledBackCrls => Some(Fault::RolledBackCrl),
            ServedEdition::Expired => Some(Fault::ExpiredCollateral),
            _ => None,
        };
        let set = attester(now, fault).collateral_json();
        let documents =
            split_endorsements(set.as_bytes(), now).map_err(|error| error.to_string())?;
        let is = |each: &Document| each.kind == wanted.kind() && each.key == wanted.key();
        Ok(documents.into_iter().find(is))
    }
}

struct Served {
    address: SocketAddr,
    simulation: Arc<Simulation>,
}

fn serve(faults: Faults) -> Served {
    let simulation = Arc::new(Simulation::new(Arc::new(FakeRoot), faults));
    let (started, at) = mpsc::channel();
    let inner = simulation.clone();
    // It ends with the test's process.
    thread::spawn(move || {
        let runtime = tokio::runtime::Runtime::new().unwrap();
        runtime.block_on(async move {
            let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
            started.send(listener.local_addr().unwrap()).unwrap();
            let source = confide_pccs::DocumentSource::Simulated(inner);
            let options =
                confide_pccs::PccsOptions { source, limits: PccsLimits::default(), clock };
            let service = Arc::new(Service::new(options));
            confide_pccs::serve(listener, service, std::future::pending()).await.unwrap();
        });
    });
    Served { address: at.recv().unwrap(), simulation }
}

fn source(served: &Served) -> (Source, Platform) {
    let base = BaseUrl::parse(&format!("http://{}", served.address), false).unwrap();
    let mut options = SourceOptions::new(Services::from_base(&base), Arc::new(clock));
    options.look_every = Duration::from_millis(50);
    options.refresh_every = Duration::from_secs(3600);
    let quote = attester(ISSUED_AT, None).quote(&confide_evidence::ReportData::ZERO);
    (Source::start(options).unwrap(), Platform::from_evidence(&quote, None).unwrap())
}

#[test]
fn half_of_the_answers_failing_slow_and_cut_gives_a_set_in_the_end() {
    let served = serve(Faults {
        latency: Latency::Ms(5),
        failure_rate: 0.4,
        truncated_rate: 0.1,
        seed: 3,
        ..Faults::default()
    });
    let (source, platform) = source(&served);
    eventually("a set", || source.find_or_fetch_blocking(&platform, WAIT).is_ok());
    let counts = source.counts();
    assert!(counts.hosts.values().any(|host| host.requests > 4), "{counts:?}");
}

#[test]
fn a_limit_on_requests_is_kept_to() {
    let limit = Some(RequestLimit { requests: 2, window_s: 1 });
    let served = serve(Faults { limit, ..Faults::default() });
    let (source, platform) = source(&served);
    eventually("a set", || source.find_or_fetch_blocking(&platform, WAIT).is_ok());
    assert!(source.counts().hosts.values().any(|host| host.throttled > 0));
}

#[test]
fn editions_that_do_not_hold_are_refused_and_the_next_good_one_taken() {
    let served = serve(Faults { edition: ServedEdition::Expired, ..Faults::default() });
    let (source, platform) = source(&served);
    for edition in [ServedEdition::Expired, ServedEdition::LateCrls] {
        served.simulation.set_faults(Faults { edition, ..Faults::default() });
        let refused = source.find_or_fetch_blocking(&platform, WAIT);
        assert!(matches!(refused, Err(CollateralError::NotValidNow { .. })), "{refused:?}");
    }
    served.simulation.set_faults(Faults::default());
    eventually("a set", || source.find_or_fetch_blocking(&platform, WAIT).is_ok());
}

#[test]
fn a_service_that_rolls_back_is_refused_while_the_newer_set_is_served() {
    let served = serve(Faults::default());
    let (source, platform) = source(&served);
    let first = source.find_or_fetch_blocking(&platform, WAIT).unwrap();
    let edition = ServedEdition::RolledBackCrls;
    served.simulation.set_faults(Faults { edition, ..Faults::default() });
    // Everything is due, and nothing has ended.
    CLOCK.fetch_max(ISSUED_AT + DAY, SeqCst);
    eventually("a refusal", || {
        let set = source.current_set(&platform).expect("what holds is served");
        let lists = |set: &confide_collateral::EndorsementSet| {
            let json: serde_json::Value = serde_json::from_slice(set.json()).unwrap();
            (json["pck_crl"].clone(), json["root_ca_crl"].clone())
        };
        assert_eq!(lists(&set), lists(&first));
        source.counts().refused_rollbacks > 0
    });
}
