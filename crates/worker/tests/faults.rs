//! The engine against a worker that does as a test says: every fault has one end, and others go on.

mod peer;

use std::time::Duration;

use confide_engine::{Engine, EngineError, FinishReason, GenerationEvent, Prompt, Request};
use confide_worker::{Worker, WorkerDeadlines, WorkerError, kind};
use serde_json::json;

use peer::{END, Place, events, impatient, request, text, until, welcome};

fn unavailable(events: &[GenerationEvent]) -> &str {
    match events.last() {
        Some(GenerationEvent::Failed(EngineError::Unavailable { reason })) => reason,
        other => panic!("{other:?}"),
    }
}

#[test]
fn tokens_become_text_and_the_order_says_what_was_asked() {
    let place = Place::new();
    let (worker, mut peer) = place.pair(impatient());
    let model = worker.models().remove(0);
    assert_eq!((model.name.as_str(), model.context_tokens), ("words", 64));
    assert_eq!(model.weights.as_deref(), Some("random from seed 7"));
    assert_eq!(worker.count_prompt_tokens("words", &Prompt::Text("one two".into())), Ok(2));
    let generation = worker.generate(request("words")).expect("a generation");
    let order = peer.json(kind::GENERATE);
    assert_eq!((&order["ids"], &order["max_tokens"]), (&json!([2, 3]), &json!(8)));
    assert_eq!((&order["stop_ids"], &order["banned_ids"]), (&json!([END]), &json!([])));
    assert_eq!((&order["temperature"], &order["adapter"]), (&json!(0.0), &json!(null)));
    let id = order["id"].as_u64().expect("an id") as u32;
    peer.tokens(&[(id, 4)]);
    peer.tokens(&[(id, 5)]);
    peer.send_end(id, "stop");
    let events = events(generation);
    assert_eq!(text(&events), "three four");
    let Some(GenerationEvent::Finished { reason, usage, adapter: None, .. }) = events.last() else {
        panic!("{events:?}")
    };
    assert_eq!((*reason, usage.prompt_tokens, usage.completion_tokens), (FinishReason::Stop, 2, 2));
    let forced = Request { ignore_eos: true, ..request("words") };
    let _generation = worker.generate(forced).expect("a generation");
    let order = peer.json(kind::GENERATE);
    assert_eq!((&order["stop_ids"], &order["banned_ids"]), (&json!([]), &json!([END])));
}

#[test]
fn what_cannot_be_answered_is_refused_before_the_worker_hears_of_it() {
    let place = Place::new();
    let (worker, mut peer) = place.pair(impatient());
    let refused = |request: Request| worker.generate(request).err();
    assert!(matches!(refused(request("nobody")), Some(EngineError::UnknownModel { .. })));
    let long = Request::new("words", Prompt::Text("one ".repeat(64)));
    assert_eq!(refused(long), Some(EngineError::PromptTooLong { got: 64, limit: 63 }));
    let none = worker.generate(Request { max_tokens: Some(0), ..request("words") });
    let events = events(none.expect("a generation"));
    assert!(matches!(events[..], [GenerationEvent::Finished { reason: FinishReason::Length, .. }]));
    // Four at once: two slots and two that wait.
    let running: Vec<_> = (0..4).map(|_| worker.generate(request("words")).expect("one")).collect();
    assert_eq!(refused(request("words")), Some(EngineError::QueueFull { limit: 4 }));
    let first = peer.next_order();
    peer.send_end(first, "length");
    until("a place is given back", || match worker.generate(request("words")) {
        Ok(_) => true,
        Err(error) => error != EngineError::QueueFull { limit: 4 },
    });
    drop(running);
}

#[test]
fn a_stop_string_ends_the_answer_and_tells_the_worker() {
    let place = Place::new();
    let (worker, mut peer) = place.pair(impatient());
    let stopping = Request { stop: vec!["four".into()], ..request("words") };
    let generation = worker.generate(stopping).expect("a generation");
    let id = peer.next_order();
    peer.tokens(&[(id, 4)]);
    peer.tokens(&[(id, 5)]);
    let events = events(generation);
    assert_eq!(text(&events), "three ");
    assert!(matches!(
        events.last(),
        Some(GenerationEvent::Finished { reason: FinishReason::Stop, .. })
    ));
    assert_eq!(peer.next_cancel(), id);
    // What was on its way is passed over, and the slot comes back.
    peer.tokens(&[(id, 6)]);
    peer.send_end(id, "cancelled");
    assert!(worker.generate(request("words")).is_ok());
}

#[test]
fn a_client_that_goes_away_cancels_and_its_slot_returns() {
    let place = Place::new();
    let (worker, mut peer) = place.pair(impatient());
    let running: Vec<_> = (0..4).map(|_| worker.generate(request("words")).expect("one")).collect();
    let ids: Vec<u32> = (0..4).map(|_| peer.next_order()).collect();
    drop(running);
    for id in ids {
        assert_eq!(peer.next_cancel(), id);
        peer.send_end(id, "cancelled");
    }
    until("the slots return", || worker.generate(request("words")).is_ok());
}

