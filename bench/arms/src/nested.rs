//! Bulk transfer through one or two layers of TLS on loopback.
//!
//! Both ends are in this process, as in the report `004`: its clock runs from connecting to the
//! acknowledgement, handshakes included (`rate_mib_per_s`). The payload alone stands next to it
//! (`transfer_mib_per_s`), and so does the CPU time of both ends.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use tokio_util::io::{InspectReader, InspectWriter};

use crate::{
    clock::unix_now,
    stream::{ReadWrite, Stream},
    version::VERSION_WITH_TLS,
};
use confide_arm_line::{Hello, Outcome, Report, Run, Stopwatch, nearest_rank, serve_runs};
use confide_channel::{
    Binding, ClientOptions, PlainClient, RecordTuning, Server, ServerOptions, nested_accept,
};
use serde_json::json;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt, BufReader, BufWriter},
    net::{TcpListener, TcpStream},
    runtime::Runtime,
};

#[derive(clap::Args)]
pub(crate) struct Args {
    /// 1: one TLS session. 2: a TLS session inside another.
    #[arg(long)]
    layers: u8,
}

pub(crate) fn run(args: Args) -> Outcome {
    let runtime = Runtime::new()?;
    let ends = Arc::new(Endpoints::new(args.layers)?);
    let hello = Hello {
        threads: std::thread::available_parallelism().map_or(1, usize::from),
        note: Some("both ends in one process, over loopback TCP".into()),
        ..Hello::new(
            format!("{} of TLS 1.3", if args.layers == 1 { "one layer" } else { "two layers" }),
            VERSION_WITH_TLS,
        )
    };
    serve_runs(&hello, |order| runtime.block_on(measure_transfers(&ends, order)))
}

/// Client and server of each TLS layer.
struct Endpoints {
    outer: (PlainClient, Server),
    inner: Option<(PlainClient, Server)>,
}

/// The deadline of every handshake, far above what a loaded machine needs.
const DEADLINE: Duration = Duration::from_secs(20);
/// The server's name in every certificate and every handshake.
const NAME: &str = "localhost";

impl Endpoints {
    fn new(layers: u8) -> Outcome<Self> {
        let layer = |tuning: RecordTuning| -> Outcome<(PlainClient, Server)> {
            let options = ServerOptions {
                binding: Binding::None,
                config_digest: [0; 32],
                guarantee: "none".into(),
                key_validity: Duration::from_secs(86_400),
                deadline: DEADLINE,
                names: vec![NAME.into()],
                weights: None,
            };
            let server = Server::new(options, None, unix_now)?;
            let options = ClientOptions { binding: Binding::None, deadline: DEADLINE };
            let client = PlainClient::new(options, &server.certificate_der(), unix_now)?;
            Ok((client.with_tuning(tuning), server.with_tuning(tuning)))
        };
        let inner = match layers {
            1 => None,
            2 => Some(layer(RecordTuning::for_nested_tls())?),
            other => return Err(format!("--layers {other}: wanted 1 or 2").into()),
        };
        Ok(Self { outer: layer(RecordTuning::default())?, inner })
    }
}

/// The transfers of one run.
#[derive(Clone, Copy)]
struct TransferLoad {
    payload_bytes: u64,
    chunk_bytes: usize,
    connections: u64,
}

const CONCURRENCY_MAX: u64 = 256;
const CHUNK_BYTES_MAX: u64 = 64 << 20;

async fn measure_transfers(ends: &Arc<Endpoints>, order: &Run) -> Outcome<Report> {
    order.refuse_unknown_params(&["chunk_bytes", "concurrency", "payload_bytes"])?;
    let concurrency = order.integer_param("concurrency", 1)?.clamp(1, CONCURRENCY_MAX);
    let load = TransferLoad {
        payload_bytes: order.integer_param("payload_bytes", 1 << 20)?,
        chunk_bytes: order.integer_param("chunk_bytes", 16 << 10)?.clamp(1, CHUNK_BYTES_MAX)
            as usize,
        connections: order.requests,
    };
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    let server = tokio::spawn(serve(listener, ends.clone()));
    let wire = Arc::new(AtomicU64::new(0));
    let watch = Stopwatch::start();
    let workers: Vec<_> = (0..concurrency)
        .map(|_| tokio::spawn(send_payloads(ends.clone(), address, load, wire.clone())))
        .collect();
    let mut seconds: Vec<(f64, f64)> = Vec::new();
    for worker in workers {
        seconds.extend(worker.await??);
    }
    let mut report = watch.report();
    server.abort();
    let bytes = load.payload_bytes * seconds.len() as u64;
    report.answer = json!({ "bytes": bytes });
    let mib = bytes as f64 / f64::from(1 << 20);
    let mut handshakes_ms: Vec<f64> = seconds.iter().map(|(open, _)| open * 1e3).collect();
    let sending_s: f64 = seconds.iter().map(|(_, sent)| sent).sum();
    report.set("rate_mib_per_s", mib / report.wall_s);
    report.set("transfer_mib_per_s", mib / sending_s * concurrency as f64);
    report.set("handshake_p50_ms", nearest_rank(&mut handshakes_ms, 0.5));
    report.set("cpu_ms_per_mib", report.cpu_s * 1e3 / mib);
    let wire_bytes = wire.load(Ordering::Relaxed);
    report.set("wire_per_app_ratio", wire_bytes as f64 / bytes as f64);
    Ok(report)
}

