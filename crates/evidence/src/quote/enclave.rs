//! The report of an SGX enclave.

use super::reader::field_at;

/// SGX `REPORT` body, 384 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EnclaveReport<'a>(pub &'a [u8; 384]);

impl<'a> EnclaveReport<'a> {
    /// Length in bytes.
    pub(super) const LENGTH: usize = 384;

    /// The whole report: what the PCK signs in the quoting enclave's case.
    pub fn bytes(self) -> &'a [u8; 384] {
        self.0
    }

    /// Security version of the processor.
    pub fn cpu_svn(self) -> &'a [u8; 16] {
        self.field::<0, 16>()
    }

    /// MISCSELECT: the extended state that is saved on an exception.
    pub fn misc_select(self) -> &'a [u8; 4] {
        self.field::<16, 4>()
    }

    /// Flags (8 bytes) and XFRM (8 bytes).
    pub fn attributes(self) -> &'a [u8; 16] {
        self.field::<48, 16>()
    }

    /// Whether the enclave can be read from outside (attribute bit 1).
    pub fn is_debug(self) -> bool {
        self.attributes()[0] & 0x02 != 0
    }

    /// Hash of the enclave's code and initial data.
    pub fn mr_enclave(self) -> &'a [u8; 32] {
        self.field::<64, 32>()
    }

    /// Hash of the key that signed the enclave.
    pub fn mr_signer(self) -> &'a [u8; 32] {
        self.field::<128, 32>()
    }

    /// Configuration identifier given at launch (KSS).
    pub fn config_id(self) -> &'a [u8; 64] {
        self.field::<192, 64>()
    }

    /// Product number given by the signer.
    pub fn isv_prod_id(self) -> u16 {
        u16::from_le_bytes(*self.field::<256, 2>())
    }

    /// Security version given by the signer.
    pub fn isv_svn(self) -> u16 {
        u16::from_le_bytes(*self.field::<258, 2>())
    }

    /// The 64 bytes that the enclave chose.
    pub fn report_data(self) -> &'a [u8; 64] {
        self.field::<320, 64>()
    }

    fn field<const AT: usize, const N: usize>(self) -> &'a [u8; N] {
        field_at::<384, AT, N>(self.0)
    }
}
