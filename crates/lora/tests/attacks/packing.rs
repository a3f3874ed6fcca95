//! A query that packs two columns into one answer: an answer has 33 bits, an entry of A has 13. Half
//! of the default budget reveals a whole adapter at the real host, within every rule that the host can
//! check. So its guarantee must be `adapter can be learned`.

use confide_lora::{
    DeltaProvider, InputTerms, IntMatrix, LayerInput, LoraPair, Projection, ProtectedMatrices,
    QuantisedWeights, StepMeter,
    masked::HolderBatch,
    protocol::{FrameKind, MaskedAnswer, pack, unpack},
};

use crate::{
    raw::{OpenedSession, RawHolder},
    test_host::{TestHost, adapter, host_options, parameters},
};

const WIDTH: usize = 24;
/// The factor of the second column: the magnitudes of the entries of A are below it.
const SHIFT: i64 = 1 << 13;

/// The rows of an input that the key holder computed, and the number of answers that it used.
fn steal(
    raw: &mut RawHolder<'_>,
    terms: &InputTerms,
    batch: &mut HolderBatch,
) -> (Vec<Vec<i64>>, u64) {
    let meter = &mut StepMeter::default();
    let mut rows = vec![vec![0; terms.columns]; terms.rows()];
    let mut answers = 0;
    for column in (0..terms.columns).step_by(2) {
        let mut query = vec![0i16; terms.columns];
        (query[column], query[column + 1]) = (1, SHIFT as i16);
        let masked = batch.mask(&query, meter).unwrap();
        let mut packed = Vec::new();
        pack(&masked.vectors, terms.bits, &mut packed);
        raw.apply_packed(terms.layer, terms.input, masked.counter, 1, &packed);
        let (kind, _, payload) = raw.read_frame().unwrap();
        assert_eq!(kind, FrameKind::Products);
        let products = MaskedAnswer::decode(&payload).unwrap();
        let words = unpack(products.packed, terms.bits, terms.rows()).unwrap();
        let answer = batch.unmask(masked.counter, &words, meter).unwrap();
        answers += 1;
        for (row, word) in rows.iter_mut().zip(&answer) {
            let signed = ((*word << (64 - terms.bits)) as i64) >> (64 - terms.bits);
            let low = (signed + SHIFT / 2).rem_euclid(SHIFT) - SHIFT / 2;
            (row[column], row[column + 1]) = (low, (signed - low) / SHIFT);
        }
    }
    (rows, answers)
}

fn truth(terms: &InputTerms) -> IntMatrix {
    let adapter = adapter("banking", WIDTH);
    let pairs: Vec<(Projection, &LoraPair)> = adapter
        .modules
        .iter()
        .filter(|(site, _)| site.layer == terms.layer && site.projection.input() == terms.input)
        .map(|(site, pair)| (site.projection, pair))
        .collect();
    QuantisedWeights::new(terms.layer, &pairs, ProtectedMatrices::A, &parameters()).unwrap().matrix
}

#[test]
fn a_packed_query_takes_the_whole_adapter_with_half_of_the_budget_and_the_host_says_so() {
    let test_host = TestHost::new(host_options(), &[&adapter("banking", WIDTH)]);
    let mut raw = RawHolder::new(test_host.runtime(), test_host.pipe());
    let opened: OpenedSession = raw.open();
    assert!(opened.welcome.can_be_learned, "the key holder is told");
    for (group, terms) in opened.terms.iter().enumerate() {
        let mut batch = raw.prepare(&opened, group);
        let (rows, answers) = steal(&mut raw, terms, &mut batch);
        let truth = truth(terms);
        for (row, stolen) in rows.iter().enumerate() {
            let entries: Vec<i64> = truth.row(row).map(i64::from).collect();
            assert_eq!(*stolen, entries, "layer {}, {:?}, row {row}", terms.layer, terms.input);
        }
        let budget = WIDTH as u64 - 1;
        assert_eq!(answers, budget.div_ceil(2), "of {budget}");
    }
    assert_eq!(opened.terms.len(), 4, "attention and its output in two layers");
    // The host has refused nothing and has half of its budget left: only its guarantee warns.
    assert!(test_host.host().audit_lines().iter().all(|line| !line.contains("refused")));
    assert!(test_host.host().guarantee().to_string().contains("adapter can be learned"));
    let remote = test_host.remote("banking", |_| ());
    assert!(remote.guarantee().to_string().contains("adapter can be learned"));
    assert!(remote.budget_left().is_some_and(|left| left >= WIDTH as u64 / 2 - 1));
    assert_eq!(opened.terms[0].input, LayerInput::Attention);
}
