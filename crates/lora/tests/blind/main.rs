//! The blind protocol between a key holder and an adapter host in one process, over pipes.
//!
//! The parameter set is a toy without any security; everything else is the real code.

mod availability;
mod budgets;
mod raw;
mod refusals;
mod test_host;

use std::{collections::BTreeMap, time::Duration};

use confide_lora::{
    AdaptError, Adapter, AnswerAllowance, DeltaProvider, LayerInput, Projection, ProtectedMatrices,
    host::HostOptions, plain, protocol::Scheme,
};
use test_host::{TestHost, adapter, host_options, vectors};

const GENEROUS: Duration = Duration::from_secs(60);

/// The relative error of the deltas of each projection of a layer, compared with the reference.
fn relative_error(
    adapter: &Adapter,
    remote: &dyn DeltaProvider,
    input: LayerInput,
    rows: &[f32],
) -> f64 {
    let mut deltas = remote.open_session().unwrap();
    let (mut error, mut size) = (0f64, 0f64);
    let sites = adapter.modules.iter().filter(|(site, _)| site.projection.input() == input);
    for (site, pair) in sites {
        let count = rows.len() / pair.a.columns;
        let mut output = vec![0f32; count * pair.b.rows];
        let outputs = &mut [(site.projection, &mut output[..])];
        deltas.add_deltas(site.layer, input, rows, outputs).unwrap();
        for (row, got) in rows.chunks(pair.a.columns).zip(output.chunks(pair.b.rows)) {
            let row: Vec<f64> = row.iter().map(|value| f64::from(*value)).collect();
            for (wanted, got) in plain::delta(pair, &row).iter().zip(got) {
                error += (wanted - f64::from(*got)).powi(2);
                size += wanted.powi(2);
            }
        }
    }
    (error / size).sqrt()
}

#[test]
fn masked_and_direct_give_what_plain_lora_gives_under_either_protection() {
    let adapter = adapter("banking", 48);
    for protect in [ProtectedMatrices::A, ProtectedMatrices::Ba] {
        let test_host = TestHost::new(HostOptions { protect, ..host_options() }, &[&adapter]);
        for scheme in [Scheme::Masked, Scheme::Direct] {
            let remote = test_host.remote("banking", |options| options.scheme = scheme);
            assert_eq!(*remote.sites(), adapter.sites());
            for (input, rows) in [(LayerInput::Attention, 1), (LayerInput::AttentionOutput, 5)] {
                let error = relative_error(&adapter, &remote, input, &vectors(rows, 48));
                assert!(error < 2e-3, "{protect:?} {scheme:?} {input:?}: {error:.2e}");
            }
            let guarantee = remote.guarantee();
            assert!(!guarantee.host_is_blind, "a toy hides nothing");
            assert_eq!(guarantee.b_is_handed_over, protect == ProtectedMatrices::A);
        }
    }
}

#[test]
fn a_long_prompt_takes_the_counters_of_several_batches() {
    let adapter = adapter("banking", 512);
    let test_host = TestHost::new(host_options(), &[&adapter]);
    let remote = test_host.remote("banking", |_| ());
    // A batch of this set is 256 tokens.
    let error = relative_error(&adapter, &remote, LayerInput::AttentionOutput, &vectors(300, 512));
    assert!(error < 2e-3, "{error:.2e}");
    assert!(remote.preparation_progress().batches >= 2);
}

#[test]
fn a_report_says_what_was_asked_and_what_is_left() {
    let adapter = adapter("banking", 64);
    let test_host = TestHost::new(host_options(), &[&adapter]);
    let remote = test_host.remote("banking", |_| ());
    let mut deltas = remote.open_session().unwrap();
    let mut query = vec![0f32; 64];
    for _ in 0..3 {
        let outputs = &mut [(Projection::Query, &mut query[..])];
        deltas.add_deltas(0, LayerInput::Attention, &vectors(1, 64), outputs).unwrap();
    }
    // A projection that the adapter does not change uses no answers.
    let mut gate = vec![7f32; 64];
    let outputs = &mut [(Projection::MlpGate, &mut gate[..])];
    deltas.add_deltas(0, LayerInput::FeedForward, &vectors(1, 64), outputs).unwrap();
    assert_eq!(gate, [7f32; 64]);
    let report = deltas.report();
    assert_eq!((report.answered_vectors, report.round_trips), (3, 3));
    assert_eq!(report.budget_left, Some(63 - 3));
    assert!(report.he_operations > 0 && report.online_bytes > 3 * 64 * 4, "{report:?}");
    for step in ["quantise_ms", "mask_ms", "network_ms", "unmask_ms", "b_ms"] {
        assert!(report.steps_ms.contains_key(step), "{step}: {report:?}");
    }
}

