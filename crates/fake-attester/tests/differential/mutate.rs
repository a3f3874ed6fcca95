//! One mutation at a time.

use confide_fake_attester::{EndorsementEdition, PckCa, SimulatedKey};

use crate::{
    draw::Draw,
    json,
    layout::{self, Layout},
    seeds::{Forger, Subject},
    x509,
};

/// Changes the subject and returns the change in words: its kind, a colon, and the details.
pub(crate) fn mutate(subject: &mut Subject, all: &[Subject], draw: &mut Draw) -> String {
    loop {
        let said = match (draw.number_below(12), subject.forger.clone()) {
            (0, _) => flip_quote(subject, draw),
            (1, _) => resize_quote(subject, draw),
            (2, _) => splice_quote(subject, all, draw),
            (3, _) => flip_collateral(subject, draw),
            (4, _) => borrow_collateral(subject, all, draw),
            (5, _) => shift_now(subject, draw),
            (6 | 7, Some(forger)) => field(subject, &forger, draw),
            (8 | 9, Some(forger)) => document(subject, &forger, draw),
            (10, Some(forger)) => certificate(subject, &forger, draw),
            (11, Some(forger)) if draw.chance(2) => list(subject, &forger, draw),
            (11, Some(forger)) => edition(subject, &forger, draw),
            _ => None,
        };
        if let Some(said) = said {
            return said;
        }
    }
}

fn flip_quote(subject: &mut Subject, draw: &mut Draw) -> Option<String> {
    if subject.quote.is_empty() {
        return None;
    }
    let at = draw.number_below(subject.quote.len());
    let mask = draw.mask();
    let part = Layout::parse(&subject.quote).map_or("?", |layout| layout.part(at));
    subject.quote[at] ^= mask;
    Some(format!("quote byte: {at} ({part}) ^ {mask:#04x}"))
}

fn resize_quote(subject: &mut Subject, draw: &mut Draw) -> Option<String> {
    let length = draw.number_below(subject.quote.len() + 1);
    Some(match draw.number_below(5) {
        0 => {
            subject.quote.truncate(length);
            format!("quote length: cut to {length}")
        }
        1 => {
            let more = 1 + draw.number_below(3000);
            subject.quote.resize(subject.quote.len() + more, 0);
            format!("quote length: {more} zeros after it")
        }
        2 => {
            subject.quote.push(draw.mask());
            "quote length: a byte after it".into()
        }
        3 => {
            let byte = draw.mask();
            subject.quote.insert(length, byte);
            format!("quote length: {byte:#04x} put in at {length}")
        }
        _ => {
            let end = Layout::parse(&subject.quote)?.end;
            subject.quote.truncate(end);
            "quote length: no padding".into()
        }
    })
}

fn splice_quote(subject: &mut Subject, all: &[Subject], draw: &mut Draw) -> Option<String> {
    let other = draw.pick(all);
    let (ours, theirs) = (Layout::parse(&subject.quote)?, Layout::parse(&other.quote)?);
    let parts = [
        ("header", 0..48, 0..48),
        ("report", 48..ours.signed, 48..theirs.signed),
        (
            "signature",
            ours.signature..ours.attestation_key,
            theirs.signature..theirs.attestation_key,
        ),
        (
            "attestation key",
            ours.attestation_key..ours.attestation_key + 64,
            theirs.attestation_key..theirs.attestation_key + 64,
        ),
        ("QE report", ours.qe_report..ours.qe_signature, theirs.qe_report..theirs.qe_signature),
        (
            "QE report and signature",
            ours.qe_report..ours.qe_signature + 64,
            theirs.qe_report..theirs.qe_signature + 64,
        ),
        ("PCK chain", ours.chain..ours.end, theirs.chain..theirs.end),
        ("all but the report", ours.signed..ours.end, theirs.signed..theirs.end),
    ];
    let (name, to, from) = draw.pick(&parts).clone();
    let piece = other.quote[from].to_vec();
    if name == "PCK chain" {
        layout::replace_chain(&mut subject.quote, &piece)?;
    } else {
        subject.quote.splice(to, piece);
    }
    Some(format!("quote splice: {name} of {}", other.name))
}

