//! Moves the bytes of one connection in both directions, unread.

use std::{cell::RefCell, io, sync::Arc};

use rustix::net::{Shutdown, shutdown};
use tokio::{io::Interest, net::TcpStream};

use crate::{
    activity::Activity,
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

/// Moves bytes both ways until both directions have ended, or one fails.
pub(crate) async fn relay(
    client: &TcpStream,
    upstream: &TcpStream,
    activity: &Activity<'_>,
    pipes: &Arc<PipePool>,
) -> io::Result<()> {
    tokio::try_join!(
        forward(client, upstream, activity, pipes),
        forward(upstream, client, activity, pipes),
    )?;
    Ok(())
}

/// Moves bytes one way until the end of the stream, and passes the end on.
async fn forward(
    from: &TcpStream,
    to: &TcpStream,
    activity: &Activity<'_>,
    pipes: &Arc<PipePool>,
) -> io::Result<()> {
    let mut full_buffers = 0;
    loop {
        from.readable().await?;
        let (read, unwritten) = match copy_available(from, to) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => continue,
            copied => copied?,
        };
        if read == 0 {
            break;
        }
        activity.record_bytes();
        write_rest(to, &unwritten, activity).await?;
        full_buffers = if read == BUFFER_BYTES { full_buffers + 1 } else { 0 };
        if full_buffers >= BULK_AFTER {
            full_buffers = 0;
            let Some(pipe) = pipes.take() else { continue };
            if splice_bulk(from, to, pipe, activity).await? == BulkEnd::StreamEnded {
                break;
            }
        }
    }
    activity.record_half_close();
    shutdown(to, Shutdown::Write).or_else(|error| match error {
        // The peer has already reset the connection, which the other direction reports.
        rustix::io::Errno::NOTCONN => Ok(()),
        error => Err(error.into()),
    })
}

/// Reads what has arrived and writes as much of it as the other side takes. Returns the number of bytes that were read,
/// and those that were not written.
fn copy_available(from: &TcpStream, to: &TcpStream) -> io::Result<(usize, Vec<u8>)> {
    BUFFER.with_borrow_mut(|buffer| {
        let read = from.try_read(buffer)?;
        if read == 0 {
            return Ok((0, Vec::new()));
        }
        let written = match to.try_write(&buffer[..read]) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => 0,
            written => written?,
        };
        Ok((read, buffer[written..read].to_vec()))
    })
}

async fn write_rest(to: &TcpStream, mut rest: &[u8], activity: &Activity<'_>) -> io::Result<()> {
    while !rest.is_empty() {
        to.writable().await?;
        match to.try_write(rest) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(written) => {
                rest = &rest[written..];
                activity.record_bytes();
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Writes all of `bytes`.
pub(crate) async fn write_all(
    to: &TcpStream,
    bytes: &[u8],
    activity: &Activity<'_>,
) -> io::Result<()> {
    write_rest(to, bytes, activity).await
}

#[derive(PartialEq, Eq)]
enum BulkEnd {
    StreamEnded,
    /// The flow has become small.
    FlowEnded,
}

async fn splice_bulk(
    from: &TcpStream,
    to: &TcpStream,
    mut pipe: PipeLease,
    activity: &Activity<'_>,
) -> io::Result<BulkEnd> {
    let mut small_moves = 0;
    while small_moves < BULK_OVER_AFTER {
        from.readable().await?;
        let moved = match from.try_io(Interest::READABLE, || pipe.fill(from)) {
            Ok(0) => return Ok(BulkEnd::StreamEnded),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => continue,
            moved => moved?,
        };
        small_moves = if moved < BULK_BYTES_MIN { small_moves + 1 } else { 0 };
        activity.record_bytes();
        while pipe.held_bytes() > 0 {
            to.writable().await?;
            match to.try_io(Interest::WRITABLE, || pipe.drain(to)) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                drained => {
                    drained?;
                    activity.record_bytes();
                }
            }
        }
    }
    Ok(BulkEnd::FlowEnded)
}
