//! The source against a service whose answers the tests write.

mod service;

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU32, Ordering::SeqCst},
    },
    thread,
    time::Duration,
};

use confide_collateral::{
    CollateralError, DocumentKey, EndorsementSet, Platform, Source, SourceOptions, Store,
    StoreLimits,
};
use confide_fake_attester::Fault;
use service::{DAY, ISSUED_AT, Issuer, Reply, Service, TestClock, eventually};

const WAIT: Duration = Duration::from_secs(60);

fn options(service: &Service, clock: &TestClock) -> SourceOptions {
    let mut options = SourceOptions::new(service.services(), clock.clock());
    options.look_every = Duration::from_millis(20);
    options
}

fn ensure(source: &Source, platform: &Platform) -> Result<Arc<EndorsementSet>, CollateralError> {
    source.find_or_fetch_blocking(platform, WAIT)
}

fn json(set: &EndorsementSet) -> serde_json::Value {
    serde_json::from_slice(set.json()).unwrap()
}

fn issuer_service(issuer: &Issuer) -> Service {
    let issuer = issuer.clone();
    Service::start(move |request| issuer.reply(request))
}

#[test]
fn a_set_is_the_documents_that_the_issuer_signed_byte_for_byte() {
    let (issuer, clock) = (Issuer::new(ISSUED_AT, None), TestClock::starting_at(ISSUED_AT + 60));
    let service = issuer_service(&issuer);
    let source = Source::start(options(&service, &clock)).unwrap();
    assert!(source.current_set(&issuer.platform).is_none());
    let set = ensure(&source, &issuer.platform).unwrap();
    assert_eq!(json(&set), issuer.collateral);
    assert_eq!(source.current_set(&issuer.platform).unwrap().generation(), set.generation());
    assert_eq!(service.count(), 4);
    let counts = source.counts();
    assert_eq!((counts.hits, counts.refreshes), (1, 4));
    let host = counts.hosts.values().next().unwrap();
    assert_eq!((host.requests, host.failures), (4, 0));
    assert!(host.bytes > 4_000);
}

#[test]
fn many_who_ask_at_once_cause_one_set_of_requests() {
    let (issuer, clock) = (Issuer::new(ISSUED_AT, None), TestClock::starting_at(ISSUED_AT + 60));
    let service = issuer_service(&issuer);
    let source = Source::start(options(&service, &clock)).unwrap();
    thread::scope(|scope| {
        for _ in 0..16 {
            scope.spawn(|| ensure(&source, &issuer.platform).unwrap());
        }
    });
    assert_eq!(service.count(), 4);
}

#[test]
fn a_caller_on_a_runtime_of_one_thread_may_block_without_a_deadlock() {
    let (issuer, clock) = (Issuer::new(ISSUED_AT, None), TestClock::starting_at(ISSUED_AT + 60));
    let service = issuer_service(&issuer);
    let source = Source::start(options(&service, &clock)).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(async {
        assert!(ensure(&source, &issuer.platform).is_ok());
        assert!(source.find_or_fetch(&issuer.platform).await.is_ok());
    });
}

#[test]
fn what_still_holds_is_served_at_once_while_newer_documents_are_fetched() {
    let (old, new) = (Issuer::new(ISSUED_AT, None), Issuer::new(ISSUED_AT + 5 * DAY, None));
    let (service, clock) = (issuer_service(&old), TestClock::starting_at(ISSUED_AT + 60));
    let source = Source::start(options(&service, &clock)).unwrap();
    let first = ensure(&source, &old.platform).unwrap();
    let issuer = new.clone();
    service.answer(move |request| {
        let delay = Duration::from_millis(300);
        Reply { delay, ..issuer.reply(request) }
    });
    clock.set(ISSUED_AT + 6 * DAY);
    let served = source.current_set(&old.platform).expect("it still holds");
    assert_eq!(served.generation(), first.generation());
    eventually("the newer set", || {
        source.current_set(&old.platform).is_some_and(|set| json(&set) == new.collateral)
    });
    assert!(source.generation() >= 2);
}

