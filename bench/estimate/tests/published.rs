//! Clusters, stretches of blocks, ranks, quantiles and change points against arch, scipy, numpy and
//! ruptures; `vectors/estimate/make.py` wrote the vectors.

use confide_estimate::{
    Bca, Clusters, RESAMPLES, binomial_cdf, bootstrap_percentile_interval, circular_block_interval,
    find_change_points, hodges_lehmann, holm, quantile_interval, signed_rank_p, student_quantile,
    welch_interval,
};
use serde::{Deserialize, de::DeserializeOwned};

#[derive(Deserialize)]
struct Cases<T> {
    cases: Vec<T>,
}

#[derive(Deserialize)]
struct Arch {
    name: String,
    values: Vec<f64>,
    length: usize,
    indices: Vec<Vec<usize>>,
    bca: [f64; 2],
    stretches: Vec<Vec<usize>>,
    circular: [f64; 2],
    large: [f64; 2],
    large_sd: [f64; 2],
}

#[test]
fn with_archs_indices_bca_and_circular_ends_are_archs() {
    let cases: Cases<Arch> = vector("arch.json");
    for case in cases.cases {
        let bca = Bca::mean_with_indices(&case.values, &case.indices).unwrap().interval(0.95);
        assert_ends([bca.low, bca.high], case.bca, [1e-9; 2], &case.name);
        let circular = bootstrap_percentile_interval(&case.values, &case.stretches, 0.95).unwrap();
        assert_ends([circular.low, circular.high], case.circular, [1e-12; 2], &case.name);
        let ours = circular_block_interval(&case.values, case.length, RESAMPLES, 3, 0.95).unwrap();
        let tolerance = case.large_sd.map(|sd| 5.0 * sd);
        assert_ends([ours.low, ours.high], case.large, tolerance, &case.name);
    }
}

#[derive(Deserialize)]
struct ClusterCase {
    name: String,
    reference: Vec<Vec<f64>>,
    arm: Vec<Vec<f64>>,
    indices: [Vec<Vec<usize>>; 2],
    ratio: f64,
    bca: [f64; 2],
    large: [f64; 2],
    large_sd: [f64; 2],
    welch: [f64; 2],
}

#[test]
fn clusters_are_resampled_as_scipy_and_numpy_do() {
    let cases: Cases<ClusterCase> = vector("clusters.json");
    for case in cases.cases {
        let means = |arm: &[Vec<f64>]| -> Vec<f64> {
            let of = |blocks: &Vec<f64>| {
                blocks.iter().map(|value| value.ln()).sum::<f64>() / blocks.len() as f64
            };
            arm.iter().map(of).collect()
        };
        let (x, y) = (means(&case.reference), means(&case.arm));
        let [of_x, of_y] = &case.indices;
        let bca = Bca::difference_with_indices(&x, of_x, &y, of_y).unwrap();
        let interval = bca.interval(0.95);
        assert_ends([interval.low, interval.high], case.bca, [1e-9; 2], &case.name);
        let ours = Bca::of_difference(&x, &y, RESAMPLES, 11).unwrap().interval(0.95);
        let tolerance = case.large_sd.map(|sd| 5.0 * sd);
        assert_ends([ours.low, ours.high], case.large, tolerance, &case.name);
        let student = welch_interval(&x, &y, 0.95);
        assert_ends([student.low, student.high], case.welch, [1e-9; 2], &case.name);
        let ratio = Clusters::new(&case.reference, &case.arm, 11).unwrap().ratio().unwrap();
        assert!((ratio.value - case.ratio).abs() < 1e-12, "{}", case.name);
        // What is printed holds Student's and the plain interval.
        assert!(ratio.interval.low.ln() <= student.low.min(ours.low) + 1e-12, "{}", case.name);
        assert!(ratio.interval.high.ln() >= student.high.max(ours.high) - 1e-12, "{}", case.name);
    }
}

#[derive(Deserialize)]
struct Ranks {
    cases: Vec<RankCase>,
    holm: Holm,
    student: Vec<StudentCase>,
    binomial: Vec<BinomialCase>,
    sample: Vec<f64>,
    quantiles: Vec<QuantileCase>,
}

#[derive(Deserialize)]
struct RankCase {
    name: String,
    values: Vec<f64>,
    p: f64,
    hodges_lehmann: f64,
}

#[derive(Deserialize)]
struct Holm {
    p: Vec<f64>,
    adjusted: Vec<f64>,
}

#[derive(Deserialize)]
struct StudentCase {
    p: f64,
    degrees: f64,
    t: f64,
}

#[derive(Deserialize)]
struct BinomialCase {
    k: u64,
    n: u64,
    p: f64,
    cdf: f64,
}

#[derive(Deserialize)]
struct QuantileCase {
    p: f64,
    low: f64,
    high: f64,
}

#[test]
fn ranks_and_medians_of_pairs_are_scipys() {
    let ranks: Ranks = vector("ranks.json");
    for case in ranks.cases {
        let p = signed_rank_p(&case.values).unwrap();
        assert!((p - case.p).abs() < 1e-10, "{}: wanted {}, got {p}", case.name, case.p);
        let location = hodges_lehmann(&case.values).unwrap();
        assert!((location - case.hodges_lehmann).abs() < 1e-12, "{}", case.name);
    }
    for (got, wanted) in holm(&ranks.holm.p).iter().zip(&ranks.holm.adjusted) {
        assert!((got - wanted).abs() < 1e-12);
    }
}

#[test]
fn quantiles_of_student_the_binomial_and_a_sample_are_scipys() {
    let ranks: Ranks = vector("ranks.json");
    for case in ranks.student {
        let t = student_quantile(case.p, case.degrees);
        assert!((t - case.t).abs() < 1e-9 * case.t.abs(), "{} at {}", case.p, case.degrees);
    }
    for case in ranks.binomial {
        let cdf = binomial_cdf(case.k, case.n, case.p);
        assert!((cdf - case.cdf).abs() < 1e-11, "{} of {}: {cdf}", case.k, case.n);
    }
    for case in ranks.quantiles {
        let interval = quantile_interval(&ranks.sample, case.p, 0.95).unwrap();
        assert_eq!([interval.low, interval.high], [case.low, case.high], "p{}", case.p * 100.0);
    }
}

#[derive(Deserialize)]
struct Series {
    name: String,
    values: Vec<f64>,
    penalty: f64,
    changes: Vec<usize>,
}

#[test]
fn change_points_are_those_of_ruptures() {
    let cases: Cases<Series> = vector("changes.json");
    for case in cases.cases {
        assert_eq!(find_change_points(&case.values, case.penalty), case.changes, "{}", case.name);
    }
}

fn vector<T: DeserializeOwned>(name: &str) -> T {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../vectors/estimate/");
    let text = std::fs::read_to_string(format!("{folder}{name}")).unwrap();
    serde_json::from_str(&text).unwrap()
}

fn assert_ends(got: [f64; 2], wanted: [f64; 2], tolerance: [f64; 2], name: &str) {
    for index in 0..2 {
        let near = (got[index] - wanted[index]).abs() <= tolerance[index];
        assert!(near, "{name}, end {index}: wanted {}, got {}", wanted[index], got[index]);
    }
}
