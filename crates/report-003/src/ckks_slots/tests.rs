//! Every option computes what plain LoRA computes, and counts its operations.

use super::*;
use crate::ckks::Parameters;
use confide_lora::{LoraPair, Matrix, plain};

const SLOTS: usize = 512;

fn matrix(rows: usize, columns: usize, seed: u32) -> Matrix {
    let value = |index: usize| {
        let mixed = (index as u32 + 1).wrapping_mul(2_654_435_761).wrapping_add(seed);
        (mixed.wrapping_mul(0x9E37_79B9) >> 8) as f32 / (1 << 23) as f32 - 1.0
    };
    Matrix { rows, columns, values: (0..rows * columns).map(value).collect() }
}

/// Widths that are narrow, a power of two, and wider than a ciphertext of 512 slots.
fn adapter() -> Adapter {
    let mut modules = BTreeMap::new();
    let shapes = [
        (Projection::Query, 100, 7, 30),
        (Projection::Key, 100, 3, 9),
        (Projection::Output, 128, 5, 600),
        (Projection::MlpDown, 700, 4, 40),
    ];
    for (seed, (projection, input, rank, output)) in (0..).zip(shapes) {
        let (a, b) = (matrix(rank, input, seed), matrix(output, rank, 7 + seed));
        modules.insert(ProjectionSite { layer: 2, projection }, LoraPair { a, b, scale: 0.5 });
    }
    Adapter { name: "test".into(), base_model: None, modules }
}

fn options() -> CkksAdapterOptions {
    CkksAdapterOptions::new(Parameters::dangerous_of_degree(2 * SLOTS))
}

fn every_option() -> Vec<CkksAdapterOptions> {
    let mut all = Vec::new();
    for packing in [Packing::Segments, Packing::Rotations, Packing::TwoProducts] {
        for limbs in [LimbChoice::All, LimbChoice::Needed] {
            all.push(CkksAdapterOptions { packing, limbs, ..options() });
        }
    }
    all.push(CkksAdapterOptions { decryption: DecryptionMode::Sequential, ..options() });
    all.push(CkksAdapterOptions { direction: EncryptingSide::Client, ..options() });
    all
}

#[test]
fn every_option_gives_what_the_reference_gives() {
    let adapter = adapter();
    for options in every_option() {
        let mut deltas =
            CkksAdapter::new(&adapter, options.clone()).unwrap().open_session().unwrap();
        for (site, pair) in &adapter.modules {
            let width = pair.width();
            let rows = matrix(2, width.input, 99).values;
            let mut output = vec![1.0f32; 2 * width.output];
            let outputs = &mut [(site.projection, &mut output[..])];
            deltas.add_deltas(2, site.projection.input(), &rows, outputs).unwrap();
            for (row, out) in rows.chunks(width.input).zip(output.chunks(width.output)) {
                let row: Vec<f64> = row.iter().map(|x| f64::from(*x)).collect();
                for (got, wanted) in out.iter().zip(plain::delta(pair, &row)) {
                    let error = (f64::from(*got) - 1.0 - wanted).abs() / (1.0 + wanted.abs());
                    assert!(error < 3e-7, "{options:?} {site}: {error:e}");
                }
            }
        }
    }
}

/// The operations of one vector through q and k of the test's adapter.
fn count_operations(options: CkksAdapterOptions) -> DeltaReport {
    let adapter = adapter();
    let mut deltas = CkksAdapter::new(&adapter, options).unwrap().open_session().unwrap();
    let rows = matrix(1, 100, 5).values;
    let (mut query, mut key, mut value) = ([0.0; 30], [0.0; 9], [4.0; 3]);
    let outputs = &mut [
        (Projection::Query, &mut query[..]),
        (Projection::Key, &mut key[..]),
        (Projection::Value, &mut value[..]),
    ];
    deltas.add_deltas(2, LayerInput::Attention, &rows, outputs).unwrap();
    assert_eq!(value, [4.0; 3], "there is no pair for it");
    deltas.report()
}

