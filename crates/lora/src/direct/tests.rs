//! The direct scheme computes exact products, and refuses input that does not fit.

use std::sync::Arc;

use confide_rlwe::{
    Context, NttPoly, ParameterSet, PublicKey, Ring, RlweError, Rng, SecretKey, ntt_primes_below,
};

use super::*;
use crate::{
    int_matrix::{IntMatrix, low_mask},
    link::{NetworkLink, OperationCosts, TileShape},
    meter::StepMeter,
    site::{LayerInput, Projection},
    terms::{
        InputTerms, OutputTransform, ProjectionTerms, ProtectedMatrices, QuantisedWeights,
        sign_extend,
    },
};

struct Parties {
    context: Arc<Context>,
    key: SecretKey,
    public: PublicKey,
    rng: Rng,
}

fn parties(set: &ParameterSet) -> Parties {
    let context = Context::new(set).expect("a set");
    let mut rng = Rng::from_seed([17; 32]);
    let key = SecretKey::generate(&context, &mut rng);
    let public = key.public_key(&mut rng);
    Parties { context, key, public, rng }
}

fn toy() -> ParameterSet {
    ParameterSet::dangerous_from_name("toy-256-q100-flood40").expect("a set")
}

fn weights(
    rows: usize,
    columns: usize,
    set: &ParameterSet,
    entry: impl Fn(usize) -> i16,
) -> QuantisedWeights {
    let entries: Vec<i16> = (0..rows * columns).map(entry).collect();
    let matrix = IntMatrix::new(rows, columns, &entries).expect("fits");
    let part = ProjectionTerms {
        projection: Projection::Query,
        rows,
        effect: OutputTransform::Scale(1.0),
    };
    let terms = InputTerms {
        layer: 0,
        input: LayerInput::Attention,
        columns,
        bits: set.plaintext_bits(),
        norm_limit: crate::norm_limit(&matrix, set.plaintext_bits(), 0),
        noise_sigma: 0.0,
        outputs_max: tile_outputs_max(&matrix, set),
        parts: vec![part],
    };
    QuantisedWeights { matrix, terms }
}

fn exact(matrix: &IntMatrix, x: &[i16], bits: u32) -> Vec<u64> {
    let row = |row| {
        let sum: i64 = matrix.row(row).zip(x).map(|(a, x)| i64::from(a) * i64::from(*x)).sum();
        sum as u64 & low_mask(bits)
    };
    (0..matrix.rows()).map(row).collect()
}

fn round_trip(
    parties: &mut Parties,
    host: &EncryptedProductHost,
    holder: &EncryptedProductHolder,
    x: &[i16],
) -> Vec<u64> {
    let mut meter = StepMeter::default();
    let rng = &mut parties.rng;
    let request = holder.encrypt_request(&parties.key, x, rng, &mut meter).expect("fits");
    let answers = host.answer(request, &parties.public, rng, &mut meter).expect("fits");
    assert!(meter.he_operations > 0);
    holder.decrypt_answers(&parties.key, &answers, &mut meter).expect("well formed")
}

#[test]
fn every_tile_gives_the_exact_product_extremes_included() {
    let set = toy().with_plaintext_bits(31).expect("room");
    let mut parties = parties(&set);
    let random = |at: usize| ((at * 7919 + 13) % 4095) as i16 - 2047;
    type Entry = dyn Fn(usize) -> i16;
    let cases: [(usize, usize, &Entry); 4] =
        [(5, 20, &random), (1, 1, &random), (7, 300, &random), (3, 64, &|_| 2047)];
    for (rows, columns, entry) in cases {
        let weights = weights(rows, columns, &set, entry);
        let vectors = [
            vec![i16::MAX; columns],
            vec![-i16::MAX; columns],
            (0..columns).map(|at| if at % 2 == 0 { i16::MAX } else { -i16::MAX }).collect(),
        ];
        for inputs in [1, 3, 16, columns].into_iter().filter(|inputs| *inputs <= columns.min(256)) {
            for outputs in 1..=rows.min(256 / inputs).min(weights.terms.outputs_max) {
                let tile = TileShape { inputs, outputs };
                let host =
                    EncryptedProductHost::new(&parties.context, &weights, tile).expect("fits");
                let holder = EncryptedProductHolder::new(&parties.context, &weights.terms, tile)
                    .expect("fits");
                for x in &vectors {
                    let got = round_trip(&mut parties, &host, &holder, x);
                    assert_eq!(got, exact(&weights.matrix, x, 31), "{tile:?}");
                }
            }
        }
    }
}

