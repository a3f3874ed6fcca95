//! Adapters at both ends: the worker asks for deltas, or has the adapter itself.

#[allow(dead_code, reason = "what the tests of faults need besides")]
mod peer;

use std::{
    collections::BTreeMap,
    sync::{Arc, mpsc},
};

use confide_engine::{AdapterLossPolicy, Engine, EngineError, GenerationEvent, Request};
use confide_lora::{
    AdaptError, Adapter, DeltaProvider, DeltaReport, DeltaSession, Guarantee, LayerInput, LoraPair,
    Matrix, Projection, ProjectionSite, ProjectionWidth, plain::LocalAdapter,
};
use confide_worker::{Worker, kind};
use serde_json::{Value, json};

use peer::{GENEROUS, Peer, Place, events, impatient, request, text, until};

fn pair(output: usize) -> LoraPair {
    let matrix = |rows: usize, columns: usize| Matrix {
        rows,
        columns,
        values: (0..rows * columns).map(|index| index as f32 - 2.0).collect(),
    };
    LoraPair { a: matrix(2, 4), b: matrix(output, 2), scale: 0.5 }
}

/// Changes q and v of layer 1.
fn plain() -> LocalAdapter {
    let at = |projection| ProjectionSite { layer: 1, projection };
    let modules =
        BTreeMap::from([(at(Projection::Query), pair(4)), (at(Projection::Value), pair(2))]);
    LocalAdapter::new(Arc::new(Adapter { name: "plain".into(), base_model: None, modules }))
}

/// Loads an adapter while the peer answers as told.
fn load(
    worker: &Worker,
    peer: &mut Peer,
    adapter: Arc<dyn DeltaProvider>,
    on_loss: AdapterLossPolicy,
) -> (Value, Result<(), EngineError>) {
    std::thread::scope(|scope| {
        let loading = scope.spawn(|| worker.load_adapter("plain", adapter, on_loss));
        let order = peer.json(kind::LOAD_ADAPTER);
        peer.say(kind::ADAPTER, &json!({ "name": "plain", "ok": true }));
        (order, loading.join().expect("no panic"))
    })
}

fn need(id: u32, rows: &[f32], outputs: &[(u8, Vec<f32>)]) -> Vec<u8> {
    let mut payload = id.to_le_bytes().to_vec();
    payload.extend_from_slice(&1u32.to_le_bytes());
    payload.push(0);
    payload.extend_from_slice(&((rows.len() / 4) as u32).to_le_bytes());
    payload.extend_from_slice(&4u32.to_le_bytes());
    payload.push(outputs.len() as u8);
    payload.extend(outputs.iter().map(|(projection, _)| *projection));
    let values = outputs.iter().flat_map(|(_, values)| values);
    payload.extend(rows.iter().chain(values).flat_map(|value| value.to_le_bytes()));
    payload
}

/// The error byte and what follows it.
fn deltas(peer: &mut Peer, id: u32) -> (u8, Vec<u8>) {
    let (kind, payload) = peer.frame();
    assert_eq!(kind, kind::DELTAS);
    assert_eq!(payload[..9], [&id.to_le_bytes()[..], &[1, 0, 0, 0, 0]].concat());
    (payload[9], payload[10..].to_vec())
}

fn floats(bytes: &[u8]) -> Vec<f32> {
    bytes.chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect()
}