#[test]
fn a_set_in_use_is_refreshed_though_nobody_asks_at_that_time() {
    let (old, new) = (Issuer::new(ISSUED_AT, None), Issuer::new(ISSUED_AT + DAY / 2, None));
    let (service, clock) = (issuer_service(&old), TestClock::starting_at(ISSUED_AT + 60));
    let source = Source::start(options(&service, &clock)).unwrap();
    ensure(&source, &old.platform).unwrap();
    let mut changes = source.watch_generation();
    changes.mark_unchanged();
    let issuer = new.clone();
    service.answer(move |request| issuer.reply(request));
    clock.set(ISSUED_AT + DAY * 3 / 4);
    eventually("a change", || changes.has_changed().unwrap());
    assert_eq!(json(&source.current_set(&old.platform).unwrap()), new.collateral);
}

#[test]
fn what_has_ended_is_not_served_and_is_fetched_before_the_caller_goes_on() {
    let (old, new) = (Issuer::new(ISSUED_AT, None), Issuer::new(ISSUED_AT + 40 * DAY, None));
    let (service, clock) = (issuer_service(&old), TestClock::starting_at(ISSUED_AT + 60));
    let mut options = options(&service, &clock);
    options.look_every = Duration::from_secs(3600);
    let source = Source::start(options).unwrap();
    ensure(&source, &old.platform).unwrap();
    clock.set(ISSUED_AT + 41 * DAY);
    assert!(source.current_set(&old.platform).is_none());
    // The service itself still gives what has ended.
    let late = ensure(&source, &old.platform);
    assert!(matches!(late, Err(CollateralError::NotValidNow { .. })), "{late:?}");
    let issuer = new.clone();
    service.answer(move |request| issuer.reply(request));
    eventually("the new set", || ensure(&source, &old.platform).is_ok());
    assert_eq!(json(&source.current_set(&old.platform).unwrap()), new.collateral);
}

#[test]
fn a_service_that_is_down_keeps_nobody_from_what_still_holds() {
    let (issuer, clock) = (Issuer::new(ISSUED_AT, None), TestClock::starting_at(ISSUED_AT + 60));
    let service = issuer_service(&issuer);
    let source = Source::start(options(&service, &clock)).unwrap();
    ensure(&source, &issuer.platform).unwrap();
    service.answer(|_| Reply::new(500, ""));
    clock.set(ISSUED_AT + 10 * DAY);
    eventually("a failure", || {
        assert!(source.current_set(&issuer.platform).is_some());
        source.counts().failures > 0
    });
    assert!(ensure(&source, &issuer.platform).is_ok());
}

#[test]
fn half_of_the_answers_failing_is_got_over_by_retries() {
    let (issuer, clock) = (Issuer::new(ISSUED_AT, None), TestClock::starting_at(ISSUED_AT + 60));
    let (inner, turn) = (issuer.clone(), AtomicU32::new(0));
    let service = Service::start(move |request| match turn.fetch_add(1, SeqCst) % 4 {
        0 => Reply::new(503, ""),
        2 => Reply { cut: true, ..inner.reply(request) },
        _ => inner.reply(request),
    });
    let source = Source::start(options(&service, &clock)).unwrap();
    eventually("a set", || ensure(&source, &issuer.platform).is_ok());
    assert!(service.count() > 4);
}

#[test]
fn a_rolled_back_list_is_refused_reported_and_the_newer_one_kept() {
    let later = ISSUED_AT + 21 * DAY;
    let (good, old) = (Issuer::new(later, None), Issuer::new(later, Some(Fault::RolledBackCrl)));
    let (service, clock) = (issuer_service(&good), TestClock::starting_at(later + 60));
    let source = Source::start(options(&service, &clock)).unwrap();
    ensure(&source, &good.platform).unwrap();
    let issuer = old.clone();
    service.answer(move |request| issuer.reply(request));
    clock.set(later + DAY);
    eventually("a refusal", || {
        source.current_set(&good.platform);
        source.counts().refused_rollbacks >= 2
    });
    let set = source.current_set(&good.platform).unwrap();
    assert_eq!(json(&set)["pck_crl"], good.collateral["pck_crl"]);
    assert_eq!(json(&set)["root_ca_crl"], good.collateral["root_ca_crl"]);
}

