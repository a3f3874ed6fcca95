//! What JavaScript sees. Errors are JSON texts, which `npm/errors.js` reads.
#![allow(unreachable_pub, reason = "wasm-bindgen exports public items only")]

use std::{
    cell::{Cell, RefCell},
    sync::Arc,
};

use confide_channel::{Binding, SessionVersion};
use confide_verification::{ReceiptInput, ReceiptRules};
use confide_verifier::Policy;
use hyper::{Response, body::Incoming};
use wasm_bindgen::prelude::*;
use wasm_bindgen_futures::spawn_local;

use crate::{
    appraiser::PolicyAppraiser,
    carrier::{Carrier, CarrierHost, carrier},
    crypto::RustCrypto,
    error::{self, WebError},
    session::{self, Session, WebRequest},
};

fn to_js(error: WebError) -> JsValue {
    JsValue::from_str(&error.to_json().to_string())
}

fn unix_seconds() -> u64 {
    (js_sys::Date::now() / 1000.0) as u64
}

/// Judges a receipt by a policy in TOML, now. Returns the verdict as JSON.
#[wasm_bindgen(js_name = judgeReceipt)]
pub fn judge_receipt(
    policy: &str,
    report: Vec<u8>,
    receipt: Vec<u8>,
    request: Vec<u8>,
    response: Vec<u8>,
) -> Result<String, JsValue> {
    let policy = Policy::from_toml(policy)
        .map_err(|error| to_js(WebError::Usage(format!("policy: {error}"))))?;
    let (request, response) = (Some(request), Some(response));
    let files = ReceiptInput { report, receipt, request, response, ..ReceiptInput::default() };
    let rules =
        ReceiptRules { policy, nonce: None, at: unix_seconds(), skips_configuration: false };
    let verdict = confide_verification::judge_receipt(&files, &rules, &RustCrypto);
    Ok(verdict.to_json().to_string())
}

/// Checks that a later connection promises what the first one did. Both are verdicts as `Connection.open` gives them.
#[wasm_bindgen(js_name = checkGuarantee)]
pub fn check_guarantee(first: &str, later: &str) -> Result<(), JsValue> {
    error::check_guarantee(first, later).map_err(to_js)
}

/// Reads the number of a version. It comes as JavaScript has it: an integer of Rust would wrap, and 258 would be 2.
fn read_session_version(number: f64) -> Result<SessionVersion, WebError> {
    let is_meant = |version: &SessionVersion| f64::from(version.number()) == number;
    let unknown = || WebError::Usage(format!("session version {number}, wanted 1, 2 or 3"));
    SessionVersion::ALL.into_iter().find(is_meant).ok_or_else(unknown)
}

/// A policy with which servers are judged.
#[wasm_bindgen]
pub struct Verifier(Arc<PolicyAppraiser>);

#[wasm_bindgen]
impl Verifier {
    /// Reads a policy in TOML. `collateral` is used instead of what servers staple.
    #[wasm_bindgen(constructor)]
    pub fn new(policy: &str, collateral: Option<Vec<u8>>) -> Result<Verifier, JsValue> {
        match PolicyAppraiser::new(policy, collateral, unix_seconds) {
            Ok(appraiser) => Ok(Self(Arc::new(appraiser))),
            Err(error) => Err(to_js(WebError::Usage(format!("policy: {error}")))),
        }
    }

    /// Prepares a connection to the server `name` (without brackets and port); `authority` is sent in
    /// `Host`. `binding` is `key` or `session`; without it, `session` if the policy demands it or a
    /// `version` of session binding is given, which is then offered alone, else `key`.
    pub fn connection(
        &self,
        name: &str,
        authority: &str,
        binding: Option<String>,
        version: Option<f64>,
    ) -> Result<Connection, JsValue> {
        let version = version.map(read_session_version).transpose().map_err(to_js)?;
        let binding = match binding.as_deref() {
            None if version.is_some() => Binding::Session,
            None => self.0.default_binding(),
            Some("key") => Binding::Key,
            Some("session") => Binding::Session,
            Some(other) => {
                let text = format!("binding {other:?}, wanted \"key\" or \"session\"");
                return Err(to_js(WebError::Usage(text)));
            }
        };
        let (carrier, host) = carrier();
        Ok(Connection {
            appraiser: self.0.clone(),
            authority: authority.into(),
            binding,
            carrier: Cell::new(Some(carrier)),
            host,
            name: name.into(),
            session: RefCell::default(),
            version,
        })
    }
}

