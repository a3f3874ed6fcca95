//! Attributes of the TEE that no production program runs without.

use confide_evidence::quote::{Body, Quote};

use crate::{
    Detail, Policy, Reason,
    checks::{Checks, Step},
};

/// Intel TDX Module ABI Specification, `ATTRIBUTES`: bits that must be zero.
const TD_RESERVED: u64 = bits(1, 3) | bits(7, 15) | bits(23, 26) | bits(32, 61);
/// Profiling and the like: the TD is not to be trusted (bits 4 to 6 of the TUD group).
const TD_UNTRUSTED: u64 = bits(4, 6);
/// The body of version 4 says nothing of service TDs, so one that migrates or extends its report
/// through them cannot be judged.
const TD_SERVICE_EXTENSION: u64 = 1 << 17;
const TD_MIGRATABLE: u64 = 1 << 29;
/// The host cannot make the TD take exceptions on memory that it withdrew.
const TD_SEPT_VE_DISABLE: u64 = 1 << 28;

/// Whether the host can read the TEE's memory.
pub(crate) fn is_debug(quote: &Quote<'_>) -> bool {
    match quote.body {
        Body::Sgx(report) => report.is_debug(),
        Body::Tdx(report) => report.is_debug() || report.td_attributes() & TD_UNTRUSTED != 0,
    }
}

/// Debug and, for TDX, the attributes that every production TD has.
pub(crate) fn check(checks: &mut Checks, quote: &Quote<'_>, policy: &Policy) -> Result<(), Reason> {
    match (is_debug(quote), policy.dangerous_accept_debug) {
        (true, true) => checks.skip(Step::Debug, "on, and the policy accepts that"),
        (debug, _) => checks.run(Step::Debug, || match debug {
            false => Ok(((), "off".into())),
            true => Err(Reason::Debug(quote.tee())),
        })?,
    }
    let Body::Tdx(report) = quote.body else {
        checks.skip(Step::Attributes, "SGX has no TD attributes");
        return Ok(());
    };
    checks.run(Step::Attributes, || {
        let got = report.td_attributes();
        let rules = [
            (got & TD_RESERVED == 0, "reserved bits zero"),
            (got & TD_MIGRATABLE == 0, "MIGRATABLE zero"),
            (got & TD_SERVICE_EXTENSION == 0, "SERVTD_EXT zero"),
            (got & TD_SEPT_VE_DISABLE != 0, "SEPT_VE_DISABLE set"),
        ];
        match rules.into_iter().find(|(holds, _)| !holds) {
            Some((_, wanted)) => Err(Reason::TdAttributes { wanted, got }),
            None => Ok(((), Detail::numbers([got], |[got, ..], f| write!(f, "{got:#018x}")))),
        }
    })
}

/// Bits `first` to `last`, both included.
const fn bits(first: u32, last: u32) -> u64 {
    (u64::MAX >> (63 - last)) & (u64::MAX << first)
}
