//! The bootstrap against `scipy.stats.bootstrap`; `vectors/estimate/make.py` wrote the vectors.

use confide_estimate::{Bca, PairedBlocks, RESAMPLES};
use serde::{Deserialize, de::DeserializeOwned};

#[derive(Deserialize)]
struct Cases<T> {
    cases: Vec<T>,
}

#[derive(Deserialize)]
struct Exact {
    name: String,
    values: Vec<f64>,
    indices: Vec<Vec<usize>>,
    intervals: Vec<Ends>,
    bias: f64,
    acceleration: f64,
}

#[derive(Deserialize)]
struct Large {
    name: String,
    values: Vec<f64>,
    intervals: Vec<Ends>,
}

#[derive(Deserialize)]
struct Ends {
    level: f64,
    low: f64,
    high: f64,
    #[serde(default)]
    low_sd: f64,
    #[serde(default)]
    high_sd: f64,
}

#[derive(Deserialize)]
struct PairedCase {
    case: PairedValues,
}

#[derive(Deserialize)]
struct PairedValues {
    reference: Vec<f64>,
    arm: Vec<f64>,
    indices: Vec<Vec<usize>>,
    ratio: f64,
    low: f64,
    high: f64,
}

#[test]
fn with_scipys_indices_bias_acceleration_and_ends_are_scipys() {
    let cases: Cases<Exact> = vector("bca.json");
    for case in cases.cases {
        let bca = Bca::mean_with_indices(&case.values, &case.indices).unwrap();
        assert_close(bca.bias(), case.bias, 1e-10, &case.name);
        assert_close(bca.acceleration(), case.acceleration, 1e-10, &case.name);
        for ends in case.intervals {
            let interval = bca.interval(ends.level);
            assert_close(interval.low, ends.low, 1e-9, &case.name);
            assert_close(interval.high, ends.high, 1e-9, &case.name);
        }
    }
}

#[test]
fn with_our_generator_the_ends_are_scipys_within_monte_carlo_tolerance() {
    let cases: Cases<Large> = vector("bca-large.json");
    for (seed, case) in cases.cases.into_iter().enumerate() {
        let bca = Bca::of_mean(&case.values, RESAMPLES, seed as u64).unwrap();
        for ends in case.intervals {
            let interval = bca.interval(ends.level);
            let name = format!("{} at {}", case.name, ends.level);
            assert_close(interval.low, ends.low, 4.5 * ends.low_sd, &name);
            assert_close(interval.high, ends.high, 4.5 * ends.high_sd, &name);
        }
    }
}

#[test]
fn a_paired_ratio_is_scipys_paired_bootstrap() {
    let PairedCase { case } = vector("paired.json");
    let logs: Vec<f64> =
        case.reference.iter().zip(&case.arm).map(|(x, y): (&f64, &f64)| (y / x).ln()).collect();
    let bca = Bca::mean_with_indices(&logs, &case.indices).unwrap();
    let interval = bca.interval(0.95).map(f64::exp);
    // scipy interpolates between replicates of the ratio, we between those of its logarithm.
    assert_close(interval.low, case.low, 1e-5, "low");
    assert_close(interval.high, case.high, 1e-5, "high");
    let ratio = PairedBlocks::new(&case.reference, &case.arm, 1).unwrap().ratio().unwrap();
    assert_close(ratio.value, case.ratio, 1e-12, "ratio");
    let ours = Bca::of_mean(&logs, RESAMPLES, 1).unwrap().interval(0.95).map(f64::exp);
    assert_close(ours.low, case.low, 1.5e-3, "low of our own draws");
    assert_close(ours.high, case.high, 1.5e-3, "high of our own draws");
    // What is printed is widened for few blocks.
    assert!(ratio.interval.low < ours.low && ratio.interval.high > ours.high);
}

fn vector<T: DeserializeOwned>(name: &str) -> T {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../vectors/estimate/");
    let text = std::fs::read_to_string(format!("{folder}{name}")).unwrap();
    serde_json::from_str(&text).unwrap()
}

fn assert_close(got: f64, wanted: f64, tolerance: f64, name: &str) {
    assert!((got - wanted).abs() <= tolerance, "{name}: wanted {wanted}, got {got}");
}