#[test]
fn a_document_that_names_another_root_and_is_refused_lets_no_older_list_past_the_memory() {
    let later = ISSUED_AT + 21 * DAY;
    let (good, old) = (Issuer::new(later, None), Issuer::new(later, Some(Fault::RolledBackCrl)));
    let ended = Issuer::new(later - 40 * DAY, None);
    let (service, clock) = (issuer_service(&good), TestClock::starting_at(later + 60));
    let source = Source::start(options(&service, &clock)).unwrap();
    ensure(&source, &good.platform).unwrap();
    let end = "-----END CERTIFICATE-----";
    let chain = good.text("pck_crl_issuer_chain");
    let (first, _) = chain.split_once(end).unwrap();
    let mut lure = ended;
    lure.collateral["tcb_info_issuer_chain"] = format!("{first}{end}\n{first}{end}\n").into();
    service.answer(move |request| match request.path.contains("/tcb?") {
        true => lure.reply(request),
        false => old.reply(request),
    });
    clock.set(later + DAY);
    eventually("a refusal", || {
        let set = source.current_set(&good.platform).unwrap();
        assert_eq!(json(&set)["pck_crl"], good.collateral["pck_crl"]);
        assert_eq!(json(&set)["root_ca_crl"], good.collateral["root_ca_crl"]);
        source.counts().refused_rollbacks >= 2
    });
}

#[test]
fn a_rollback_is_refused_after_a_restart_and_with_the_documents_lost() {
    let folder = folder("rollback-restart");
    let later = ISSUED_AT + 21 * DAY;
    let (good, old) = (Issuer::new(later, None), Issuer::new(later, Some(Fault::RolledBackCrl)));
    let (service, clock) = (issuer_service(&good), TestClock::starting_at(later + 60));
    let stored = |service: &Service| {
        let store = Store::open(&folder, StoreLimits::default()).unwrap();
        SourceOptions { store: Some(store), ..options(service, &clock) }
    };
    let source = Source::start(stored(&service)).unwrap();
    ensure(&source, &good.platform).unwrap();
    eventually("the store", || stored_documents(&folder) == 4);
    drop(source);
    for entry in std::fs::read_dir(&folder).unwrap().flatten() {
        if entry.path().extension().is_some_and(|end| end == "doc") {
            std::fs::remove_file(entry.path()).unwrap();
        }
    }
    let issuer = old.clone();
    service.answer(move |request| issuer.reply(request));
    let source = Source::start(stored(&service)).unwrap();
    let refused = ensure(&source, &good.platform);
    assert!(matches!(refused, Err(CollateralError::RolledBack { .. })), "{refused:?}");
    assert!(source.counts().refused_rollbacks >= 1);
}

#[test]
fn a_restart_finds_its_documents_and_asks_nobody() {
    let folder = folder("restart");
    let (issuer, clock) = (Issuer::new(ISSUED_AT, None), TestClock::starting_at(ISSUED_AT + 60));
    let service = issuer_service(&issuer);
    let stored = || {
        let store = Store::open(&folder, StoreLimits::default()).unwrap();
        SourceOptions { store: Some(store), ..options(&service, &clock) }
    };
    let source = Source::start(stored()).unwrap();
    ensure(&source, &issuer.platform).unwrap();
    eventually("the store", || stored_documents(&folder) == 4);
    drop(source);
    service.answer(|_| Reply::new(500, ""));
    let source = Source::start(stored()).unwrap();
    assert_eq!(json(&ensure(&source, &issuer.platform).unwrap()), issuer.collateral);
    assert_eq!(service.count(), 4);
}

#[test]
fn clocks_that_step_serve_nothing_wrong_and_recover() {
    let (issuer, clock) = (Issuer::new(ISSUED_AT, None), TestClock::starting_at(ISSUED_AT + 60));
    let service = issuer_service(&issuer);
    let source = Source::start(options(&service, &clock)).unwrap();
    ensure(&source, &issuer.platform).unwrap();
    for now in [0, ISSUED_AT - 1, ISSUED_AT + 31 * DAY, u64::MAX, ISSUED_AT + 31 * DAY] {
        clock.set(now);
        assert!(source.current_set(&issuer.platform).is_none(), "{now}");
        assert!(ensure(&source, &issuer.platform).is_err(), "{now}");
    }
    for now in [ISSUED_AT + 60, ISSUED_AT + 20 * DAY, ISSUED_AT] {
        clock.set(now);
        assert!(source.current_set(&issuer.platform).is_some(), "{now}");
        assert!(ensure(&source, &issuer.platform).is_ok(), "{now}");
    }
}

