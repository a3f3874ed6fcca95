//! Every byte of a quote, every truncation, and bytes that are no message at all.

mod own_pki;
mod ways;

use std::time::Duration;

use confide_evidence::{
    ParseError,
    certificate::Certificate,
    crl::CrlDates,
    pck::PckExtension,
    pem,
    qe_identity::QeIdentity,
    quote::{PADDING_LENGTH_MAX, QUOTE_LENGTH_MAX, Quote},
    tcb_info::TcbInfo,
};
use confide_verifier::{AwsLc, Endorsements, Evidence, Policy, Reason, Roots, UnixTime, appraise};
use own_pki::{BuiltEvidence, NOW, Recipe};
use ways::Ways;

#[test]
fn every_flipped_bit_of_a_quote_is_refused_unless_it_only_changes_how_pem_is_laid_out() {
    let made = Recipe::default().make();
    let judge = Judge::new(&made);
    let mut quote = made.quote.clone();
    let mut harmless = 0;
    for at in 0..quote.len() {
        // Bit by bit where fields have meaning; one bit a byte in the long PEM text.
        let masks: &[u8] = if at < PEM_STARTS { &[0x01, 0x10, 0x80] } else { &[1 << (at % 8)] };
        for mask in masks {
            quote[at] ^= mask;
            if judge.accepts(&quote) {
                let original = made.quote[at];
                assert!(at >= PEM_STARTS, "byte {at} of signed or structural data");
                assert!(original.is_ascii_whitespace(), "byte {at}: {original:#x} in PEM");
                harmless += 1;
            }
            quote[at] ^= mask;
        }
    }
    assert!(harmless < 200, "{harmless} flips were harmless");
}

#[test]
fn every_truncation_of_a_quote_is_an_error() {
    let made = Recipe::default().make();
    for length in 0..made.quote.len() {
        assert!(Quote::parse(&made.quote[..length]).is_err(), "{length} bytes");
    }
}

#[test]
fn zero_padding_passes_up_to_its_limit_and_anything_else_is_named() {
    let made = Recipe::default().make();
    let judge = Judge::new(&made);
    let with = |more: &[u8]| [&made.quote, more].concat();
    assert!(judge.accepts(&with(&[0; PADDING_LENGTH_MAX])));
    let refused = |quote: &[u8]| Quote::parse(quote).unwrap_err();
    let end = made.quote.len();
    let too_much = refused(&with(&[0; PADDING_LENGTH_MAX + 1]));
    let at = end + PADDING_LENGTH_MAX;
    assert_eq!(too_much, ParseError::TrailingBytes { subject: "quote", end, at });
    assert!(!Reason::Malformed(too_much).is_unreadable());
    let trailing = refused(&with(&[0, 0, 1, 0]));
    assert_eq!(trailing, ParseError::TrailingBytes { subject: "quote", end, at: end + 2 });
    assert!(trailing.to_string().starts_with("trailing_bytes"));
    assert!(!Reason::Malformed(trailing).is_unreadable());
    let huge = refused(&vec![0; QUOTE_LENGTH_MAX + 1]);
    assert!(matches!(huge, ParseError::TooLong { subject: "quote", .. }));
}

#[test]
fn every_flipped_byte_and_truncation_of_the_collateral_is_survived() {
    let made = Recipe::default().make();
    for at in (0..made.collateral.len()).step_by(5) {
        let mut spoiled = made.collateral.clone();
        spoiled[at] ^= 1 << (at % 7);
        if let Ok(endorsements) = Endorsements::parse(&spoiled) {
            let _ = ask(&made, &endorsements, &made.quote);
        }
        assert!(Endorsements::parse(&made.collateral[..at]).is_err());
    }
}

#[test]
fn parsers_survive_random_bytes_and_spoiled_messages() {
    let mut random = Random(0x5eed);
    let made = Recipe::default().make();
    let quote = Quote::parse(&made.quote).unwrap();
    let chain = pem::decode_chain("chain", quote.pck_chain).unwrap();
    let leaf = Certificate::parse("leaf", &chain[0]).unwrap();
    let extension = leaf.sgx_extension.unwrap();
    for round in 0..4_000 {
        let noise = random.bytes(round % 700);
        let _ = Quote::parse(&noise);
        let _ = Endorsements::parse(&noise);
        let _ = pem::decode_chain("noise", &noise);
        let _ = Certificate::parse("noise", &noise);
        let _ = CrlDates::parse("noise", &noise);
        let _ = PckExtension::parse(&noise);
        let text = String::from_utf8_lossy(&noise);
        let _ = (TcbInfo::parse(&text), QeIdentity::parse(&text), Policy::from_toml(&text));
        let _ = Certificate::parse("spoiled", &random.spoil(&chain[round % 3]));
        let _ = PckExtension::parse(&random.spoil(extension));
    }
}

/// Header, body, signatures, QE report and authentication data, lengths and types.
const PEM_STARTS: usize = 48 + 584 + 4 + 128 + 6 + 448 + 2 + 32 + 6;

struct Judge<'a> {
    made: &'a BuiltEvidence,
    endorsements: Endorsements,
    ways: Ways,
}

impl<'a> Judge<'a> {
    fn new(made: &'a BuiltEvidence) -> Self {
        let endorsements = Endorsements::parse(&made.collateral).unwrap();
        let prepared = endorsements.clone().prepare(&policy(made).roots, now(), &AwsLc).unwrap();
        Self { made, endorsements, ways: Ways::learn_from(prepared, &made.quote, now(), &AwsLc) }
    }

    fn accepts(&self, quote: &[u8]) -> bool {
        let (evidence, policy) = (Evidence { quote, ..Evidence::default() }, policy(self.made));
        let verdict = appraise(&evidence, &self.endorsements, &policy, now(), &AwsLc);
        self.ways.agree_with(&verdict, &evidence, &policy, now(), &AwsLc);
        verdict.is_ok()
    }
}

fn policy(made: &BuiltEvidence) -> Policy {
    Policy { roots: Roots::from_der(&made.root_der), ..Policy::default() }
}

fn now() -> UnixTime {
    UnixTime::since_unix_epoch(Duration::from_secs(NOW))
}

fn ask(made: &BuiltEvidence, endorsements: &Endorsements, quote: &[u8]) -> bool {
    let evidence = Evidence { quote, ..Evidence::default() };
    ways::appraise(&evidence, endorsements, &policy(made), now(), &AwsLc).is_ok()
}

/// xorshift: the same bytes in every run.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn bytes(&mut self, length: usize) -> Vec<u8> {
        (0..length).map(|_| self.next() as u8).collect()
    }

    fn spoil(&mut self, bytes: &[u8]) -> Vec<u8> {
        let mut bytes = bytes.to_vec();
        for _ in 0..=self.next() % 3 {
            let at = self.next() as usize % bytes.len();
            bytes[at] = self.next() as u8;
        }
        if self.next().is_multiple_of(8) {
            bytes.truncate(self.next() as usize % bytes.len());
        }
        bytes
    }
}
