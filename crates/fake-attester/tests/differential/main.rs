//! Our verdicts compared with those of dcap-qvl 0.7.1, on the same mutated evidence under an equal
//! policy.
//!
//! What we accept and it rejects is a failure, and so is another status or advisory where both
//! accept. What it accepts and we reject has to be one of the strict checks that `strict.rs` names.
//! Our verifier is asked in every way: the reference from bytes, and prepared endorsements that
//! remember nothing, or the platform of the unmutated quote.
//!
//! Case n is the same everywhere: its mutations are drawn from n. `CONFIDE_FUZZ_SECONDS` runs for
//! a time instead of a number of cases, `CONFIDE_FUZZ_START` begins at another case, and
//! `CONFIDE_FUZZ_CASE` shows one.

mod draw;
mod json;
mod judge;
mod layout;
mod mutate;
mod seeds;
mod strict;
mod x509;

use std::{
    collections::BTreeMap,
    env,
    time::{Duration, Instant},
};

use crate::{draw::Draw, judge::Verdict, seeds::Subject};

/// Cases without `CONFIDE_FUZZ_SECONDS`: some seconds in a build without optimisation.
const CASES: u64 = 1_500;
/// Faults of a group that are shown in full; the rest is counted.
const SHOWN_MAX: u64 = 2;
/// Faults whose descriptions begin with the same characters are a group.
const GROUP_CHARS: usize = 100;

#[test]
fn nothing_is_accepted_that_dcap_qvl_rejects_and_what_is_refused_has_a_name() {
    let subjects = seeds::all();
    for subject in &subjects {
        let verdict = judge::judge(subject, subject);
        assert!(!matches!(verdict, Verdict::Fault(_)), "{}: {verdict:?}", subject.name);
    }
    let start = number("CONFIDE_FUZZ_START").unwrap_or(0);
    if let Some(case) = number("CONFIDE_FUZZ_CASE") {
        let (name, mutations, verdict) = run(&subjects, case);
        println!("case {case}: {name}\n  {}\n  {verdict:?}", mutations.join("\n  "));
        return;
    }
    let deadline =
        number("CONFIDE_FUZZ_SECONDS").map(|seconds| Instant::now() + Duration::from_secs(seconds));
    let mut tally = Tally::default();
    let mut case = start;
    loop {
        let more = match deadline {
            Some(deadline) => Instant::now() < deadline,
            None => case < start + CASES,
        };
        if !more {
            break;
        }
        let (name, mutations, verdict) = run(&subjects, case);
        tally.add(case, name, &mutations, verdict);
        case += 1;
    }
    tally.print(case - start);
    assert_eq!(tally.faults, 0, "faults, see above");
}

/// Draws the mutations of one case and asks both verifiers.
fn run(subjects: &[Subject], case: u64) -> (&str, Vec<String>, Verdict) {
    let mut draw = Draw::new(case);
    let original = draw.pick(subjects);
    let mut subject = original.clone();
    let mut mutations = Vec::new();
    for _ in 0..=draw.number_below(3) {
        mutations.push(mutate::mutate(&mut subject, subjects, &mut draw));
    }
    (&original.name, mutations, judge::judge(&subject, original))
}

#[derive(Default)]
struct Tally {
    accepted: u64,
    rejected: u64,
    strict: BTreeMap<&'static str, u64>,
    incomparable: BTreeMap<&'static str, u64>,
    faults: u64,
    /// Faults by their first words.
    groups: BTreeMap<String, u64>,
    kinds: BTreeMap<String, (u64, u64)>,
}

impl Tally {
    fn add(&mut self, case: u64, name: &str, mutations: &[String], verdict: Verdict) {
        let kind = mutations[0].split(':').next().unwrap_or_default().to_owned();
        let kind = self.kinds.entry(kind).or_default();
        kind.0 += 1;
        match verdict {
            Verdict::BothAccept => {
                kind.1 += 1;
                self.accepted += 1;
            }
            Verdict::BothReject => self.rejected += 1,
            Verdict::Strict(check) => *self.strict.entry(check).or_default() += 1,
            Verdict::Incomparable(what) => *self.incomparable.entry(what).or_default() += 1,
            Verdict::Fault(said) => {
                self.faults += 1;
                let letters = said.chars().filter(|c| !c.is_ascii_digit());
                let group: String = letters.take(GROUP_CHARS).collect();
                let count = self.groups.entry(group).or_default();
                *count += 1;
                if *count <= SHOWN_MAX {
                    println!("FAULT in case {case} ({name}): {said}");
                    mutations.iter().for_each(|mutation| println!("    {mutation}"));
                }
            }
        }
    }

    fn print(&self, cases: u64) {
        println!("{cases} cases against dcap-qvl 0.7.1");
        println!("  {:7} accepted by both, with the same status and advisories", self.accepted);
        println!("  {:7} rejected by both", self.rejected);
        for (check, count) in &self.strict {
            println!("  {count:7} rejected by us alone: {check}");
        }
        for (what, count) in &self.incomparable {
            println!("  {count:7} not comparable: {what}");
        }
        println!("  {:7} faults", self.faults);
        for (group, count) in &self.groups {
            println!("  {count:7} {group}");
        }
        println!("by the first mutation: cases, of which accepted by both");
        for (kind, (cases, accepted)) in &self.kinds {
            println!("  {cases:7} {accepted:7} {kind}");
        }
    }
}

fn number(name: &str) -> Option<u64> {
    env::var(name).ok().map(|text| text.parse().expect("a number"))
}
