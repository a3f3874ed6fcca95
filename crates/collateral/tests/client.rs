//! The client: deadlines, limits, retries and back-off, and the vendors' formats.

mod service;

use std::{
    sync::atomic::{AtomicU32, Ordering::SeqCst},
    time::{Duration, Instant},
};

use confide_collateral::{
    AmdKey, AmdSigner, Client, CollateralError, DocumentKey, PckRequest, Platform, Services,
    TcbEvaluation,
};
use confide_evidence::{ReportData, quote::Tee, snp_endorsements::SnpEndorsements};
use confide_fake_attester::{FakeAttester, FakeAttesterOptions, Mode};
use service::{ISSUED_AT, Issuer, Reply, Request, Service};

const ROOT_CRL: DocumentKey = DocumentKey::IntelRootCrl;

fn client(service: &Service) -> Client {
    Client::new(service.services()).unwrap()
}

/// Returns the answers one after the other, the last one for ever.
fn replies(list: Vec<Reply>) -> impl FnMut(&Request) -> Reply {
    let at = AtomicU32::new(0);
    move |_| {
        let at = at.fetch_add(1, SeqCst) as usize;
        list[at.min(list.len() - 1)].clone()
    }
}

fn root_crl() -> Vec<u8> {
    Issuer::new(ISSUED_AT, None).text("root_ca_crl").into_bytes()
}

#[tokio::test]
async fn server_errors_and_cut_bodies_are_tried_again() {
    let cut = Reply { cut: true, ..Reply::new(200, root_crl()) };
    let list = vec![Reply::new(500, ""), cut, Reply::new(200, root_crl())];
    let service = Service::start(replies(list));
    let document = client(&service).fetch_document(&ROOT_CRL, 5).await.unwrap();
    assert_eq!((document.fetched_at, document.issued), (5, ISSUED_AT));
    assert_eq!(service.count(), 3);
}

#[tokio::test]
async fn what_a_service_does_not_have_is_asked_once_and_redirects_are_refused() {
    for status in [404, 400, 301, 302, 410] {
        let reply = Reply::new(status, "").header("location", "http://127.0.0.1:1/");
        let service = Service::start(move |_| reply.clone());
        let refused = client(&service).fetch_document(&ROOT_CRL, 0).await.unwrap_err();
        assert!(matches!(refused, CollateralError::Status { status: got, .. } if got == status));
        assert_eq!(service.count(), 1);
    }
}

#[tokio::test]
async fn retry_after_is_waited_for() {
    let busy = Reply::new(429, "").header("retry-after", "1");
    let service = Service::start(replies(vec![busy, Reply::new(200, root_crl())]));
    let started = Instant::now();
    client(&service).fetch_document(&ROOT_CRL, 0).await.unwrap();
    assert!(started.elapsed() >= Duration::from_secs(1));
    assert_eq!(service.count(), 2);
}

#[tokio::test]
async fn a_retry_after_beyond_the_deadline_is_an_answer_at_once() {
    let service = Service::start(|_| Reply::new(429, "").header("retry-after", "999999"));
    let services = Services { deadline: Some(Duration::from_secs(20)), ..service.services() };
    let client = Client::new(services).unwrap();
    let refused = client.fetch_document(&ROOT_CRL, 0).await.unwrap_err();
    assert!(matches!(refused, CollateralError::Busy { .. }), "{refused}");
    assert_eq!(service.count(), 1);
    // Anyone who comes next does not ask either.
    let refused = client
        .fetch_document(&DocumentKey::IntelPckCrl(confide_collateral::PckIssuer::Platform), 0);
    assert!(matches!(refused.await, Err(CollateralError::Busy { .. })));
    assert_eq!(service.count(), 1);
}

#[tokio::test]
async fn a_service_that_hangs_is_left_at_the_deadline() {
    let hang = Reply { delay: Duration::from_secs(600), ..Reply::new(200, "") };
    let service = Service::start(move |_| hang.clone());
    let services = Services { deadline: Some(Duration::from_millis(300)), ..service.services() };
    let refused = Client::new(services).unwrap().fetch_document(&ROOT_CRL, 0).await.unwrap_err();
    assert!(matches!(refused, CollateralError::Deadline { .. }), "{refused}");
}

#[tokio::test]
async fn an_endless_body_is_refused() {
    let service = Service::start(|_| Reply::new(200, vec![b'0'; 600 * 1024]));
    let refused = client(&service).fetch_document(&ROOT_CRL, 0).await.unwrap_err();
    assert!(matches!(refused, CollateralError::TooLong { .. }), "{refused}");
}

