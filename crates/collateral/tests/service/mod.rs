//! A small HTTP/1.1 service on loopback whose answers a test writes, and the documents of the
//! simulated attester behind Intel's routes.

// Each test binary uses a part of it.
#![allow(dead_code)]

use std::{
    collections::BTreeMap,
    io::{BufRead, BufReader, Read, Write},
    net::{TcpListener, TcpStream},
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering::SeqCst},
    },
    thread,
    time::Duration,
};

use confide_collateral::{BaseUrl, PckIssuer, Platform, Services};
use confide_evidence::quote::Tee;
use confide_fake_attester::{FakeAttester, FakeAttesterOptions, Fault, Mode};
use serde_json::Value;

/// 2026-06-01, in Unix seconds.
pub(crate) const ISSUED_AT: u64 = 1_780_272_000;
pub(crate) const DAY: u64 = 24 * 3600;

#[derive(Clone, Debug, Default)]
pub(crate) struct Request {
    pub(crate) method: String,
    /// Path and query.
    pub(crate) path: String,
    pub(crate) headers: BTreeMap<String, String>,
    pub(crate) body: Vec<u8>,
}

#[derive(Clone, Debug)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
    pub(crate) delay: Duration,
    /// Close the connection in the middle of the body.
    pub(crate) cut: bool,
}

impl Reply {
    pub(crate) fn new(status: u16, body: impl Into<Vec<u8>>) -> Self {
        let (headers, delay) = (Vec::new(), Duration::ZERO);
        Self { status, headers, body: body.into(), delay, cut: false }
    }

    pub(crate) fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.into(), value.into()));
        self
    }
}

type Handler = Box<dyn FnMut(&Request) -> Reply + Send>;

pub(crate) struct Service {
    url: String,
    seen: Arc<Mutex<Vec<Request>>>,
    handler: Arc<Mutex<Handler>>,
}

impl Service {
    pub(crate) fn start(handler: impl FnMut(&Request) -> Reply + Send + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let handler: Arc<Mutex<Handler>> = Arc::new(Mutex::new(Box::new(handler)));
        let seen = Arc::new(Mutex::new(Vec::new()));
        let service = Self { url, seen: seen.clone(), handler: handler.clone() };
        // It ends with the test's process.
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let (handler, seen) = (handler.clone(), seen.clone());
                thread::spawn(move || serve(stream, &handler, &seen));
            }
        });
        service
    }

    pub(crate) fn answer(&self, handler: impl FnMut(&Request) -> Reply + Send + 'static) {
        *self.handler.lock().unwrap() = Box::new(handler);
    }

    pub(crate) fn base(&self) -> BaseUrl {
        BaseUrl::parse(&self.url, false).unwrap()
    }

    pub(crate) fn services(&self) -> Services {
        Services::from_base(&self.base())
    }

    pub(crate) fn requests(&self) -> Vec<Request> {
        self.seen.lock().unwrap().clone()
    }

    pub(crate) fn count(&self) -> usize {
        self.seen.lock().unwrap().len()
    }
}

fn serve(
    mut stream: TcpStream,
    handler: &Mutex<Handler>,
    seen: &Mutex<Vec<Request>>,
) -> Option<()> {
    let mut reader = BufReader::new(stream.try_clone().ok()?);
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok().filter(|length| *length > 0)?;
        let mut words = line.split_whitespace().map(str::to_owned);
        let mut request =
            Request { method: words.next()?, path: words.next()?, ..Request::default() };
        loop {
            let mut line = String::new();
            reader.read_line(&mut line).ok()?;
            let Some((name, value)) = line.split_once(':') else { break };
            request.headers.insert(name.trim().to_lowercase(), value.trim().into());
        }
        let length = request.headers.get("content-length").and_then(|text| text.parse().ok());
        request.body = vec![0; length.unwrap_or(0)];
        reader.read_exact(&mut request.body).ok()?;
        seen.lock().unwrap().push(request.clone());
        let reply = (handler.lock().unwrap())(&request);
        thread::sleep(reply.delay);
        let mut head = format!("HTTP/1.1 {} -\r\n", reply.status);
        for (name, value) in &reply.headers {
            head += &format!("{name}: {value}\r\n");
        }
        if reply.status != 304 {
            head += &format!("content-length: {}\r\n", reply.body.len());
        }
        stream.write_all(format!("{head}\r\n").as_bytes()).ok()?;
        if reply.cut {
            stream.write_all(&reply.body[..reply.body.len() / 2]).ok()?;
            return None;
        }
        if reply.status != 304 {
            stream.write_all(&reply.body).ok()?;
        }
    }
}