#[test]
fn a_broken_connection_comes_back_and_no_counter_is_used_twice() {
    let adapter = adapter("banking", 64);
    let test_host = TestHost::new(host_options(), &[&adapter]);
    let remote = test_host.remote("banking", |_| ());
    remote.wait_until_prepared(8, GENEROUS, |_| ()).unwrap();
    let epoch = remote.host_epoch();
    let mut deltas = remote.open_session().unwrap();
    let mut first = vec![0f32; 64];
    deltas
        .add_deltas(
            0,
            LayerInput::Attention,
            &vectors(1, 64),
            &mut [(Projection::Query, &mut first[..])],
        )
        .unwrap();
    test_host.break_connections();
    let mut second = vec![0f32; 64];
    deltas
        .add_deltas(
            0,
            LayerInput::Attention,
            &vectors(1, 64),
            &mut [(Projection::Query, &mut second[..])],
        )
        .unwrap();
    assert_eq!(first, second);
    assert_eq!(remote.host_epoch(), epoch, "the same session, not a new one");
    assert_eq!(test_host.host().session_count(), 1);
}

#[test]
fn a_host_that_is_gone_is_said_to_be() {
    let adapter = adapter("banking", 64);
    let test_host = TestHost::new(host_options(), &[&adapter]);
    let remote = test_host.remote("banking", |_| ());
    remote.wait_until_prepared(8, GENEROUS, |_| ()).unwrap();
    let mut deltas = remote.open_session().unwrap();
    test_host.remove_host();
    let mut output = vec![1f32; 64];
    let lost = deltas.add_deltas(
        0,
        LayerInput::Attention,
        &vectors(1, 64),
        &mut [(Projection::Query, &mut output[..])],
    );
    assert!(matches!(lost, Err(AdaptError::HostLost { .. })), "{lost:?}");
    assert_eq!(output, [1f32; 64], "outputs are as they were");
    assert!(matches!(remote.open_session().map(|_| ()), Err(AdaptError::HostLost { .. })));
}

#[test]
fn masks_of_a_host_that_was_started_anew_are_thrown_away() {
    let adapter = adapter("banking", 64);
    let test_host = TestHost::new(host_options(), &[&adapter]);
    let remote = test_host.remote("banking", |_| ());
    remote.wait_until_prepared(8, GENEROUS, |_| ()).unwrap();
    let before = remote.host_epoch();
    let mut deltas = remote.open_session().unwrap();
    test_host.restart(host_options(), &[&adapter]);
    let mut output = vec![1f32; 64];
    let lost = deltas.add_deltas(
        0,
        LayerInput::Attention,
        &vectors(1, 64),
        &mut [(Projection::Query, &mut output[..])],
    );
    match lost {
        Err(AdaptError::HostLost { reason }) => assert!(reason.contains("restarted"), "{reason}"),
        other => panic!("{other:?}"),
    }
    drop(deltas);
    // The next generation has a new session with its own masks.
    let error = relative_error(&adapter, &remote, LayerInput::Attention, &vectors(2, 64));
    assert!(error < 2e-3, "{error:.2e}");
    assert_ne!(remote.host_epoch(), before);
}

