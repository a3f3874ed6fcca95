//! Bulk transfer through one or two layers of TLS on loopback.
//!
//! Both ends are in this process, as in the report `004`: its clock runs from connecting to the
//! acknowledgement, handshakes included (`rate_mib_per_s`). The payload alone stands beside it
//! (`transfer_mib_per_s`), and so does the CPU time of both ends.

use std::{
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    task::{Context, Poll},
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use confide_arm_line::{Hello, Report, Run, Stopwatch, nearest_rank, speak};
use confide_channel::{
    Binding, ClientOptions, PlainClient, Server, ServerOptions, Tuning, nested_accept,
};
use serde_json::json;
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, BufReader, BufWriter, ReadBuf},
    net::{TcpListener, TcpStream},
    runtime::Runtime,
};

use crate::Outcome;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// 1: one TLS session. 2: a TLS session inside another.
    #[arg(long)]
    layers: u8,
}

pub(crate) fn run(args: Args) -> Outcome {
    let runtime = Runtime::new().map_err(|error| error.to_string())?;
    let ends = Arc::new(Ends::new(args.layers)?);
    let hello = Hello {
        arm: format!("{} of TLS 1.3", if args.layers == 1 { "one layer" } else { "two layers" }),
        version: format!("confide {}, rustls, aws-lc-rs", env!("CARGO_PKG_VERSION")),
        simulated: false,
        guarantee: None,
        threads: std::thread::available_parallelism().map_or(1, usize::from),
        note: Some("both ends in one process, over loopback TCP".into()),
    };
    speak(&hello, |order| runtime.block_on(transfer(&ends, order)))
        .map_err(|error| error.to_string())
}

/// Both ends of each layer.
struct Ends {
    outer: (PlainClient, Server),
    inner: Option<(PlainClient, Server)>,
}

/// One deadline for a handshake; far above what a loaded machine needs.
const DEADLINE: Duration = Duration::from_secs(20);
/// In every certificate and every request for one.
const NAME: &str = "localhost";

impl Ends {
    fn new(layers: u8) -> Outcome<Self> {
        let layer = |tuning: Tuning| -> Outcome<(PlainClient, Server)> {
            let options = ServerOptions {
                binding: Binding::None,
                config_digest: [0; 32],
                guarantee: "none".into(),
                key_validity: Duration::from_secs(86_400),
                deadline: DEADLINE,
                names: vec![NAME.into()],
            };
            let server = Server::new(options, None, unix_now).map_err(|error| error.to_string())?;
            let options = ClientOptions { binding: Binding::None, deadline: DEADLINE };
            let client = PlainClient::new(options, &server.certificate_der(), unix_now)
                .map_err(|error| error.to_string())?;
            Ok((client.with_tuning(tuning), server.with_tuning(tuning)))
        };
        let inner = match layers {
            1 => None,
            2 => Some(layer(Tuning::for_nested_tls())?),
            other => return Err(format!("--layers {other}: wanted 1 or 2")),
        };
        Ok(Self { outer: layer(Tuning::default())?, inner })
    }
}

fn unix_now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

/// What one run transfers.
#[derive(Clone, Copy)]
struct Load {
    payload_bytes: u64,
    chunk_bytes: usize,
    connections: u64,
}

const CONCURRENCY_MAX: u64 = 256;
const CHUNK_BYTES_MAX: u64 = 64 << 20;

async fn transfer(ends: &Arc<Ends>, order: &Run) -> Outcome<Report> {
    order.knows_only(&["chunk_bytes", "concurrency", "payload_bytes"])?;
    let concurrency = order.number("concurrency", 1)?.clamp(1, CONCURRENCY_MAX);
    let load = Load {
        payload_bytes: order.number("payload_bytes", 1 << 20)?,
        chunk_bytes: order.number("chunk_bytes", 16 << 10)?.clamp(1, CHUNK_BYTES_MAX) as usize,
        connections: order.requests,
    };
    let listener = TcpListener::bind("127.0.0.1:0").await.map_err(|error| error.to_string())?;
    let address = listener.local_addr().map_err(|error| error.to_string())?;
    let door = tokio::spawn(serve(listener, ends.clone()));
    let wire = Arc::new(AtomicU64::new(0));
    let watch = Stopwatch::start();
    let workers: Vec<_> = (0..concurrency)
        .map(|_| tokio::spawn(send_many(ends.clone(), address, load, wire.clone())))
        .collect();
    let mut seconds: Vec<(f64, f64)> = Vec::new();
    for worker in workers {
        seconds.extend(worker.await.map_err(|error| error.to_string())??);
    }
    let (wall_s, cpu_s) = watch.stop();
    door.abort();
    let mut report = Report { wall_s, cpu_s, ..Report::default() };
    let bytes = load.payload_bytes * seconds.len() as u64;
    report.answer = json!({ "bytes": bytes });
    let mib = bytes as f64 / f64::from(1 << 20);
    let mut handshakes_ms: Vec<f64> = seconds.iter().map(|(open, _)| open * 1e3).collect();
    let sending_s: f64 = seconds.iter().map(|(_, sent)| sent).sum();
    let metrics = &mut report.metrics;
    metrics.insert("rate_mib_per_s".into(), json!(mib / wall_s));
    metrics.insert("transfer_mib_per_s".into(), json!(mib / sending_s * concurrency as f64));
    metrics.insert("handshake_p50_ms".into(), json!(nearest_rank(&mut handshakes_ms, 0.5)));
    metrics.insert("cpu_ms_per_mib".into(), json!(cpu_s * 1e3 / mib));
    let wire_bytes = wire.load(Ordering::Relaxed);
    metrics.insert("wire_per_app_ratio".into(), json!(wire_bytes as f64 / bytes as f64));
    Ok(report)
}