/// One connection to a server.
#[wasm_bindgen]
pub struct Connection {
    appraiser: Arc<PolicyAppraiser>,
    authority: String,
    binding: Binding,
    carrier: Cell<Option<Carrier>>,
    host: CarrierHost,
    name: String,
    session: RefCell<Option<Session>>,
    version: Option<SessionVersion>,
}

#[wasm_bindgen]
impl Connection {
    /// The next bytes to send to the server; undefined after the last ones.
    pub async fn pull(&self) -> Option<Vec<u8>> {
        self.host.pull().await
    }

    /// Takes bytes from the server, and resolves when there is room for more.
    pub async fn push(&self, bytes: Vec<u8>) {
        self.host.push(&bytes).await;
    }

    /// Says that the server sends no more.
    pub fn end(&self) {
        self.host.end();
    }

    /// Breaks the connection off; everything that waits on it fails.
    #[wasm_bindgen(js_name = breakOff)]
    pub fn break_off(&self) {
        self.host.break_off();
    }

    /// Runs handshake, exchange and appraisal, once. Resolves to the verdict as JSON.
    pub async fn open(&self) -> Result<String, JsValue> {
        let again = || to_js(WebError::Usage("connection is already open".into()));
        let carrier = self.carrier.take().ok_or_else(again)?;
        let (name, authority) = (&self.name, &self.authority);
        let appraiser = self.appraiser.clone();
        let (binding, version) = (self.binding, self.version);
        let opened = session::open(carrier, name, authority, binding, version, appraiser).await;
        let (session, appraised, moving) = opened.map_err(to_js)?;
        spawn_local(moving);
        self.session.replace(Some(session));
        Ok(appraised.to_json().to_string())
    }

    /// Whether the connection can take a request.
    #[wasm_bindgen(js_name = isUsable)]
    pub fn is_usable(&self) -> bool {
        self.session.borrow().as_ref().is_some_and(Session::is_usable)
    }

    /// Sends a request; `fields` holds names and values in turn. Resolves to the head of the answer.
    pub async fn request(
        &self,
        method: String,
        target: String,
        fields: Vec<String>,
        body: Vec<u8>,
    ) -> Result<Answer, JsValue> {
        let busy = || to_js(WebError::Usage("connection is busy or not open".into()));
        let mut session = self.session.take().ok_or_else(busy)?;
        let pairs = fields.chunks_exact(2).map(|pair| (pair[0].clone(), pair[1].clone()));
        let request =
            WebRequest { method: &method, target: &target, fields: pairs.collect(), body };
        let answer = session.send(request).await;
        self.session.replace(Some(session));
        Ok(Answer::new(answer.map_err(to_js)?))
    }
}

/// The answer to a request.
#[wasm_bindgen]
pub struct Answer {
    head: Response<()>,
    body: RefCell<Option<Incoming>>,
}

impl Answer {
    fn new(answer: Response<Incoming>) -> Self {
        let (head, body) = answer.into_parts();
        Self { head: Response::from_parts(head, ()), body: RefCell::new(Some(body)) }
    }
}

#[wasm_bindgen]
impl Answer {
    /// The status.
    #[wasm_bindgen(getter)]
    pub fn status(&self) -> u16 {
        self.head.status().as_u16()
    }

    /// Names and values of the header fields in turn, one character for each byte of a value.
    #[wasm_bindgen(getter)]
    pub fn fields(&self) -> Vec<String> {
        let fields = self.head.headers().iter();
        let to_text = |value: &[u8]| value.iter().copied().map(char::from).collect();
        fields.flat_map(|(name, value)| [name.to_string(), to_text(value.as_bytes())]).collect()
    }

    /// The next piece of the body; undefined at its end.
    pub async fn next(&self) -> Result<Option<Vec<u8>>, JsValue> {
        let Some(mut body) = self.body.take() else { return Ok(None) };
        let piece = session::next_piece(&mut body).await.map_err(to_js)?;
        if piece.is_some() {
            self.body.replace(Some(body));
        }
        Ok(piece.map(|piece| piece.to_vec()))
    }
}