#[test]
fn a_death_in_mid_stream_breaks_what_runs_and_the_next_worker_goes_on() {
    let place = Place::new();
    let (worker, mut peer) = place.pair(impatient());
    let generation = worker.generate(request("words")).expect("a generation");
    let id = peer.next_order();
    peer.tokens(&[(id, 4)]);
    drop(peer);
    let broken = events(generation);
    assert_eq!(text(&broken), "three");
    assert!(unavailable(&broken).contains("closed the connection"), "{broken:?}");
    let refused = worker.generate(request("words")).err();
    assert!(matches!(refused, Some(EngineError::Unavailable { .. })), "{refused:?}");
    let mut next = place.accept();
    next.greet();
    until("it is back", || worker.generate(request("words")).is_ok());
}

#[test]
fn a_worker_that_comes_back_as_another_one_is_not_taken() {
    let place = Place::new();
    let tries = WorkerDeadlines { tries: 2, ..impatient() };
    let (worker, peer) = place.pair(tries);
    drop(peer);
    for _ in 0..2 {
        let mut next = place.accept();
        next.frame();
        let mut other = welcome();
        other["weights"] = json!("random from seed 8");
        next.say(kind::WELCOME, &other);
        assert!(next.is_closed());
    }
    until("it gives up", || match worker.generate(request("words")) {
        Err(EngineError::Unavailable { reason }) => reason.contains("no more are attempted"),
        _ => false,
    });
}

/// What a worker does once two generations run, the first with a token already.
fn after(fault: impl FnOnce(&mut peer::Peer, u32)) -> Vec<GenerationEvent> {
    let place = Place::new();
    let (worker, mut peer) = place.pair(impatient());
    let first = worker.generate(request("words")).expect("a generation");
    let second = worker.generate(request("words")).expect("a generation");
    let (id, _) = (peer.next_order(), peer.next_order());
    peer.tokens(&[(id, 4)]);
    fault(&mut peer, id);
    assert!(peer.is_closed());
    unavailable(&events(second));
    events(first)
}

#[test]
fn what_is_no_protocol_ends_the_connection_and_is_named() {
    let garbage = after(|peer, _| peer.write(b"Traceback (most recent call last):\n"));
    assert!(unavailable(&garbage).contains("frame of kind"), "{garbage:?}");
    let oversized = after(|peer, _| peer.write(&[0xff, 0xff, 0xff, 0x7f, kind::NEED]));
    assert!(unavailable(&oversized).contains("wanted at most"), "{oversized:?}");
    let odd = after(|peer, _| peer.say_bytes(kind::ENDED, b"{"));
    assert!(unavailable(&odd).contains("0x83"), "{odd:?}");
    let second = after(|peer, _| peer.say(kind::WELCOME, &welcome()));
    assert!(unavailable(&second).contains("welcome"), "{second:?}");
}

#[test]
fn tokens_and_ends_of_nobody_end_the_connection() {
    let unknown = after(|peer, _| peer.tokens(&[(4711, 1)]));
    assert!(unavailable(&unknown).contains("4711"), "{unknown:?}");
    let end = after(|peer, _| peer.send_end(4711, "stop"));
    assert!(unavailable(&end).contains("4711"), "{end:?}");
    let odd = after(|peer, id| peer.tokens(&[(id, 8)]));
    assert!(unavailable(&odd).contains("token: wanted a number below 8, got 8"), "{odd:?}");
    let many = after(|peer, id| (0..8).for_each(|_| peer.tokens(&[(id, 4)])));
    assert!(unavailable(&many).contains("more tokens"), "{many:?}");
    let need = after(|peer, id| {
        let mut payload = id.to_le_bytes().to_vec();
        payload.extend_from_slice(&[0, 0, 0, 0, 0, 1, 0, 0, 0, 4, 0, 0, 0, 1, 0]);
        payload.extend_from_slice(&[0; 32]);
        peer.say_bytes(kind::NEED, &payload);
    });
    assert!(unavailable(&need).contains("adapter is not at this end"), "{need:?}");
    // The first answer was whole before what follows it.
    let late = after(|peer, id| {
        peer.send_end(id, "stop");
        peer.tokens(&[(id, 4)]);
    });
    assert_eq!(text(&late), "three");
    assert!(matches!(late.last(), Some(GenerationEvent::Finished { .. })), "{late:?}");
}

#[test]
fn silence_is_taken_for_death() {
    let place = Place::new();
    let short = Duration::from_millis(200);
    let (worker, mut peer) = place.pair(WorkerDeadlines { silence: short, ..impatient() });
    let generation = worker.generate(request("words")).expect("a generation");
    let id = peer.next_order();
    // Without anything to do it may be as silent as it likes; with a token it may not.
    peer.tokens(&[(id, 4)]);
    assert!(unavailable(&events(generation)).contains("silent"));
    assert!(peer.is_closed());
}

