//! A simulated service and each of its faults, over real HTTP.

#[path = "../../cli/src/collateral/simulated_documents.rs"]
mod simulated_documents;

mod served;

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use confide_collateral::{BaseUrl, Client, Services};
use confide_evidence::{crl::CrlDates, tcb_info::TcbInfo};
use confide_fake_attester::FakeAttester;
use confide_pccs::{
    DocumentSource, DocumentStore, Faults, Latency, PccsLimits, RequestLimit, ServedEdition,
    Simulation, Upstream, VendorUpstream, open_database,
};
use http::{Method, StatusCode};
use served::{Folder, ISSUED_AT, Served, clock, documents, fmspc, options, serve};
use simulated_documents::SimulatedDocuments;

const ROOT_CRL: &str = "/sgx/certification/v4/rootcacrl";
const TCB: &str = "/tdx/certification/v4/tcb";
const DAY: u64 = 86_400;

#[tokio::test]
async fn a_simulated_service_gives_what_the_attester_staples_and_says_that_it_is_simulated() {
    let service = simulating(Faults::default()).await;
    let fmspc = fmspc(&documents(None));
    for document in documents(None) {
        let path = match document.kind.name() {
            "tdx-tcb" => format!("{TCB}?fmspc={fmspc}"),
            "tdx-qe-identity" => "/tdx/certification/v4/qe/identity".into(),
            "pck-crl" => "/sgx/certification/v4/pckcrl?ca=platform&encoding=der".into(),
            _ => "/IntelSGXRootCA.der".into(),
        };
        let got = service.get(&path).await;
        assert_eq!(got.status, StatusCode::OK, "{path}");
        assert_eq!(got.body, document.body, "{path}");
        assert_eq!(got.header("confide-simulated"), "true");
    }
    let other = service.get(&format!("{TCB}?fmspc=ffffffffffff")).await;
    assert_eq!(other.status, StatusCode::NOT_FOUND);
    let metrics = service.get("/metrics").await;
    assert!(String::from_utf8_lossy(&metrics.body).contains("confide_pccs_simulated 1"));
    service.stop().await.unwrap();
}

#[tokio::test]
async fn any_simulated_chip_has_its_certificate() {
    let service = simulating(Faults::default()).await;
    for (product, digits) in [("Milan", 128), ("Genoa", 128), ("Turin", 16)] {
        let hwid = "5a".repeat(digits / 2);
        let query = "blSPL=3&teeSPL=0&snpSPL=8&ucodeSPL=115";
        let got = service.get(&format!("/vcek/v1/{product}/{hwid}?{query}")).await;
        assert_eq!((got.status, got.body[0]), (StatusCode::OK, 0x30), "{product}");
        let chain = service.get(&format!("/vcek/v1/{product}/cert_chain")).await;
        assert!(chain.body.starts_with(b"-----BEGIN CERTIFICATE-----"), "{product}");
        let list = service.get(&format!("/vcek/v1/{product}/crl")).await;
        assert_eq!(CrlDates::parse("list", &list.body).unwrap().this_update, ISSUED_AT);
    }
    service.stop().await.unwrap();
}

#[tokio::test]
async fn a_pck_certificate_comes_with_its_issuers() {
    let service = simulating(Faults::default()).await;
    let (sixteen, two) = ("00".repeat(16), "0000");
    let got = service
        .get(&format!(
            "/sgx/certification/v4/pckcert?qeid={sixteen}&cpusvn={sixteen}&pcesvn={two}&pceid={two}"
        ))
        .await;
    assert_eq!(got.status, StatusCode::OK);
    assert!(got.body.starts_with(b"-----BEGIN CERTIFICATE-----"));
    assert!(got.header("sgx-pck-certificate-issuer-chain").starts_with("-----BEGIN%20"));
    assert_eq!(got.header("sgx-fmspc"), fmspc(&documents(None)));
    assert_eq!(got.header("sgx-tcbm").len(), 36);
    service.stop().await.unwrap();
}

#[tokio::test]
async fn latency_is_added_to_every_answer() {
    let service = simulating(Faults { latency: Latency::Ms(120), ..Faults::default() }).await;
    let began = Instant::now();
    assert_eq!(service.get(ROOT_CRL).await.status, StatusCode::OK);
    assert!(began.elapsed() >= Duration::from_millis(120));
    service.stop().await.unwrap();
}

