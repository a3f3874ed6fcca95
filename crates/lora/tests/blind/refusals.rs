//! Each refusal is sent for its reason.

use confide_lora::{
    ProtectedMatrices,
    host::{ClientList, HostOptions, WINDOW},
    protocol::{
        Attach, AttachAnswer, CiphertextBlock, FrameKind, Goodbye, MaskedAnswer, Refusal, Scheme,
        Welcome,
    },
};
use confide_rlwe::SeededCiphertext;

use super::{
    raw::RawHolder,
    test_host::{TestHost, adapter, host_options},
};

fn test_host() -> TestHost {
    TestHost::new(host_options(), &[&adapter("banking", 48)])
}

#[test]
fn a_hello_that_asks_for_what_is_not_there_is_refused() {
    let test_host = test_host();
    type Change = fn(&mut confide_lora::protocol::Hello<'_>);
    let cases: [(Change, Refusal); 5] = [
        (|hello| hello.adapter = "travel", Refusal::UnknownAdapter),
        (|hello| hello.parameters = "rlwe-4096-q100-flood40", Refusal::NotOffered),
        (|hello| hello.protect = Some(ProtectedMatrices::Ba), Refusal::NotOffered),
        (|hello| hello.public_key = &[1, 2, 3], Refusal::Malformed),
        (|hello| hello.adapter = "", Refusal::Malformed),
    ];
    for (change, wanted) in cases {
        let mut raw = RawHolder::new(test_host.runtime(), test_host.pipe());
        raw.say_hello(change);
        assert_eq!(raw.read_refusal(), (wanted, true));
        assert!(raw.read_frame().is_err(), "the connection ends");
    }
    assert_eq!(test_host.host().session_count(), 0);
}

#[test]
fn what_is_no_hello_and_another_version_are_refused() {
    let test_host = test_host();
    let mut raw = RawHolder::new(test_host.runtime(), test_host.pipe());
    let mut bytes = raw.hello_bytes(|_| ());
    bytes[8] = 9;
    raw.send(FrameKind::Hello, 1, |out| out.extend(&bytes));
    assert_eq!(raw.read_refusal(), (Refusal::Version { host: 1 }, true));
    for bytes in [&b"GET / HTTP/1.1\r\nhost: x\r\n\r\n"[..], &[5, 0, 0, 0, 0x05, 1, 0, 0, 0]] {
        let mut raw = RawHolder::new(test_host.runtime(), test_host.pipe());
        raw.send_bytes(bytes);
        assert_eq!(raw.read_refusal(), (Refusal::Malformed, true));
    }
}

#[test]
fn a_second_session_of_one_client_id_is_refused() {
    let test_host = test_host();
    let mut first = RawHolder::new(test_host.runtime(), test_host.pipe());
    first.say_hello(|hello| hello.client = [7; 32]);
    assert_eq!(first.read_frame().unwrap().0, FrameKind::Welcome);
    let mut second = RawHolder::new(test_host.runtime(), test_host.pipe());
    second.say_hello(|hello| hello.client = [7; 32]);
    assert_eq!(second.read_refusal(), (Refusal::Busy, true));
}

#[test]
fn an_attach_without_the_token_or_to_another_epoch_finds_no_session() {
    let test_host = test_host();
    let mut raw = RawHolder::new(test_host.runtime(), test_host.pipe());
    let mut client = [0; 32];
    raw.say_hello(|hello| client = hello.client);
    let (_, _, payload) = raw.read_frame().unwrap();
    let welcome = confide_lora::protocol::Welcome::decode(&payload).unwrap();
    let good = Attach { client, epoch: welcome.epoch, token: welcome.token };
    type Change = fn(&mut Attach);
    let cases: [Change; 3] = [|a| a.client[0] ^= 1, |a| a.epoch[0] ^= 1, |a| a.token[31] ^= 1];
    for change in cases {
        let mut wrong = good.clone();
        change(&mut wrong);
        let mut other = RawHolder::new(test_host.runtime(), test_host.pipe());
        other.attach(&wrong);
        assert_eq!(other.read_refusal(), (Refusal::NoSession, true));
    }
    let mut other = RawHolder::new(test_host.runtime(), test_host.pipe());
    other.attach(&good);
    let (kind, _, payload) = other.read_frame().unwrap();
    assert_eq!(kind, FrameKind::Attached);
    assert_eq!(AttachAnswer::decode(&payload).unwrap().connections, 2);
    // After a goodbye that ends the session, it cannot be joined.
    other.send(FrameKind::Goodbye, 9, |out| Goodbye { session: true }.encode(out));
    assert_eq!(other.read_frame().unwrap().0, FrameKind::Farewell);
    let mut late = RawHolder::new(test_host.runtime(), test_host.pipe());
    late.attach(&good);
    assert_eq!(late.read_refusal(), (Refusal::NoSession, true));
}

#[test]
fn a_counter_is_answered_once_and_only_where_it_was_prepared() {
    let test_host = test_host();
    let mut raw = RawHolder::new(test_host.runtime(), test_host.pipe());
    let opened = raw.open();
    let terms = opened.terms[0].clone();
    raw.apply(&terms, 0, 1);
    assert_eq!(raw.read_refusal(), (Refusal::NotPrepared, false));
    raw.prepare(&opened, 0);
    raw.apply(&terms, 3, 2);
    let (kind, _, payload) = raw.read_frame().unwrap();
    assert_eq!(kind, FrameKind::Products);
    assert_eq!(MaskedAnswer::decode(&payload).unwrap().vectors, 2);
    // The same frame again, as an attacker on the network might send it.
    raw.apply(&terms, 3, 2);
    assert_eq!(raw.read_refusal(), (Refusal::CounterUsed, false));
    // The refusal drops the batch: no other counter of it is answered.
    raw.apply(&terms, 9, 1);
    assert_eq!(raw.read_refusal(), (Refusal::NotPrepared, false));
    raw.prepare(&opened, 0);
    raw.apply(&terms, 256, 1);
    assert_eq!(raw.read_frame().unwrap().0, FrameKind::Products);
    raw.apply(&terms, 511, 2);
    assert_eq!(raw.read_refusal(), (Refusal::NotPrepared, false));
}

#[test]
fn two_sessions_do_not_share_counters() {
    let test_host = test_host();
    let mut first = RawHolder::new(test_host.runtime(), test_host.pipe());
    let opened = first.open();
    first.prepare(&opened, 0);
    let mut second = RawHolder::new(test_host.runtime(), test_host.pipe());
    let other = second.open();
    second.apply(&other.terms[0], 0, 1);
    assert_eq!(second.read_refusal(), (Refusal::NotPrepared, false));
}

#[test]
fn after_a_goodbye_no_connection_is_answered_and_every_answer_is_in_the_audit_log() {
    let test_host = test_host();
    let mut first = RawHolder::new(test_host.runtime(), test_host.pipe());
    let client = [7; 32];
    first.say_hello(|hello| hello.client = client);
    let opened = first.read_welcome();
    first.prepare(&opened, 0);
    let Welcome { epoch, token, .. } = opened.welcome;
    let mut second = RawHolder::new(test_host.runtime(), test_host.pipe());
    second.attach(&Attach { client, epoch, token });
    assert_eq!(second.read_frame().unwrap().0, FrameKind::Attached);
    second.apply(&opened.terms[0], 0, 2);
    assert_eq!(second.read_frame().unwrap().0, FrameKind::Products);
    let id = first.id();
    first.send(FrameKind::Goodbye, id, |out| out.push(1));
    assert_eq!(first.read_frame().unwrap().0, FrameKind::Farewell);
    assert_eq!(second.read_refusal(), (Refusal::NoSession, true));
    let lines: Vec<serde_json::Value> = test_host
        .host()
        .audit_lines()
        .iter()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let events: Vec<_> = lines.iter().filter_map(|line| line["event"].as_str()).collect();
    assert_eq!(events, ["hello", "prepared", "counted", "goodbye"]);
    assert_eq!(lines[2]["vectors"], 2);
}

#[test]
fn vectors_of_another_length_and_inputs_that_are_not_there_are_refused() {
    let test_host = test_host();
    let mut raw = RawHolder::new(test_host.runtime(), test_host.pipe());
    let opened = raw.open();
    let terms = opened.terms[0].clone();
    raw.apply_packed(99, terms.input, 0, 1, &[0; 198]);
    assert_eq!(raw.read_refusal(), (Refusal::NotOffered, false));
    raw.apply_packed(terms.layer, terms.input, 0, 1, &[0; 5]);
    assert_eq!(raw.read_refusal(), (Refusal::Malformed, true));
}

#[test]
fn the_budget_is_named_with_its_limit() {
    let test_host = test_host();
    let mut raw = RawHolder::new(test_host.runtime(), test_host.pipe());
    let opened = raw.open();
    let terms = opened.terms[0].clone();
    raw.prepare(&opened, 0);
    raw.apply(&terms, 0, 47);
    let (_, _, payload) = raw.read_frame().unwrap();
    assert_eq!(MaskedAnswer::decode(&payload).unwrap().budget_left, Some(0));
    raw.apply(&terms, 47, 1);
    assert_eq!(raw.read_refusal(), (Refusal::Budget { limit: 47 }, false));
}

#[test]
fn blocks_beyond_the_credit_or_out_of_order_end_the_connection() {
    let test_host = test_host();
    let length = {
        let raw = RawHolder::new(test_host.runtime(), test_host.pipe());
        SeededCiphertext::wire_bytes(raw.secret.context())
    };
    let bytes = vec![0; length];
    let mut raw = RawHolder::new(test_host.runtime(), test_host.pipe());
    let opened = raw.open();
    let id = raw.begin(&opened.terms[0]);
    let out_of_order = CiphertextBlock { first: 1, count: 1, ciphertexts: &bytes };
    raw.send(FrameKind::Block, id, |out| out_of_order.encode(out));
    assert_eq!(raw.read_refusal(), (Refusal::Malformed, true));
    // A block that belongs to no request.
    let mut raw = RawHolder::new(test_host.runtime(), test_host.pipe());
    raw.open();
    let lost = CiphertextBlock { first: 0, count: 1, ciphertexts: &bytes };
    raw.send(FrameKind::Block, 77, |out| lost.encode(out));
    assert_eq!(raw.read_refusal(), (Refusal::Malformed, true));
    const { assert!(WINDOW >= 2, "a batch of these tests is two blocks") };
}

#[test]
fn a_block_that_is_no_ciphertext_is_refused_and_its_batch_is_spent() {
    let test_host = test_host();
    let mut raw = RawHolder::new(test_host.runtime(), test_host.pipe());
    let opened = raw.open();
    let id = raw.begin(&opened.terms[0]);
    let junk = vec![0xa5; SeededCiphertext::wire_bytes(raw.secret.context())];
    let block = CiphertextBlock { first: 0, count: 1, ciphertexts: &junk };
    raw.send(FrameKind::Block, id, |out| block.encode(out));
    assert_eq!(raw.read_refusal(), (Refusal::Malformed, false));
    // The next batch has the next number, and the connection goes on.
    let batch = raw.prepare(&opened, 0);
    assert_eq!(batch.tokens_left(), 256);
    raw.apply(&opened.terms[0], 0, 1);
    assert_eq!(raw.read_refusal(), (Refusal::NotPrepared, false));
    raw.apply(&opened.terms[0], 256, 1);
    assert_eq!(raw.read_frame().unwrap().0, FrameKind::Products);
}

#[test]
fn one_preparation_at_a_time_for_each_connection_and_so_many_batches_for_each_input() {
    let test_host = test_host();
    let mut raw = RawHolder::new(test_host.runtime(), test_host.pipe());
    let opened = raw.open();
    raw.begin(&opened.terms[0]);
    raw.begin(&opened.terms[1]);
    assert_eq!(raw.read_refusal(), (Refusal::Busy, false));
    let mut raw = RawHolder::new(test_host.runtime(), test_host.pipe());
    let opened = raw.open();
    for _ in 0..confide_lora::host::BATCHES_MAX {
        raw.prepare(&opened, 0);
    }
    raw.begin(&opened.terms[0]);
    assert_eq!(raw.read_refusal(), (Refusal::Busy, false));
}

#[test]
fn the_schemes_of_one_session_do_not_mix() {
    let test_host = test_host();
    let mut raw = RawHolder::new(test_host.runtime(), test_host.pipe());
    let opened = raw.open();
    let direct = confide_lora::protocol::CiphertextRequest {
        layer: 0,
        input: opened.terms[0].input,
        tile_inputs: 16,
        tile_rows: 4,
        ciphertexts: &[0],
    };
    raw.send(FrameKind::Direct, 5, |out| direct.encode(out));
    assert_eq!(raw.read_refusal(), (Refusal::NotOffered, false));
    let mut raw = RawHolder::new(test_host.runtime(), test_host.pipe());
    raw.say_hello(|hello| hello.scheme = Scheme::Direct);
    // The key is of the masked scheme, which has other plaintext bits.
    assert_eq!(raw.read_refusal(), (Refusal::Malformed, true));
}

#[test]
fn a_host_with_a_list_knows_nobody_else() {
    let digest = "2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b";
    let clients = ClientList::parse(&format!("alice {digest}")).unwrap();
    let options = HostOptions { clients, ..host_options() };
    let test_host = TestHost::new(options, &[&adapter("banking", 48)]);
    let mut raw = RawHolder::new(test_host.runtime(), test_host.pipe());
    raw.say_hello(|_| ());
    assert_eq!(raw.read_refusal(), (Refusal::UnknownAdapter, true));
    let mut raw = RawHolder::new(test_host.runtime(), test_host.pipe());
    raw.say_hello(|hello| hello.credential = b"secret");
    assert_eq!(raw.read_frame().unwrap().0, FrameKind::Welcome);
}

#[test]
fn a_host_that_stops_says_so() {
    let test_host = test_host();
    let mut raw = RawHolder::new(test_host.runtime(), test_host.pipe());
    raw.open();
    test_host.host().stop();
    assert_eq!(raw.read_refusal(), (Refusal::Stopping, true));
}

#[test]
fn request_id_0_and_answers_in_the_wrong_direction_end_the_connection() {
    let test_host = test_host();
    for (kind, id) in [(FrameKind::Goodbye, 0), (FrameKind::Welcome, 5)] {
        let mut raw = RawHolder::new(test_host.runtime(), test_host.pipe());
        raw.open();
        raw.send(kind, id, |out| out.push(0));
        assert_eq!(raw.read_refusal(), (Refusal::Malformed, true));
    }
}
