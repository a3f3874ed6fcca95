//! Evidence over the session: what is accepted, and what is refused by which error.

mod fakes;

use std::sync::Arc;

use confide_channel::{
    AttestedClientStream, BatchLimits, Binding, ChannelError, ChannelPhase, Client, ClientOptions,
    ErrorOrigin, FRAME_BYTES_MAX, LivePeer, LiveSession, PlainClient, QuoteBatcher, Server,
};
use confide_evidence::{
    binder::{EXPORTER_LABEL, Role, key_report_data, session_report_data},
    session_message::{Refusal, SessionEvidence, SessionMessage, SessionMessageError},
};
use fakes::{cheat::*, *};
use rustls::CipherSuite;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt, DuplexStream},
    net::{TcpListener, TcpStream},
};
use tokio_rustls::TlsAcceptor;

#[tokio::test]
async fn the_server_prefers_a_cipher_suite_with_sha_256_whatever_the_client_prefers() {
    let (near, far) = wire();
    let server = server(Binding::Session);
    let opening = async {
        let stream = raw_client(near).await;
        stream.get_ref().1.negotiated_cipher_suite().unwrap().suite()
    };
    let (suite, accepted) = tokio::join!(opening, server.accept(far));
    assert_eq!(suite, CipherSuite::TLS13_AES_128_GCM_SHA256);
    assert!(accepted.is_err(), "the client has asked for nothing and left");
}

#[tokio::test]
async fn a_stream_comes_with_what_was_accepted() {
    let attester = FakeAttester { collateral: Some(vec![b' '; 70_000]), ..Default::default() };
    let server = server_with(Binding::Session, LONG, attester);
    let client = client(Binding::Session);
    let (near, far) = wire();
    let (attested, accepted) = tokio::join!(client.connect("localhost", near), server.accept(far));
    let (attested, accepted) = (attested.unwrap(), accepted.unwrap());
    assert_eq!(attested.appraisal().claims.config_digest, [5; 32]);
    // More than a certificate could carry.
    assert_eq!(attested.appraisal().collateral.as_ref().map(Vec::len), Some(70_000));
    assert_eq!(attested.timings().round_trips, 3);
    assert_eq!(accepted.timings.round_trips, 3);
    let session = attested.into_parts().0;
    assert_eq!(session.get_ref().1.tls13_tickets_received(), 0);
    echo(session, accepted.stream).await;
}

#[tokio::test]
async fn it_works_over_tcp() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let near = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
    let (far, _) = listener.accept().await.unwrap();
    let (server, client) = (server(Binding::Session), client(Binding::Session));
    let (attested, accepted) = tokio::join!(client.connect("127.0.0.1", near), server.accept(far));
    echo(attested.unwrap().into_parts().0, accepted.unwrap().stream).await;
}

#[tokio::test]
async fn both_ends_can_attest_and_appraise() {
    let (attested, accepted) = mutual(&server(Binding::Session)).await;
    let (attested, accepted) = (attested.unwrap(), accepted.unwrap());
    assert_eq!(attested.appraisal().claims.config_digest, [5; 32]);
    assert_eq!(accepted.appraisal().claims.config_digest, [6; 32]);
    assert_eq!(attested.timings().round_trips, 4);
    assert_eq!(accepted.timings().round_trips, 4);
    echo(attested.into_parts().0, accepted.into_parts().0).await;
}

#[tokio::test]
async fn only_the_client_can_attest() {
    let options = server_options(Binding::Session);
    let server = Server::without_evidence(options, clock).unwrap();
    let options = ClientOptions { binding: Binding::None, deadline: LONG };
    let client = PlainClient::new(options, &server.certificate_der(), clock).unwrap();
    let client = client.with_evidence(client_evidence()).unwrap();
    let (near, far) = wire();
    let appraiser = FakeAppraiser::default();
    let accepting = server.accept_attested(&appraiser, far);
    let (connected, accepted) = tokio::join!(client.connect("localhost", near), accepting);
    let (connected, accepted) = (connected.unwrap(), accepted.unwrap());
    assert_eq!(accepted.appraisal().claims.config_digest, [6; 32]);
    assert_eq!(connected.timings.round_trips, 4);
    echo(connected.stream, accepted.into_parts().0).await;
}

