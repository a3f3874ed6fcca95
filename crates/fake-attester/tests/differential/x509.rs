//! Parses certificates and revocation lists, changes them and signs them again.

use base64::{Engine, engine::general_purpose::STANDARD};
use confide_fake_attester::{FakeEndorsements, SimulatedKey};

use crate::draw::Draw;

/// ecdsa-with-SHA256 (RFC 5758 section 3.2).
const ALGORITHM: [u8; 12] = [0x30, 10, 6, 8, 0x2a, 0x86, 0x48, 0xce, 0x3d, 4, 3, 2];

/// The certificates of a chain, in DER.
pub(crate) fn from_pem(pem: &str) -> Option<Vec<Vec<u8>>> {
    let mut chain = Vec::new();
    for part in pem.split("-----BEGIN CERTIFICATE-----").skip(1) {
        let text: String = part.split("-----END").next()?.split_whitespace().collect();
        chain.push(STANDARD.decode(text).ok()?);
    }
    (!chain.is_empty()).then_some(chain)
}

pub(crate) fn to_pem(chain: &[Vec<u8>]) -> String {
    let mut pem = String::new();
    for der in chain {
        pem += "-----BEGIN CERTIFICATE-----\n";
        for line in STANDARD.encode(der).as_bytes().chunks(64) {
            pem += std::str::from_utf8(line).unwrap();
            pem.push('\n');
        }
        pem += "-----END CERTIFICATE-----\n";
    }
    pem
}

/// Changes some bytes of what is signed and signs it again; returns the change in words.
pub(crate) fn change(
    der: &mut Vec<u8>,
    vendors: &FakeEndorsements,
    issuer: SimulatedKey,
    draw: &mut Draw,
) -> Option<String> {
    let signed = element(der, content(der)?)?;
    let mut signed = der[signed.0..signed.1].to_vec();
    let said = match draw.number_below(4) {
        0 => change_time(&mut signed, draw)?,
        1 => change_small(&mut signed, draw)?,
        _ => {
            let at = 4 + draw.number_below(signed.len() - 4);
            let mask = draw.mask();
            signed[at] ^= mask;
            format!("byte {at} of what is signed ^ {mask:#04x}")
        }
    };
    let signature = vendors.sign_as(issuer, &signed);
    let signature = wrap(0x30, &[number(&signature[..32]), number(&signature[32..])].concat());
    let signature = wrap(0x03, &[vec![0], signature].concat());
    *der = wrap(0x30, &[signed, ALGORITHM.to_vec(), signature].concat());
    Some(said)
}

/// Changes a year or month in one of the times.
fn change_time(signed: &mut [u8], draw: &mut Draw) -> Option<String> {
    let times: Vec<usize> = (0..signed.len().saturating_sub(15))
        .filter(|&at| signed[at] == 0x17 && signed[at + 1] == 13 && signed[at + 14] == b'Z')
        .collect();
    if times.is_empty() {
        return None;
    }
    let at = *draw.pick(&times);
    let digit = at + 2 + draw.number_below(6);
    let value = b'0' + draw.number_below(10) as u8;
    signed[digit] = value;
    Some(format!("digit {} of the time at {at} is {}", digit - at - 2, char::from(value)))
}

/// Changes the value of a short primitive: flags, small numbers, security versions, key usages.
fn change_small(signed: &mut [u8], draw: &mut Draw) -> Option<String> {
    let small: Vec<usize> = (0..signed.len().saturating_sub(4))
        .filter(|&at| matches!((signed[at], signed[at + 1]), (1 | 2 | 3 | 4 | 10, 1 | 2)))
        .collect();
    if small.is_empty() {
        return None;
    }
    let at = *draw.pick(&small);
    let last = at + 1 + usize::from(signed[at + 1]);
    signed[last] = *draw.pick(&[0, 1, 2, 4, 5, 6, 7, 8, 12, 0x7f, 0x80, 0xc0, 0xff]);
    Some(format!("small value at {at} is {:#04x}", signed[last]))
}

/// The offset at which the content of the outermost element begins.
fn content(der: &[u8]) -> Option<usize> {
    Some(match der.get(1)? {
        0x82 => 4,
        0x81 => 3,
        _ => 2,
    })
}

/// The begin and the end of the element at an offset.
fn element(der: &[u8], at: usize) -> Option<(usize, usize)> {
    let (header, length) = match der.get(at + 1)? {
        0x82 => (4, usize::from(*der.get(at + 2)?) << 8 | usize::from(*der.get(at + 3)?)),
        0x81 => (3, usize::from(*der.get(at + 2)?)),
        n => (2, usize::from(*n)),
    };
    let end = at + header + length;
    (end <= der.len()).then_some((at, end))
}

fn number(bytes: &[u8]) -> Vec<u8> {
    let start = bytes.iter().position(|&byte| byte != 0).unwrap_or(bytes.len() - 1);
    let mut value = bytes[start..].to_vec();
    if value[0] >= 0x80 {
        value.insert(0, 0);
    }
    wrap(0x02, &value)
}

fn wrap(tag: u8, content: &[u8]) -> Vec<u8> {
    let length = content.len();
    let header = match length {
        0..0x80 => vec![tag, length as u8],
        0x80..0x100 => vec![tag, 0x81, length as u8],
        _ => vec![tag, 0x82, (length >> 8) as u8, length as u8],
    };
    [header.as_slice(), content].concat()
}