/// Sends the payload over as many connections as asked, one after the other; gives for each the
/// seconds to open it and the seconds from the first byte to the acknowledgement.
async fn send_payloads(
    ends: Arc<Endpoints>,
    address: std::net::SocketAddr,
    load: TransferLoad,
    wire: Arc<AtomicU64>,
) -> Outcome<Vec<(f64, f64)>> {
    let chunk = vec![0x5a; load.chunk_bytes];
    let mut seconds = Vec::new();
    for _ in 0..load.connections {
        let start = Instant::now();
        let tcp = TcpStream::connect(address).await?;
        tcp.set_nodelay(true)?;
        let mut stream = open_tls_layers(&ends, count_bytes(tcp, &wire)).await?;
        let opened = Instant::now();
        let received = send_payload(&mut stream, load.payload_bytes, &chunk)
            .await
            .map_err(|error| format!("the transfer broke: {error}"))?;
        if received != load.payload_bytes {
            return Err(
                format!("wanted {} bytes received, got {received}", load.payload_bytes).into()
            );
        }
        seconds.push(((opened - start).as_secs_f64(), opened.elapsed().as_secs_f64()));
        let _ = stream.shutdown().await;
    }
    Ok(seconds)
}

/// rustls asks for 4 KiB at a time; the buffer turns that into whole reads of the socket, in both
/// arms alike.
const SOCKET_BYTES: usize = 64 << 10;

/// Counts the bytes that cross the client's socket in both directions.
fn count_bytes(tcp: TcpStream, wire: &Arc<AtomicU64>) -> impl ReadWrite + 'static {
    let counter = || {
        let wire = wire.clone();
        move |bytes: &[u8]| {
            wire.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        }
    };
    InspectReader::new(InspectWriter::new(tcp, counter()), counter())
}

async fn open_tls_layers(ends: &Endpoints, io: impl ReadWrite + 'static) -> Outcome<Stream> {
    let io = BufReader::with_capacity(SOCKET_BYTES, io);
    let outer = ends.outer.0.connect(NAME, io).await?;
    let Some((inner, _)) = &ends.inner else { return Ok(Box::new(outer.stream)) };
    let tuning = RecordTuning::for_nested_tls();
    let carrier = BufReader::with_capacity(tuning.buffer_bytes, outer.stream);
    let inner = inner.connect(NAME, carrier).await?;
    Ok(Box::new(BufWriter::with_capacity(tuning.write_bytes, inner.stream)))
}

async fn send_payload(
    stream: &mut Stream,
    payload_bytes: u64,
    chunk: &[u8],
) -> std::io::Result<u64> {
    stream.write_u64(payload_bytes).await?;
    let mut left = payload_bytes;
    while left > 0 {
        let count = chunk.len().min(usize::try_from(left).unwrap_or(usize::MAX));
        stream.write_all(&chunk[..count]).await?;
        left -= count as u64;
    }
    stream.flush().await?;
    stream.read_u64().await
}

async fn serve(listener: TcpListener, ends: Arc<Endpoints>) {
    while let Ok((tcp, _)) = listener.accept().await {
        let ends = ends.clone();
        tokio::spawn(async move {
            let _ = tcp.set_nodelay(true);
            let tcp = BufReader::with_capacity(SOCKET_BYTES, tcp);
            let accepted: Option<Stream> = match &ends.inner {
                None => ends.outer.1.accept(tcp).await.ok().map(|a| Box::new(a.stream) as Stream),
                Some((_, inner)) => {
                    nested_accept(&ends.outer.1, inner, RecordTuning::for_nested_tls(), tcp)
                        .await
                        .ok()
                        .map(|a| Box::new(a.stream) as Stream)
                }
            };
            // A client whose connection broke reports it; this end has nobody to tell.
            if let Some(stream) = accepted {
                let _ = receive_payload(stream).await;
            }
        });
    }
}

/// Reads as many bytes as announced and answers with how many came.
async fn receive_payload(mut stream: Stream) -> std::io::Result<()> {
    let wanted = stream.read_u64().await?;
    let mut buffer = vec![0; 256 << 10];
    let mut received = 0;
    while received < wanted {
        match stream.read(&mut buffer).await? {
            0 => break,
            count => received += count as u64,
        }
    }
    stream.write_u64(received).await?;
    stream.flush().await?;
    stream.shutdown().await
}
