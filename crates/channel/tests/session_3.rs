//! Version 3 of session binding: evidence in exported authenticators, with the guarantees, round trips
//! and batches of version 2.

mod fakes;

use std::sync::{Arc, atomic::Ordering};

use ::aws_lc_rs::{
    digest::{SHA256, SHA384, digest},
    hmac,
};
use confide_channel::{
    AttestedClientStream, Binding, ChannelError, Client, ClientOptions, ErrorOrigin, LivePeer,
    LiveSession, Server, SessionVersion,
};
use confide_evidence::{
    ReportData,
    authenticator::{AuthenticatorAnswer, AuthenticatorError, AuthenticatorRequest},
    binder::Role,
    cmw::parse_cmw,
    evidence_wrapper::EvidenceWrapper,
    session_message::{Refusal, SessionMessage},
    session_message_3::SessionMessage3,
};
use der::{Decode, Encode};
use fakes::{cheat::*, *};
use tokio::io::DuplexStream;

const V3: &[SessionVersion] = &[SessionVersion::V3];

fn client_3() -> Client<FakeAppraiser> {
    client(Binding::Session).with_session_versions(V3).unwrap()
}

fn server_3(attester: FakeAttester) -> Server {
    server_with(Binding::Session, LONG, attester).with_session_versions(V3).unwrap()
}

async fn connect(
    client: &Client<FakeAppraiser>,
    server: &Server,
) -> (Result<FakeAttested, ChannelError>, Option<LiveSession>) {
    let (near, far) = wire();
    let (attested, accepted) = tokio::join!(client.connect("localhost", near), server.accept(far));
    (attested, accepted.ok().and_then(|accepted| accepted.live))
}

#[tokio::test]
async fn a_stream_comes_with_what_was_accepted_in_three_round_trips() {
    let attester = FakeAttester {
        collateral: Some(vec![b' '; 70_000]),
        gpu: Some(vec![7; 50_000]),
        ..Default::default()
    };
    let (server, client) = (server_3(attester), client_3());
    let (near, far) = wire();
    let (attested, accepted) = tokio::join!(client.connect("localhost", near), server.accept(far));
    let (attested, accepted) = (attested.unwrap(), accepted.unwrap());
    // More than an authenticator could carry: both travel next to it.
    assert_eq!(attested.appraisal().collateral.as_ref().map(Vec::len), Some(70_000));
    assert_eq!(attested.appraisal().gpu.as_ref().map(Vec::len), Some(50_032));
    assert_eq!(attested.appraisal().claims.config_digest, [5; 32]);
    assert_eq!((attested.timings().round_trips, accepted.timings.round_trips), (3, 3));
    let session = attested.into_parts().0;
    assert_eq!(session.get_ref().1.alpn_protocol(), Some(&b"confide-session/3"[..]));
    assert_eq!(session.get_ref().1.tls13_tickets_received(), 0);
    echo(session, accepted.stream).await;
}

#[tokio::test]
async fn both_ends_can_attest_in_four_round_trips() {
    let (attested, accepted) = mutual(&server_3(FakeAttester::default())).await;
    let (attested, accepted) = (attested.unwrap(), accepted.unwrap());
    assert_eq!(attested.appraisal().claims.config_digest, [5; 32]);
    assert_eq!(accepted.appraisal().claims.config_digest, [6; 32]);
    assert_eq!((attested.timings().round_trips, accepted.timings().round_trips), (4, 4));
    echo(attested.into_parts().0, accepted.into_parts().0).await;
}

#[tokio::test]
async fn a_server_chooses_version_2_for_a_client_that_offers_all() {
    let (attested, live) = connect(&client(Binding::Session), &server(Binding::Session)).await;
    assert!(live.is_some());
    let session = attested.unwrap().into_parts().0;
    assert_eq!(session.get_ref().1.alpn_protocol(), Some(&b"confide-session/2"[..]));
}

#[tokio::test]
async fn ends_without_a_common_version_do_not_connect() {
    let only_2 = client(Binding::Session).with_session_versions(&[SessionVersion::V2]).unwrap();
    let (attested, live) = connect(&only_2, &server_3(FakeAttester::default())).await;
    assert!(matches!(attested, Err(ChannelError::Tls(_))) && live.is_none());
    let keyed = client(Binding::Key).with_session_versions(V3);
    assert!(matches!(keyed.err(), Some(ChannelError::Binding { wanted: "session", .. })));
    let none = server(Binding::Session).with_session_versions(&[]);
    assert!(matches!(none.err(), Some(ChannelError::Option { .. })));
}

