//! A TCP relay that adds a known round-trip delay, because loopback hides round trips.
//!
//! Half of the delay lies on each direction. Connecting costs a round trip too: the kernel answers
//! a connect on loopback at once, so the first bytes wait for the round trip that a real
//! handshake would have taken. Bandwidth is not limited. Threads, not timers: a thread's sleep is
//! exact to some 60 us where an event loop's timer has steps of a millisecond.

use std::{
    io::{Read, Write},
    net::{Shutdown, SocketAddr, TcpListener, TcpStream},
    num::NonZeroU64,
    sync::mpsc::{Receiver, SyncSender, sync_channel},
    thread,
    time::{Duration, Instant},
};

use confide_arm_line::Outcome;
use rustix::thread::set_current_timer_slack;
use serde_json::json;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Address on which connections are accepted.
    #[arg(long, default_value = "127.0.0.1:0")]
    listen: SocketAddr,
    /// Address to which they are carried.
    #[arg(long)]
    to: SocketAddr,
    /// The round-trip delay added, in ms.
    #[arg(long)]
    delay_ms: u64,
}

/// Chunks in flight in one direction; more would hold a slow reader's data without bound.
const CHUNKS_MAX: usize = 1024;
/// Bytes read at once.
const CHUNK_BYTES: usize = 64 * 1024;

pub(crate) fn run(args: Args) -> Outcome {
    let listener = TcpListener::bind(args.listen)
        .map_err(|error| format!("cannot listen on {}: {error}", args.listen))?;
    let listen = listener.local_addr()?;
    println!(
        "{}",
        json!({ "ready": true, "listen": listen.to_string(), "guarantee": "none",
                "simulated": true, "delay_ms": args.delay_ms })
    );
    relay_connections(&listener, args.to, Duration::from_millis(args.delay_ms));
    Ok(())
}

/// Carries every connection to `to` with this round trip added.
pub(crate) fn relay_connections(listener: &TcpListener, to: SocketAddr, round_trip: Duration) {
    for client in listener.incoming().flatten() {
        let accepted = Instant::now();
        thread::spawn(move || relay_connection(client, to, accepted, round_trip));
    }
}

/// Carries one connection.
pub(crate) fn relay_connection(
    client: TcpStream,
    to: SocketAddr,
    accepted: Instant,
    round_trip: Duration,
) {
    let Ok(server) = TcpStream::connect(to) else { return };
    let (_, _) = (client.set_nodelay(true), server.set_nodelay(true));
    let (Ok(client_reader), Ok(server_reader)) = (client.try_clone(), server.try_clone()) else {
        return;
    };
    let one_way = round_trip / 2;
    relay_direction(client_reader, server, accepted + round_trip, one_way);
    relay_direction(server_reader, client, accepted, one_way);
}

/// Carries bytes from `from` to `to`, none before `open` and each `delay` after it came.
fn relay_direction(from: TcpStream, to: TcpStream, open: Instant, delay: Duration) {
    let (send, receive) = sync_channel(CHUNKS_MAX);
    thread::spawn(move || read_chunks(from, &send, open, delay));
    thread::spawn(move || write_chunks(to, &receive));
}

fn read_chunks(
    mut from: TcpStream,
    send: &SyncSender<(Instant, Vec<u8>)>,
    open: Instant,
    delay: Duration,
) {
    let mut chunk = vec![0; CHUNK_BYTES];
    loop {
        // An error ends the direction like an end does: the receiver sees the stream close.
        let count = from.read(&mut chunk).unwrap_or(0);
        let due = Instant::now().max(open) + delay;
        if send.send((due, chunk[..count].to_vec())).is_err() || count == 0 {
            return;
        }
    }
}

fn write_chunks(mut to: TcpStream, receive: &Receiver<(Instant, Vec<u8>)>) {
    // Without it the kernel adds up to 50 us to each sleep. Where it may not be set, it does.
    let _ = set_current_timer_slack(NonZeroU64::new(1_000));
    for (due, chunk) in receive {
        thread::sleep(due.saturating_duration_since(Instant::now()));
        if chunk.is_empty() || to.write_all(&chunk).is_err() {
            break;
        }
    }
    // The other direction may still be open; only this one has ended.
    let _ = to.shutdown(Shutdown::Write);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_and_ends_pass_in_both_directions() {
        let server = TcpListener::bind("127.0.0.1:0").expect("a port");
        let to = server.local_addr().expect("an address");
        let echo = thread::spawn(move || {
            let (mut stream, _) = server.accept().expect("a connection");
            let mut bytes = Vec::new();
            stream.read_to_end(&mut bytes).expect("the end arrives");
            stream.write_all(&bytes).expect("the answer leaves");
        });
        let relay = TcpListener::bind("127.0.0.1:0").expect("a port");
        let at = relay.local_addr().expect("an address");
        thread::spawn(move || {
            let (client, _) = relay.accept().expect("a connection");
            relay_connection(client, to, Instant::now(), Duration::from_millis(4));
        });
        let mut client = TcpStream::connect(at).expect("the relay accepts");
        client.write_all(b"there and back").expect("bytes leave");
        client.shutdown(Shutdown::Write).expect("half closes");
        let mut answer = String::new();
        client.read_to_string(&mut answer).expect("the answer arrives");
        assert_eq!(answer, "there and back");
        echo.join().expect("the server ends");
    }
}