fn flip_collateral(subject: &mut Subject, draw: &mut Draw) -> Option<String> {
    let collateral = &mut subject.collateral;
    let index = draw.number_below(9);
    let bytes = match index {
        0 => Some(&mut collateral.root_ca_crl),
        1 => Some(&mut collateral.pck_crl),
        2 => Some(&mut collateral.tcb_info_signature),
        3 => Some(&mut collateral.qe_identity_signature),
        _ => None,
    };
    if let Some(bytes) = bytes {
        if bytes.is_empty() {
            return None;
        }
        let at = draw.number_below(bytes.len());
        bytes[at] ^= draw.mask();
        return Some(format!("collateral byte: field {index}, byte {at}"));
    }
    let text = match index {
        4 => &mut collateral.tcb_info,
        5 => &mut collateral.qe_identity,
        6 => &mut collateral.tcb_info_issuer_chain,
        7 => &mut collateral.qe_identity_issuer_chain,
        _ => &mut collateral.pck_crl_issuer_chain,
    };
    let mut bytes = std::mem::take(text).into_bytes();
    if bytes.is_empty() {
        return None;
    }
    let at = draw.number_below(bytes.len());
    match draw.number_below(3) {
        0 => bytes[at] = *draw.pick(b"0123456789ABCDEFabcdef \n-+/{}\","),
        1 => {
            bytes.remove(at);
        }
        _ => bytes.insert(at, *draw.pick(b" \n0A\t\r")),
    }
    *text = String::from_utf8_lossy(&bytes).into_owned();
    Some(format!("collateral byte: field {index}, byte {at}"))
}

fn borrow_collateral(subject: &mut Subject, all: &[Subject], draw: &mut Draw) -> Option<String> {
    let other = draw.pick(all);
    let (to, from) = (&mut subject.collateral, other.collateral.clone());
    let what = match draw.number_below(9) {
        0 => {
            to.root_ca_crl = from.root_ca_crl;
            "root CRL"
        }
        1 => {
            to.pck_crl = from.pck_crl;
            "PCK CRL"
        }
        2 => {
            to.pck_crl_issuer_chain = from.pck_crl_issuer_chain;
            "issuer chain of the PCK CRL"
        }
        3 => {
            to.pck_crl = from.pck_crl;
            to.pck_crl_issuer_chain = from.pck_crl_issuer_chain;
            "PCK CRL and its issuer chain"
        }
        4 => {
            to.tcb_info = from.tcb_info;
            to.tcb_info_signature = from.tcb_info_signature;
            to.tcb_info_issuer_chain = from.tcb_info_issuer_chain;
            "TCB info"
        }
        5 => {
            to.qe_identity = from.qe_identity;
            to.qe_identity_signature = from.qe_identity_signature;
            to.qe_identity_issuer_chain = from.qe_identity_issuer_chain;
            "QE identity"
        }
        6 => {
            to.tcb_info_issuer_chain = from.pck_crl_issuer_chain;
            "issuer chain of the TCB info from that of the CRL"
        }
        7 => {
            let layout = Layout::parse(&other.quote)?;
            let chain = &other.quote[layout.chain..layout.end];
            let chain = String::from_utf8_lossy(chain).trim_end_matches('\0').to_owned();
            to.pck_certificate_chain = Some(chain);
            "PCK chain of its quote in the collateral"
        }
        _ => {
            *to = from;
            "all collateral"
        }
    };
    Some(format!("collateral of another: {what} of {}", other.name))
}

fn shift_now(subject: &mut Subject, draw: &mut Draw) -> Option<String> {
    let days = *draw.pick(&[1_u64, 9, 10, 11, 29, 30, 31, 60, 365, 2_600, 5_500, 9_000]);
    subject.now = match draw.number_below(4) {
        0 => subject.now.saturating_sub(days * 86_400),
        1 => subject.now.saturating_sub(60),
        2 => subject.now.saturating_sub(61),
        _ => subject.now + days * 86_400,
    };
    Some(format!("time: {}", subject.now))
}

/// Changes a field of the signed parts, and makes the signatures fit.
fn field(subject: &mut Subject, forger: &Forger, draw: &mut Draw) -> Option<String> {
    let layout = Layout::parse(&subject.quote)?;
    let report = if subject.quote[0] == 5 { 54 } else { 48 };
    let (name, at, length) = match draw.number_below(10) {
        0 => ("header", 0, 48),
        1 => ("TEE_TCB_SVN or CPUSVN", report, 16),
        2 => ("attributes", report + 120, 8),
        3 => ("SGX attributes", report + 48, 16),
        4 => ("MRSIGNERSEAM and SEAM attributes", report + 64, 56),
        5 => ("end of the report", layout.signed - 64, 64),
        6 => ("QE report", layout.qe_report, 384),
        7 => ("QE attributes, product and SVN", layout.qe_report + 256, 4),
        8 => ("QE MRSIGNER and MISCSELECT", layout.qe_report + 16, 4),
        _ => ("authentication data", layout.authentication_data, 32),
    };
    let at = at + draw.number_below(length);
    let value = *draw.pick(&[0, 1, 2, 3, 4, 5, 6, 0x10, 0x20, 0x40, 0x80, 0xff]);
    let byte = subject.quote.get_mut(at)?;
    *byte = if draw.chance(2) { value } else { *byte ^ value };
    layout::sign_anew(&mut subject.quote, forger)?;
    Some(format!("quote field, signed anew: {name}, byte {at} with {value:#04x}"))
}