#[test]
fn a_relayed_adapter_answers_each_need_as_it_would_answer_an_engine_here() {
    let place = Place::new();
    let (worker, mut peer) = place.pair(impatient());
    let (load_order, loaded) = load(&worker, &mut peer, Arc::new(plain()), AdapterLossPolicy::Fail);
    assert_eq!(loaded, Ok(()));
    assert_eq!((&load_order["kind"], &load_order["name"]), (&json!("relay"), &json!("plain")));
    let sites = json!([[1, "q", 4, 4], [1, "v", 4, 2]]);
    assert_eq!(load_order["spec"], json!({ "guarantee": "none", "sites": sites }));
    let adapted = worker.models().remove(1);
    assert_eq!((adapted.name.as_str(), adapted.parent.as_deref()), ("plain", Some("words")));
    let generation = worker.generate(request("plain")).expect("a generation");
    let order = peer.json(kind::GENERATE);
    assert_eq!(order["adapter"], "plain");
    let id = order["id"].as_u64().expect("an id") as u32;
    let rows = [1.0, -1.0, 0.5, 2.0, 0.0, 3.0, 1.0, -2.0];
    let outputs = [(2, vec![1.0, 2.0, 3.0, 4.0]), (0, vec![0.25; 8])];
    peer.say_bytes(kind::NEED, &need(id, &rows, &outputs));
    let (error, bytes) = deltas(&mut peer, id);
    let (mut value, mut query) = (outputs[0].1.clone(), outputs[1].1.clone());
    let mut wanted =
        [(Projection::Value, value.as_mut_slice()), (Projection::Query, query.as_mut_slice())];
    let added = plain().open_session().expect("open").add_deltas(
        1,
        LayerInput::Attention,
        &rows,
        &mut wanted,
    );
    added.expect("deltas");
    assert_eq!((error, floats(&bytes)), (0, [value, query].concat()));
    peer.tokens(&[(id, 3)]);
    peer.send_end(id, "length");
    let events = events(generation);
    let Some(GenerationEvent::Finished { adapter: Some(report), .. }) = events.last() else {
        panic!("{events:?}")
    };
    assert_eq!((report.guarantee.clone(), report.lost.clone()), (Guarantee::NONE, None));
    assert!(report.report.steps_ms.contains_key("b_ms"), "{report:?}");
}

/// Returns the first delta and then none.
struct Short(BTreeMap<ProjectionSite, ProjectionWidth>);

struct ShortDeltas(u32);

impl DeltaProvider for Short {
    fn sites(&self) -> &BTreeMap<ProjectionSite, ProjectionWidth> {
        &self.0
    }

    fn guarantee(&self) -> Guarantee {
        Guarantee::NONE
    }

    fn open_session(&self) -> Result<Box<dyn DeltaSession>, AdaptError> {
        Ok(Box::new(ShortDeltas(1)))
    }
}

fn loss() -> AdaptError {
    AdaptError::HostLost { reason: "it is gone".into() }
}

impl DeltaSession for ShortDeltas {
    fn add_deltas(
        &mut self,
        _layer: u32,
        _input: LayerInput,
        _rows: &[f32],
        outputs: &mut [(Projection, &mut [f32])],
    ) -> Result<(), AdaptError> {
        self.0 = self.0.checked_sub(1).ok_or_else(loss)?;
        outputs.iter_mut().for_each(|(_, output)| output.fill(9.0));
        Ok(())
    }

    fn report(&self) -> DeltaReport {
        DeltaReport { answered_vectors: 1, ..DeltaReport::default() }
    }
}

fn short() -> Arc<Short> {
    let site = ProjectionSite { layer: 1, projection: Projection::Query };
    Arc::new(Short(BTreeMap::from([(site, ProjectionWidth { input: 4, output: 4 })])))
}

#[test]
fn an_adapter_that_is_lost_ends_the_answer_or_is_said_before_the_base_models_first_token() {
    for on_loss in [AdapterLossPolicy::Fail, AdapterLossPolicy::Base] {
        let place = Place::new();
        let (worker, mut peer) = place.pair(impatient());
        load(&worker, &mut peer, short(), on_loss).1.expect("loaded");
        let generation = worker.generate(request("plain")).expect("a generation");
        let id = peer.next_order();
        let need_bytes = need(id, &[1.0; 4], &[(0, vec![0.5; 4])]);
        peer.say_bytes(kind::NEED, &need_bytes);
        assert_eq!(floats(&deltas(&mut peer, id).1), [9.0; 4]);
        peer.tokens(&[(id, 3)]);
        peer.say_bytes(kind::NEED, &need_bytes);
        let (error, bytes) = deltas(&mut peer, id);
        match on_loss {
            AdapterLossPolicy::Fail => {
                assert_eq!(error, 1);
                peer.send_failure(id, "adapter", "as told");
                let name = "plain".into();
                let failed = GenerationEvent::Failed(EngineError::Adapter { name, error: loss() });
                assert_eq!(events(generation).last(), Some(&failed));
            }
            AdapterLossPolicy::Base => {
                assert_eq!((error, floats(&bytes)), (0, vec![0.5; 4]));
                peer.tokens(&[(id, 4)]);
                peer.send_end(id, "length");
                let events = events(generation);
                assert_eq!(events[1], GenerationEvent::AdapterLost { reason: loss() });
                let Some(GenerationEvent::Finished { adapter: Some(report), .. }) = events.last()
                else {
                    panic!("{events:?}")
                };
                assert_eq!(
                    (report.lost.clone(), report.report.answered_vectors),
                    (Some(loss()), 1)
                );
            }
        }
    }
}

