//! Moves the bytes of one connection in both directions, unread.

use std::{
    cell::RefCell,
    io,
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use confide_http::Activity;
use rustix::net::{Shutdown, shutdown};
use tokio::{io::Interest, net::TcpStream};

use crate::{
    hang_up::{HangUp, find_hang_up},
    pipe::{PipeLease, PipePool},
};

/// The bytes that are read at once. The buffer belongs to the thread, so that an idle connection holds none.
const BUFFER_BYTES: usize = 64 * 1024;
/// After so many full buffers in a row a direction moves bulk data, which goes through a pipe instead.
const BULK_AFTER: u32 = 4;
/// After so many small moves in a row the pipe is returned.
const BULK_OVER_AFTER: u32 = 16;
/// A move of fewer bytes is a small one.
const BULK_BYTES_MIN: usize = 16 * 1024;

thread_local! {
    static BUFFER: RefCell<Vec<u8>> = RefCell::new(vec![0; BUFFER_BYTES]);
}

/// The time after which a side that takes no bytes is checked for an end of the other.
const STUCK_CHECK: Duration = Duration::from_millis(if cfg!(test) { 50 } else { 5000 });
/// The time without a byte after which a pipe is returned.
const BULK_PAUSE: Duration = Duration::from_secs(1);

/// The end of one direction.
enum ForwardEnd {
    /// The source ended its direction, and the end was passed on.
    StreamEnd,
    /// The source failed: nothing can be read from it or written to it any more.
    SourceFailed(io::Error),
    /// The destination takes no more bytes. What it has sent before may still be to be read.
    DestinationFailed(io::Error),
}

/// Moves bytes both ways until both directions have ended. If one side takes no more bytes, what it has sent is still
/// passed on.
///
/// # Errors
/// The failure of a side, in which case the other one is to be reset.
pub(crate) async fn relay(
    client: &TcpStream,
    upstream: &TcpStream,
    activity: &Activity<'_>,
    pipes: &Arc<PipePool>,
) -> io::Result<()> {
    let other_ended = AtomicBool::new(false);
    let mut up = pin!(forward(client, upstream, activity, pipes, &other_ended));
    let mut down = pin!(forward(upstream, client, activity, pipes, &other_ended));
    let (first, rest) = tokio::select! {
        end = up.as_mut() => (end, down),
        end = down.as_mut() => (end, up),
    };
    match first {
        ForwardEnd::SourceFailed(error) => return Err(error),
        ForwardEnd::DestinationFailed(error) => {
            tracing::debug!(%error, "a side takes no more bytes");
            activity.record_half_close();
        }
        ForwardEnd::StreamEnd => {}
    }
    match rest.await {
        // After both have ended, or one has said all that it had to say, nothing is cut.
        ForwardEnd::StreamEnd | ForwardEnd::DestinationFailed(_) => Ok(()),
        ForwardEnd::SourceFailed(error) => Err(error),
    }
}

/// Moves bytes one way until the end of the stream, and passes the end on. If the other direction has ended as well,
/// the close of the connections passes it on.
async fn forward(
    from: &TcpStream,
    to: &TcpStream,
    activity: &Activity<'_>,
    pipes: &Arc<PipePool>,
    other_ended: &AtomicBool,
) -> ForwardEnd {
    let mut full_buffers = 0;
    loop {
        if let Err(error) = from.readable().await {
            return ForwardEnd::SourceFailed(error);
        }
        let (read, unwritten) = match copy_available(from, to) {
            Ok(copied) => copied,
            Err(ForwardEnd::SourceFailed(error)) if error.kind() == io::ErrorKind::WouldBlock => {
                continue;
            }
            Err(end) => return end,
        };
        if read == 0 {
            break;
        }
        activity.record_bytes();
        if let Err(end) = write_rest(from, to, &unwritten, activity).await {
            return end;
        }
        full_buffers = if read == BUFFER_BYTES { full_buffers + 1 } else { 0 };
        if full_buffers >= BULK_AFTER {
            full_buffers = 0;
            let Some(pipe) = pipes.take() else { continue };
            match splice_bulk(from, to, pipe, activity).await {
                Ok(BulkEnd::FlowEnded) => {}
                Ok(BulkEnd::StreamEnded) => break,
                Err(end) => return end,
            }
        }
    }
    activity.record_half_close();
    if other_ended.swap(true, Ordering::Relaxed) {
        return ForwardEnd::StreamEnd;
    }
    match shutdown(to, Shutdown::Write) {
        // The other side has reset the connection, which the other direction reports.
        Ok(()) | Err(rustix::io::Errno::NOTCONN) => ForwardEnd::StreamEnd,
        Err(error) => ForwardEnd::DestinationFailed(error.into()),
    }
}

/// Reads what has arrived and writes as much of it as the other side takes. Returns the number of bytes that were read,
/// and those that were not written.
fn copy_available(from: &TcpStream, to: &TcpStream) -> Result<(usize, Vec<u8>), ForwardEnd> {
    BUFFER.with_borrow_mut(|buffer| {
        let mut read = 0;
        let outcome = from.try_io(Interest::READABLE, || {
            read = rustix::io::read(from, &mut buffer[..])?;
            // A part of a buffer was all that had arrived, so that a second read would find nothing.
            match (1..buffer.len()).contains(&read) {
                true => Err(io::ErrorKind::WouldBlock.into()),
                false => Ok(()),
            }
        });
        if let Err(error) = outcome
            && read == 0
        {
            return Err(ForwardEnd::SourceFailed(error));
        }
        if read == 0 {
            return Ok((0, Vec::new()));
        }
        let written = match to.try_write(&buffer[..read]) {
            Ok(written) => written,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => 0,
            Err(error) => return Err(ForwardEnd::DestinationFailed(error)),
        };
        Ok((read, buffer[written..read].to_vec()))
    })
}

async fn write_rest(
    from: &TcpStream,
    to: &TcpStream,
    mut rest: &[u8],
    activity: &Activity<'_>,
) -> Result<(), ForwardEnd> {
    while !rest.is_empty() {
        wait_until_writable(from, to, activity).await?;
        match to.try_write(rest) {
            Ok(0) => return Err(ForwardEnd::DestinationFailed(io::ErrorKind::WriteZero.into())),
            Ok(written) => {
                rest = &rest[written..];
                activity.record_bytes();
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(ForwardEnd::DestinationFailed(error)),
        }
    }
    Ok(())
}

/// Waits until the destination takes bytes. Nobody reads from the source meanwhile, so its end is asked for.
async fn wait_until_writable(
    from: &TcpStream,
    to: &TcpStream,
    activity: &Activity<'_>,
) -> Result<(), ForwardEnd> {
    loop {
        match tokio::time::timeout(STUCK_CHECK, to.writable()).await {
            Ok(writable) => return writable.map_err(ForwardEnd::DestinationFailed),
            Err(_) => match find_hang_up(from).map_err(ForwardEnd::SourceFailed)? {
                HangUp::Open => {}
                HangUp::HalfClosed => activity.record_half_close(),
                HangUp::Reset => {
                    return Err(ForwardEnd::SourceFailed(io::ErrorKind::ConnectionReset.into()));
                }
            },
        }
    }
}

/// Writes all of `bytes`, which came from the client, to the upstream.
///
/// # Errors
/// The failure of either side.
pub(crate) async fn write_first(
    client: &TcpStream,
    upstream: &TcpStream,
    bytes: &[u8],
    activity: &Activity<'_>,
) -> io::Result<()> {
    write_rest(client, upstream, bytes, activity).await.map_err(|end| match end {
        ForwardEnd::SourceFailed(error) | ForwardEnd::DestinationFailed(error) => error,
        ForwardEnd::StreamEnd => io::ErrorKind::UnexpectedEof.into(),
    })
}

#[derive(PartialEq, Eq)]
enum BulkEnd {
    StreamEnded,
    /// The flow has become small, or paused.
    FlowEnded,
}

async fn splice_bulk(
    from: &TcpStream,
    to: &TcpStream,
    mut pipe: PipeLease,
    activity: &Activity<'_>,
) -> Result<BulkEnd, ForwardEnd> {
    let mut small_moves = 0;
    while small_moves < BULK_OVER_AFTER {
        match tokio::time::timeout(BULK_PAUSE, from.readable()).await {
            Ok(readable) => readable.map_err(ForwardEnd::SourceFailed)?,
            Err(_) => return Ok(BulkEnd::FlowEnded),
        }
        let moved = match from.try_io(Interest::READABLE, || pipe.fill(from)) {
            Ok(0) => return Ok(BulkEnd::StreamEnded),
            Ok(moved) => moved,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => continue,
            Err(error) => return Err(ForwardEnd::SourceFailed(error)),
        };
        small_moves = if moved < BULK_BYTES_MIN { small_moves + 1 } else { 0 };
        activity.record_bytes();
        while pipe.held_bytes() > 0 {
            wait_until_writable(from, to, activity).await?;
            match to.try_io(Interest::WRITABLE, || pipe.drain(to)) {
                Ok(()) => activity.record_bytes(),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(ForwardEnd::DestinationFailed(error)),
            }
        }
    }
    Ok(BulkEnd::FlowEnded)
}