#[tokio::test]
async fn a_server_without_evidence_says_so_to_a_client_that_demands_it() {
    let server = Server::without_evidence(server_options(Binding::Session), clock).unwrap();
    let (attested, accepted) = mutual(&server).await;
    let error = attested.unwrap_err();
    let refusal = Refusal::NoAttester;
    assert!(matches!(error, ChannelError::Refused { refusal: got, .. } if got == refusal));
    assert!(matches!(accepted, Err(ChannelError::NoAttester { .. })));
    let (_near, far) = wire();
    assert!(matches!(server.accept(far).await, Err(ChannelError::NoAttester { .. })));
}

#[tokio::test]
async fn a_client_without_evidence_is_refused_where_it_is_demanded() {
    let (server, client) = (server(Binding::Session), client(Binding::Session));
    let appraiser = FakeAppraiser::default();
    let (near, far) = wire();
    let accepting = server.accept_attested(&appraiser, far);
    let (attested, accepted) = tokio::join!(client.connect("localhost", near), accepting);
    assert!(matches!(attested, Err(ChannelError::NoAttester { .. })), "{attested:?}");
    assert!(matches!(accepted, Err(ChannelError::Tls(rustls::Error::NoCertificatesPresented))));
}

#[tokio::test]
async fn evidence_from_another_session_is_rejected() {
    let server = server(Binding::Session);
    let recorder = Arc::new(FakeAppraiser::default());
    let options = ClientOptions { binding: Binding::Session, deadline: LONG };
    let client = Client::new(options, recorder.clone()).unwrap();
    let (near, far) = wire();
    let (attested, _accepted) = tokio::join!(client.connect("localhost", near), server.accept(far));
    attested.unwrap();
    let recorded = recorder.seen.lock().unwrap()[0].clone();
    // The worst case: the replaying server even holds the key that the evidence is about.
    let error = Cheat::new().answer(|cheat, _exporter, _peer| (recorded, cheat.claims())).await;
    assert_eq!(error.rejection(), Some(&FakeRejection::ReportData));
}

#[tokio::test]
async fn evidence_over_another_context_is_rejected() {
    let error = Cheat::new()
        .answer(|cheat, exporter, _peer| {
            let other = exporter(&[0; 32]);
            let data = session_report_data(Role::Server, &cheat.hash(), &other, &cheat.claims());
            (quote(&data), cheat.claims())
        })
        .await;
    assert_eq!(error.rejection(), Some(&FakeRejection::ReportData));
}

#[tokio::test]
async fn evidence_in_the_wrong_role_is_rejected() {
    let error = Cheat::new()
        .answer(|cheat, exporter, context| {
            let exported = exporter(&context);
            let data = session_report_data(Role::Client, &cheat.hash(), &exported, &cheat.claims());
            (quote(&data), cheat.claims())
        })
        .await;
    assert_eq!(error.rejection(), Some(&FakeRejection::ReportData));
}

#[tokio::test]
async fn evidence_in_the_right_role_is_accepted_from_the_same_hand() {
    // The honest case passes, so the tests around this one fail for the reason that they name.
    let cheat = Cheat::new();
    let result = cheat
        .try_answer(client(Binding::Session), |cheat, exporter, context| {
            let exported = exporter(&context);
            let data = session_report_data(Role::Server, &cheat.hash(), &exported, &cheat.claims());
            (quote(&data), cheat.claims())
        })
        .await;
    assert!(result.is_ok(), "{result:?}");
}