#[test]
fn unit_vectors_trip_the_budget_however_often_the_client_comes_back() {
    let adapter = adapter("banking", 24);
    let test_host = TestHost::new(host_options(), &[&adapter]);
    let mut learned = 0;
    let mut refused = 0;
    for visit in 0..4 {
        // Each session has a new key and a new client id.
        let remote = test_host.remote("banking", |_| ());
        assert!(remote.guarantee().adapter_can_be_learned);
        let Ok(mut deltas) = remote.open_session() else { continue };
        for unit in 0..8 {
            let mut x = [0f32; 24];
            x[(visit * 8 + unit) % 24] = 1.0;
            let mut output = [0f32; 24];
            let outputs = &mut [(Projection::Query, &mut output[..])];
            match deltas.add_deltas(0, LayerInput::Attention, &x, outputs) {
                Ok(()) => learned += 1,
                Err(AdaptError::Budget { limit }) => {
                    assert_eq!(limit, 23);
                    refused += 1;
                    break;
                }
                other => panic!("{other:?}"),
            }
        }
    }
    assert_eq!(learned, 23, "one fewer than the input is wide");
    assert!(refused >= 2, "the third and the fourth visit");
    // Another input has its own budget.
    let remote = test_host.remote("banking", |_| ());
    let error = relative_error(&adapter, &remote, LayerInput::AttentionOutput, &vectors(1, 24));
    assert!(error < 2e-3, "{error:.2e}");
}

#[test]
fn a_key_holder_without_attestation_can_learn_the_adapter_and_an_attested_one_has_no_budget() {
    let adapter = adapter("banking", 24);
    for allowance in
        [AnswerAllowance::BelowWidth, AnswerAllowance::Vectors(1), AnswerAllowance::Vectors(24)]
    {
        let test_host = TestHost::new(HostOptions { allowance, ..host_options() }, &[&adapter]);
        assert!(test_host.host().guarantee().adapter_can_be_learned);
        assert!(test_host.remote("banking", |_| ()).guarantee().adapter_can_be_learned);
    }
    let test_host = TestHost::new(host_options(), &[&adapter]);
    test_host.attest_peers();
    let remote = test_host.remote("banking", |_| ());
    assert!(!remote.guarantee().adapter_can_be_learned);
    assert!(remote.guarantee().simulated);
    assert_eq!(remote.budget_left(), None);
    let error = relative_error(&adapter, &remote, LayerInput::Attention, &vectors(40, 24));
    assert!(error < 2e-3, "{error:.2e}");
}

#[test]
fn many_generations_at_once_share_one_session_and_many_clients_one_host() {
    let (banking, travel) = (adapter("banking", 512), adapter("travel", 512));
    let test_host = TestHost::new(host_options(), &[&banking, &travel]);
    std::thread::scope(|scope| {
        for adapter in [&banking, &travel] {
            let remote = test_host.remote(&adapter.name, |_| ());
            let remote = std::sync::Arc::new(remote);
            for _ in 0..4 {
                let remote = remote.clone();
                scope.spawn(move || {
                    for _ in 0..5 {
                        let rows = vectors(2, 512);
                        let error = relative_error(adapter, &*remote, LayerInput::Attention, &rows);
                        assert!(error < 2e-3, "{error:.2e}");
                    }
                });
            }
        }
    });
}

#[test]
fn the_audit_log_counts_and_never_tells() {
    let adapter = adapter("banking", 64);
    let test_host = TestHost::new(host_options(), &[&adapter]);
    let remote = test_host.remote("banking", |_| ());
    relative_error(&adapter, &remote, LayerInput::AttentionOutput, &vectors(3, 64));
    test_host.host().expire_sessions();
    let mut events = BTreeMap::new();
    for line in test_host.host().audit_lines() {
        let line: serde_json::Value = serde_json::from_str(&line).unwrap();
        assert_eq!(line["time"], 1_800_000_000);
        events.insert(line["event"].as_str().unwrap().to_owned(), line);
    }
    assert_eq!(events["hello"]["adapter"], "banking");
    assert_eq!(events["hello"]["account"], "everyone");
    assert!(events.contains_key("prepared"));
    assert_eq!(events["counted"]["vectors"], 6, "3 vectors at each of two layers");
    assert_eq!(events["counted"]["inputs"]["1/attention-output"], 3);
}

#[test]
fn noise_on_answers_is_what_was_asked_for_and_said() {
    let adapter = adapter("banking", 64);
    let test_host =
        TestHost::new(HostOptions { noise_sigma: 2000.0, ..host_options() }, &[&adapter]);
    let remote = test_host.remote("banking", |_| ());
    let error = relative_error(&adapter, &remote, LayerInput::Attention, &vectors(8, 64));
    assert!(error > 1e-6 && error < 0.2, "{error:.2e}");
}
