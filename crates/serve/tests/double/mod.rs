//! An engine with adapters and split mode whose answers are known, and a client of its server.

use std::{
    collections::BTreeMap,
    net::SocketAddr,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
};

use confide_engine::{
    AdapterLossPolicy, AdapterReport, Engine, EngineError, FinishReason, Generation,
    GenerationEvent, Model, Prompt, Request, SplitModel, SplitSession, Token, Usage,
};
use confide_lora::{
    AdaptError, DeltaProvider, DeltaReport, DeltaSession, Guarantee, LayerInput, Projection,
    ProjectionSite, ProjectionWidth,
};
use confide_serve::{
    AdapterRegistry, AdapterSource, BaseModelMatch, DrainOutcome, OpenedAdapter, Requester,
    ServeOptions, SourceError, serve,
};
use serde_json::Value;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::oneshot,
    task::JoinHandle,
};

/// Adds `shift` to the one element of each row, and fails after so many calls.
#[derive(Clone)]
pub(crate) struct Shift {
    pub shift: f32,
    pub he_operations: u64,
    pub calls_max: u64,
    sites: BTreeMap<ProjectionSite, ProjectionWidth>,
}

/// Calls of an adapter whose budget is used up.
pub(crate) const BUDGET_USED_UP: u64 = 999;

impl Shift {
    pub(crate) fn new(shift: f32, he_operations: u64, calls_max: u64) -> Self {
        let site = ProjectionSite { layer: 0, projection: Projection::FinalHidden };
        let sites = BTreeMap::from([(site, ProjectionWidth { input: 1, output: 1 })]);
        Self { shift, he_operations, calls_max, sites }
    }
}

impl DeltaProvider for Shift {
    fn sites(&self) -> &BTreeMap<ProjectionSite, ProjectionWidth> {
        &self.sites
    }

    fn guarantee(&self) -> Guarantee {
        match self.he_operations {
            0 => Guarantee::NONE,
            _ => Guarantee { host_is_blind: true, ..Guarantee::NONE },
        }
    }

    fn open_session(&self) -> Result<Box<dyn DeltaSession>, AdaptError> {
        if self.calls_max == BUDGET_USED_UP {
            return Err(AdaptError::Budget { limit: 127 });
        }
        if self.calls_max == 0 {
            return Err(AdaptError::HostLost { reason: "nobody is there".into() });
        }
        Ok(Box::new(Shifting { by: self.clone(), calls: 0 }))
    }
}

struct Shifting {
    by: Shift,
    calls: u64,
}

impl DeltaSession for Shifting {
    fn add_deltas(
        &mut self,
        _layer: u32,
        _input: LayerInput,
        _rows: &[f32],
        outputs: &mut [(Projection, &mut [f32])],
    ) -> Result<(), AdaptError> {
        if self.calls == self.by.calls_max {
            return Err(AdaptError::HostLost { reason: "connection reset".into() });
        }
        self.calls += 1;
        for (_, values) in outputs {
            values.iter_mut().for_each(|value| *value += self.by.shift);
        }
        Ok(())
    }

    fn report(&self) -> DeltaReport {
        DeltaReport {
            he_operations: self.calls * self.by.he_operations,
            answered_vectors: self.calls,
            budget_left: Some(100 - self.calls),
            steps_ms: BTreeMap::from([("encrypt_ms", self.calls as f64)]),
            ..DeltaReport::default()
        }
    }
}

type LoadedAdapter = (Arc<dyn DeltaProvider>, AdapterLossPolicy);

/// Says `base` for its own tokens and `+N` for those that an adapter shifted by N.
#[derive(Clone, Default)]
pub(crate) struct Double {
    adapters: Arc<Mutex<BTreeMap<String, LoadedAdapter>>>,
    pub loads: Arc<AtomicU64>,
}

/// An adapter at work, as an engine keeps it.
struct Work {
    deltas: Option<Box<dyn DeltaSession>>,
    on_loss: AdapterLossPolicy,
    guarantee: Guarantee,
    name: String,
    lost: Option<AdaptError>,
}

impl Work {
    fn add(&mut self) -> Result<f32, EngineError> {
        let mut value = [0.0];
        let Some(deltas) = &mut self.deltas else { return Ok(0.0) };
        if self.lost.is_some() {
            return Ok(0.0);
        }
        let mut outputs = [(Projection::FinalHidden, &mut value[..])];
        match deltas.add_deltas(0, LayerInput::FinalHidden, &[0.0], &mut outputs) {
            Ok(()) => Ok(value[0]),
            Err(error) if self.on_loss == AdapterLossPolicy::Base => {
                self.lost = Some(error);
                Ok(0.0)
            }
            Err(error) => Err(EngineError::Adapter { name: self.name.clone(), error }),
        }
    }