#[test]
fn operations_are_counted_where_they_run() {
    let operations = |options: CkksAdapterOptions| {
        let report = count_operations(options);
        assert_eq!(report.answered_vectors, 2);
        (report.he_operations, report.he_rotations)
    };
    // One encryption for both; floor(512 / 100) = 5 rows to a product: 2 of q, 1 of k.
    assert_eq!(operations(options()), (1 + 3 + 3, 0));
    // 512 / 128 = 4 rows to a product, 7 rotations after each.
    let rotations = CkksAdapterOptions { packing: Packing::Rotations, ..options() };
    assert_eq!(operations(rotations), (1 + 3 + 3 + 3 * 7, 3 * 7));
    // Ten rows, each with 9 rotations and two products; one decryption for q, one for k.
    let twice = CkksAdapterOptions { packing: Packing::TwoProducts, ..options() };
    assert_eq!(operations(twice), (1 + 20 + 2 + 90, 90));
}

#[test]
fn bytes_are_counted_where_a_client_encrypts() {
    let here = count_operations(options());
    assert_eq!((here.online_bytes, here.steps_ms.get("wire_ms")), (0, None));
    let client =
        count_operations(CkksAdapterOptions { direction: EncryptingSide::Client, ..options() });
    let limbs = 1024 * (8 + 5 + 5);
    // One ciphertext with its seed to the server, three whole ones back.
    assert_eq!(client.online_bytes, 12 + limbs + 32 + 3 * (12 + 2 * limbs));
    for step in ["encode_ms", "encrypt_ms", "product_ms", "decrypt_ms", "decode_ms", "b_ms"] {
        assert!(client.steps_ms.contains_key(step), "{step}");
    }
}

#[test]
fn nobody_is_protected_whoever_encrypts() {
    for options in every_option() {
        let adapt = CkksAdapter::new(&adapter(), options).unwrap();
        assert_eq!(adapt.guarantee().to_string(), "none");
        assert_eq!(adapt.sites(), &adapter().sites());
    }
}

#[test]
fn activations_that_do_not_fit_are_refused_and_outputs_left_alone() {
    let limited = CkksAdapterOptions { limbs: LimbChoice::Needed, ..options() };
    let mut deltas = CkksAdapter::new(&adapter(), limited).unwrap().open_session().unwrap();
    let mut output = vec![1.0f32; 30];
    for value in [f32::NAN, f32::INFINITY, 1e6] {
        let mut row = vec![0.0; 100];
        row[50] = value;
        let outputs = &mut [(Projection::Query, &mut output[..])];
        let refused = deltas.add_deltas(2, LayerInput::Attention, &row, outputs);
        assert!(matches!(refused, Err(AdaptError::Activation { .. })), "{value}");
    }
    for (input, length) in [(LayerInput::FeedForward, 100), (LayerInput::Attention, 99)] {
        let outputs = &mut [(Projection::Query, &mut output[..])];
        let refused = deltas.add_deltas(2, input, &vec![0.0; length], outputs);
        assert!(matches!(refused, Err(AdaptError::Activation { .. })));
    }
    assert_eq!(output, vec![1.0; 30]);
    assert_eq!(deltas.report(), DeltaReport::default());
}

#[test]
fn an_adapter_without_elements_or_with_broken_ones_is_refused() {
    let mut broken = adapter();
    let site = ProjectionSite { layer: 2, projection: Projection::Query };
    broken.modules.get_mut(&site).unwrap().a.values[3] = f32::NAN;
    let refused = CkksAdapter::new(&broken, options()).unwrap_err();
    assert_eq!(refused, CkksAdapterError::Ckks(CkksError::ValueOutOfRange));
    broken.modules.get_mut(&site).unwrap().a = Matrix::zeroes(0, 100);
    assert_eq!(CkksAdapter::new(&broken, options()).unwrap_err(), CkksAdapterError::Empty);
}