#[test]
fn the_real_set_gives_the_exact_product_of_the_widths_of_the_study() {
    let set = ParameterSet::from_name("rlwe-4096-q100-flood40").expect("a set");
    let (set, entry_max) = derive_parameters(&set).expect("room");
    let pair = crate::LoraPair {
        a: crate::Matrix {
            rows: 32,
            columns: 1536,
            values: (0..32 * 1536).map(|at| ((at * 7919) % 2003) as f32 / 1001.0 - 1.0).collect(),
        },
        b: crate::Matrix::zeroes(8, 32),
        scale: 1.0,
    };
    let pairs = [(Projection::Query, &pair)];
    let rounding = crate::WeightRounding { entry_max, noise_sigma: 0.0 };
    let weights = QuantisedWeights::with_rounding(0, &pairs, ProtectedMatrices::A, &set, rounding)
        .expect("fits");
    let mut parties = parties(&set);
    let costs = OperationCosts::GIVEN;
    let tile = tiling_problem(&parties.context, &weights.terms)
        .best_tile(&NetworkLink::LAN, &costs)
        .expect("rows");
    let host = EncryptedProductHost::new(&parties.context, &weights, tile).expect("fits");
    let holder = EncryptedProductHolder::new(&parties.context, &weights.terms, tile).expect("fits");
    let real: Vec<f32> = (0..1536).map(|at| ((at * 37) % 101) as f32 - 50.0).collect();
    let x = crate::quantise_vector(&real, weights.terms.norm_limit).expect("fits");
    let got = round_trip(&mut parties, &host, &holder, &x.values);
    assert_eq!(got, exact(&weights.matrix, &x.values, weights.terms.bits));
    assert!(got.iter().all(|word| sign_extend(*word, weights.terms.bits).abs() < 1 << 30));
}

#[test]
fn a_set_without_flooding_must_be_asked_for_by_its_danger() {
    let set = ParameterSet::dangerous_from_name("rlwe-2048-q50").expect("a set");
    let (set, entry_max) = derive_parameters(&set).expect("room");
    let mut parties = parties(&set);
    let weights = weights(6, 700, &set, |at| (at % 255) as i16 - entry_max);
    let tile = TileShape { inputs: 350, outputs: weights.terms.outputs_max.min(5) };
    let refused = EncryptedProductHost::new(&parties.context, &weights, tile);
    assert!(matches!(refused, Err(EncryptedProductError::Ring(RlweError::NotFlooded { .. }))));
    let host =
        EncryptedProductHost::dangerous_unflooded(&parties.context, &weights, tile).expect("fits");
    let holder = EncryptedProductHolder::new(&parties.context, &weights.terms, tile).expect("fits");
    let x: Vec<i16> = (0..700).map(|at| (at * 91 % 2001) as i16 - 1000).collect();
    let got = round_trip(&mut parties, &host, &holder, &x);
    assert_eq!(got, exact(&weights.matrix, &x, weights.terms.bits));
}