#[tokio::test]
async fn evidence_about_another_key_is_refused() {
    let error = Cheat::new()
        .answer(|_cheat, exporter, context| {
            let claims = claims([1; 32]);
            let data = session_report_data(Role::Server, &[1; 32], &exporter(&context), &claims);
            (quote(&data), claims)
        })
        .await;
    assert!(matches!(error, ChannelError::KeyMismatch { .. }), "{error:?}");
}

#[tokio::test]
async fn a_client_whose_own_evidence_comes_back_says_so() {
    let client = client(Binding::Session).with_evidence(client_evidence()).unwrap();
    let (near, far) = wire();
    // All that a reflecting server can show here is evidence about the client's key.
    let cheating = async {
        let config = cheat_config(&Cheat::new(), true);
        let mut stream = TlsAcceptor::from(Arc::new(config)).accept(far).await.unwrap();
        let peer = stream.get_ref().1.peer_certificates().unwrap()[0].to_vec();
        let request = read_frame(&mut stream).await;
        let Ok(SessionMessage::Request { context: Some(context) }) =
            SessionMessage::decode(&request)
        else {
            panic!("no request");
        };
        let hash = spki_hash(&peer);
        let session = stream.get_ref().1;
        let exporter =
            session.export_keying_material([0; 32], EXPORTER_LABEL, Some(&context)).unwrap();
        let claims = claims(hash);
        let quote = quote(&session_report_data(Role::Client, &hash, &exporter, &claims));
        send(&mut stream, &reply(&quote, &claims)).await;
        let _ = stream.read_u8().await;
    };
    let (attested, ()) = tokio::join!(client.connect("localhost", near), cheating);
    let error = attested.unwrap_err();
    assert!(matches!(error, ChannelError::Reflected), "{error:?}");
}

#[tokio::test]
async fn a_server_whose_own_evidence_comes_back_says_so() {
    let server = server(Binding::Session);
    let appraiser = FakeAppraiser::default();
    let (near, far) = wire();
    let reflecting = async {
        let mut stream = raw_client(near).await;
        // Without a request of its own context it would have nothing to send back.
        send(&mut stream, &SessionMessage::Request { context: Some([7; 32]) }).await;
        let reply = read_frame(&mut stream).await;
        let Ok(SessionMessage::Reply { evidence: Some(evidence), .. }) =
            SessionMessage::decode(&reply)
        else {
            panic!("no evidence");
        };
        send(&mut stream, &SessionMessage::Evidence(evidence)).await;
        read_frame(&mut stream).await
    };
    let accepting = server.accept_attested(&appraiser, far);
    let (answer, accepted) = tokio::join!(reflecting, accepting);
    assert!(matches!(accepted, Err(ChannelError::Reflected)));
    let wanted = SessionMessage::Refused(Refusal::EvidenceRejected);
    assert_eq!(SessionMessage::decode(&answer), Ok(wanted));
    assert!(appraiser.seen.lock().unwrap().is_empty(), "nothing was appraised");
}

#[tokio::test]
async fn a_client_is_accepted_in_its_own_role_only() {
    let server = server(Binding::Session);
    for role in [Role::Client, Role::Server] {
        let appraiser = FakeAppraiser::default();
        let (near, far) = wire();
        let attesting = async {
            let cheat = Cheat::new();
            let mut stream = raw_client_with(&cheat, near).await;
            send(&mut stream, &SessionMessage::Request { context: None }).await;
            let reply = read_frame(&mut stream).await;
            let Ok(SessionMessage::Reply { context: Some(context), evidence: None }) =
                SessionMessage::decode(&reply)
            else {
                panic!("no context");
            };
            let session = stream.get_ref().1;
            let exporter =
                session.export_keying_material([0; 32], EXPORTER_LABEL, Some(&context)).unwrap();
            let claims = cheat.claims();
            let quote = quote(&session_report_data(role, &cheat.hash(), &exporter, &claims));
            let evidence = SessionEvidence { quote: &quote, claims: &claims, ..Default::default() };
            send(&mut stream, &SessionMessage::Evidence(evidence)).await;
            stream
        };
        let accepting = server.accept_attested(&appraiser, far);
        let (_stream, accepted) = tokio::join!(attesting, accepting);
        match role {
            Role::Client => assert!(accepted.is_ok()),
            Role::Server => {
                let error = accepted.map(drop).unwrap_err();
                assert_eq!(error.rejection(), Some(&FakeRejection::ReportData));
            }
        }
    }
}