/// Sends the payload over as many connections as asked, one after the other; gives for each the
/// seconds to open it and the seconds from the first byte to the acknowledgement.
async fn send_many(
    ends: Arc<Ends>,
    address: std::net::SocketAddr,
    load: Load,
    wire: Arc<AtomicU64>,
) -> Outcome<Vec<(f64, f64)>> {
    let chunk = vec![0x5a; load.chunk_bytes];
    let mut seconds = Vec::new();
    for _ in 0..load.connections {
        let start = Instant::now();
        let tcp = TcpStream::connect(address).await.map_err(|error| error.to_string())?;
        tcp.set_nodelay(true).map_err(|error| error.to_string())?;
        let mut stream = open(&ends, Counted { tcp, bytes: wire.clone() }).await?;
        let opened = Instant::now();
        let received = send(&mut stream, load.payload_bytes, &chunk)
            .await
            .map_err(|error| format!("the transfer broke: {error}"))?;
        if received != load.payload_bytes {
            return Err(format!("wanted {} bytes received, got {received}", load.payload_bytes));
        }
        seconds.push(((opened - start).as_secs_f64(), opened.elapsed().as_secs_f64()));
        let _ = stream.shutdown().await;
    }
    Ok(seconds)
}

type Stream = Box<dyn ReadWrite>;
trait ReadWrite: AsyncRead + AsyncWrite + Unpin + Send {}
impl<T: AsyncRead + AsyncWrite + Unpin + Send> ReadWrite for T {}

/// rustls asks for 4 KiB at a time; the buffer turns that into whole reads of the socket, in both
/// arms alike.
const SOCKET_BYTES: usize = 64 << 10;

async fn open(ends: &Ends, io: Counted) -> Outcome<Stream> {
    let io = BufReader::with_capacity(SOCKET_BYTES, io);
    let outer = ends.outer.0.connect(NAME, io).await.map_err(|error| error.to_string())?;
    let Some((inner, _)) = &ends.inner else { return Ok(Box::new(outer.stream)) };
    let tuning = Tuning::for_nested_tls();
    let carrier = BufReader::with_capacity(tuning.buffer_bytes, outer.stream);
    let inner = inner.connect(NAME, carrier).await.map_err(|error| error.to_string())?;
    Ok(Box::new(BufWriter::with_capacity(tuning.write_bytes, inner.stream)))
}

async fn send(stream: &mut Stream, payload_bytes: u64, chunk: &[u8]) -> std::io::Result<u64> {
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

async fn serve(listener: TcpListener, ends: Arc<Ends>) {
    while let Ok((tcp, _)) = listener.accept().await {
        let ends = ends.clone();
        tokio::spawn(async move {
            let _ = tcp.set_nodelay(true);
            let tcp = BufReader::with_capacity(SOCKET_BYTES, tcp);
            let accepted: Option<Stream> = match &ends.inner {
                None => ends.outer.1.accept(tcp).await.ok().map(|a| Box::new(a.stream) as Stream),
                Some((_, inner)) => {
                    nested_accept(&ends.outer.1, inner, Tuning::for_nested_tls(), tcp)
                        .await
                        .ok()
                        .map(|a| Box::new(a.stream) as Stream)
                }
            };
            // A client whose connection broke reports it; this end has nobody to tell.
            if let Some(stream) = accepted {
                let _ = receive(stream).await;
            }
        });
    }
}

/// Reads as many bytes as announced and answers with how many came.
async fn receive(mut stream: Stream) -> std::io::Result<()> {
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

/// Counts the bytes that cross the client's socket in both directions.
struct Counted {
    tcp: TcpStream,
    bytes: Arc<AtomicU64>,
}

impl AsyncRead for Counted {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        let before = buffer.filled().len();
        let polled = Pin::new(&mut self.tcp).poll_read(context, buffer);
        self.bytes.fetch_add((buffer.filled().len() - before) as u64, Ordering::Relaxed);
        polled
    }
}

impl AsyncWrite for Counted {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<std::io::Result<usize>> {
        let polled = Pin::new(&mut self.tcp).poll_write(context, bytes);
        if let Poll::Ready(Ok(count)) = &polled {
            self.bytes.fetch_add(*count as u64, Ordering::Relaxed);
        }
        polled
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[std::io::IoSlice<'_>],
    ) -> Poll<std::io::Result<usize>> {
        let polled = Pin::new(&mut self.tcp).poll_write_vectored(context, slices);
        if let Poll::Ready(Ok(count)) = &polled {
            self.bytes.fetch_add(*count as u64, Ordering::Relaxed);
        }
        polled
    }

    fn is_write_vectored(&self) -> bool {
        self.tcp.is_write_vectored()
    }

    fn poll_flush(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.tcp).poll_flush(context)
    }

    fn poll_shutdown(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.tcp).poll_shutdown(context)
    }
}