#[test]
fn tiles_that_do_not_fit_are_refused() {
    let set = toy().with_plaintext_bits(31).expect("room");
    let parties = parties(&set);
    let weights = weights(8, 40, &set, |_| 1);
    for (inputs, outputs) in [(0, 1), (1, 0), (41, 1), (40, 7), (usize::MAX, 2), (1, 9)] {
        let refused =
            EncryptedProductHost::new(&parties.context, &weights, TileShape { inputs, outputs });
        assert!(
            matches!(refused, Err(EncryptedProductError::WrongTile { .. })),
            "{inputs} x {outputs}"
        );
    }
    let mut heavy = weights.clone();
    let most = set.row_l1_max() as usize / 40 / 4095;
    assert!(most > 8, "rows of 40 entries never pass the budget of {set}");
    heavy.terms.bits = 30;
    let refused =
        EncryptedProductHost::new(&parties.context, &heavy, TileShape { inputs: 1, outputs: 1 });
    assert!(matches!(refused, Err(EncryptedProductError::Count { .. })));
}

#[test]
fn rows_of_a_tile_share_the_noise_budget() {
    let set = ParameterSet::from_name("rlwe-4096-q100-flood40").expect("a set");
    let matrix = IntMatrix::new(4, 1536, &vec![1900; 4 * 1536]).expect("fits");
    assert_eq!(tile_outputs_max(&matrix, &set), 1);
    let wider = set.clone().with_plaintext_bits(31).expect("room");
    assert_eq!(tile_outputs_max(&matrix, &wider), 4);
    let narrower = set.with_plaintext_bits(34).expect("room");
    assert_eq!(tile_outputs_max(&matrix, &narrower), 0);
}

#[test]
fn other_answers_than_wanted_are_refused() {
    let set = toy().with_plaintext_bits(31).expect("room");
    let mut parties = parties(&set);
    let weights = weights(4, 40, &set, |at| at as i16);
    let tile = TileShape { inputs: 20, outputs: 2 };
    let host = EncryptedProductHost::new(&parties.context, &weights, tile).expect("fits");
    let holder = EncryptedProductHolder::new(&parties.context, &weights.terms, tile).expect("fits");
    let (mut meter, rng) = (StepMeter::default(), &mut parties.rng);
    let request = holder.encrypt_request(&parties.key, &[1; 40], rng, &mut meter).expect("fits");
    let short = host.answer(request[..1].to_vec(), &parties.public, rng, &mut meter);
    assert!(matches!(short, Err(EncryptedProductError::Count { .. })));
    let answers = host.answer(request.clone(), &parties.public, rng, &mut meter).expect("fits");
    let whole = request[0].clone().expand().switch_down();
    let other = whole.clone().select_positions(&[19, 40]).expect("ascending");
    for wrong in [vec![], answers[..1].to_vec()] {
        let refused = holder.decrypt_answers(&parties.key, &wrong, &mut meter);
        assert!(matches!(refused, Err(EncryptedProductError::Count { .. })));
    }
    for wrong in [whole, other] {
        let refused =
            holder.decrypt_answers(&parties.key, &[answers[0].clone(), wrong], &mut meter);
        assert_eq!(refused, Err(EncryptedProductError::WrongCoefficients { answer: 1 }));
    }
    assert!(holder.encrypt_request(&parties.key, &[1; 39], rng, &mut meter).is_err());
}

#[test]
fn ciphertexts_of_another_ring_with_as_many_words_are_refused() {
    let set = toy().with_plaintext_bits(31).expect("room");
    let mut parties = parties(&set);
    let weights = weights(4, 40, &set, |at| at as i16);
    let tile = TileShape { inputs: 20, outputs: 2 };
    let host = EncryptedProductHost::new(&parties.context, &weights, tile).expect("fits");
    let holder = EncryptedProductHolder::new(&parties.context, &weights.terms, tile).expect("fits");
    let (mut meter, rng) = (StepMeter::default(), &mut parties.rng);
    let mut request =
        holder.encrypt_request(&parties.key, &[1; 40], rng, &mut meter).expect("fits");
    let limbs = parties.context.ring().limbs().len();
    let other = Ring::new(set.n(), &ntt_primes_below(45, set.n(), limbs)).expect("a ring");
    request[1].c0 = NttPoly::zero(&other);
    let refused = host.answer(request, &parties.public, rng, &mut meter);
    assert!(matches!(refused, Err(EncryptedProductError::Ring(RlweError::Wire { .. }))));
}