#[test]
fn a_need_that_is_not_of_the_adapters_widths_ends_the_connection() {
    let odd = |payload: fn(u32) -> Vec<u8>| {
        let place = Place::new();
        let (worker, mut peer) = place.pair(impatient());
        load(&worker, &mut peer, Arc::new(plain()), AdapterLossPolicy::Fail).1.expect("loaded");
        let generation = worker.generate(request("plain")).expect("a generation");
        let id = peer.next_order();
        peer.say_bytes(kind::NEED, &payload(id));
        let events = events(generation);
        assert!(
            matches!(&events[..], [GenerationEvent::Failed(EngineError::Unavailable { .. })]),
            "{events:?}"
        );
    };
    odd(|id| need(id, &[1.0; 4], &[(0, vec![0.5; 3])]));
    odd(|id| need(id, &[1.0; 4], &[(1, vec![0.5; 4])]));
    odd(|id| need(id + 1, &[1.0; 4], &[(0, vec![0.5; 4])]));
}

#[test]
fn adapters_are_checked_by_name_and_width_before_the_worker_hears_of_them() {
    let place = Place::new();
    let (worker, mut peer) = place.pair(impatient());
    load(&worker, &mut peer, Arc::new(plain()), AdapterLossPolicy::Fail).1.expect("loaded");
    for taken in ["plain", "words"] {
        let again = worker.load_adapter(taken, Arc::new(plain()), AdapterLossPolicy::Fail);
        assert_eq!(again, Err(EngineError::NameTaken { name: taken.into() }));
    }
    for (layer, output) in [(2, 4), (0, 5)] {
        let site = ProjectionSite { layer, projection: Projection::Query };
        let odd = Arc::new(Short(BTreeMap::from([(site, ProjectionWidth { input: 4, output })])));
        let refused = worker.load_adapter("other", odd, AdapterLossPolicy::Fail);
        assert!(matches!(refused, Err(EngineError::AdapterSite { .. })), "{refused:?}");
    }
    std::thread::scope(|scope| {
        let unloading = scope.spawn(|| worker.unload_adapter("plain"));
        assert_eq!(peer.json(kind::UNLOAD_ADAPTER), json!({ "name": "plain" }));
        peer.say(kind::ADAPTER, &json!({ "name": "plain", "ok": true }));
        assert_eq!(unloading.join().expect("no panic"), Ok(()));
    });
    assert_eq!(worker.models().len(), 1);
    let gone = worker.unload_adapter("plain");
    assert_eq!(gone, Err(EngineError::UnknownModel { got: "plain".into() }));
}