#[tokio::test]
async fn an_etag_is_sent_back_and_304_is_the_answer_before() {
    let issuer = Issuer::new(ISSUED_AT, None);
    let service = Service::start(move |request| match request.headers.get("if-none-match") {
        Some(tag) if tag == "\"one\"" => Reply::new(304, ""),
        _ => issuer.reply(request).header("etag", "\"one\""),
    });
    let client = client(&service);
    let key = DocumentKey::QeIdentity { tee: Tee::Tdx, evaluation: TcbEvaluation::Standard };
    let first = client.fetch_document(&key, 1).await.unwrap();
    let second = client.fetch_document(&key, 2).await.unwrap();
    assert_eq!((second.fetched_at, &second.content), (2, &first.content));
    assert_eq!(service.requests()[1].headers["if-none-match"], "\"one\"");
}

#[tokio::test]
async fn documents_of_something_else_are_refused() {
    let issuer = Issuer::new(ISSUED_AT, None);
    let service = Service::start(move |request| {
        let mut request = request.clone();
        request.path =
            request.path.replace("/sgx/certification/v4/tcb", "/tdx/certification/v4/tcb");
        issuer.reply(&request)
    });
    let client = client(&service);
    let key = |tee, evaluation| DocumentKey::TcbInfo { tee, fmspc: [9; 6], evaluation };
    for key in [key(Tee::Tdx, TcbEvaluation::Standard), key(Tee::Sgx, TcbEvaluation::Standard)] {
        let refused = client.fetch_document(&key, 0).await;
        assert!(matches!(refused, Err(CollateralError::OtherDocument { .. })), "{refused:?}");
    }
    let number = DocumentKey::QeIdentity { tee: Tee::Tdx, evaluation: TcbEvaluation::Number(99) };
    let refused = client.fetch_document(&number, 0).await;
    assert!(matches!(refused, Err(CollateralError::OtherDocument { .. })), "{refused:?}");
    assert!(service.requests().last().unwrap().path.ends_with("?tcbEvaluationDataNumber=99"));
}

#[tokio::test]
async fn an_answer_without_its_issuers_is_refused() {
    let issuer = Issuer::new(ISSUED_AT, None);
    let service =
        Service::start(move |request| Reply { headers: Vec::new(), ..issuer.reply(request) });
    let key = DocumentKey::QeIdentity { tee: Tee::Tdx, evaluation: TcbEvaluation::Early };
    let refused = client(&service).fetch_document(&key, 0).await.unwrap_err();
    assert!(matches!(refused, CollateralError::UnreadableAnswer { .. }), "{refused}");
}

fn snp() -> (FakeAttester, AmdKey) {
    let options = FakeAttesterOptions {
        seed: [7; 32],
        tee: confide_fake_attester::Tee::Snp,
        debug: false,
        issued_at: ISSUED_AT,
        mode: Mode::Raw,
    };
    let attester = FakeAttester::new(options).unwrap();
    let report = attester.quote(&ReportData::ZERO);
    let Ok(Platform::Snp(key)) = Platform::from_evidence(&report, None) else { panic!("no SNP") };
    (attester, key)
}

fn kds_reply(attester: &FakeAttester, request: &Request) -> Reply {
    let path = request.path.split('?').next().unwrap();
    match path.rsplit('/').next().unwrap() {
        "cert_chain" => Reply::new(200, attester.chain_pem().unwrap()),
        "crl" => Reply::new(200, attester.crl_der().unwrap()),
        _ => Reply::new(200, attester.endorsement_key_der().unwrap()),
    }
}

#[test]
fn the_set_of_an_snp_platform_has_key_chain_and_list() {
    let (attester, key) = snp();
    let chain = attester.chain_pem().unwrap().to_owned();
    let service = Service::start(move |request| kds_reply(&attester, request));
    let clock = service::TestClock::starting_at(ISSUED_AT + 60);
    let options = confide_collateral::SourceOptions::new(service.services(), clock.clock());
    let source = confide_collateral::Source::start(options).unwrap();
    let set = source.find_or_fetch_blocking(&Platform::Snp(key), Duration::from_secs(60)).unwrap();
    let parsed = SnpEndorsements::parse(set.json()).unwrap();
    assert_eq!(parsed.chain, chain);
    assert!(parsed.crl.is_some());
    assert_eq!(service.count(), 3);
}

#[tokio::test]
async fn a_certificate_of_another_chip_is_refused() {
    let (attester, mut key) = snp();
    let AmdSigner::Vcek(chip) = &mut key.signer else { panic!("no VCEK") };
    chip[0] ^= 1;
    let service = Service::start(move |request| kds_reply(&attester, request));
    let refused = client(&service).fetch_document(&DocumentKey::AmdKey(key), 0).await.unwrap_err();
    assert!(matches!(refused, CollateralError::OtherDocument { .. }), "{refused}");
}