#[tokio::test]
async fn a_context_of_another_length_is_refused_and_the_client_told() {
    let server = server(Binding::Session);
    let (near, far) = wire();
    let asking = async {
        let mut stream = raw_client(near).await;
        // [1, 16 bytes]
        let mut message = vec![0x82, 0x01, 0x50];
        message.resize(19, 7);
        send_frame(&mut stream, &message).await;
        read_frame(&mut stream).await
    };
    let (answer, accepted) = tokio::join!(asking, server.accept(far));
    let wanted = SessionMessage::Refused(Refusal::ContextLength);
    assert_eq!(SessionMessage::decode(&answer), Ok(wanted));
    let error = accepted.map(drop).unwrap_err();
    let source = SessionMessageError::ContextLength { wanted: 32, got: 16 };
    assert!(
        matches!(&error, ChannelError::Message { source: got, .. } if *got == source),
        "{error:?}"
    );
}

#[tokio::test]
async fn an_oversized_frame_is_refused_before_it_is_read() {
    // A request is 35 bytes: a stranger does not get the room of a frame with evidence.
    for length in [FRAME_BYTES_MAX + 1, FRAME_BYTES_MAX, 1025] {
        let server = server(Binding::Session);
        let (near, far) = wire();
        let asking = async {
            let mut stream = raw_client(near).await;
            stream.write_u32(length as u32).await.unwrap();
            stream.flush().await.unwrap();
            read_frame(&mut stream).await
        };
        let (answer, accepted) = tokio::join!(asking, server.accept(far));
        let refused = SessionMessage::Refused(Refusal::Malformed);
        assert_eq!(SessionMessage::decode(&answer), Ok(refused));
        let error = accepted.map(drop).unwrap_err();
        let ChannelError::FrameLength { phase, got, .. } = error else { panic!("{error:?}") };
        assert_eq!((phase, got), (ChannelPhase::Request, length));
    }
}

#[tokio::test]
async fn a_truncated_frame_and_a_message_out_of_order_are_named() {
    let server = server(Binding::Session);
    let (near, far) = wire();
    let asking = async {
        let mut stream = raw_client(near).await;
        stream.write_all(&[0, 0, 0, 9, 1]).await.unwrap();
        stream.shutdown().await.unwrap();
        stream
    };
    let (_stream, accepted) = tokio::join!(asking, server.accept(far));
    assert!(matches!(accepted, Err(ChannelError::UnexpectedEnd { phase: ChannelPhase::Request })));
    let (near, far) = wire();
    let asking = async {
        let mut stream = raw_client(near).await;
        send(&mut stream, &SessionMessage::Accepted).await;
        stream
    };
    let (_stream, accepted) = tokio::join!(asking, server.accept(far));
    let phase = ChannelPhase::Request;
    assert!(matches!(accepted, Err(ChannelError::MessageKind { phase: got, .. }) if got == phase));
}

#[tokio::test]
async fn a_peer_of_another_protocol_is_refused() {
    let (server, client) = (server(Binding::Key), client(Binding::Session));
    let (near, far) = wire();
    let (attested, accepted) = tokio::join!(client.connect("localhost", near), server.accept(far));
    assert!(matches!(attested, Err(ChannelError::Tls(rustls::Error::AlertReceived(_)))));
    assert!(matches!(accepted, Err(ChannelError::Tls(_))));
}