#[tokio::test]
async fn half_the_answers_fail() {
    let service = simulating(Faults { failure_rate: 0.5, seed: 3, ..Faults::default() }).await;
    let mut failed = 0;
    for _ in 0..40 {
        match service.get(ROOT_CRL).await.status {
            StatusCode::INTERNAL_SERVER_ERROR => failed += 1,
            status => assert_eq!(status, StatusCode::OK),
        }
    }
    // The draws of seed 3; another seed fails others.
    assert!((8..=32).contains(&failed), "{failed}");
    // What is not a document does not fail.
    assert_eq!(service.get("/health").await.status, StatusCode::OK);
    service.stop().await.unwrap();
}

#[tokio::test]
async fn a_limit_answers_429_with_retry_after() {
    let limit = Some(RequestLimit { requests: 2, window_s: 600 });
    let service = simulating(Faults { limit, ..Faults::default() }).await;
    assert_eq!(service.get(ROOT_CRL).await.status, StatusCode::OK);
    assert_eq!(service.get(ROOT_CRL).await.status, StatusCode::OK);
    let refused = service.get(ROOT_CRL).await;
    assert_eq!(refused.status, StatusCode::TOO_MANY_REQUESTS);
    let wait: u64 = refused.header("retry-after").parse().unwrap();
    assert!((1..=600).contains(&wait));
    service.stop().await.unwrap();
}

#[tokio::test]
async fn a_truncated_body_announces_its_whole_length() {
    let service = simulating(Faults { truncated_rate: 1.0, ..Faults::default() }).await;
    let got = service.ask(Method::GET, ROOT_CRL, &[], "").await;
    assert!(got.is_err(), "the body ended as if it were whole");
    service.stop().await.unwrap();
}

#[tokio::test]
async fn a_hanging_answer_ends_with_the_service() {
    let service = simulating(Faults { hanging_rate: 1.0, ..Faults::default() }).await;
    let asked = service.ask(Method::GET, ROOT_CRL, &[], "");
    assert!(tokio::time::timeout(Duration::from_millis(200), asked).await.is_err());
    service.stop().await.unwrap();
}

#[tokio::test]
async fn editions_have_their_dates() {
    let service = simulating(Faults::default()).await;
    for (edition, list_issued, info_issued) in [
        (ServedEdition::Current, ISSUED_AT, ISSUED_AT),
        (ServedEdition::LateCrls, ISSUED_AT - 31 * DAY, ISSUED_AT),
        (ServedEdition::RolledBackCrls, ISSUED_AT - 10 * DAY, ISSUED_AT),
        (ServedEdition::Expired, ISSUED_AT - 31 * DAY, ISSUED_AT - 31 * DAY),
    ] {
        set(&service, &Faults { edition, ..Faults::default() }).await;
        let list = service.get("/IntelSGXRootCA.der").await.body;
        let list = CrlDates::parse("list", &list).unwrap();
        assert_eq!((list.this_update, list.number), (list_issued, list_issued), "{edition:?}");
        let late = matches!(edition, ServedEdition::LateCrls | ServedEdition::Expired);
        assert_eq!(list.next_update <= clock(), late, "{edition:?}");
        let info = tcb_info(&service, "").await;
        assert_eq!(info.issue_date, info_issued, "{edition:?}");
        assert_eq!(info.next_update <= clock(), edition == ServedEdition::Expired, "{edition:?}");
    }
    service.stop().await.unwrap();
}

#[tokio::test]
async fn the_evaluation_number_flips() {
    let service = simulating(Faults::default()).await;
    let before = tcb_info(&service, "").await.tcb_evaluation_data_number;
    assert_eq!(tcb_info(&service, "&update=early").await.tcb_evaluation_data_number, before + 1);
    let by_number = format!("&tcbEvaluationDataNumber={}", before + 1);
    assert_eq!(tcb_info(&service, &by_number).await.tcb_evaluation_data_number, before + 1);
    set(&service, &Faults { edition: ServedEdition::NextEvaluation, ..Faults::default() }).await;
    assert_eq!(tcb_info(&service, "").await.tcb_evaluation_data_number, before + 1);
    service.stop().await.unwrap();
}

