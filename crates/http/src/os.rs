//! The sockets of Unix. `os_windows.rs` has the same functions.

use std::io;

use socket2::SockRef;
use tokio::net::{TcpListener, TcpSocket, TcpStream};

/// The error codes for no free file descriptor in the system or in this process (errno(3)).
const ENFILE: i32 = 23;
const EMFILE: i32 = 24;

/// Whether several sockets can listen on one address, each on a thread of its own.
pub(crate) const CAN_SHARE_ADDRESSES: bool = true;

/// Whether a connection could not be accepted for want of a file descriptor.
pub(crate) fn is_out_of_descriptors(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(ENFILE | EMFILE))
}

/// Sends the acknowledgement of received bytes at once, where the kernel has a call for it.
pub(crate) fn acknowledge(_tcp: &TcpStream) {
    // If this fails, the client only waits for the kernel's acknowledgement.
    #[cfg(target_os = "linux")]
    let _ = _tcp.set_quickack(true);
}

/// Sets what a socket needs before it is bound: a restarted server finds its port (as `TcpListener::bind` does).
pub(crate) fn prepare_to_bind(socket: &TcpSocket, is_shared: bool) -> io::Result<()> {
    socket.set_reuseaddr(true)?;
    socket.set_reuseport(is_shared)
}

/// Lets further sockets listen on the same address.
pub(crate) fn share_address(socket: &TcpListener) -> io::Result<()> {
    SockRef::from(socket).set_reuse_port(true)
}