#[test]
fn a_first_token_that_does_not_come_fails_one_generation_and_cancels_it() {
    let place = Place::new();
    let short = Duration::from_millis(400);
    let (worker, mut peer) = place.pair(WorkerDeadlines { first_token: short, ..impatient() });
    let quick = worker.generate(request("words")).expect("a generation");
    let slow = worker.generate(request("words")).expect("a generation");
    let (quick_id, slow_id) = (peer.next_order(), peer.next_order());
    peer.tokens(&[(quick_id, 4)]);
    let failed = events(slow);
    let [GenerationEvent::Failed(EngineError::Failed { reason })] = &failed[..] else {
        panic!("{failed:?}")
    };
    assert!(reason.contains("no first token"), "{reason}");
    assert_eq!(peer.next_cancel(), slow_id);
    peer.send_end(slow_id, "cancelled");
    peer.send_end(quick_id, "stop");
    assert_eq!(text(&events(quick)), "three");
}

#[test]
fn a_cancel_that_is_not_answered_is_taken_for_death() {
    let place = Place::new();
    let short = Duration::from_millis(200);
    let (worker, mut peer) = place.pair(WorkerDeadlines { cancel: short, ..impatient() });
    let stays = worker.generate(request("words")).expect("a generation");
    drop(worker.generate(request("words")).expect("a generation"));
    assert!(unavailable(&events(stays)).contains("cancelled generation"));
    assert!(peer.is_closed());
}

#[test]
fn out_of_memory_is_one_generations_own_error_and_others_go_on() {
    let place = Place::new();
    let (worker, mut peer) = place.pair(impatient());
    let (large, small) = (worker.generate(request("words")), worker.generate(request("words")));
    let (large_id, small_id) = (peer.next_order(), peer.next_order());
    peer.send_failure(large_id, "out_of_memory", "wanted 90 GiB");
    let failed = events(large.expect("a generation"));
    let wanted = EngineError::OutOfMemory { reason: "wanted 90 GiB".into() };
    assert_eq!(failed, [GenerationEvent::Failed(wanted)]);
    peer.tokens(&[(small_id, 2)]);
    peer.send_end(small_id, "length");
    assert_eq!(text(&events(small.expect("a generation"))), "one");
}

#[test]
fn a_refusal_is_the_end_of_one_generation() {
    let place = Place::new();
    let (worker, mut peer) = place.pair(impatient());
    for (word, wanted) in [
        ("queue_full", EngineError::QueueFull { limit: 4 }),
        ("malformed", EngineError::Failed { reason: "no".into() }),
    ] {
        let generation = worker.generate(request("words")).expect("a generation");
        let id = peer.next_order();
        peer.say(kind::REFUSED, &json!({ "id": id, "error": { "kind": word, "message": "no" } }));
        assert_eq!(events(generation), [GenerationEvent::Failed(wanted)]);
    }
}

#[test]
fn a_reader_too_far_behind_loses_its_answer_and_nobody_elses() {
    let place = Place::new();
    let options = place.options(impatient());
    let worker = std::thread::spawn(move || Worker::start(options));
    let mut peer = place.accept();
    peer.frame();
    let mut large = welcome();
    large["context_tokens"] = json!(1 << 20);
    peer.say(kind::WELCOME, &large);
    let worker = worker.join().expect("no panic").expect("a worker");
    let endless = Request { max_tokens: None, ..request("words") };
    let slow = worker.generate(endless.clone()).expect("a generation");
    let quick = worker.generate(endless).expect("a generation");
    let (slow_id, quick_id) = (peer.next_order(), peer.next_order());
    let reader = std::thread::spawn(move || events(quick));
    const MANY: usize = 20_000;
    (0..MANY).for_each(|_| peer.tokens(&[(slow_id, 1), (quick_id, 2)]));
    peer.send_end(quick_id, "stop");
    let quick = reader.join().expect("no panic");
    assert_eq!(quick.len(), MANY + 1);
    assert_eq!(peer.next_cancel(), slow_id);
    let slow = events(slow);
    assert_eq!(slow.len(), 16_384 + 1);
    let Some(GenerationEvent::Failed(EngineError::Failed { reason })) = slow.last() else {
        panic!()
    };
    assert!(reason.contains("behind"), "{reason}");
}

#[test]
fn a_worker_that_never_welcomes_is_an_error_at_the_start() {
    let place = Place::new();
    let options =
        place.options(WorkerDeadlines { welcome: Duration::from_millis(200), ..impatient() });
    let worker = std::thread::spawn(move || Worker::start(options));
    let _peer = place.accept();
    let error = worker.join().expect("no panic").err();
    assert!(matches!(error, Some(WorkerError::TimedOut { what: "welcome", .. })), "{error:?}");
    let gone = place.options(impatient());
    drop(place);
    assert!(Worker::start(gone).is_err());
}

#[test]
fn a_status_is_the_workers_own_object() {
    let place = Place::new();
    let (worker, mut peer) = place.pair(impatient());
    let status = std::thread::spawn(move || worker.request_status());
    let (kind, payload) = peer.frame();
    assert_eq!((kind, payload.len()), (kind::ASK_STATUS, 0));
    peer.say(kind::STATUS, &json!({ "tokens": 4 }));
    assert_eq!(status.join().expect("no panic"), Ok(json!({ "tokens": 4 })));
}