/// The documents of a simulated issuer, as Intel's routes give them.
#[derive(Clone)]
pub(crate) struct Issuer {
    pub(crate) collateral: Value,
    pub(crate) quote: Vec<u8>,
    pub(crate) platform: Platform,
}

impl Issuer {
    pub(crate) fn new(issued_at: u64, fault: Option<Fault>) -> Self {
        let options = FakeAttesterOptions {
            seed: [7; 32],
            tee: confide_fake_attester::Tee::Tdx,
            debug: false,
            issued_at,
            mode: Mode::Raw,
        };
        let attester = match fault {
            None => FakeAttester::new(options).unwrap(),
            Some(fault) => FakeAttester::with_fault(options, fault).unwrap(),
        };
        let quote = attester.quote(&confide_evidence::ReportData::ZERO);
        let platform = Platform::from_evidence(&quote, None).unwrap();
        let Platform::Dcap { ca: PckIssuer::Platform, tee: Tee::Tdx, .. } = platform else {
            panic!("{platform}")
        };
        let collateral = serde_json::from_str(&attester.collateral_json()).unwrap();
        Self { collateral, quote, platform }
    }

    pub(crate) fn text(&self, field: &str) -> String {
        self.collateral[field].as_str().unwrap().to_owned()
    }

    pub(crate) fn reply(&self, request: &Request) -> Reply {
        let route = request.path.split('?').next().unwrap();
        let signed = |name: &str, field: &str| {
            let (document, signature) =
                (self.text(field), self.text(&format!("{field}_signature")));
            format!("{{\"{name}\":{document},\"signature\":\"{signature}\"}}")
        };
        let chain = |field: &str| encode(&self.text(field));
        match route {
            "/sgx/certification/v4/rootcacrl" => Reply::new(200, self.text("root_ca_crl")),
            "/sgx/certification/v4/pckcrl" => {
                Reply::new(200, hex::decode(self.text("pck_crl")).unwrap())
                    .header("SGX-PCK-CRL-Issuer-Chain", &chain("pck_crl_issuer_chain"))
            }
            "/tdx/certification/v4/tcb" => Reply::new(200, signed("tcbInfo", "tcb_info"))
                .header("TCB-Info-Issuer-Chain", &chain("tcb_info_issuer_chain")),
            "/tdx/certification/v4/qe/identity" => {
                Reply::new(200, signed("enclaveIdentity", "qe_identity"))
                    .header("SGX-Enclave-Identity-Issuer-Chain", &chain("qe_identity_issuer_chain"))
            }
            _ => Reply::new(404, ""),
        }
    }
}

/// Encodes PEM as Intel does in headers.
fn encode(text: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    text.bytes()
        .map(|byte| if plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") })
        .collect()
}

/// A clock that a test sets.
#[derive(Clone)]
pub(crate) struct TestClock(Arc<AtomicU64>);

impl TestClock {
    pub(crate) fn starting_at(now: u64) -> Self {
        Self(Arc::new(AtomicU64::new(now)))
    }

    pub(crate) fn set(&self, now: u64) {
        self.0.store(now, SeqCst);
    }

    pub(crate) fn clock(&self) -> confide_collateral::Clock {
        let clock = self.0.clone();
        Arc::new(move || clock.load(SeqCst))
    }
}

/// Waits for what another thread brings about; the bound is only against a hang.
pub(crate) fn eventually(what: &str, mut is: impl FnMut() -> bool) {
    for _ in 0..6000 {
        if is() {
            return;
        }
        thread::sleep(Duration::from_millis(10));
    }
    panic!("{what}: not in 60 s");
}