#[tokio::test]
async fn a_failing_attester_is_named_at_both_ends() {
    let attester = FakeAttester { failing: true.into(), ..Default::default() };
    let server = server_with(Binding::Session, LONG, attester);
    let client = client(Binding::Session);
    let (near, far) = wire();
    let (attested, accepted) = tokio::join!(client.connect("localhost", near), server.accept(far));
    assert!(matches!(accepted, Err(ChannelError::Attester(_))));
    let wanted = Refusal::EvidenceUnavailable;
    assert!(matches!(attested, Err(ChannelError::Refused { refusal, .. }) if refusal == wanted));
}

#[tokio::test]
async fn an_empty_quote_is_refused() {
    let attester = FakeAttester { empty: true, ..Default::default() };
    let server = server_with(Binding::Session, LONG, attester);
    let client = client(Binding::Session);
    let (near, far) = wire();
    let (attested, accepted) = tokio::join!(client.connect("localhost", near), server.accept(far));
    let error = accepted.map(drop).unwrap_err();
    assert!(matches!(error, ChannelError::OwnEvidence { part: "quote", got: 0, .. }), "{error:?}");
    assert_eq!(error.origin(), ErrorOrigin::Local);
    let wanted = Refusal::EvidenceUnavailable;
    assert!(matches!(attested, Err(ChannelError::Refused { refusal, .. }) if refusal == wanted));
}

#[tokio::test]
async fn an_empty_quote_of_a_peer_is_refused() {
    let error = Cheat::new().answer(|cheat, _exporter, _context| (vec![], cheat.claims())).await;
    let wanted = SessionMessageError::Empty { member: "quote" };
    assert!(matches!(&error, ChannelError::Message { source, .. } if *source == wanted));
}

#[tokio::test]
async fn a_quote_over_a_key_is_not_one_over_a_session() {
    let error = Cheat::new()
        .answer(|cheat, _exporter, _context| {
            let claims = cheat.claims();
            (quote(&key_report_data(&claims)), claims)
        })
        .await;
    assert_eq!(error.rejection(), Some(&FakeRejection::ReportData));
}

#[tokio::test]
async fn a_server_that_names_no_protocol_is_refused() {
    let mut config = cheat_config(&Cheat::new(), false);
    config.alpn_protocols.clear();
    let client = client(Binding::Session);
    let (near, far) = wire();
    let accepting = TlsAcceptor::from(Arc::new(config)).accept(far);
    let (attested, _accepted) = tokio::join!(client.connect("localhost", near), accepting);
    assert!(matches!(attested, Err(ChannelError::Protocol { got: None, .. })), "{attested:?}");
}

#[tokio::test(start_paused = true)]
async fn a_client_that_drips_ends_in_the_same_timeout() {
    let server = server_with(Binding::Session, SHORT, FakeAttester::default());
    let (near, far) = wire();
    let dripping = async {
        let mut stream = raw_client(near).await;
        stream.write_u32(1024).await.unwrap();
        while stream.write_all(&[0]).await.is_ok() && stream.flush().await.is_ok() {
            tokio::time::sleep(SHORT / 10).await;
        }
    };
    let accepting = async { server.accept(far).await.map(drop) };
    let (accepted, ()) = tokio::join!(accepting, dripping);
    let error = accepted.unwrap_err();
    assert!(
        matches!(error, ChannelError::Timeout { phase: ChannelPhase::Request, .. }),
        "{error:?}"
    );
}