#[tokio::test]
async fn faults_are_set_and_shown_while_it_runs() {
    let service = simulating(Faults::default()).await;
    let set = service.post("/simulate", r#"{"failure_rate": 1, "seed": 9}"#).await;
    assert_eq!(set.status, StatusCode::OK);
    let shown = Faults::from_json(&service.get("/simulate").await.body).unwrap();
    assert_eq!(shown, Faults { failure_rate: 1.0, seed: 9, ..Faults::default() });
    assert_eq!(service.get(ROOT_CRL).await.status, StatusCode::INTERNAL_SERVER_ERROR);
    for refused in ["", "{", r#"{"failure_rate": 2}"#, r#"{"unknown": 1}"#, &"x".repeat(5000)] {
        assert_eq!(service.post("/simulate", refused).await.status, StatusCode::BAD_REQUEST);
    }
    assert_eq!(service.post("/simulate", "{}").await.status, StatusCode::OK);
    assert_eq!(service.get(ROOT_CRL).await.status, StatusCode::OK);
    let deleted = service.ask(Method::DELETE, "/simulate", &[], "").await.unwrap();
    assert_eq!(deleted.status, StatusCode::METHOD_NOT_ALLOWED);
    service.stop().await.unwrap();
}

#[tokio::test]
async fn one_service_fetches_from_another_and_serves_on_when_that_fails() {
    let vendor = simulating(Faults::default()).await;
    let folder = Folder::new("behind");
    let base = BaseUrl::parse(&vendor.url(), false).unwrap();
    let client = Client::new(Services::from_base(&base)).unwrap();
    let database = open_database(folder.0.join("pccs.sqlite").to_str().unwrap()).await.unwrap();
    let upstream: Arc<dyn Upstream> = Arc::new(VendorUpstream::new(client));
    let kept = DocumentStore::new(database, Some(upstream), &PccsLimits::default());
    let service = serve(DocumentSource::Store(Arc::new(kept)), |_| {}).await;
    let fmspc = fmspc(&documents(None));
    let versions = "blSPL=3&teeSPL=0&snpSPL=8&ucodeSPL=115";
    let paths = [
        format!("{TCB}?fmspc={fmspc}"),
        format!("{TCB}?fmspc={fmspc}&update=early"),
        "/sgx/certification/v4/qe/identity".into(),
        "/tdx/certification/v4/qe/identity".into(),
        "/sgx/certification/v4/pckcrl?ca=platform".into(),
        "/sgx/certification/v4/pckcrl?ca=processor&encoding=der".into(),
        ROOT_CRL.into(),
        format!("/vcek/v1/Milan/{}?{versions}", "5a".repeat(64)),
        format!("/vcek/v1/Turin/{}?fmcSPL=1&{versions}", "5a".repeat(8)),
        "/vcek/v1/Milan/cert_chain".into(),
        "/vlek/v1/Milan/cert_chain".into(),
        "/vcek/v1/Milan/crl".into(),
    ];
    for path in &paths {
        let (theirs, ours) = (vendor.get(path).await, service.get(path).await);
        assert_eq!(ours.status, StatusCode::OK, "{path}");
        assert_eq!(ours.body, theirs.body, "{path}");
        for header in ["tcb-info-issuer-chain", "sgx-pck-crl-issuer-chain", "content-type"] {
            assert_eq!(ours.header(header), theirs.header(header), "{path}");
        }
    }
    let other = service.get(&format!("{TCB}?fmspc=ffffffffffff")).await;
    assert_eq!(other.status, StatusCode::NOT_FOUND);
    // What is kept stays when the vendor fails.
    let before = service.get(ROOT_CRL).await.body;
    set(&vendor, &Faults { failure_rate: 1.0, ..Faults::default() }).await;
    for path in &paths {
        assert_eq!(service.get(path).await.status, StatusCode::OK, "{path}");
    }
    assert_eq!(service.get(ROOT_CRL).await.body, before);
    service.stop().await.unwrap();
    vendor.stop().await.unwrap();
}

async fn simulating(faults: Faults) -> Served {
    let attester = FakeAttester::new(options()).unwrap();
    let simulation = Simulation::new(Arc::new(SimulatedDocuments::new(&attester)), faults);
    serve(DocumentSource::Simulated(Arc::new(simulation)), |_| {}).await
}

async fn set(service: &Served, faults: &Faults) {
    let got = service.post("/simulate", &serde_json::to_string(faults).unwrap()).await;
    assert_eq!(got.status, StatusCode::OK);
}

async fn tcb_info(service: &Served, more: &str) -> TcbInfo {
    let got = service.get(&format!("{TCB}?fmspc={}{more}", fmspc(&documents(None)))).await;
    assert_eq!(got.status, StatusCode::OK);
    let body: serde_json::Value = serde_json::from_slice(&got.body).unwrap();
    TcbInfo::parse(&body["tcbInfo"].to_string()).unwrap()
}