/// Changes TCB info or QE identity, and signs it again.
fn document(subject: &mut Subject, forger: &Forger, draw: &mut Draw) -> Option<String> {
    let collateral = &mut subject.collateral;
    let tcb_info = draw.chance(2);
    let document = if tcb_info { &collateral.tcb_info } else { &collateral.qe_identity };
    let (changed, said) = json::change(document, draw)?;
    let signature = forger.vendors.sign_as(SimulatedKey::TcbSigner, changed.as_bytes()).to_vec();
    if tcb_info {
        (collateral.tcb_info, collateral.tcb_info_signature) = (changed, signature);
        Some(format!("TCB info, signed anew: {said}"))
    } else {
        (collateral.qe_identity, collateral.qe_identity_signature) = (changed, signature);
        Some(format!("QE identity, signed anew: {said}"))
    }
}

/// Changes a certificate of one of the chains, and signs it again by its issuer.
fn certificate(subject: &mut Subject, forger: &Forger, draw: &mut Draw) -> Option<String> {
    let ca = holder(forger.variant.pck_ca);
    let (name, index, issuer) = match draw.number_below(4) {
        0 | 1 => ("PCK", 0, ca),
        2 => ("PCK CA", 1, SimulatedKey::IntelRoot),
        _ => ("TCB signer", 0, SimulatedKey::IntelRoot),
    };
    if name == "TCB signer" {
        let collateral = &mut subject.collateral;
        let mut chain = x509::from_pem(&collateral.tcb_info_issuer_chain)?;
        let said = x509::change(chain.get_mut(index)?, &forger.vendors, issuer, draw)?;
        collateral.tcb_info_issuer_chain = x509::to_pem(&chain);
        collateral.qe_identity_issuer_chain = x509::to_pem(&chain);
        return Some(format!("certificate, signed anew: {name}, {said}"));
    }
    let layout = Layout::parse(&subject.quote)?;
    let text = String::from_utf8_lossy(&subject.quote[layout.chain..layout.end]).into_owned();
    let mut chain = x509::from_pem(&text)?;
    let said = x509::change(chain.get_mut(index)?, &forger.vendors, issuer, draw)?;
    layout::replace_chain(&mut subject.quote, &[x509::to_pem(&chain).as_bytes(), b"\0"].concat())?;
    if name == "PCK CA" {
        subject.collateral.pck_crl_issuer_chain = x509::to_pem(&chain[1..]);
    }
    Some(format!("certificate, signed anew: {name}, {said}"))
}

/// Changes a revocation list, and signs it again.
fn list(subject: &mut Subject, forger: &Forger, draw: &mut Draw) -> Option<String> {
    let (name, list, issuer) = match draw.number_below(2) {
        0 => ("root", &mut subject.collateral.root_ca_crl, SimulatedKey::IntelRoot),
        _ => ("PCK", &mut subject.collateral.pck_crl, holder(forger.variant.pck_ca)),
    };
    let said = x509::change(list, &forger.vendors, issuer, draw)?;
    Some(format!("revocation list, signed anew: {name}, {said}"))
}

/// Replaces all collateral by that of another edition.
fn edition(subject: &mut Subject, forger: &Forger, draw: &mut Draw) -> Option<String> {
    let vendors = &forger.vendors;
    let day = |draw: &mut Draw| {
        let days = *draw.pick(&[0, 0, 0, 1, 10, 29, 31, 60]);
        match draw.chance(2) {
            true => subject.now.saturating_sub(days * 86_400),
            false => subject.now + days * 86_400,
        }
    };
    let mut edition = EndorsementEdition::issued_at(day(draw));
    edition.crl_issued_at = day(draw);
    edition.crl_number = draw.next() >> draw.number_below(64);
    edition.evaluation_number = draw.number_below(30) as u32;
    let mut revoked = "nothing";
    match draw.number_below(6) {
        0 => {
            edition.revoked_pck = vec![vendors.pck_certificate(&forger.variant).ok()?.serial];
            revoked = "the PCK";
        }
        1 => {
            edition.revoked_ca = vec![vendors.pck_ca_serial(forger.variant.pck_ca)];
            revoked = "its CA";
        }
        2 => {
            let other = confide_fake_attester::SimulatedPlatform { platform: 99, ..forger.variant };
            edition.revoked_pck = vec![vendors.pck_certificate(&other).ok()?.serial];
            revoked = "another PCK";
        }
        _ => {}
    }
    let intel = vendors.issue_intel(&edition).ok()?;
    let json = intel.collateral_json(forger.tee, forger.variant.pck_ca).ok()?;
    subject.collateral = serde_json::from_str(&json).ok()?;
    Some(format!(
        "edition: documents {}, lists {} number {}, revoked {revoked}, now {}",
        edition.issued_at, edition.crl_issued_at, edition.crl_number, subject.now
    ))
}

fn holder(ca: PckCa) -> SimulatedKey {
    match ca {
        PckCa::Platform => SimulatedKey::PlatformCa,
        PckCa::Processor => SimulatedKey::ProcessorCa,
    }
}
