//! The sockets of Windows: the functions of `os.rs`.

use std::{
    io::{self, ErrorKind},
    os::windows::io::AsRawSocket,
};

use tokio::net::{TcpListener, TcpSocket, TcpStream};
use windows_sys::Win32::Networking::WinSock::{
    SO_EXCLUSIVEADDRUSE, SOCKET, SOL_SOCKET, setsockopt,
};

/// The error code for too many open sockets (`WSAEMFILE`).
const WSAEMFILE: i32 = 10_024;

/// One thread serves: Windows does not share connections out among sockets.
pub(crate) const CAN_SHARE_ADDRESSES: bool = false;

pub(crate) fn is_out_of_descriptors(error: &io::Error) -> bool {
    error.raw_os_error() == Some(WSAEMFILE)
}

pub(crate) fn acknowledge(_: &TcpStream) {}

/// Claims the address for this socket alone: without that, another program could bind it with `SO_REUSEADDR`, and take
/// connections over, while this one listens. A restarted server finds its port once its old connections have ended.
pub(crate) fn prepare_to_bind(socket: &TcpSocket, is_shared: bool) -> io::Result<()> {
    if is_shared {
        return Err(ErrorKind::Unsupported.into());
    }
    set_exclusive_address(socket)
}

#[allow(unsafe_code, reason = "the option is set by a call that takes a pointer")]
fn set_exclusive_address(socket: &TcpSocket) -> io::Result<()> {
    let on = 1_i32.to_ne_bytes();
    let socket = socket.as_raw_socket() as SOCKET;
    // SAFETY: the socket is open while it is borrowed; pointer and length are those of `on`, which outlives the call.
    let status = unsafe {
        setsockopt(socket, SOL_SOCKET, SO_EXCLUSIVEADDRUSE, on.as_ptr(), on.len() as i32)
    };
    if status == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

pub(crate) fn share_address(_: &TcpListener) -> io::Result<()> {
    Err(ErrorKind::Unsupported.into())
}
