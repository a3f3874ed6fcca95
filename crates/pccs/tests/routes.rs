//! The vendors' routes over real HTTP.

mod served;

use std::{sync::Arc, time::Duration};

use confide_fake_attester::Fault;
use confide_pccs::{
    Document, DocumentKind, DocumentRequest, DocumentSource, DocumentStore, PccsLimits,
    open_database, parse_request,
};
use http::{Method, StatusCode};
use served::{Folder, Served, documents, fmspc, serve};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

const INTEL: &str = "/sgx/certification/v4";
const TDX: &str = "/tdx/certification/v4";

#[tokio::test]
async fn intels_documents_come_as_intel_sends_them() {
    let (service, fmspc, _folder) = serve_stored().await;
    let kept = documents(None);
    let body = |kind: DocumentKind| kept.iter().find(|it| it.kind == kind).unwrap().body.clone();
    let tcb = service.get(&format!("{TDX}/tcb?fmspc={}", fmspc.to_lowercase())).await;
    assert_eq!(tcb.status, StatusCode::OK);
    assert_eq!(tcb.body, body(DocumentKind::TdxTcb));
    assert_eq!(tcb.header("content-type"), "application/json");
    let chain = tcb.header("tcb-info-issuer-chain");
    assert!(chain.starts_with("-----BEGIN%20CERTIFICATE-----%0A"), "{chain}");
    let identity = service.get(&format!("{TDX}/qe/identity?update=standard")).await;
    assert_eq!(identity.body, body(DocumentKind::TdxQeIdentity));
    assert!(!identity.header("sgx-enclave-identity-issuer-chain").is_empty());
    let list = service.get(&format!("{INTEL}/pckcrl?ca=platform&encoding=der")).await;
    assert_eq!(list.body, body(DocumentKind::PckCrl));
    assert_eq!(list.header("content-type"), "application/pkix-crl");
    assert!(!list.header("sgx-pck-crl-issuer-chain").is_empty());
    let pem = service.get(&format!("{INTEL}/pckcrl?ca=platform")).await;
    assert!(pem.body.starts_with(b"-----BEGIN X509 CRL-----\n"));
    let root = service.get(&format!("{INTEL}/rootcacrl")).await;
    assert_eq!(hex::decode(&root.body).unwrap(), body(DocumentKind::RootCrl));
    let der = service.get("/IntelSGXRootCA.der").await;
    assert_eq!(der.body, body(DocumentKind::RootCrl));
    let ids = [tcb.header("request-id"), identity.header("request-id")];
    assert!(ids[0].len() == 32 && ids[0] != ids[1]);
    assert_eq!(tcb.header("confide-simulated"), "");
    service.stop().await.unwrap();
}

#[tokio::test]
async fn sets_are_chosen_by_name_and_by_number() {
    let (service, fmspc, _folder) = serve_stored().await;
    let path = format!("{TDX}/tcb?fmspc={fmspc}");
    let standard = service.get(&path).await;
    let tcb = documents(None).into_iter().find(|it| it.kind == DocumentKind::TdxTcb).unwrap();
    let number = tcb.dates.number;
    let by_number = service.get(&format!("{path}&tcbEvaluationDataNumber={number}")).await;
    assert_eq!(by_number.body, standard.body);
    // Without an early set the standard one is the newest.
    assert_eq!(service.get(&format!("{path}&update=early")).await.body, standard.body);
    let other = service.get(&format!("{path}&tcbEvaluationDataNumber={}", number + 1)).await;
    assert_eq!(other.status, StatusCode::NOT_FOUND);
    service.stop().await.unwrap();
}

#[tokio::test]
async fn what_is_malformed_and_what_is_not_kept_have_their_statuses() {
    let (service, _, _folder) = serve_stored().await;
    for (path, status) in [
        (format!("{TDX}/tcb"), StatusCode::BAD_REQUEST),
        (format!("{TDX}/tcb?fmspc=00"), StatusCode::BAD_REQUEST),
        (format!("{INTEL}/pckcrl?ca=other"), StatusCode::BAD_REQUEST),
        (format!("{TDX}/tcb?fmspc=ffffffffffff"), StatusCode::NOT_FOUND),
        (format!("{INTEL}/pckcrl?ca=processor"), StatusCode::NOT_FOUND),
        ("/vcek/v1/Milan/cert_chain".into(), StatusCode::NOT_FOUND),
        ("/simulate".into(), StatusCode::NOT_FOUND),
        ("/elsewhere".into(), StatusCode::NOT_FOUND),
    ] {
        assert_eq!(service.get(&path).await.status, status, "{path}");
    }
    let refused = service.post(&format!("{INTEL}/rootcacrl"), "").await;
    assert_eq!(refused.status, StatusCode::METHOD_NOT_ALLOWED);
    assert_eq!(refused.header("allow"), "GET, HEAD");
    service.stop().await.unwrap();
}

