//! The lines of `openssl speed -mr`, of one process or of `-multi`.

use super::{limited, word};
use crate::error::ReadError;

const TOOL: &str = "openssl";

/// Rates of one run, of all processes together.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Rates {
    /// Signatures made and verified in a second, by curve bits.
    pub signatures: Vec<Signatures>,
    /// Key agreements in a second, by curve bits.
    pub agreements: Vec<Agreements>,
    /// Bytes in a second, by name and block size.
    pub bytes: Vec<Bytes>,
}

/// ECDSA on one curve.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Signatures {
    /// Bits of the curve as openssl counts them.
    pub bits: u32,
    /// Made in a second.
    pub sign_per_s: f64,
    /// Verified in a second.
    pub verify_per_s: f64,
}

/// Key agreement on one curve.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Agreements {
    /// Bits of the curve as openssl counts them: 253 is X25519.
    pub bits: u32,
    /// In a second.
    pub per_s: f64,
}

/// A cipher or digest at one block size.
#[derive(Clone, Debug, PartialEq)]
pub struct Bytes {
    /// openssl's name.
    pub name: String,
    /// Bytes of a block.
    pub block: u32,
    /// Bytes in a second.
    pub per_s: f64,
}

/// Reads the machine-readable lines; what does not begin with `+` is for people.
///
/// # Errors
/// When a line lacks its numbers, or no line was there.
pub fn read(text: &str) -> Result<Rates, ReadError> {
    let (mut rates, mut blocks) = (Rates::default(), Vec::new());
    for line in limited(TOOL, text)?.lines() {
        // Of several processes only these tell the block sizes; their sum has a line of its own.
        let line = match line.strip_prefix("Got: +H") {
            Some(sizes) => format!("+H{}", sizes.split(" from ").next().unwrap_or_default()),
            None => line.to_owned(),
        };
        let fields: Vec<&str> = line.trim_end().split(':').collect();
        match fields.as_slice() {
            // Asymmetric runs print it empty.
            ["+H", sizes @ ..] => {
                let sizes = sizes.iter().filter(|size| !size.is_empty());
                blocks = sizes.map(|size| bits("a block size", size)).collect::<Result<_, _>>()?;
            }
            ["+F", _, name, all @ ..] => {
                for (block, per_s) in blocks.iter().zip(all) {
                    let per_s = word(TOOL, "bytes in a second", per_s)?;
                    rates.bytes.push(Bytes { name: (*name).to_owned(), block: *block, per_s });
                }
            }
            ["+F4", _, of, sign, verify] => rates.signatures.push(Signatures {
                bits: bits("bits", of)?,
                sign_per_s: word(TOOL, "signatures in a second", sign)?,
                verify_per_s: word(TOOL, "verifications in a second", verify)?,
            }),
            ["+F5", _, of, per_s, ..] => rates.agreements.push(Agreements {
                bits: bits("bits", of)?,
                per_s: word(TOOL, "agreements in a second", per_s)?,
            }),
            _ => {}
        }
    }
    match rates == Rates::default() {
        true => Err(ReadError::Missing { tool: TOOL, what: "line of results (+F)" }),
        false => Ok(rates),
    }
}

fn bits(what: &'static str, text: &str) -> Result<u32, ReadError> {
    let got = || super::excerpt(text);
    text.parse().map_err(|_| ReadError::NoNumber { tool: TOOL, what, got: got() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signatures_and_agreements_are_read() {
        let rates = read(include_str!("../../recorded/openssl-asymmetric.txt")).expect("recorded");
        let [p256] = rates.signatures.as_slice() else { panic!("{rates:?}") };
        assert_eq!((p256.bits, p256.verify_per_s), (256, 24_131.0));
        assert!((p256.sign_per_s - 71_485.858_586).abs() < 1e-6);
        let [x25519] = rates.agreements.as_slice() else { panic!("{rates:?}") };
        assert_eq!((x25519.bits, x25519.per_s), (253, 41_951.515_152));
    }

    #[test]
    fn bytes_belong_to_the_block_size_that_was_printed_before_them() {
        let rates = read(include_str!("../../recorded/openssl-aes.txt")).expect("recorded");
        let [aes] = rates.bytes.as_slice() else { panic!("{rates:?}") };
        assert_eq!((aes.name.as_str(), aes.block), ("AES-256-GCM", 16_384));
        assert_eq!(aes.per_s, 5_165_544_210.10);
    }

    #[test]
    fn the_lines_of_single_processes_are_not_counted_beside_their_sum() {
        let rates = read(include_str!("../../recorded/openssl-multi.txt")).expect("recorded");
        let [p256] = rates.signatures.as_slice() else { panic!("{rates:?}") };
        assert_eq!(p256.sign_per_s, 141_206.0);
    }

    #[test]
    fn several_processes_tell_the_block_size_in_their_own_lines_only() {
        let rates = read(include_str!("../../recorded/openssl-multi-aes.txt")).expect("recorded");
        let [aes] = rates.bytes.as_slice() else { panic!("{rates:?}") };
        assert_eq!((aes.name.as_str(), aes.block), ("AES-256-GCM", 16_384));
    }

    #[test]
    fn no_result_and_no_number_are_errors() {
        assert!(matches!(read("speed: unknown algorithm"), Err(ReadError::Missing { .. })));
        assert!(matches!(read("+F4:3:256:many:1.0"), Err(ReadError::NoNumber { .. })));
        assert!(matches!(read("+H:big\n"), Err(ReadError::NoNumber { .. })));
    }
}