#[tokio::test]
async fn a_slow_attester_ends_in_a_timeout_at_both_ends() {
    let device = Arc::new(GatedAttester::default());
    let options = server_options(Binding::Session);
    let server = Server::new(options, Some(device.clone()), clock).unwrap();
    // Longer than the server's own deadline.
    let limits = BatchLimits { wait: 2 * LONG, ..BatchLimits::default() };
    let batcher = QuoteBatcher::with_limits(device.clone(), limits).unwrap();
    let server = server.with_batcher(batcher).unwrap();
    let client = client_within(Binding::Session, 2 * LONG);
    let (near, far) = wire();
    // Time passes once the device has been asked: what came before needs no clock.
    let passing = async {
        device.until_asked(1).await;
        tokio::time::pause();
        tokio::time::advance(LONG).await;
    };
    let (attested, accepted, ()) =
        tokio::join!(client.connect("localhost", near), server.accept(far), passing);
    device.let_through(1);
    let error = accepted.map(drop).unwrap_err();
    assert!(matches!(error, ChannelError::Timeout { phase: ChannelPhase::Quote, .. }), "{error:?}");
    assert_eq!(error.origin(), ErrorOrigin::Local);
    assert!(attested.is_err());
}

#[tokio::test(start_paused = true)]
async fn a_client_that_stalls_is_named_by_its_phase() {
    let server = server_with(Binding::Session, SHORT, FakeAttester::default());
    let (near, far) = wire();
    let (_silent, accepted) = tokio::join!(raw_client(near), server.accept(far));
    let error = accepted.map(drop).unwrap_err();
    assert!(
        matches!(error, ChannelError::Timeout { phase: ChannelPhase::Request, .. }),
        "{error:?}"
    );
    // A length and nothing after it.
    let (near, far) = wire();
    let asking = async {
        let mut stream = raw_client(near).await;
        stream.write_u32(40).await.unwrap();
        stream.flush().await.unwrap();
        stream
    };
    let (_silent, accepted) = tokio::join!(asking, server.accept(far));
    let error = accepted.map(drop).unwrap_err();
    assert!(
        matches!(error, ChannelError::Timeout { phase: ChannelPhase::Request, .. }),
        "{error:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_server_that_stalls_is_named_by_its_phase() {
    let client = client_within(Binding::Session, SHORT);
    let (near, far) = wire();
    let stalling = async {
        let config = cheat_config(&Cheat::new(), false);
        TlsAcceptor::from(Arc::new(config)).accept(far).await.unwrap()
    };
    let (attested, _silent) = tokio::join!(client.connect("localhost", near), stalling);
    let error = attested.map(drop).unwrap_err();
    assert!(
        matches!(error, ChannelError::Timeout { phase: ChannelPhase::Evidence, .. }),
        "{error:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_server_that_keeps_its_verdict_is_named() {
    let client = client_within(Binding::Session, SHORT).with_evidence(client_evidence()).unwrap();
    let (near, far) = wire();
    let stalling = async {
        let cheat = Cheat::new();
        let config = cheat_config(&cheat, true);
        let mut stream = TlsAcceptor::from(Arc::new(config)).accept(far).await.unwrap();
        let request = read_frame(&mut stream).await;
        let Ok(SessionMessage::Request { context: Some(context) }) =
            SessionMessage::decode(&request)
        else {
            panic!("no request");
        };
        let session = stream.get_ref().1;
        let exporter =
            session.export_keying_material([0; 32], EXPORTER_LABEL, Some(&context)).unwrap();
        let claims = cheat.claims();
        let data = session_report_data(Role::Server, &cheat.hash(), &exporter, &claims);
        let evidence =
            SessionEvidence { quote: &quote(&data), claims: &claims, ..Default::default() };
        let context = Some([9; 32]);
        send(&mut stream, &SessionMessage::Reply { context, evidence: Some(evidence) }).await;
        stream
    };
    let (attested, _silent) = tokio::join!(client.connect("localhost", near), stalling);
    let error = attested.map(drop).unwrap_err();
    assert!(
        matches!(error, ChannelError::Timeout { phase: ChannelPhase::Verdict, .. }),
        "{error:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_client_that_keeps_its_evidence_is_named() {
    let server = server_with(Binding::Session, SHORT, FakeAttester::default());
    let appraiser = FakeAppraiser::default();
    let (near, far) = wire();
    let stalling = async {
        let mut stream = raw_client(near).await;
        send(&mut stream, &SessionMessage::Request { context: None }).await;
        let reply = read_frame(&mut stream).await;
        let wanted = matches!(
            SessionMessage::decode(&reply),
            Ok(SessionMessage::Reply { context: Some(_), evidence: None })
        );
        assert!(wanted);
        stream
    };
    let accepting = server.accept_attested(&appraiser, far);
    let (_silent, accepted) = tokio::join!(stalling, accepting);
    let error = accepted.map(drop).unwrap_err();
    assert!(
        matches!(error, ChannelError::Timeout { phase: ChannelPhase::Evidence, .. }),
        "{error:?}"
    );
}

#[tokio::test]
async fn a_rejected_client_is_told() {
    let server = server(Binding::Session);
    let client = client(Binding::Session).with_evidence(client_evidence()).unwrap();
    let appraiser = FakeAppraiser { now: Some(0), ..Default::default() };
    let (near, far) = wire();
    let accepting = server.accept_attested(&appraiser, far);
    let (attested, accepted) = tokio::join!(client.connect("localhost", near), accepting);
    let error = accepted.map(drop).unwrap_err();
    assert_eq!(error.rejection(), Some(&FakeRejection::Validity));
    let wanted = Refusal::EvidenceRejected;
    assert!(matches!(attested, Err(ChannelError::Refused { refusal, .. }) if refusal == wanted));
}

/// A server of this crate that demands evidence, and a client of this crate that has some.
async fn mutual(
    server: &Server,
) -> (
    Result<FakeAttested, ChannelError>,
    Result<AttestedClientStream<DuplexStream, FakeAppraised>, ChannelError>,
) {
    let client = client(Binding::Session).with_evidence(client_evidence()).unwrap();
    let appraiser = FakeAppraiser::default();
    let (near, far) = wire();
    tokio::join!(client.connect("localhost", near), server.accept_attested(&appraiser, far))
}

/// Both ends of an open session, and what gives and asks for fresh evidence in it.
async fn live_ends(server: &Server) -> (LiveSession, LivePeer) {
    let client = client(Binding::Session);
    let (near, far) = wire();
    let (attested, accepted) = tokio::join!(client.connect("localhost", near), server.accept(far));
    (accepted.unwrap().live.unwrap(), attested.unwrap().take_live_peer().unwrap())
}

#[tokio::test]
async fn an_open_session_gives_fresh_evidence_as_often_as_it_is_asked() {
    let attester = FakeAttester { gpu: Some(b"gpu".to_vec()), ..Default::default() };
    let server = server_with(Binding::Session, LONG, attester);
    let (live, peer) = live_ends(&server).await;
    let appraiser = FakeAppraiser::default();
    for _ in 0..2 {
        let request = peer.request_evidence().unwrap();
        let reply = live.answer(&request.encode(), LONG).await.unwrap();
        let appraised = peer.appraise_reply(request, &reply, &appraiser).unwrap();
        assert_eq!(appraised.claims.config_digest, [5; 32]);
        assert!(appraised.gpu.is_some());
    }
    let quotes = appraiser.seen.lock().unwrap().clone();
    assert_ne!(quotes[0], quotes[1]);
}

#[tokio::test]
async fn fresh_evidence_of_another_request_or_session_is_rejected() {
    let server = server(Binding::Session);
    let (live, peer) = live_ends(&server).await;
    let (_, other_peer) = live_ends(&server).await;
    let appraiser = FakeAppraiser::default();
    let asked = peer.request_evidence().unwrap();
    let reply = live.answer(&asked.encode(), LONG).await.unwrap();
    for (peer, request) in [(&peer, peer.request_evidence().unwrap()), (&other_peer, asked)] {
        let error = peer.appraise_reply(request, &reply, &appraiser).unwrap_err();
        assert_eq!(error.rejection(), Some(&FakeRejection::ReportData));
    }
}

#[tokio::test]
async fn the_evidence_of_the_beginning_is_no_fresh_evidence() {
    let server = server(Binding::Session);
    let recorder = Arc::new(FakeAppraiser::default());
    let options = ClientOptions { binding: Binding::Session, deadline: LONG };
    let client = Client::new(options, recorder.clone()).unwrap();
    let (near, far) = wire();
    let (attested, _accepted) = tokio::join!(client.connect("localhost", near), server.accept(far));
    let mut attested = attested.unwrap();
    let claims = attested.appraisal().claims.encode();
    let peer = attested.take_live_peer().unwrap();
    assert!(attested.take_live_peer().is_none());
    let quote = recorder.seen.lock().unwrap()[0].clone();
    let evidence = SessionEvidence {
        quote: &quote,
        claims: &claims,
        collateral: None,
        batch: None,
        gpu: None,
    };
    let replayed = SessionMessage::Reply { context: None, evidence: Some(evidence) }.encode();
    let request = peer.request_evidence().unwrap();
    let error = peer.appraise_reply(request, &replayed, &*recorder).unwrap_err();
    assert_eq!(error.rejection(), Some(&FakeRejection::ReportData));
}

#[tokio::test]
async fn malformed_requests_and_replies_give_no_evidence() {
    let server = server(Binding::Session);
    let (live, peer) = live_ends(&server).await;
    let no_context = SessionMessage::Request { context: None }.encode();
    for request in [&b""[..], b"\x00", &no_context, &SessionMessage::Accepted.encode()] {
        let error = live.answer(request, LONG).await.unwrap_err();
        assert_eq!(error.origin(), ErrorOrigin::Peer, "{error:?}");
    }
    let none = SessionMessage::Reply { context: None, evidence: None }.encode();
    let appraiser = FakeAppraiser::default();
    for reply in [&b""[..], &none, &SessionMessage::Accepted.encode()] {
        let request = peer.request_evidence().unwrap();
        let error = peer.appraise_reply(request, reply, &appraiser).unwrap_err();
        assert_eq!(error.origin(), ErrorOrigin::Peer, "{error:?}");
    }
    assert!(appraiser.seen.lock().unwrap().is_empty());
}

#[tokio::test]
async fn a_server_with_an_appraiser_accepts_only_clients_whose_evidence_it_accepts() {
    let demanding = || server(Binding::Session).with_client_appraiser(FakeAppraiser::default());
    let server = demanding().unwrap();
    let options = ClientOptions { binding: Binding::Session, deadline: LONG };
    let client = Client::new(options, Arc::new(FakeAppraiser::default())).unwrap();
    let client = client.with_evidence(client_evidence()).unwrap();
    let (near, far) = wire();
    let (attested, accepted) = tokio::join!(client.connect("localhost", near), server.accept(far));
    echo(attested.unwrap().into_parts().0, accepted.unwrap().stream).await;
    let (near, far) = wire();
    let stranger = self::client(Binding::Session);
    let (attested, accepted) =
        tokio::join!(stranger.connect("localhost", near), server.accept(far));
    assert!(attested.is_err() && accepted.is_err());
    let expired = FakeAppraiser { now: Some(NOW + 1_000_000), ..Default::default() };
    let server = self::server(Binding::Session).with_client_appraiser(expired).unwrap();
    let (near, far) = wire();
    let (attested, accepted) = tokio::join!(client.connect("localhost", near), server.accept(far));
    assert!(attested.is_err());
    assert_eq!(accepted.err().unwrap().origin(), ErrorOrigin::Evidence);
    let keyed = self::server(Binding::Key).with_client_appraiser(FakeAppraiser::default());
    assert!(matches!(keyed.err(), Some(ChannelError::Binding { wanted: "session", .. })));
}
