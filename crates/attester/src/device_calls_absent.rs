//! The device calls where the operating system is not Linux: there is no device, whatever the path.

use std::{
    fs::File,
    io::{self, ErrorKind},
    path::Path,
    time::Duration,
};

use crate::qgs::TD_REPORT_LENGTH;

pub(crate) fn is_configfs(_: &Path) -> io::Result<bool> {
    Err(no_device())
}

pub(crate) fn has_no_driver(_: &io::Error) -> bool {
    true
}

pub(crate) fn read_td_report(_: &Path, _: &[u8; 64]) -> io::Result<[u8; TD_REPORT_LENGTH]> {
    Err(no_device())
}

pub(crate) fn connect_vm(_: u32, _: u32, _: Duration) -> io::Result<File> {
    Err(no_device())
}

fn no_device() -> io::Error {
    io::Error::new(ErrorKind::NotFound, "attestation devices are supported on Linux only")
}