#[test]
fn an_adapter_in_the_worker_has_the_guarantee_that_the_worker_computed() {
    let place = Place::new();
    let (worker, mut peer) = place.pair(impatient());
    let loaded = |worker: &Worker, peer: &mut Peer, answer: Value| {
        std::thread::scope(|scope| {
            let spec = json!({ "path": "somewhere" });
            let loading = scope.spawn(|| worker.load_in_worker("far", "one-graph", spec));
            assert_eq!(peer.json(kind::LOAD_ADAPTER)["kind"], "one-graph");
            peer.say(kind::ADAPTER, &answer);
            if answer["guarantee"] == "perfect" || answer["sites"] == json!([[0, "k", 4, 4]]) {
                assert_eq!(peer.json(kind::UNLOAD_ADAPTER)["name"], "far");
                peer.say(kind::ADAPTER, &json!({ "name": "far", "ok": true }));
            }
            loading.join().expect("no panic")
        })
    };
    let sites = json!([[0, "q", 4, 4]]);
    for odd in [
        json!({ "name": "far", "ok": true, "sites": sites, "guarantee": "perfect" }),
        json!({ "name": "far", "ok": true, "sites": [[0, "k", 4, 4]], "guarantee": "none" }),
    ] {
        assert!(loaded(&worker, &mut peer, odd).is_err());
    }
    let blind = "adapter host is blind; A is not handed over, B is";
    let good = json!({ "name": "far", "ok": true, "sites": sites, "guarantee": blind });
    let adapter = loaded(&worker, &mut peer, good).expect("an adapter");
    assert_eq!(adapter.guarantee().to_string(), blind);
    assert!(worker.generate(request("far")).is_err(), "it is no model yet");
    let base = worker.load_adapter("far", Arc::clone(&adapter), AdapterLossPolicy::Base);
    assert!(matches!(base, Err(EngineError::Failed { .. })));
    worker.load_adapter("far", adapter, AdapterLossPolicy::Fail).expect("a model");
    let stopping = Request { stop: vec!["two".into()], ..request("far") };
    let generation = worker.generate(stopping).expect("a generation");
    let id = peer.next_order();
    peer.tokens(&[(id, 3)]);
    let ended = json!({ "id": id, "reason": "cancelled", "usage": {},
        "adapter": { "he_operations": 3, "answered_vectors": 2 } });
    std::thread::scope(|scope| {
        let reading = scope.spawn(|| events(generation));
        assert_eq!(peer.next_cancel(), id);
        peer.say(kind::ENDED, &ended);
        let events = reading.join().expect("no panic");
        assert_eq!(text(&events), "");
        let Some(GenerationEvent::Finished { adapter: Some(report), .. }) = events.last() else {
            panic!("{events:?}")
        };
        assert_eq!((report.report.he_operations, report.guarantee.to_string()), (3, blind.into()));
    });
}

#[test]
fn adapters_are_loaded_again_into_the_next_worker() {
    let place = Place::new();
    let (worker, mut peer) = place.pair(impatient());
    load(&worker, &mut peer, Arc::new(plain()), AdapterLossPolicy::Fail).1.expect("loaded");
    drop(peer);
    let mut next = place.accept();
    next.greet();
    assert_eq!(next.json(kind::LOAD_ADAPTER)["name"], "plain");
    next.say(kind::ADAPTER, &json!({ "name": "plain", "ok": false, "error": "no memory" }));
    until("the base model is back", || worker.generate(request("words")).is_ok());
    let refused = worker.generate(request("plain")).err();
    let Some(EngineError::Adapter { error, .. }) = refused else { panic!("{refused:?}") };
    assert!(error.to_string().contains("no memory"));
}

#[test]
fn a_load_is_broken_off_by_the_workers_death() {
    let place = Place::new();
    let (worker, mut peer) = place.pair(impatient());
    let (sender, done) = mpsc::channel();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let _ = sender.send(worker.load_adapter(
                "plain",
                Arc::new(plain()),
                AdapterLossPolicy::Fail,
            ));
        });
        peer.json(kind::LOAD_ADAPTER);
        drop(peer);
        let loaded = done.recv_timeout(GENEROUS).expect("it ends");
        assert!(matches!(loaded, Err(EngineError::Unavailable { .. })), "{loaded:?}");
    });
    assert_eq!(worker.models().len(), 1);
}

#[test]
fn another_adapters_name_in_an_answer_is_cut_before_it_is_shown() {
    let place = Place::new();
    let (worker, mut peer) = place.pair(impatient());
    let generation = worker.generate(request("words")).expect("a generation");
    peer.next_order();
    std::thread::scope(|scope| {
        let loading = scope
            .spawn(|| worker.load_adapter("plain", Arc::new(plain()), AdapterLossPolicy::Fail));
        peer.json(kind::LOAD_ADAPTER);
        peer.say(kind::ADAPTER, &json!({ "name": "x".repeat(100_000), "ok": true }));
        assert!(loading.join().expect("no panic").is_err());
    });
    let events = events(generation);
    let Some(GenerationEvent::Failed(EngineError::Unavailable { reason })) = events.last() else {
        panic!("{} events, and no failure", events.len())
    };
    assert!(reason.contains("wanted \"plain\""), "{} bytes", reason.len());
    assert!(reason.len() < 4096, "{} bytes", reason.len());
}