#[tokio::test]
async fn sessions_of_versions_2_and_3_share_a_quote() {
    let gated = Arc::new(GatedAttester::default());
    let options = server_options(Binding::Session);
    let server = Server::new(options, Some(gated.clone()), clock).unwrap();
    let (lone, clients) = (client_3(), [client_3(), client(Binding::Session), client_3()]);
    let others = async {
        gated.until_asked(1).await;
        futures_util::future::join_all(clients.iter().map(|client| connect(client, &server))).await
    };
    let letting = async {
        gated.until_asked(1).await;
        while server.batcher().unwrap().counts().waiting < 3 {
            tokio::time::sleep(std::time::Duration::from_millis(1)).await;
        }
        gated.let_through(2);
    };
    let (first, others, ()) = tokio::join!(connect(&lone, &server), others, letting);
    let connected = std::iter::once(first).chain(others);
    let mut sizes: Vec<u32> =
        connected.map(|(attested, _)| attested.unwrap().timings().batch).collect();
    sizes.sort_unstable();
    assert_eq!(sizes, [1, 3, 3, 3], "the first was served alone, the others waited for it");
}

#[tokio::test]
async fn an_open_session_gives_fresh_evidence_for_each_new_context() {
    let server = server_3(FakeAttester { gpu: Some(b"gpu".to_vec()), ..Default::default() });
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
async fn a_context_is_used_once_on_a_connection() {
    let (live, peer) = live_ends(&server_3(FakeAttester::default())).await;
    let request = peer.request_evidence().unwrap().encode();
    live.answer(&request, LONG).await.unwrap();
    let error = live.answer(&request, LONG).await.unwrap_err();
    assert!(matches!(error, ChannelError::Authenticator(AuthenticatorError::ContextReused)));
    assert_eq!(error.origin(), ErrorOrigin::Peer);
    // The context of the beginning and this one are two of 256.
    for n in 0..254u32 {
        let mut context = [1; 32];
        context[..4].copy_from_slice(&n.to_be_bytes());
        let request = AuthenticatorRequest::new(Role::Client, context).encode();
        let request = SessionMessage3::Request { request: Some(&request) }.encode();
        live.answer(&request, LONG).await.unwrap();
    }
    let request = peer.request_evidence().unwrap().encode();
    let error = live.answer(&request, LONG).await.unwrap_err();
    let wanted = AuthenticatorError::TooManyRequests { wanted: 256 };
    assert!(matches!(error, ChannelError::Authenticator(error) if error == wanted));
}

#[tokio::test]
async fn fresh_evidence_of_another_request_or_session_has_a_wrong_context_or_mac() {
    let server = server_3(FakeAttester::default());
    let (live, peer) = live_ends(&server).await;
    let (_, other_peer) = live_ends(&server).await;
    let appraiser = FakeAppraiser::default();
    let asked = peer.request_evidence().unwrap();
    let reply = live.answer(&asked.encode(), LONG).await.unwrap();
    let refuse = |peer: &LivePeer, request| match peer.appraise_reply(request, &reply, &appraiser) {
        Err(ChannelError::Authenticator(error)) => error,
        other => panic!("{other:?}"),
    };
    assert_eq!(refuse(&peer, peer.request_evidence().unwrap()), AuthenticatorError::Context);
    assert_eq!(refuse(&other_peer, asked), AuthenticatorError::Mac);
    assert!(appraiser.seen.lock().unwrap().is_empty());
}

#[tokio::test]
async fn requests_of_version_2_or_without_the_extension_give_no_evidence() {
    let (live, _) = live_ends(&server_3(FakeAttester::default())).await;
    let (_, peer_2) = live_ends(&server(Binding::Session)).await;
    let without = AuthenticatorRequest {
        takes_cmw: false,
        ..AuthenticatorRequest::new(Role::Client, [1; 32])
    };
    let of_server = AuthenticatorRequest::new(Role::Server, [1; 32]).encode();
    let requests = [
        peer_2.request_evidence().unwrap().encode(),
        SessionMessage3::Request { request: None }.encode(),
        SessionMessage3::Request { request: Some(&without.encode()) }.encode(),
        SessionMessage3::Request { request: Some(&of_server) }.encode(),
        Vec::new(),
    ];
    for request in requests {
        let error = live.answer(&request, LONG).await.unwrap_err();
        assert_eq!(error.origin(), ErrorOrigin::Peer, "{error:?}");
    }
}

#[tokio::test]
async fn a_client_that_asks_with_another_message_is_refused_by_its_code() {
    let context_of_31 = [&[17, 0, 0, 34, 31][..], &[0; 31], &[0, 0]].concat();
    let without = AuthenticatorRequest {
        takes_cmw: false,
        ..AuthenticatorRequest::new(Role::Client, [1; 32])
    };
    for (request, wanted) in
        [(context_of_31, Refusal::ContextLength), (without.encode(), Refusal::Malformed)]
    {
        let server = server_3(FakeAttester::default());
        let (near, far) = wire();
        let asking = async {
            let mut stream = raw_client_with(&Cheat::version_3(), near).await;
            let request = SessionMessage3::Request { request: Some(&request) };
            send_frame(&mut stream, &request.encode()).await;
            read_frame(&mut stream).await
        };
        let (answer, accepted) = tokio::join!(asking, server.accept(far));
        assert_eq!(SessionMessage3::decode(&answer), Ok(SessionMessage3::Refused(wanted)));
        assert_eq!(accepted.err().unwrap().origin(), ErrorOrigin::Peer);
    }
}

#[tokio::test]
async fn a_client_that_verifies_no_scheme_of_the_key_costs_no_quote() {
    let attester = Arc::new(FakeAttester::default());
    let options = server_options(Binding::Session);
    let server = Server::new(options, Some(attester.clone()), clock).unwrap();
    let server = server.with_session_versions(V3).unwrap();
    // Ed25519 alone, and the server's key is of P-256.
    let request = AuthenticatorRequest {
        schemes: vec![0x0807],
        ..AuthenticatorRequest::new(Role::Client, [1; 32])
    };
    let (near, far) = wire();
    let asking = async {
        let mut stream = raw_client_with(&Cheat::version_3(), near).await;
        let request = SessionMessage3::Request { request: Some(&request.encode()) }.encode();
        send_frame(&mut stream, &request).await;
        read_frame(&mut stream).await
    };
    let (answer, accepted) = tokio::join!(asking, server.accept(far));
    let refused = SessionMessage3::Refused(Refusal::Malformed);
    assert_eq!(SessionMessage3::decode(&answer), Ok(refused));
    let error = accepted.err().unwrap();
    let wanted = AuthenticatorError::NoCommonScheme;
    assert_eq!(error.origin(), ErrorOrigin::Peer);
    assert!(matches!(error, ChannelError::Authenticator(error) if error == wanted));
    assert_eq!(attester.made.load(Ordering::SeqCst), 0);
}

#[tokio::test]
async fn a_client_whose_evidence_is_rejected_is_told() {
    let server = server_3(FakeAttester::default());
    let client = client_3().with_evidence(client_evidence()).unwrap();
    let appraiser = FakeAppraiser { now: Some(0), ..Default::default() };
    let (near, far) = wire();
    let accepting = server.accept_attested(&appraiser, far);
    let (attested, accepted) = tokio::join!(client.connect("localhost", near), accepting);
    assert_eq!(accepted.err().unwrap().rejection(), Some(&FakeRejection::Validity));
    let wanted = Refusal::EvidenceRejected;
    assert!(matches!(attested, Err(ChannelError::Refused { refusal, .. }) if refusal == wanted));
}

#[tokio::test]
async fn sessions_with_sha_384_are_bound_by_it() {
    use tokio_rustls::rustls::{CipherSuite, crypto::aws_lc_rs};
    // An ordinary TLS client that offers one suite, and reads the server's reply with it.
    let server = server_3(FakeAttester::default());
    let mut provider = aws_lc_rs::default_provider();
    provider.cipher_suites.retain(|s| s.suite() == CipherSuite::TLS13_AES_256_GCM_SHA384);
    let (near, far) = wire();
    let request = AuthenticatorRequest::new(Role::Client, [1; 32]);
    let request_bytes = request.encode();
    let asking = async {
        let mut stream = raw_client_of(&Cheat::version_3(), provider, near).await;
        let message = SessionMessage3::Request { request: Some(&request_bytes) };
        send_frame(&mut stream, &message.encode()).await;
        let answer = read_frame(&mut stream).await;
        let session = stream.get_ref().1;
        let export = |label: &str| {
            let label = format!("EXPORTER-server authenticator {label}");
            session.export_keying_material([0; 48], label.as_bytes(), None).unwrap()
        };
        let exported = session.export_keying_material([0; 32], b"Attestation", Some(&[1; 32]));
        let certificate = session.peer_certificates().unwrap()[0].to_vec();
        let keys = (export("handshake context"), export("finished key"));
        (answer, exported.unwrap(), keys, certificate)
    };
    let ((answer, exported, (context, finished), certificate), accepted) =
        tokio::join!(asking, server.accept(far));
    accepted.unwrap();
    let Ok(SessionMessage3::Reply { evidence: Some(evidence), .. }) =
        SessionMessage3::decode(&answer)
    else {
        panic!("a reply");
    };
    let Ok(AuthenticatorAnswer::Authenticator(read)) =
        AuthenticatorAnswer::decode(evidence.authenticator)
    else {
        panic!("an authenticator");
    };
    // MAC and report data, computed here as docs/channel-3.md says.
    let transcript = [&context, &request_bytes[..], read.certificate, read.certificate_verify];
    let transcript = digest(&SHA384, &transcript.concat());
    let mac = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA384, &finished), transcript.as_ref());
    assert_eq!(read.mac, mac.as_ref());
    let wrapper = parse_cmw(read.find_cmw(&request).unwrap()).unwrap();
    let wrapper = EvidenceWrapper::from_cmw(wrapper).unwrap();
    let certificate = x509_cert::Certificate::from_der(&certificate).unwrap();
    let spki = certificate.tbs_certificate().subject_public_key_info().to_der().unwrap();
    let binder = digest(&SHA384, &[&spki[..], &exported].concat());
    let (spki_hash, claims_hash) = (digest(&SHA256, &spki), digest(&SHA256, &wrapper.claims));
    let rest = [b"confide attestation v3\0\x01", spki_hash.as_ref(), claims_hash.as_ref()];
    let rest = digest(&SHA256, &rest.concat());
    let report_data = [&binder.as_ref()[..32], rest.as_ref()].concat();
    assert_eq!(wrapper.quote, quote(&ReportData(report_data.try_into().unwrap())));
}

