//! Servers that show what no honest one shows: the client always says that the evidence is to blame
//! and which check failed, and never that the network may be down.

mod site;

use std::{net::SocketAddr, sync::Arc, time::Duration};

use confide_client::{Binding, Blame, ClientLimits, Connector, Endpoint, PolicyAppraiser};
use confide_evidence::{
    claims::Claims,
    session_message::{Refusal, SessionEvidence, SessionMessage},
};
use confide_verifier::{AwsLc, Crypto, Policy};
use rcgen::{CertificateParams, KeyPair, PublicKeyData};
use site::{NOW, attester, now};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpListener,
};
use tokio_rustls::{
    TlsAcceptor,
    rustls::{
        ServerConfig,
        crypto::aws_lc_rs,
        pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer},
        version::TLS13,
    },
};

/// Regression: missing GPU evidence, a batch path of the wrong size and a frame that is too long
/// ended with "is the gateway running there?".
#[tokio::test]
async fn whatever_a_server_shows_in_place_of_evidence_is_a_refusal_with_the_name_of_a_check() {
    const CURRENT: &str = "confide-session/2";
    type Says = fn([u8; 32]) -> Vec<u8>;
    let cases: [(&str, &str, Says, &str); 10] = [
        ("a frame that is too long", CURRENT, |_| vec![0xff; 8], "evidence"),
        ("an unreadable message", CURRENT, |_| prefix_length(b"noise"), "evidence"),
        ("a verdict", CURRENT, |_| message(&SessionMessage::Accepted), "evidence"),
        ("no evidence", CURRENT, |_| reply(None), "evidence"),
        ("unreadable claims", CURRENT, |_| evidence(b"noise", None), "evidence"),
        ("claims about another key", CURRENT, |_| evidence(&claims([9; 32], None), None), CHANNEL),
        ("a GPU that does not come", CURRENT, |key| evidence(&claims(key, GPU), None), "gpu"),
        ("half a batch path", CURRENT, |key| evidence(&claims(key, None), Some(&[1])), "evidence"),
        (
            "a batch path in a version without them",
            "confide-session/1",
            |key| evidence(&claims(key, None), Some(&[0; 33])),
            "evidence",
        ),
        ("no quote at all", CURRENT, |key| evidence(&claims(key, None), None), "quote_format"),
    ];
    for (what, protocol, says, check) in cases {
        let error = connect(cheat(protocol, says).await).await;
        assert_eq!(
            (error.blame(), error.failed_check()),
            (Blame::Evidence, Some(check)),
            "{what}: {error:?}"
        );
    }
}

#[tokio::test]
async fn a_server_that_says_that_it_cannot_attest_or_goes_away_was_not_judged() {
    let unavailable: fn([u8; 32]) -> Vec<u8> =
        |_| message(&SessionMessage::Refused(Refusal::EvidenceUnavailable));
    for says in [unavailable, |_| Vec::new()] {
        let error = connect(cheat("confide-session/2", says).await).await;
        assert_eq!((error.blame(), error.failed_check()), (Blame::Network, None), "{error:?}");
    }
}

const CHANNEL: &str = "channel_binding";
const GPU: Option<[u8; 32]> = Some([1; 32]);

async fn connect(address: SocketAddr) -> confide_client::ClientError {
    let policy = attester().policy_toml_pinning(site::CONFIG_DIGEST);
    let policy = Policy::from_toml(&policy).unwrap();
    let appraiser = Arc::new(PolicyAppraiser::new(policy, None, now).unwrap());
    let endpoint = Endpoint::parse(&format!("https://{address}")).unwrap();
    let limits = ClientLimits { channel: Duration::from_secs(30), ..ClientLimits::default() };
    let connector =
        Connector::with_appraiser(endpoint, None, Binding::Session, appraiser, limits).unwrap();
    site::finish_in_time(connector.connect()).await.map(drop).unwrap_err()
}

/// A server that reads the request for evidence and answers with these bytes, which may depend on
/// the hash of its key.
async fn cheat(protocol: &str, says: fn([u8; 32]) -> Vec<u8>) -> SocketAddr {
    let key = KeyPair::generate().unwrap();
    let params = CertificateParams::new(["localhost".to_owned()]).unwrap();
    let certificate = params.self_signed(&key).unwrap().der().clone();
    let hash = AwsLc.sha256(&[&key.subject_public_key_info()]);
    let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(key.serialize_der()));
    let mut config = ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_protocol_versions(&[&TLS13])
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate], key)
        .unwrap();
    config.alpn_protocols = vec![protocol.into()];
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        let (stream, _) = listener.accept().await.unwrap();
        let mut stream = TlsAcceptor::from(Arc::new(config)).accept(stream).await.unwrap();
        let length = stream.read_u32().await.unwrap() as usize;
        stream.read_exact(&mut vec![0; length]).await.unwrap();
        stream.write_all(&says(hash)).await.unwrap();
        let _ = stream.shutdown().await;
        // The client's last message is read, so that the connection is not reset.
        let _ = stream.read_to_end(&mut Vec::new()).await;
    });
    address
}

fn prefix_length(bytes: &[u8]) -> Vec<u8> {
    [&(bytes.len() as u32).to_be_bytes(), bytes].concat()
}

fn message(message: &SessionMessage<'_>) -> Vec<u8> {
    prefix_length(&message.encode())
}

fn reply(evidence: Option<SessionEvidence<'_>>) -> Vec<u8> {
    message(&SessionMessage::Reply { context: None, evidence })
}

fn evidence(claims: &[u8], batch: Option<&[u8]>) -> Vec<u8> {
    let collateral = attester().collateral_json();
    let collateral = Some(collateral.as_bytes());
    reply(Some(SessionEvidence { quote: b"none", claims, collateral, batch, gpu: None }))
}

fn claims(pubkey_hash: [u8; 32], gpu_evidence_hash: Option<[u8; 32]>) -> Vec<u8> {
    Claims {
        config_digest: site::CONFIG_DIGEST,
        gpu_evidence_hash,
        guarantee: "gateway only".into(),
        nonce: None,
        not_after: NOW + 60,
        not_before: NOW,
        pubkey_hash,
        weights: None,
    }
    .encode()
}
