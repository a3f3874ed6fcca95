//! An adapter at a host: in a process of its own, or in this one behind a pipe.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use confide_arm_line::Outcome;
use confide_lora::{
    Adapter, AnswerAllowance, ProtectedMatrices,
    holder::{HostConnector, HostStream, KeyHolderOptions, RemoteAdapter, StreamFuture},
    host::{AdapterHost, AuditLog, ChannelPeer, ClientList, HostLimits, HostOptions},
    protocol::Scheme,
};
use confide_rlwe::ParameterSet;
use tokio::{io::BufReader, net::TcpStream, runtime::Runtime};

use super::masked::SET;

/// Ciphertexts come by the megabyte.
const BUFFER_BYTES: usize = 64 * 1024;
/// A pipe within this process: a few frames.
const PIPE_BYTES: usize = 1 << 20;
/// Masks of 56 inputs take the better part of a minute, on a busy machine several.
pub(crate) const PREPARE_DEADLINE: Duration = Duration::from_secs(500);

/// Connects to the host at `address`, or to one of this process where there is none.
pub(crate) fn connect(
    adapter: &Adapter,
    address: Option<SocketAddr>,
    scheme: Scheme,
) -> Outcome<RemoteAdapter> {
    let set = ParameterSet::from_name(SET)?;
    let mut options = KeyHolderOptions::new(adapter.name.clone(), set.clone());
    options.scheme = scheme;
    options.mask_deadline = PREPARE_DEADLINE;
    let connect: Arc<dyn HostConnector> = match address {
        Some(address) => Arc::new(TcpConnector(address)),
        None => Arc::new(PipeConnector::new(adapter, set)?),
    };
    Ok(RemoteAdapter::connect(connect, options)?)
}

/// Tokens of one batch: the degree of the ring.
pub(crate) fn batch_tokens() -> Outcome<usize> {
    Ok(ParameterSet::from_name(SET)?.n())
}

struct TcpConnector(SocketAddr);

impl HostConnector for TcpConnector {
    fn connect(&self) -> StreamFuture<'_> {
        Box::pin(async {
            let stream = TcpStream::connect(self.0).await?;
            stream.set_nodelay(true)?;
            let stream = BufReader::with_capacity(BUFFER_BYTES, stream);
            Ok(HostStream { stream: Box::new(stream), simulated: false })
        })
    }

    fn host(&self) -> String {
        self.0.to_string()
    }
}

/// A host in this process: what its work costs without another process to wake.
struct PipeConnector {
    host: Arc<AdapterHost>,
    runtime: Runtime,
}

impl PipeConnector {
    fn new(adapter: &Adapter, parameters: ParameterSet) -> Outcome<Self> {
        let options = HostOptions {
            parameters,
            protect: ProtectedMatrices::A,
            // As the other arms' host: a bench asks more than any budget allows.
            allowance: AnswerAllowance::Vectors(u64::MAX),
            noise_sigma: 0.0,
            rank_max: 64,
            clients: ClientList::default(),
            budget_file: None,
            attested_only: false,
            limits: HostLimits::default(),
        };
        let audit = AuditLog::in_memory(|| 0);
        let host = AdapterHost::new(options, audit)?;
        host.load(adapter)?;
        let runtime = Runtime::new()?;
        Ok(Self { host: Arc::new(host), runtime })
    }
}

impl HostConnector for PipeConnector {
    fn connect(&self) -> StreamFuture<'_> {
        let (near, far) = tokio::io::duplex(PIPE_BYTES);
        let host = Arc::clone(&self.host);
        self.runtime.spawn(async move { host.serve(far, ChannelPeer::default()).await });
        Box::pin(async { Ok(HostStream { stream: Box::new(near), simulated: false }) })
    }

    fn host(&self) -> String {
        "this process".into()
    }
}