    fn report(&self) -> Option<AdapterReport> {
        let report = self.deltas.as_ref()?.report();
        Some(AdapterReport { report, guarantee: self.guarantee.clone(), lost: self.lost.clone() })
    }
}

impl Double {
    fn work(&self, model: &str) -> Result<Work, EngineError> {
        let none = Work {
            deltas: None,
            on_loss: AdapterLossPolicy::Fail,
            guarantee: Guarantee::NONE,
            name: model.into(),
            lost: None,
        };
        if model == "base" {
            return Ok(none);
        }
        let adapters = self.adapters.lock().expect("a table");
        let (adapter, on_loss) = adapters
            .get(model)
            .cloned()
            .ok_or_else(|| EngineError::UnknownModel { got: model.into() })?;
        let opened = adapter.open_session();
        let opened = opened.map_err(|error| EngineError::Adapter { name: model.into(), error })?;
        Ok(Work { deltas: Some(opened), on_loss, guarantee: adapter.guarantee(), ..none })
    }
}

pub(crate) fn word(shift: f32) -> String {
    if shift == 0.0 { "base ".into() } else { format!("+{shift} ") }
}

impl Engine for Double {
    fn models(&self) -> Vec<Model> {
        let model = |name: &str, parent: Option<&str>| Model {
            name: name.into(),
            context_tokens: 1000,
            manifest_sha256: None,
            weights: None,
            parent: parent.map(Into::into),
        };
        let adapters = self.adapters.lock().expect("a table");
        let adapted = adapters.keys().map(|name| model(name, Some("base")));
        [model("base", None)].into_iter().chain(adapted).collect()
    }

    fn count_prompt_tokens(&self, _model: &str, _prompt: &Prompt) -> Result<u32, EngineError> {
        Ok(1)
    }

    fn generate(&self, request: Request) -> Result<Generation, EngineError> {
        let mut work = self.work(&request.model)?;
        let mut events = Vec::new();
        let tokens = request.max_tokens.unwrap_or(4);
        for id in 0..tokens {
            let was_lost = work.lost.is_some();
            match work.add() {
                Ok(shift) => {
                    if let (Some(reason), false) = (&work.lost, was_lost) {
                        events.push(GenerationEvent::AdapterLost { reason: reason.clone() });
                    }
                    events.push(GenerationEvent::Token(Token { id, text: word(shift).into() }));
                }
                Err(error) => {
                    events.push(GenerationEvent::Failed(error));
                    return Ok(Generation::new(1, futures_util::stream::iter(events)));
                }
            }
        }
        events.push(GenerationEvent::Finished {
            reason: FinishReason::Length,
            tail: String::new(),
            usage: Usage { prompt_tokens: 1, completion_tokens: tokens },
            adapter: work.report(),
        });
        Ok(Generation::new(1, futures_util::stream::iter(events)))
    }

    fn slots(&self) -> usize {
        8
    }

    fn load_adapter(
        &self,
        name: &str,
        adapter: Arc<dyn DeltaProvider>,
        on_loss: AdapterLossPolicy,
    ) -> Result<(), EngineError> {
        self.loads.fetch_add(1, Ordering::Relaxed);
        self.adapters.lock().expect("a table").insert(name.into(), (adapter, on_loss));
        Ok(())
    }

    fn unload_adapter(&self, name: &str) -> Result<(), EngineError> {
        let gone = self.adapters.lock().expect("a table").remove(name);
        gone.map(drop).ok_or_else(|| EngineError::UnknownModel { got: name.into() })
    }

    fn split_model(&self) -> Option<Arc<dyn SplitModel>> {
        Some(Arc::new(self.clone()))
    }
}

impl SplitModel for Double {
    fn width(&self) -> usize {
        1
    }

    fn context_tokens(&self) -> u32 {
        1000
    }

    fn open_session(&self, adapter: Option<&str>) -> Result<Box<dyn SplitSession>, EngineError> {
        Ok(Box::new(Session { work: self.work(adapter.unwrap_or("base"))?, read: 0 }))
    }
}

struct Session {
    work: Work,
    read: u32,
}

impl SplitSession for Session {
    fn forward(&mut self, ids: &[u32]) -> Result<Vec<f32>, EngineError> {
        self.read += ids.len() as u32;
        Ok(vec![self.work.add()?])
    }

