//! What the kernel knows of a connection's end before its bytes have been read.

use std::{io, time::Duration};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tokio::net::TcpStream;

/// The state of a connection as its other side has left it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HangUp {
    /// It is open.
    Open,
    /// The other side sends nothing more.
    HalfClosed,
    /// The other side has reset it.
    Reset,
}

/// Asks the kernel without waiting, whether or not bytes are still to be read.
pub(crate) fn find_hang_up(stream: &TcpStream) -> io::Result<HangUp> {
    let mut polled = [PollFd::new(stream, PollFlags::RDHUP)];
    poll(&mut polled, Some(&Timespec { tv_sec: 0, tv_nsec: 0 }))?;
    let found = polled[0].revents();
    Ok(if found.intersects(PollFlags::ERR | PollFlags::HUP) {
        HangUp::Reset
    } else if found.contains(PollFlags::RDHUP) {
        HangUp::HalfClosed
    } else {
        HangUp::Open
    })
}

/// Resets connections that are dropped before they have ended, so that a cut is not taken for a complete end.
pub(crate) struct ResetGuard<'a> {
    streams: [&'a TcpStream; 2],
    is_armed: bool,
}

impl<'a> ResetGuard<'a> {
    pub(crate) fn new(client: &'a TcpStream, upstream: &'a TcpStream) -> Self {
        Self { streams: [client, upstream], is_armed: true }
    }

    /// Lets the connections close as usual.
    pub(crate) fn disarm(mut self) {
        self.is_armed = false;
    }
}

impl Drop for ResetGuard<'_> {
    fn drop(&mut self) {
        if self.is_armed {
            for stream in self.streams {
                // If this fails, the connection has no other side to tell.
                let _ = rustix::net::sockopt::set_socket_linger(stream, Some(Duration::ZERO));
            }
        }
    }
}