#[test]
fn the_programs_check_keeps_a_lie_out_of_the_memory() {
    let (honest, lie) = (Issuer::new(ISSUED_AT, None), Issuer::new(ISSUED_AT + DAY, None));
    let clock = TestClock::starting_at(ISSUED_AT + 2 * DAY);
    let service = issuer_service(&lie);
    let lying = Arc::new(AtomicBool::new(true));
    let flag = lying.clone();
    let mut options = options(&service, &clock);
    options.check = Some(Arc::new(move |_, _, _| match flag.load(SeqCst) {
        true => Err("signature of TCB info does not hold".into()),
        false => Ok(()),
    }));
    let source = Source::start(options).unwrap();
    let refused = ensure(&source, &honest.platform);
    assert!(matches!(refused, Err(CollateralError::Refused { .. })), "{refused:?}");
    assert_eq!(source.counts().refused_sets, 1);
    lying.store(false, SeqCst);
    let issuer = honest.clone();
    service.answer(move |request| issuer.reply(request));
    eventually("the older, honest set", || ensure(&source, &honest.platform).is_ok());
    assert_eq!(source.counts().refused_rollbacks, 0);
}

#[test]
fn platforms_that_are_new_are_asked_for_in_bounded_number() {
    let clock = TestClock::starting_at(ISSUED_AT);
    let service = Service::start(|_| Reply::new(404, ""));
    let source = Source::start(options(&service, &clock)).unwrap();
    let Platform::Dcap { ca, tee, .. } = Issuer::new(ISSUED_AT, None).platform else { panic!() };
    let mut crowded = 0;
    for family in 0..200u8 {
        let platform = Platform::Dcap { fmspc: [family; 6], ca, tee };
        let refused = ensure(&source, &platform).unwrap_err();
        crowded += u32::from(matches!(refused, CollateralError::TooManyNewPlatforms { .. }));
    }
    assert!(crowded > 100, "{crowded}");
    assert_eq!(source.counts().refused_platforms, u64::from(crowded));
    let asked = service.count();
    let known = Platform::Dcap { fmspc: [0; 6], ca, tee };
    assert!(ensure(&source, &known).unwrap_err().is_not_found());
    assert_eq!(
        service.count(),
        asked,
        "a family that the service does not know is not asked twice"
    );
}

#[test]
fn a_list_that_comes_newer_for_one_family_is_in_every_set() {
    let (old, new) = (Issuer::new(ISSUED_AT, None), Issuer::new(ISSUED_AT + DAY / 2, None));
    let foreign = Issuer::new(ISSUED_AT + DAY / 2, Some(Fault::ForeignFmspc));
    let (service, clock) = (issuer_service(&old), TestClock::starting_at(ISSUED_AT + 60));
    let mut options = options(&service, &clock);
    options.look_every = Duration::from_secs(3600);
    let source = Source::start(options).unwrap();
    ensure(&source, &old.platform).unwrap();
    let info = confide_evidence::tcb_info::TcbInfo::parse(&foreign.text("tcb_info")).unwrap();
    let Platform::Dcap { ca, tee, .. } = old.platform else { panic!() };
    let other = Platform::Dcap { fmspc: info.fmspc, ca, tee };
    let issuer = foreign.clone();
    service.answer(move |request| issuer.reply(request));
    clock.set(ISSUED_AT + DAY * 3 / 4);
    ensure(&source, &other).unwrap();
    // Its own documents were not fetched; the lists that it shares are the newer ones.
    let set = source.current_set(&old.platform).unwrap();
    assert_eq!(json(&set)["pck_crl"], new.collateral["pck_crl"]);
    assert!(set.documents().any(|document| document.key == DocumentKey::IntelRootCrl));
}

fn folder(name: &str) -> std::path::PathBuf {
    let folder = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = std::fs::remove_dir_all(&folder);
    folder
}

fn stored_documents(folder: &std::path::Path) -> usize {
    let store = Store::open(folder, StoreLimits::default()).unwrap();
    store.list().unwrap().0.len()
}