#[tokio::test]
async fn certificates_of_chips_are_asked_for_one_by_one() {
    let (attester, key) = snp();
    let service = Service::start(move |request| kds_reply(&attester, request));
    let interval = Duration::from_millis(400);
    let services = Services { kds_interval: Some(interval), ..service.services() };
    let client = Client::new(services).unwrap();
    let started = Instant::now();
    let mut asked = Vec::new();
    for chip in 0..3u8 {
        let (client, mut key) = (client.clone(), key.clone());
        let AmdSigner::Vcek(id) = &mut key.signer else { panic!("no VCEK") };
        id[0] = chip;
        asked.push(tokio::spawn(async move {
            client.fetch_document(&DocumentKey::AmdKey(key), 0).await.map(drop)
        }));
    }
    for one in asked {
        let _ = one.await.unwrap();
    }
    assert!(started.elapsed() >= 2 * interval);
    assert_eq!(service.count(), 3);
}

#[tokio::test]
async fn rims_ocsp_answers_and_pck_certificates_are_fetched() {
    let service = Service::start(|request| match (request.method.as_str(), &*request.path) {
        ("GET", "/v1/rim/NV_GPU_DRIVER_GH100_535.86.09") => {
            Reply::new(200, "{\"id\":\"NV_GPU_DRIVER_GH100_535.86.09\",\"rim\":\"PHJpbS8+\"}")
        }
        ("POST", "/") if request.body == b"asked" => Reply::new(200, [0x30, 3, 0x0a, 1, 0]),
        ("GET", path) if path.starts_with("/sgx/certification/v4/pckcert?qeid=0101") => {
            let issuer = Issuer::new(ISSUED_AT, None);
            let request =
                Request { path: "/sgx/certification/v4/pckcrl".into(), ..Request::default() };
            let chain = issuer.reply(&request).headers.remove(0).1;
            Reply::new(200, "-----BEGIN CERTIFICATE-----\nAQID\n-----END CERTIFICATE-----\n")
                .header("SGX-PCK-Certificate-Issuer-Chain", &chain)
        }
        _ => Reply::new(404, ""),
    });
    let client = client(&service);
    assert_eq!(client.fetch_rim("NV_GPU_DRIVER_GH100_535.86.09").await.unwrap(), b"<rim/>");
    assert!(client.fetch_rim("../secrets").await.is_err());
    assert!(client.fetch_ocsp(b"asked".to_vec()).await.is_ok());
    assert!(client.fetch_ocsp(b"other".to_vec()).await.unwrap_err().is_not_found());
    let request = PckRequest {
        encrypted_ppid: vec![2; 384],
        qe_id: [1; 16],
        cpu_svn: [0; 16],
        pce_svn: 13,
        pce_id: [0; 2],
    };
    let certificate = client.fetch_pck_certificate(&request).await.unwrap();
    assert_eq!(certificate.chain.matches("BEGIN CERTIFICATE").count(), 3);
}

#[tokio::test]
async fn a_genuine_list_of_another_ca_is_not_taken_for_the_roots() {
    let issuer = Issuer::new(ISSUED_AT, None);
    let list = Reply::new(200, issuer.text("pck_crl"));
    let service = Service::start(move |_| list.clone());
    let refused = client(&service).fetch_document(&ROOT_CRL, 0).await.unwrap_err();
    assert!(matches!(refused, CollateralError::OtherDocument { .. }), "{refused}");
}

#[tokio::test]
async fn a_chain_or_list_of_another_product_line_is_refused() {
    use confide_collateral::Product;
    let options = FakeAttesterOptions {
        seed: [7; 32],
        tee: confide_fake_attester::Tee::Snp,
        debug: false,
        issued_at: ISSUED_AT,
        mode: Mode::Raw,
    };
    let json = FakeAttester::new(options).unwrap().collateral_json();
    let endorsements = SnpEndorsements::parse(json.as_bytes()).unwrap();
    let (chain, crl) = (endorsements.chain.into_bytes(), endorsements.crl.unwrap());
    let service = Service::start(move |request| match request.path.ends_with("cert_chain") {
        true => Reply::new(200, chain.clone()),
        false => Reply::new(200, crl.clone()),
    });
    let client = client(&service);
    let mut taken = 0;
    for product in [Product::Milan, Product::Genoa, Product::Turin] {
        for vlek in [false, true] {
            for key in
                [DocumentKey::AmdChain { product, vlek }, DocumentKey::AmdCrl { product, vlek }]
            {
                match client.fetch_document(&key, 0).await {
                    Ok(_) => taken += 1,
                    Err(CollateralError::OtherDocument { .. }) => {}
                    Err(other) => panic!("{key}: {other}"),
                }
            }
        }
    }
    // The chain of its line and signer, and the root's list under both of its names.
    assert_eq!(taken, 3);
}
