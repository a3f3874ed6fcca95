//! Prints what a file of evidence says, believed or not: `read_evidence FILE`, for instance
//! `evidence.bin` as `confide attest --simulate tdx --out FOLDER` writes it.

use std::{env, error::Error, fs};

use confide_evidence::{EvidenceKind, detect_kind, quote::Quote, snp::Report};

fn main() -> Result<(), Box<dyn Error>> {
    let file = env::args().nth(1).ok_or("usage: read_evidence FILE")?;
    let bytes = fs::read(&file)?;
    let kind = detect_kind(&bytes).ok_or_else(|| format!("{file} holds no known evidence"))?;
    println!("{file} holds {kind}");
    match kind {
        EvidenceKind::SgxQuote | EvidenceKind::TdxQuote => {
            let quote = Quote::parse(&bytes)?;
            println!("version {}, report data {}", quote.header.version(), quote.report_data());
        }
        EvidenceKind::SnpReport => {
            let report = Report::parse(&bytes)?;
            println!("report data {:02x?}", report.report_data());
        }
        EvidenceKind::GpuEvidence => println!("{} bytes", bytes.len()),
    }
    Ok(())
}
