//! Evidence of a GPU next to the CPU's: both are bound to the session, and to each other.

mod fakes;

use std::sync::Arc;

use confide_channel::{Binding, ChannelError, Server};
use confide_evidence::{
    binder::{Role, session_gpu_nonce, session_report_data},
    gpu::GPU_EVIDENCE_BYTES_MAX,
    session_message::{Refusal, SessionMessage},
};
use fakes::{cheat::*, *};

#[tokio::test]
async fn evidence_of_a_gpu_comes_beside_the_quote_and_in_its_claims() {
    let attester = FakeAttester { gpu: Some(b"a GPU".to_vec()), ..Default::default() };
    let server = server_with(Binding::Session, LONG, attester);
    let client = client(Binding::Session);
    for _ in 0..2 {
        let (near, far) = wire();
        let (attested, accepted) =
            tokio::join!(client.connect("localhost", near), server.accept(far));
        accepted.unwrap();
        let attested = attested.unwrap();
        let gpu = attested.appraisal().gpu.clone().unwrap();
        assert!(gpu.starts_with(b"a GPU"));
        assert_eq!(attested.appraisal().claims.gpu_evidence_hash, Some(sha256(&gpu)));
    }
}

#[tokio::test]
async fn a_client_s_gpu_is_appraised_by_the_server() {
    let server = server(Binding::Session);
    let mut evidence = client_evidence();
    let attester = FakeAttester { gpu: Some(b"a GPU".to_vec()), ..Default::default() };
    evidence.attester = Arc::new(attester);
    let client = client(Binding::Session).with_evidence(evidence).unwrap();
    let appraiser = FakeAppraiser::default();
    let (near, far) = wire();
    let accepting = server.accept_attested(&appraiser, far);
    let (attested, accepted) = tokio::join!(client.connect("localhost", near), accepting);
    assert_eq!(attested.unwrap().appraisal().gpu, None);
    assert!(accepted.unwrap().appraisal().gpu.is_some());
}

#[tokio::test]
async fn gpu_evidence_over_the_nonce_of_this_session_is_accepted_from_the_same_hand() {
    // The honest case passes, so the tests around this one fail for the reason that they name.
    assert!(cheat(|nonce| (Some(nonce.to_vec()), true)).await.is_ok());
    assert!(cheat(|_nonce| (None, false)).await.is_ok());
}

#[tokio::test]
async fn gpu_evidence_over_another_nonce_is_rejected() {
    let error = cheat(|_nonce| (Some(vec![7; 32]), true)).await.unwrap_err();
    assert_eq!(error.rejection(), Some(&FakeRejection::Gpu));
}

#[tokio::test]
async fn gpu_evidence_that_the_claims_do_not_name_is_refused() {
    let error = cheat(|nonce| (Some(nonce.to_vec()), false)).await.unwrap_err();
    let wanted = matches!(error, ChannelError::GpuEvidence { claims: None, evidence: Some(_) });
    assert!(wanted, "{error:?}");
}

#[tokio::test]
async fn claims_that_name_gpu_evidence_which_does_not_come_are_refused() {
    let error = cheat(|_nonce| (None, true)).await.unwrap_err();
    let wanted = matches!(error, ChannelError::GpuEvidence { claims: Some(_), evidence: None });
    assert!(wanted, "{error:?}");
}

#[tokio::test]
async fn gpu_evidence_in_a_session_of_version_1_is_refused() {
    let error = Cheat::new().answer(|cheat, exporter, context| {
        let exporter = exporter(&context);
        let data = session_report_data(Role::Server, &cheat.hash(), &exporter, &cheat.claims());
        ShownEvidence { gpu: Some(vec![1]), ..(quote(&data), cheat.claims()).into() }
    });
    let error = error.await;
    assert!(matches!(error, ChannelError::MessageKind { .. }), "{error:?}");
}

#[tokio::test]
async fn a_peer_of_version_1_gets_the_cpu_s_evidence_alone() {
    let attester = FakeAttester { gpu: Some(b"a GPU".to_vec()), ..Default::default() };
    let server = server_with(Binding::Session, LONG, attester);
    let (near, far) = wire();
    let asking = async {
        let mut stream = raw_client(near).await;
        send(&mut stream, &SessionMessage::Request { context: Some([7; 32]) }).await;
        read_frame(&mut stream).await
    };
    let (reply, accepted) = tokio::join!(asking, server.accept(far));
    accepted.unwrap();
    let SessionMessage::Reply { evidence: Some(evidence), .. } =
        SessionMessage::decode(&reply).unwrap()
    else {
        panic!("no evidence");
    };
    assert!(!evidence.needs_version_2());
}

#[tokio::test]
async fn gpu_evidence_that_no_peer_would_read_is_named_and_the_peer_told() {
    let attester =
        FakeAttester { gpu: Some(vec![0; GPU_EVIDENCE_BYTES_MAX]), ..Default::default() };
    let options = server_options(Binding::Session);
    let server = Server::new(options, Some(Arc::new(attester)), clock).unwrap();
    let (near, far) = wire();
    let client = client(Binding::Session);
    let (attested, accepted) = tokio::join!(client.connect("localhost", near), server.accept(far));
    let error = accepted.map(drop).unwrap_err();
    assert!(matches!(error, ChannelError::OwnEvidence { part: "GPU evidence", .. }), "{error:?}");
    let wanted = Refusal::EvidenceUnavailable;
    let error = attested.map(drop).unwrap_err();
    assert!(matches!(error, ChannelError::Refused { refusal, .. } if refusal == wanted));
}

/// A server that shows the GPU evidence which `says` makes for the true nonce; the flag says
/// whether its claims name one.
async fn cheat(
    says: impl FnOnce([u8; 32]) -> (Option<Vec<u8>>, bool),
) -> Result<FakeAttested, ChannelError> {
    let client = client(Binding::Session);
    let answer = Cheat::version_2().try_answer(client, |cheat, exporter, context| {
        let exporter = exporter(&context);
        let (gpu, named) = says(session_gpu_nonce(Role::Server, &cheat.hash(), &exporter));
        let claims = match named {
            true => claims_with_gpu(&cheat.claims(), gpu.as_deref().unwrap_or(b"some")),
            false => cheat.claims(),
        };
        let data = session_report_data(Role::Server, &cheat.hash(), &exporter, &claims);
        ShownEvidence { gpu, ..(quote(&data), claims).into() }
    });
    answer.await
}
