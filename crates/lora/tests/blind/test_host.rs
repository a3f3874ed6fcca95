//! A host in this process, and pipes to it that a test can break.

use std::{
    collections::BTreeMap,
    io,
    net::Ipv4Addr,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
};

use confide_lora::{
    Adapter, AnswerAllowance, LoraPair, Matrix, Projection, ProjectionSite, ProtectedMatrices,
    holder::{HostConnector, HostStream, KeyHolderOptions, RemoteAdapter, StreamFuture},
    host::{AdapterHost, AuditLog, ChannelPeer, ClientList, HostLimits, HostOptions, PeerPrefix},
};
use confide_rlwe::ParameterSet;
use tokio::{io::DuplexStream, runtime::Runtime, task::AbortHandle};

const PIPE_BYTES: usize = 64 * 1024;

/// The address from which honest key holders connect.
pub(crate) const HONEST: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);

pub(crate) struct TestHost {
    runtime: Runtime,
    state: Arc<PipeState>,
}

struct PipeState {
    host: Mutex<Option<Arc<AdapterHost>>>,
    connections: Mutex<Vec<AbortHandle>>,
    attested: AtomicBool,
    handle: tokio::runtime::Handle,
}

struct PipeConnector(Arc<PipeState>);

pub(crate) fn parameters() -> ParameterSet {
    ParameterSet::dangerous_from_name("toy-256-q100-flood40").unwrap()
}

pub(crate) fn host_options() -> HostOptions {
    HostOptions {
        parameters: parameters(),
        protect: ProtectedMatrices::A,
        allowance: AnswerAllowance::BelowWidth,
        noise_sigma: 0.0,
        rank_max: 64,
        clients: ClientList::default(),
        budget_file: None,
        attested_only: false,
        limits: HostLimits::default(),
    }
}

impl TestHost {
    pub(crate) fn new(options: HostOptions, adapters: &[&Adapter]) -> TestHost {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .unwrap();
        let state = Arc::new(PipeState {
            host: Mutex::new(Some(host(options, adapters))),
            connections: Mutex::default(),
            attested: AtomicBool::new(false),
            handle: runtime.handle().clone(),
        });
        TestHost { runtime, state }
    }

    pub(crate) fn host(&self) -> Arc<AdapterHost> {
        self.state.host.lock().unwrap().clone().unwrap()
    }

    pub(crate) fn remote(
        &self,
        adapter: &str,
        change: impl FnOnce(&mut KeyHolderOptions),
    ) -> RemoteAdapter {
        let mut options = KeyHolderOptions::new(adapter, parameters());
        change(&mut options);
        RemoteAdapter::connect(self.connect(), options).unwrap()
    }

    pub(crate) fn connect(&self) -> Arc<dyn HostConnector> {
        Arc::new(PipeConnector(self.state.clone()))
    }

    pub(crate) fn pipe(&self) -> DuplexStream {
        self.pipe_from(Ipv4Addr::LOCALHOST)
    }

    /// Opens a connection that the host treats as one from `address`.
    pub(crate) fn pipe_from(&self, address: Ipv4Addr) -> DuplexStream {
        self.state.pipe(address).unwrap()
    }

    pub(crate) fn runtime(&self) -> &Runtime {
        &self.runtime
    }

    /// Marks later peers as attested by simulated evidence.
    pub(crate) fn attest_peers(&self) {
        self.state.attested.store(true, Ordering::Relaxed);
    }

    /// Breaks every connection, but leaves the host running.
    pub(crate) fn break_connections(&self) {
        for connection in self.state.connections.lock().unwrap().drain(..) {
            connection.abort();
        }
    }

    /// Removes the host, as the kill of its process would.
    pub(crate) fn remove_host(&self) {
        *self.state.host.lock().unwrap() = None;
        self.break_connections();
    }

    /// Starts another process of the same host.
    pub(crate) fn restart(&self, options: HostOptions, adapters: &[&Adapter]) {
        *self.state.host.lock().unwrap() = Some(host(options, adapters));
        self.break_connections();
    }
}

impl PipeState {
    fn pipe(&self, address: Ipv4Addr) -> io::Result<DuplexStream> {
        let host = self.host.lock().unwrap().clone();
        let host = host.ok_or_else(|| io::Error::from(io::ErrorKind::ConnectionRefused))?;
        let (near, far) = tokio::io::duplex(PIPE_BYTES);
        let attested = self.attested.load(Ordering::Relaxed);
        let prefix = Some(PeerPrefix::V4(address));
        let peer = ChannelPeer { attested, simulated: attested, prefix };
        let task = self.handle.spawn(async move { host.serve(far, peer).await });
        self.connections.lock().unwrap().push(task.abort_handle());
        Ok(near)
    }
}

impl HostConnector for PipeConnector {
    fn connect(&self) -> StreamFuture<'_> {
        Box::pin(async {
            Ok(HostStream { stream: Box::new(self.0.pipe(HONEST)?), simulated: false })
        })
    }

    fn host(&self) -> String {
        "pipe".into()
    }
}

fn host(options: HostOptions, adapters: &[&Adapter]) -> Arc<AdapterHost> {
    let host = AdapterHost::new(options, AuditLog::in_memory(|| 1_800_000_000)).unwrap();
    for adapter in adapters {
        host.load(adapter).unwrap();
    }
    Arc::new(host)
}

/// Makes an adapter of q, v and o of two layers, of rank 4.
pub(crate) fn adapter(name: &str, width: usize) -> Adapter {
    let mut modules = BTreeMap::new();
    for layer in 0..2 {
        for projection in [Projection::Query, Projection::Value, Projection::Output] {
            let seed = layer as u64 * 10 + projection as u64;
            let pair = LoraPair {
                a: matrix(4, width, seed * 2 + 1),
                b: matrix(width, 4, seed * 2 + 2),
                scale: 2.0,
            };
            modules.insert(ProjectionSite { layer, projection }, pair);
        }
    }
    Adapter { name: name.into(), base_model: None, modules }
}

/// Activations that depend only on the shape.
pub(crate) fn vectors(count: usize, width: usize) -> Vec<f32> {
    uniform(count * width, 77).map(|value| value * 3.0).collect()
}

fn matrix(rows: usize, columns: usize, seed: u64) -> Matrix {
    let values = uniform(rows * columns, seed).map(|value| value * 0.1).collect();
    Matrix { rows, columns, values }
}

/// Numbers between -1 and 1.
fn uniform(count: usize, seed: u64) -> impl Iterator<Item = f32> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    (0..count).map(move |_| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 40) as f32 / (1 << 23) as f32 - 1.0
    })
}