#[tokio::test]
async fn evidence_of_version_3_is_some_600_bytes_longer_than_that_of_version_2() {
    let server = server(Binding::Session);
    let length = async |cheat: Cheat, request: Vec<u8>| {
        let (near, far) = wire();
        let asking = async {
            let mut stream = raw_client_with(&cheat, near).await;
            send_frame(&mut stream, &request).await;
            read_frame(&mut stream).await.len()
        };
        let (length, accepted) = tokio::join!(asking, server.accept(far));
        accepted.unwrap();
        length
    };
    let request = SessionMessage::Request { context: Some([1; 32]) }.encode();
    let version_2 = length(Cheat::version_2(), request).await;
    let request = AuthenticatorRequest::new(Role::Client, [1; 32]).encode();
    let request = SessionMessage3::Request { request: Some(&request) }.encode();
    let version_3 = length(Cheat::version_3(), request).await;
    // docs/channel-3.md says 0.6 to 0.8 KB, with collateral and batch path.
    assert!((550..700).contains(&(version_3 - version_2)), "{version_2} {version_3}");
}

async fn mutual(
    server: &Server,
) -> (
    Result<FakeAttested, ChannelError>,
    Result<AttestedClientStream<DuplexStream, FakeAppraised>, ChannelError>,
) {
    let client = client_3().with_evidence(client_evidence()).unwrap();
    let appraiser = FakeAppraiser::default();
    let (near, far) = wire();
    tokio::join!(client.connect("localhost", near), server.accept_attested(&appraiser, far))
}

/// Both ends of an open session, and what gives and asks for fresh evidence in it.
async fn live_ends(server: &Server) -> (LiveSession, LivePeer) {
    let options = ClientOptions { binding: Binding::Session, deadline: LONG };
    let client = Client::new(options, Arc::new(FakeAppraiser::default())).unwrap();
    let client = client.with_session_versions(&[SessionVersion::V3, SessionVersion::V2]).unwrap();
    let (attested, live) = connect(&client, server).await;
    (live.unwrap(), attested.unwrap().take_live_peer().unwrap())
}
