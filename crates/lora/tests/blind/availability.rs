//! The effect of one hostile client on others: it competes for sessions and preparation permits.

use std::{
    net::Ipv4Addr,
    time::{Duration, Instant},
};

use confide_lora::{
    DeltaProvider, LayerInput, Projection,
    host::{HostLimits, HostOptions},
    protocol::{FrameKind, Refusal},
};

use super::{
    raw::RawHolder,
    relative_error,
    test_host::{HONEST, TestHost, adapter, host_options, vectors},
};

const STRANGER: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 1);

fn limited_host(limits: HostLimits) -> TestHost {
    TestHost::new(HostOptions { limits, ..host_options() }, &[&adapter("banking", 48)])
}

/// Sends a hello from `address`: returns the connection, or the refusal.
fn hello(test_host: &TestHost, address: Ipv4Addr) -> Result<RawHolder<'_>, Refusal> {
    let mut raw = RawHolder::new(test_host.runtime(), test_host.pipe_from(address));
    raw.say_hello(|_| ());
    loop {
        match raw.read_frame().unwrap() {
            (FrameKind::Error, _, payload) => return Err(Refusal::decode(&payload).unwrap()),
            (FrameKind::Terms, ..) => return Ok(raw),
            (kind, ..) => assert_eq!(kind, FrameKind::Welcome),
        }
    }
}

#[test]
fn a_flood_of_hellos_leaves_an_honest_client_served_and_newcomers_let_in() {
    let limits = HostLimits { sessions: 8, sessions_per_peer: 6, ..HostLimits::default() };
    let test_host = limited_host(limits);
    let adapter = adapter("banking", 48);
    // The honest client works before the flood: its session has masks and answers.
    let honest = test_host.remote("banking", |_| ());
    assert!(relative_error(&adapter, &honest, LayerInput::Attention, &vectors(2, 48)) < 2e-3);
    // The stranger keeps its connections open, so that its own sessions are not evicted first.
    let flood: Vec<_> = (0..20).map(|_| hello(&test_host, STRANGER)).collect();
    let open = flood.iter().filter(|hello| hello.is_ok()).count();
    assert_eq!(open, 6, "a peer has its share and no more");
    assert!(flood.iter().flat_map(|hello| hello.as_ref().err()).all(|why| *why == Refusal::Busy));
    // One more session fills the host. New sessions then evict those of the peer with the most.
    let newcomers: Vec<_> =
        (3..6).map(|last| hello(&test_host, Ipv4Addr::new(127, 0, 0, last))).collect();
    assert!(newcomers.iter().all(Result::is_ok), "no newcomer is refused");
    assert_eq!(test_host.host().session_count(), 8);
    let epoch = honest.host_epoch();
    assert!(relative_error(&adapter, &honest, LayerInput::Attention, &vectors(2, 48)) < 2e-3);
    assert_eq!(honest.host_epoch(), epoch);
    let lines = test_host.host().audit_lines();
    assert_eq!(lines.iter().filter(|line| line.contains("\"evicted\"")).count(), 2);
}

#[test]
fn sessions_that_a_stranger_left_behind_are_the_first_to_go() {
    let limits = HostLimits { sessions: 4, sessions_per_peer: 4, ..HostLimits::default() };
    let test_host = limited_host(limits);
    let adapter = adapter("banking", 48);
    let honest = test_host.remote("banking", |_| ());
    assert!(relative_error(&adapter, &honest, LayerInput::Attention, &vectors(1, 48)) < 2e-3);
    for _ in 0..40 {
        // The connection is closed at once, but its session would stay open for ten minutes.
        drop(hello(&test_host, STRANGER));
    }
    let newcomer = test_host.remote("banking", |_| ());
    for remote in [&honest, &newcomer] {
        assert!(relative_error(&adapter, remote, LayerInput::Attention, &vectors(1, 48)) < 2e-3);
    }
}

#[test]
fn an_evicted_connection_is_told_that_its_session_is_gone() {
    let limits = HostLimits { sessions: 2, sessions_per_peer: 2, ..HostLimits::default() };
    let test_host = limited_host(limits);
    let mut first = hello(&test_host, STRANGER).unwrap();
    let _second = hello(&test_host, STRANGER).unwrap();
    assert!(matches!(hello(&test_host, STRANGER), Err(Refusal::Busy)), "its own share is full");
    let _honest = hello(&test_host, HONEST).unwrap();
    loop {
        match first.read_frame() {
            Ok((FrameKind::Terms, ..)) => {}
            Ok((kind, _, payload)) => {
                assert_eq!(kind, FrameKind::Error);
                assert_eq!(Refusal::decode(&payload).unwrap(), Refusal::NoSession);
                break;
            }
            Err(error) => panic!("{error}"),
        }
    }
}

#[test]
fn a_key_holder_whose_session_was_evicted_gets_a_new_one() {
    let limits = HostLimits { sessions: 3, sessions_per_peer: 3, ..HostLimits::default() };
    let test_host = limited_host(limits);
    let adapter = adapter("banking", 48);
    let remotes = [(); 3].map(|()| test_host.remote("banking", |_| ()));
    for remote in &remotes {
        assert!(relative_error(&adapter, remote, LayerInput::Attention, &vectors(1, 48)) < 2e-3);
    }
    drop(hello(&test_host, STRANGER).expect("one of three gives way"));
    for remote in &remotes {
        // The request after the eviction fails. The permit of the stranger, who disconnected, is free as
        // soon as the host has noticed.
        let mut query = [0f32; 48];
        let mut ask = || {
            let outputs = &mut [(Projection::Query, &mut query[..])];
            remote.open_session()?.add_deltas(0, LayerInput::Attention, &vectors(1, 48), outputs)
        };
        let until = Instant::now() + Duration::from_secs(60);
        while let Err(error) = ask() {
            assert!(Instant::now() < until, "{error}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

#[test]
fn four_begun_preparations_of_one_stranger_do_not_lock_others_out() {
    let test_host = limited_host(HostLimits::default());
    let mut begun = Vec::new();
    for _ in 0..4 {
        let mut raw = RawHolder::new(test_host.runtime(), test_host.pipe_from(STRANGER));
        let opened = raw.open();
        raw.begin(&opened.terms[0]);
        let (kind, ..) = raw.read_frame().unwrap();
        begun.push((kind, raw));
    }
    let credited = begun.iter().filter(|(kind, _)| *kind == FrameKind::Credit).count();
    assert_eq!(credited, 3, "the last room is not for a peer that prepares already");
    let mut honest = RawHolder::new(test_host.runtime(), test_host.pipe_from(HONEST));
    let opened = honest.open();
    assert_eq!(honest.prepare(&opened, 0).tokens_left(), 256);
}