#[tokio::test]
async fn a_client_that_has_the_document_gets_304() {
    let (service, _, _folder) = serve_stored().await;
    let path = format!("{INTEL}/pckcrl?ca=platform&encoding=der");
    let first = service.get(&path).await;
    let tag = first.header("etag").to_owned();
    let held = [("if-none-match", tag.as_str())];
    let again = service.ask(Method::GET, &path, &held, "").await.unwrap();
    assert_eq!((again.status, again.body.len()), (StatusCode::NOT_MODIFIED, 0));
    assert_eq!(again.header("etag"), tag);
    // The same list in another encoding is another representation.
    let pem = format!("{INTEL}/pckcrl?ca=platform");
    let other = service.ask(Method::GET, &pem, &held, "").await.unwrap();
    assert_eq!(other.status, StatusCode::OK);
    let head = service.ask(Method::HEAD, &path, &[], "").await.unwrap();
    assert_eq!((head.status, head.body.len(), head.header("etag")), (StatusCode::OK, 0, &*tag));
    service.stop().await.unwrap();
}

#[tokio::test]
async fn both_versions_of_http_are_spoken() {
    let (service, _, _folder) = serve_stored().await;
    let path = format!("{INTEL}/rootcacrl");
    assert_eq!(service.get_over_http2(&path).await.body, service.get(&path).await.body);
    service.stop().await.unwrap();
}

#[tokio::test]
async fn an_import_never_goes_back() {
    let (service, _, folder) = serve_stored().await;
    let database = open_database(folder.0.join("pccs.sqlite").to_str().unwrap()).await.unwrap();
    let before = service.get(&format!("{INTEL}/rootcacrl")).await;
    for document in documents(Some(Fault::RolledBackCrl)) {
        let list = document.kind.is_revocation_list();
        let written = database.write(document).await.unwrap();
        assert_eq!(written != confide_pccs::WriteOutcome::Stored, list);
    }
    assert_eq!(service.get(&format!("{INTEL}/rootcacrl")).await.body, before.body);
    service.stop().await.unwrap();
}

#[tokio::test]
async fn amds_and_nvidias_documents_are_served() {
    let folder = Folder::new("amd");
    let database = open_database(folder.0.join("pccs.sqlite").to_str().unwrap()).await.unwrap();
    let hwid = "ab".repeat(64);
    let vcek = format!("/vcek/v1/Milan/{hwid}?blSPL=3&teeSPL=0&snpSPL=8&ucodeSPL=115");
    for (path, body) in [
        (vcek.as_str(), "certificate"),
        ("/vcek/v1/Milan/cert_chain", "chain"),
        ("/vlek/v1/Genoa/cert_chain", "other chain"),
        ("/v1/rim/NV_GPU_DRIVER_GH100_535.104.05", "{}"),
    ] {
        let document = Document::new(&parse_url(path), None, body.into(), 0).unwrap();
        let _ = database.write(document).await.unwrap();
    }
    let limits = PccsLimits::default();
    let service =
        serve(DocumentSource::Store(Arc::new(DocumentStore::new(database, None, &limits))), |_| {})
            .await;
    // AMD's versions are numbers: leading zeros change nothing.
    let padded = vcek.replace("blSPL=3", "blSPL=03");
    assert_eq!(service.get(&padded).await.body, "certificate");
    assert_eq!(service.get("/vcek/v1/Milan/cert_chain").await.body, "chain");
    assert_eq!(service.get("/vlek/v1/Genoa/cert_chain").await.body, "other chain");
    let rim = service.get("/v1/rim/NV_GPU_DRIVER_GH100_535.104.05").await;
    assert_eq!((rim.header("content-type"), &rim.body[..]), ("application/json", &b"{}"[..]));
    let other = service.get(&vcek.replace("blSPL=3", "blSPL=4")).await;
    assert_eq!(other.status, StatusCode::NOT_FOUND);
    service.stop().await.unwrap();
}

