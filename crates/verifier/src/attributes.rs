//! Attributes of the TEE that no production program runs without.

use alloc::string::{String, ToString};

use confide_evidence::quote::{Body, Quote, TdReport};

use crate::{
    checks::{Checks, Step},
    detail::Detail,
    expect::Expect,
    policy::Policy,
    reason::Reason,
};

/// Intel TDX Module ABI Specification, `ATTRIBUTES`: bits that must be zero.
const TD_RESERVED: u64 = bit_mask(1, 3) | bit_mask(7, 15) | bit_mask(23, 26) | bit_mask(32, 61);
/// Profiling and the like: the TD is not to be trusted (bits 4 to 6 of the TUD group).
const TD_UNTRUSTED: u64 = bit_mask(4, 6);
/// What a service TD may do to a TD that extends its report through one cannot be judged; a body of
/// TDX 1.0 does not even say which are bound.
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

/// Checks that debug is off and, for TDX, the attributes that every production TD has.
pub(crate) fn check_attributes(
    checks: &mut Checks,
    quote: &Quote<'_>,
    policy: &Policy,
) -> Result<(), Reason> {
    let is_debug = is_debug(quote);
    if is_debug && policy.dangerous_accept_debug {
        checks.skip(Step::Debug, "on, and the policy accepts that");
    } else {
        checks.require(Step::Debug, !is_debug, "off", || Reason::Debug(quote.tee()))?;
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
            Some((_, wanted)) => return Err(Reason::TdAttributes { wanted, got }),
            None => check_service_td(report, policy)?,
        }
        Ok(((), Detail::numbers([got], |[got, ..], f| write!(f, "{got:#018x}"))))
    })
}

/// Checks that no service TD is bound unless the policy names it. What the extended report adds has to be empty:
/// partitions, devices and service TDs cannot be judged.
fn check_service_td(report: TdReport<'_>, policy: &Policy) -> Result<(), Reason> {
    let workload = policy.workload.as_ref().and_then(|workload| workload.tdx.as_ref());
    let none = Expect::Exactly([0; 48]);
    let wanted = workload.map_or(&none, |workload| &workload.mr_service_td);
    let refused = |field, wanted: String, got| Err(Reason::Value { field, wanted, got });
    // A report of TDX 1.0 lacks the field, and quoting enclaves shorten newer reports to that form. It therefore
    // counts as zero: a policy that demands a service TD refuses it.
    let said = report.mr_service_td();
    if !wanted.accepts(said.unwrap_or(&[0; 48])) {
        let got = said.map_or("none".into(), hex::encode);
        return refused("mr_service_td", wanted.to_string(), got);
    }
    let Some(tail) = report.tail() else { return Ok(()) };
    let rules: [(&'static str, &[u8]); 4] = [
        ("TD partition", &[tail.vm_id()]),
        ("device information", tail.device_info()),
        ("initial service TD", tail.initial_service_td()),
        ("current service TD", tail.current_service_td()),
    ];
    match rules.into_iter().find(|(_, got)| got.iter().any(|byte| *byte != 0)) {
        Some((field, got)) => refused(field, "zero".into(), hex::encode(got)),
        None => Ok(()),
    }
}

/// Bits `first` to `last`, both included.
const fn bit_mask(first: u32, last: u32) -> u64 {
    (u64::MAX >> (63 - last)) & (u64::MAX << first)
}
