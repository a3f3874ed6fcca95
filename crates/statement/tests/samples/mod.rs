//! Statements of every claim, and some that no statement may be.

use confide_statement::{
    Dcap, Direction, Fibonacci, Measurements, Predicate, Rsa2048, SgxMeasurements, Sha256, Sort,
    SortSource, Statement, TdxMeasurements, Transcript, Verdict,
};

pub(crate) fn samples() -> Vec<Statement> {
    let contains = Predicate::Contains { direction: Direction::Response, text: "größer".into() };
    vec![
        Statement::Fibonacci(Fibonacci { n: 10, value: 55 }),
        Statement::Fibonacci(Fibonacci { n: u32::MAX, value: u64::MAX }),
        Statement::Sort(sort(SortSource::Supplied { input_sha256: [3; 32] })),
        Statement::Sort(sort(SortSource::Fibonacci)),
        Statement::Rsa2048(Rsa2048 { modulus: [0xc5; 256], message_sha256: [1; 32] }),
        Statement::Sha256(Sha256 { message_bytes: 1024, message_sha256: [2; 32] }),
        Statement::Transcript(transcript(contains)),
        Statement::Transcript(transcript(number_between(-7, 4096))),
        Statement::Dcap(dcap(trust_domain(), &[])),
        Statement::Dcap(dcap(enclave(), &["INTEL-SA-00001", "INTEL-SA-00002"])),
    ]
}

/// Statements with one field that is not within its limits, and the name of the field.
#[allow(dead_code)]
pub(crate) fn out_of_bounds() -> Vec<(Statement, &'static str)> {
    let text =
        |text: &str| Predicate::Contains { direction: Direction::Request, text: text.into() };
    let rsa = |first, last| {
        let mut modulus = [0xff; 256];
        (modulus[0], modulus[255]) = (first, last);
        Statement::Rsa2048(Rsa2048 { modulus, message_sha256: [0; 32] })
    };
    let ended = Dcap { valid_until: 1, ..dcap(enclave(), &[]) };
    let debug = Dcap { debug: true, ..dcap(enclave(), &[]) };
    let stern = Dcap { verdict: Verdict::Conditional, ..dcap(enclave(), &[]) };
    let nameless = Dcap { tcb_status: String::new(), ..dcap(enclave(), &[]) };
    let outside = Sort { place: 3000, ..sort(SortSource::Fibonacci) };
    let deep = Transcript { depth: 19, ..transcript(number_between(0, 0)) };
    vec![
        (Statement::Sort(outside), "place"),
        (Statement::Transcript(deep), "depth"),
        (rsa(0x7f, 0xff), "modulus"),
        (rsa(0xff, 0xfe), "modulus"),
        (Statement::Transcript(transcript(text(""))), "text"),
        (Statement::Transcript(transcript(text(&"a".repeat(257)))), "text"),
        (Statement::Transcript(transcript(number_between(1, 0))), "greatest"),
        (Statement::Dcap(dcap(enclave(), &["B", "A"])), "advisories"),
        (Statement::Dcap(dcap(enclave(), &["A", "A"])), "advisories"),
        (Statement::Dcap(dcap(enclave(), &["with space"])), "advisories"),
        (Statement::Dcap(ended), "valid_until"),
        (Statement::Dcap(nameless), "tcb_status"),
        (Statement::Dcap(debug), "verdict"),
        (Statement::Dcap(stern), "verdict"),
    ]
}

fn sort(source: SortSource) -> Sort {
    Sort { source, count: 3000, place: 2999, value: 4 }
}

fn transcript(predicate: Predicate) -> Transcript {
    Transcript { root: [5; 32], depth: 10, predicate }
}

fn number_between(least: i64, greatest: i64) -> Predicate {
    Predicate::NumberBetween { path: "response./usage/total_tokens".into(), least, greatest }
}

fn dcap(measurements: Measurements, advisories: &[&str]) -> Dcap {
    Dcap {
        verdict: if advisories.is_empty() { Verdict::Accepted } else { Verdict::Conditional },
        root_sha256: [6; 32],
        report_data: [7; 64],
        measurements,
        debug: false,
        tcb_status: "UpToDate".into(),
        advisories: advisories.iter().map(|advisory| (*advisory).into()).collect(),
        tcb_evaluation_data_number: 19,
        root_crl_issued: 1_600_000_000,
        pck_crl_issued: 1_650_000_000,
        valid_from: 1_700_000_000,
        valid_until: 1_800_000_000,
    }
}

fn enclave() -> Measurements {
    Measurements::Sgx(SgxMeasurements {
        mrenclave: [8; 32],
        mrsigner: [9; 32],
        isv_prod_id: 1,
        isv_svn: 2,
        config_id: [10; 64],
    })
}

fn trust_domain() -> Measurements {
    Measurements::Tdx(TdxMeasurements {
        mrtd: [10; 48],
        rtmr0: [11; 48],
        rtmr1: [12; 48],
        rtmr2: [13; 48],
        rtmr3: [14; 48],
        mrconfigid: [16; 48],
        mrowner: [17; 48],
        mrownerconfig: [18; 48],
    })
}
