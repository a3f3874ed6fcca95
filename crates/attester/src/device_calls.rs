//! The calls and codes that only Linux has. Two of the calls Rust cannot check: an ioctl, and an address of the VM
//! socket family.
#![allow(unsafe_code)]

use std::{
    fs::{File, OpenOptions},
    io,
    path::Path,
    time::Duration,
};

use rustix::{
    fs::statfs,
    io::Errno,
    ioctl::{self, Opcode, Updater, opcode},
    net::{
        self, AddressFamily, SocketFlags, SocketType,
        addr::{SocketAddrArg, SocketAddrLen, SocketAddrOpaque},
        sockopt::{self, Timeout},
    },
};

use crate::qgs::TD_REPORT_LENGTH;

/// `CONFIGFS_MAGIC`, include/uapi/linux/magic.h: "bep" and "b".
const CONFIGFS_MAGIC: i64 = 0x6265_6570;

/// Whether the file system of `path` is configfs.
pub(crate) fn is_configfs(path: &Path) -> io::Result<bool> {
    Ok(statfs(path)?.f_type == CONFIGFS_MAGIC)
}

/// Whether a device that had a driver has none any more (ENXIO).
pub(crate) fn has_no_driver(error: &io::Error) -> bool {
    Errno::from_io_error(error) == Some(Errno::NXIO)
}

/// The argument of the ioctl: `struct tdx_report_req`, include/uapi/linux/tdx-guest.h.
#[repr(C)]
struct TdxReportRequest {
    report_data: [u8; 64],
    report: [u8; TD_REPORT_LENGTH],
}

/// The ioctl `TDX_CMD_GET_REPORT0`: `_IOWR('T', 1, struct tdx_report_req)`.
const GET_REPORT_0: Opcode = opcode::read_write::<TdxReportRequest>(b'T', 1);

/// Gets a TD report over `report_data` from the device at `path`.
pub(crate) fn read_td_report(
    path: &Path,
    report_data: &[u8; 64],
) -> io::Result<[u8; TD_REPORT_LENGTH]> {
    let device = OpenOptions::new().read(true).write(true).open(path)?;
    let mut request = TdxReportRequest { report_data: *report_data, report: [0; TD_REPORT_LENGTH] };
    // SAFETY: the opcode is made from the size of this very struct, whose layout is that of the
    // kernel's (two byte arrays, repr(C), no padding). The kernel reads the first and writes the
    // second; every byte pattern is a valid value of either. A device that is not TDX's answers
    // ENOTTY and touches nothing: the opcode's letter and number belong to this driver.
    unsafe { ioctl::ioctl(&device, Updater::<GET_REPORT_0, _>::new(&mut request)) }?;
    Ok(request.report)
}

/// An address of the VM socket family: `struct sockaddr_vm`, include/uapi/linux/vm_sockets.h.
#[repr(C)]
struct VmAddress {
    family: u16,
    reserved: u16,
    port: u32,
    context: u32,
    flags: u8,
    zero: [u8; 3],
}

// SAFETY: the pointer is to `self`, which outlives the call and is as long as the length says;
// its layout is that of `sockaddr_vm` (repr(C), 16 bytes, no padding).
unsafe impl SocketAddrArg for VmAddress {
    unsafe fn with_sockaddr<R>(
        &self,
        f: impl FnOnce(*const SocketAddrOpaque, SocketAddrLen) -> R,
    ) -> R {
        f(std::ptr::from_ref(self).cast(), size_of::<Self>() as SocketAddrLen)
    }
}

/// Opens a stream to `port` of the virtual machine or host `context`; none of its steps takes
/// longer than `timeout`.
pub(crate) fn connect_vm(context: u32, port: u32, timeout: Duration) -> io::Result<File> {
    let (family, kind) = (AddressFamily::VSOCK, SocketType::STREAM);
    let socket = net::socket_with(family, kind, SocketFlags::CLOEXEC, None)?;
    sockopt::set_socket_timeout(&socket, Timeout::Send, Some(timeout))?;
    sockopt::set_socket_timeout(&socket, Timeout::Recv, Some(timeout))?;
    let family = AddressFamily::VSOCK.as_raw();
    let address = VmAddress { family, reserved: 0, port, context, flags: 0, zero: [0; 3] };
    net::connect(&socket, &address)?;
    Ok(File::from(socket))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_request_is_the_kernels() {
        // include/uapi/linux/tdx-guest.h: 64 and 1024 bytes; asm-generic/ioctl.h: read and write
        // in the two highest bits, the size in the 14 below, then letter and number.
        assert_eq!(size_of::<TdxReportRequest>(), 1088);
        assert_eq!(GET_REPORT_0, 3 << 30 | 1088 << 16 | u32::from(b'T') << 8 | 1);
        assert_eq!(size_of::<VmAddress>(), 16);
    }

    #[test]
    fn a_device_of_another_driver_is_refused() {
        let refused = read_td_report(Path::new("/dev/null"), &[0; 64]).unwrap_err();
        assert_eq!(Errno::from_io_error(&refused), Some(Errno::NOTTY));
    }
}