#[tokio::test]
async fn health_and_metrics_are_served() {
    let (service, _, _folder) = serve_stored().await;
    assert_eq!(service.get("/health").await.status, StatusCode::OK);
    service.get(&format!("{INTEL}/rootcacrl")).await;
    service.get("/elsewhere").await;
    let metrics = service.get("/metrics").await;
    let text = String::from_utf8(metrics.body.to_vec()).unwrap();
    for line in [
        "confide_pccs_requests_total{route=\"root-crl\",status=\"200\"} 1",
        "confide_pccs_requests_total{route=\"none\",status=\"404\"} 1",
        "confide_pccs_documents 4",
        "confide_pccs_simulated 0",
    ] {
        assert!(text.lines().any(|found| found == line), "{line}\n{text}");
    }
    service.stop().await.unwrap();
}

#[tokio::test]
async fn a_head_that_is_too_long_is_refused() {
    let (service, _, _folder) = serve_stored().await;
    let path = format!("{INTEL}/tcb?fmspc={}", "0".repeat(40 << 10));
    // Status 414 or 431, or a connection that is closed while the head is still written.
    if let Ok(got) = service.ask(Method::GET, &path, &[], "").await {
        assert!(got.status.is_client_error(), "{}", got.status);
    }
    let field = "x".repeat(64 << 10);
    let fields = [("x-long", field.as_str())];
    if let Ok(got) = service.ask(Method::GET, "/health", &fields, "").await {
        assert!(got.status.is_client_error(), "{}", got.status);
    }
    assert_eq!(service.get("/health").await.status, StatusCode::OK);
    service.stop().await.unwrap();
}

#[tokio::test]
async fn silent_connections_are_closed_and_others_get_their_places() {
    let (service, _, _folder) = serve_stored_with(|limits| {
        limits.connections = 2;
        limits.head_wait = Duration::from_millis(200);
    })
    .await;
    let mut silent = TcpStream::connect(service.address).await.unwrap();
    let mut half = TcpStream::connect(service.address).await.unwrap();
    half.write_all(b"GET /health HTTP/1.1\r\nhost: ").await.unwrap();
    // Both places are taken until their waits are over.
    assert_eq!(service.get("/health").await.status, StatusCode::OK);
    for stream in [&mut silent, &mut half] {
        // The end, a reset, or status 408 before it.
        let mut rest = Vec::new();
        let _ = stream.read_to_end(&mut rest).await;
        assert!(rest.is_empty() || rest.starts_with(b"HTTP/1.1 408"));
    }
    service.stop().await.unwrap();
}

#[tokio::test]
async fn a_stop_waits_for_no_idle_connection() {
    let (service, _, _folder) = serve_stored().await;
    let _silent = TcpStream::connect(service.address).await.unwrap();
    let mut kept = TcpStream::connect(service.address).await.unwrap();
    kept.write_all(b"GET /health HTTP/1.1\r\nhost: a\r\n\r\n").await.unwrap();
    let mut answer = [0; 12];
    kept.read_exact(&mut answer).await.unwrap();
    assert_eq!(&answer, b"HTTP/1.1 200");
    service.stop().await.unwrap();
}

fn parse_url(path: &str) -> DocumentRequest {
    let (path, query) = path.split_once('?').unwrap_or((path, ""));
    parse_request(path, Some(query)).unwrap()
}

async fn serve_stored() -> (Served, String, Folder) {
    serve_stored_with(|_| {}).await
}

/// Serves from SQLite, filled with the simulated collateral.
async fn serve_stored_with(adjust: impl FnOnce(&mut PccsLimits)) -> (Served, String, Folder) {
    static NUMBER: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
    let number = NUMBER.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    let folder = Folder::new(&format!("routes{number}"));
    let database = open_database(folder.0.join("pccs.sqlite").to_str().unwrap()).await.unwrap();
    let documents = documents(None);
    let fmspc = fmspc(&documents);
    for document in documents {
        let _ = database.write(document).await.unwrap();
    }
    let kept = DocumentStore::new(database, None, &PccsLimits::default());
    (serve(DocumentSource::Store(Arc::new(kept)), adjust).await, fmspc, folder)
}
