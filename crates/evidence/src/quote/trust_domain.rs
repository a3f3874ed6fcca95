//! The report of a TDX trust domain, in the three lengths that quotes carry.

use super::reader::field_at;

/// TD report: 584 bytes in TDX 1.0, 64 more in TDX 1.5, and 237 more in the extended form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TdReport<'a> {
    pub(super) base: &'a [u8; 584],
    pub(super) tail_1_5: Option<&'a [u8; 64]>,
    pub(super) tail_ex: Option<&'a [u8; 237]>,
}

impl<'a> TdReport<'a> {
    /// Length in bytes of the report of TDX 1.0.
    pub(super) const LENGTH_1_0: usize = 584;
    /// Length in bytes of the report of TDX 1.5.
    pub(super) const LENGTH_1_5: usize = 648;
    /// Length in bytes of the extended report of TDX 1.5.
    pub(super) const LENGTH_1_5_EX: usize = 885;

    /// Security versions of the TDX module: byte 0 its ISVSVN, byte 1 its major version.
    pub fn tee_tcb_svn(self) -> &'a [u8; 16] {
        self.field::<0, 16>()
    }

    /// Hash of the TDX module.
    pub fn mr_seam(self) -> &'a [u8; 48] {
        self.field::<16, 48>()
    }

    /// Hash of the TDX module's signer; zero for Intel's.
    pub fn mr_signer_seam(self) -> &'a [u8; 48] {
        self.field::<64, 48>()
    }

    /// Attributes of the TDX module.
    pub fn seam_attributes(self) -> &'a [u8; 8] {
        self.field::<112, 8>()
    }

    /// Attributes of the trust domain.
    pub fn td_attributes(self) -> u64 {
        u64::from_le_bytes(*self.field::<120, 8>())
    }

    /// Whether the host can read the trust domain (attribute bit 0).
    pub fn is_debug(self) -> bool {
        self.td_attributes() & 1 != 0
    }

    /// Hash of the trust domain's initial contents.
    pub fn mr_td(self) -> &'a [u8; 48] {
        self.field::<136, 48>()
    }

    /// Configuration given by the host at launch.
    pub fn mr_config_id(self) -> &'a [u8; 48] {
        self.field::<184, 48>()
    }

    /// Owner given by the host at launch.
    pub fn mr_owner(self) -> &'a [u8; 48] {
        self.field::<232, 48>()
    }

    /// Owner's configuration given by the host at launch.
    pub fn mr_owner_config(self) -> &'a [u8; 48] {
        self.field::<280, 48>()
    }

    /// The four measurement registers that grow while the trust domain runs.
    pub fn rtmrs(self) -> [&'a [u8; 48]; 4] {
        [
            self.field::<328, 48>(),
            self.field::<376, 48>(),
            self.field::<424, 48>(),
            self.field::<472, 48>(),
        ]
    }

    /// The 64 bytes that the trust domain chose.
    pub fn report_data(self) -> &'a [u8; 64] {
        self.field::<520, 64>()
    }

    /// TDX 1.5: security versions of the module that runs now. [`Self::tee_tcb_svn`] is of the
    /// module that the trust domain was launched under.
    pub fn tee_tcb_svn_2(self) -> Option<&'a [u8; 16]> {
        self.tail_1_5.map(field_at::<64, 0, 16>)
    }

    /// TDX 1.5: hash of the service trust domains that are bound to this one; zero for none.
    pub fn mr_service_td(self) -> Option<&'a [u8; 48]> {
        self.tail_1_5.map(field_at::<64, 16, 48>)
    }

    /// The fields that the extended report adds; `None` in the shorter forms.
    pub fn tail(self) -> Option<TdReportTail<'a>> {
        self.tail_ex.map(TdReportTail)
    }

    fn field<const AT: usize, const N: usize>(self) -> &'a [u8; N] {
        field_at::<584, AT, N>(self.base)
    }
}

/// The last 237 bytes of the extended report of TDX 1.5 (`sgx_report2_body_v1_5_ex_t` in Intel's
/// `sgx_quote_5.h`). Of its fields those are given out that appraisal looks at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TdReportTail<'a>(&'a [u8; 237]);

impl<'a> TdReportTail<'a> {
    /// The partition of the trust domain that asked for the report: 0 if it is not partitioned.
    pub fn vm_id(self) -> u8 {
        self.0[0]
    }

    /// Hash of the devices that the trust domain has taken in.
    pub fn device_info(self) -> &'a [u8; 48] {
        field_at::<237, 33, 48>(self.0)
    }

    /// Hash, then attributes, of the service trust domains bound when this one was created.
    pub fn initial_service_td(self) -> &'a [u8; 56] {
        field_at::<237, 81, 56>(self.0)
    }

    /// Hash, then attributes, of the service trust domains bound now.
    pub fn current_service_td(self) -> &'a [u8; 56] {
        field_at::<237, 181, 56>(self.0)
    }
}
