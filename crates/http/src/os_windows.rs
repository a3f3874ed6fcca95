//! The sockets of Windows: the functions of `os.rs`.

use std::io::{self, ErrorKind};

use tokio::net::{TcpListener, TcpSocket, TcpStream};

/// The error code for too many open sockets (`WSAEMFILE`).
const WSAEMFILE: i32 = 10_024;

/// One thread serves: Windows does not share connections out among sockets.
pub(crate) const CAN_SHARE_ADDRESSES: bool = false;

pub(crate) fn is_out_of_descriptors(error: &io::Error) -> bool {
    error.raw_os_error() == Some(WSAEMFILE)
}

pub(crate) fn acknowledge(_: &TcpStream) {}

/// Sets nothing: a restarted server finds its port anyway, and with `SO_REUSEADDR` another program could take it over
/// while this one listens.
pub(crate) fn prepare_to_bind(_: &TcpSocket, is_shared: bool) -> io::Result<()> {
    if is_shared { Err(ErrorKind::Unsupported.into()) } else { Ok(()) }
}

pub(crate) fn share_address(_: &TcpListener) -> io::Result<()> {
    Err(ErrorKind::Unsupported.into())
}