    fn forward_embeddings(&mut self, rows: &[f32]) -> Result<Vec<f32>, EngineError> {
        self.read += rows.len() as u32;
        Ok(vec![self.work.add()?])
    }

    fn token_count(&self) -> u32 {
        self.read
    }

    fn restart(&mut self) {
        self.read = 0;
    }

    fn adapter_report(&self) -> Option<AdapterReport> {
        self.work.report()
    }
}

/// Paths are `SHIFT`, `SHIFT/HE` or `SHIFT/HE/CALLS`; requests may not name those that begin with
/// 9.
pub(crate) struct Shifts;

impl AdapterSource for Shifts {
    fn open(
        &self,
        _name: &str,
        path: &str,
        asker: Requester,
    ) -> Result<OpenedAdapter, SourceError> {
        if asker == Requester::Request && path.starts_with('9') {
            let reason = "it begins with 9".into();
            return Err(SourceError::Refused { path: path.into(), reason });
        }
        let parts: Result<Vec<f32>, _> = path.split('/').map(str::parse).collect();
        let unusable =
            |_| SourceError::Unusable { path: path.into(), reason: "not a number".into() };
        let parts = parts.map_err(unusable)?;
        let whole = |index: usize, missing: u64| parts.get(index).map_or(missing, |n| *n as u64);
        let (he, calls) = (whole(1, 0), whole(2, u64::MAX));
        let reference: Option<Arc<dyn DeltaProvider>> = match he {
            0 => None,
            _ => Some(Arc::new(Shift::new(parts[0], 0, u64::MAX))),
        };
        let adapter = Arc::new(Shift::new(parts[0], he, calls));
        Ok(OpenedAdapter { adapter, root: path.into(), reference, base: BaseModelMatch::Confirmed })
    }
}

pub(crate) struct Server {
    pub address: SocketAddr,
    pub engine: Double,
    stop: oneshot::Sender<()>,
    task: JoinHandle<DrainOutcome>,
}

impl Server {
    /// A server with these adapters, each `(name, path)`, after `change` of its options.
    pub(crate) async fn start_with(
        adapters: &[(&str, &str)],
        on_loss: AdapterLossPolicy,
        runtime: bool,
        change: impl FnOnce(&mut ServeOptions),
    ) -> Self {
        let double = Double::default();
        let engine: Arc<dyn Engine> = Arc::new(double.clone());
        let mut options = ServeOptions::new(Arc::clone(&engine), || 1_700_000_000);
        let loaded = AdapterRegistry::new(engine, Arc::new(Shifts), on_loss, runtime);
        for (name, path) in adapters {
            loaded.load(name, path, Requester::Operator).expect("an adapter");
        }
        options.adapters = Arc::new(loaded);
        change(&mut options);
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let (stop, stopped) = oneshot::channel::<()>();
        let task = tokio::spawn(serve(listener, options, async {
            let _ = stopped.await;
        }));
        Self { address, engine: double, stop, task }
    }

    /// Asks it to stop, and waits until it has.
    pub(crate) async fn end(self) -> DrainOutcome {
        let _ = self.stop.send(());
        self.task.await.expect("the server ends")
    }

    /// Status and body of a request, whose `head` may have more fields, each with its line end.
    pub(crate) async fn send(
        &self,
        method: &str,
        path: &str,
        head: &str,
        body: &str,
    ) -> (u16, String) {
        let mut stream = TcpStream::connect(self.address).await.expect("a connection");
        let request = format!(
            "{method} {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n{head}\
             content-length: {}\r\n\r\n{body}",
            body.len()
        );
        stream.write_all(request.as_bytes()).await.expect("it is taken");
        let mut bytes = Vec::new();
        stream.read_to_end(&mut bytes).await.expect("an answer");
        let text = String::from_utf8(bytes).expect("text");
        let (head, body) = text.split_once("\r\n\r\n").expect("a head");
        let status = head.split(' ').nth(1).and_then(|word| word.parse().ok()).expect("a status");
        (status, body.into())
    }

    pub(crate) async fn post(&self, path: &str, body: &Value) -> (u16, Value) {
        let (status, body) = self.send("POST", path, "", &body.to_string()).await;
        (status, serde_json::from_str(&body).unwrap_or(Value::String(body)))
    }

    pub(crate) async fn fetch(&self, path: &str) -> Value {
        let (status, body) = self.send("GET", path, "", "").await;
        assert_eq!(status, 200, "{body}");
        serde_json::from_str(&body).expect("a JSON body")
    }
}
