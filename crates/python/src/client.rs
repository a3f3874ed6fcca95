//! The client of one policy: attested ends by host and port, each with connections of its own.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use confide_client::{
    Binding, ClientLimits, Connector, Endpoint, HttpClient, PolicyAppraiser, SessionVersion,
    error_chain,
};
use confide_verifier::{BindingLevel, Policy};
use pyo3::prelude::*;

use crate::{
    answer::Answer,
    attested_end::AttestedEnd,
    exchange::{WireRequest, exchange},
    failure::Failure,
    inputs::parse_policy_with_root,
    operation::{self, Operation},
    receipts::{Exchange, check_receipt},
    runtime::{unix_now, wait},
};

/// The largest number of hosts that one client connects to.
const ENDS_MAX: usize = 64;

/// The options of a client, read from an object of `confide.transport`.
#[derive(FromPyObject)]
pub(crate) struct ClientOptions {
    binding: Option<String>,
    collateral: Option<Vec<u8>>,
    evidence_age_s: u64,
    max_connections: usize,
    policy: String,
    root: Option<Vec<u8>>,
    session_version: Option<u8>,
    via: Option<String>,
}

/// Sends requests to ends whose evidence one policy accepts.
#[pyclass(frozen, module = "confide._native")]
pub(crate) struct Client {
    policy: Arc<Policy>,
    collateral: Option<Arc<[u8]>>,
    appraiser: Arc<PolicyAppraiser>,
    binding: Binding,
    version: Option<SessionVersion>,
    via: Option<String>,
    limits: ClientLimits,
    /// The process that made the client: its connections do not exist in a fork.
    pid: u32,
    ends: Mutex<HashMap<Endpoint, Arc<AttestedEnd>>>,
}

#[pymethods]
impl Client {
    #[new]
    fn new(py: Python<'_>, options: ClientOptions) -> PyResult<Self> {
        py.detach(|| Self::build(options)).map_err(|failure| failure.into_exception(py))
    }

    /// Sends a request and waits for the head of its answer.
    fn send(&self, py: Python<'_>, request: WireRequest) -> PyResult<Answer> {
        let end = self.find_end(&request.host, request.port);
        let end = end.map_err(|failure| failure.into_exception(py))?;
        wait(py, exchange(end, request))
    }

    /// Starts to send a request; `on_end` is called with the answer, or with an exception.
    fn start_send(
        &self,
        py: Python<'_>,
        request: WireRequest,
        on_end: Py<PyAny>,
    ) -> PyResult<Operation> {
        let end = self.find_end(&request.host, request.port);
        let end = end.map_err(|failure| failure.into_exception(py))?;
        operation::start(py, on_end, exchange(end, request), |py, answer| {
            Ok(Py::new(py, answer)?.into_any())
        })
    }

    /// Fetches the receipt of an exchange, judges it and gives the verdict, JSON.
    fn check_receipt(
        &self,
        py: Python<'_>,
        request: WireRequest,
        receipt_id: String,
        response: Vec<u8>,
    ) -> PyResult<String> {
        let check = self.start_receipt(request, receipt_id, response);
        let check = check.map_err(|failure| failure.into_exception(py))?;
        wait(py, check)
    }

    /// Starts [`Client::check_receipt`]; `on_end` is called with the verdict, or with an exception.
    fn start_check_receipt(
        &self,
        py: Python<'_>,
        request: WireRequest,
        receipt_id: String,
        response: Vec<u8>,
        on_end: Py<PyAny>,
    ) -> PyResult<Operation> {
        let check = self.start_receipt(request, receipt_id, response);
        let check = check.map_err(|failure| failure.into_exception(py))?;
        operation::start(py, on_end, check, |py, verdict| {
            Ok(verdict.into_pyobject(py)?.into_any().unbind())
        })
    }

    /// Closes the connections that no request uses.
    fn close(&self) {
        self.lock_ends().clear();
    }
}

impl Client {
    fn build(options: ClientOptions) -> Result<Self, Failure> {
        let policy = parse_policy_with_root(&options.policy, options.root.as_deref())?;
        let version = options.session_version.map(|number| {
            SessionVersion::from_number(number).ok_or_else(|| {
                Failure::input(format!("session_version: wanted 1, 2 or 3, got {number}"))
            })
        });
        let version = version.transpose()?;
        let binding = match options.binding.as_deref() {
            Some("key") if version.is_some() => {
                let text =
                    "session_version: wanted binding \"session\" or none with it, got \"key\"";
                return Err(Failure::input(text));
            }
            Some("key") => Binding::Key,
            Some("session") => Binding::Session,
            None if policy.binding == Some(BindingLevel::Session) || version.is_some() => {
                Binding::Session
            }
            None => Binding::Key,
            Some(other) => {
                let text = format!("binding: wanted \"key\" or \"session\", got \"{other}\"");
                return Err(Failure::input(text));
            }
        };
        let appraiser =
            PolicyAppraiser::new(policy.clone(), options.collateral.as_deref(), unix_now);
        let appraiser =
            appraiser.map_err(|error| Failure::input(format!("collateral: {error}")))?;
        let limits = ClientLimits {
            age_max: Duration::from_secs(options.evidence_age_s),
            connections: options.max_connections,
            ..ClientLimits::default()
        };
        Ok(Self {
            policy: Arc::new(policy),
            collateral: options.collateral.map(Into::into),
            appraiser: Arc::new(appraiser),
            binding,
            version,
            via: options.via,
            limits,
            pid: std::process::id(),
            ends: Mutex::default(),
        })
    }

    fn start_receipt(
        &self,
        request: WireRequest,
        receipt_id: String,
        response: Vec<u8>,
    ) -> Result<impl Future<Output = Result<String, Failure>> + Send + use<>, Failure> {
        let end = self.find_end(&request.host, request.port)?;
        let exchange = Exchange::new(request, receipt_id, response)?;
        let check = check_receipt(end, self.policy.clone(), self.collateral.clone(), exchange);
        Ok(async move { Ok(check.await?.to_string()) })
    }

    /// The end at a host and port, with the connections that it has already.
    fn find_end(&self, host: &str, port: u16) -> Result<Arc<AttestedEnd>, Failure> {
        if self.pid != std::process::id() {
            return Err(Failure::Input {
                message: "this client was made by another process, whose connections are not \
                          in this one"
                    .into(),
                hint: Some("make a client after the fork".into()),
            });
        }
        let endpoint = Endpoint::new(host.trim_start_matches('[').trim_end_matches(']'), port);
        let mut ends = self.lock_ends();
        if let Some(end) = ends.get(&endpoint) {
            return Ok(end.clone());
        }
        if ends.len() >= ENDS_MAX {
            let text = format!("too many hosts: wanted at most {ENDS_MAX} for one client");
            return Err(Failure::input(text));
        }
        let connector = Connector::with_appraiser(
            endpoint.clone(),
            self.via.clone(),
            self.binding,
            self.appraiser.clone(),
            self.limits,
        );
        let connector = connector.and_then(|connector| match self.version {
            Some(version) => connector.with_session_version(version),
            None => Ok(connector),
        });
        let connector = connector.map_err(|error| Failure::input(error_chain(&error)))?;
        let http = HttpClient::new(connector, self.limits, unix_now);
        let url = format!("https://{endpoint}");
        let end = AttestedEnd::new(url, self.via.clone(), self.binding.name(), http);
        Ok(ends.entry(endpoint).or_insert(Arc::new(end)).clone())
    }

    fn lock_ends(&self) -> std::sync::MutexGuard<'_, HashMap<Endpoint, Arc<AttestedEnd>>> {
        self.ends.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
