//! Both schemes compared with the plain reference in 64-bit floating point, on activations with
//! outliers.

use confide_lora::{
    CounterSlot, DigitScratch, InputTerms, LayerInput, LoraPair, Matrix, NetworkLink,
    OperationCosts, ProcessKey, Projection, ProtectedMatrices, QuantisedWeights, StepMeter,
    WeightRounding,
    direct::{self, EncryptedProductHolder, EncryptedProductHost},
    masked::{ApplyJob, BatchState, HostWeights, MaskRequest},
    plain, quantise_vector,
};
use confide_rlwe::{Context, ParameterSet, Rng, SecretKey};

/// The greatest relative error of one delta, and of all of them together.
const ERROR_MAX: f64 = 1e-3;
const ERROR_AIM: f64 = 5e-4;

#[test]
fn masked_deltas_are_those_of_the_plain_reference() {
    let real = ParameterSet::from_name("rlwe-4096-q100-flood40").expect("a set");
    let toy = ParameterSet::dangerous_from_name("toy-256-q100-flood40").expect("a set");
    let cases = [
        (real, 1536, 32, 256, ProtectedMatrices::A),
        (toy.clone(), 1536, 16, 1536, ProtectedMatrices::A),
        (toy, 256, 8, 96, ProtectedMatrices::Ba),
    ];
    let mut squares = Vec::new();
    for (set, columns, rank, width, protect) in cases {
        let mut rng = Rng::from_seed([13; 32]);
        let (first, second) =
            (pair(columns, rank, width, &mut rng), pair(columns, 16, 64, &mut rng));
        let pairs = [(Projection::Query, &first), (Projection::Value, &second)];
        let weights = QuantisedWeights::new(0, &pairs, protect, &set).expect("fits");
        let x = activations(columns, &mut rng);
        let (products, scale) = run_masked(&set, &weights, &x, &mut rng);
        for (projection, pair) in pairs {
            let error = error(&weights.terms, projection, pair, &products, scale, &x);
            assert!(error < ERROR_MAX, "{projection} {protect:?}: {error:.2e}");
            squares.push(error * error);
        }
    }
    let all = (squares.iter().sum::<f64>() / squares.len() as f64).sqrt();
    assert!(all < ERROR_AIM, "{all:.2e}");
}

#[test]
fn direct_deltas_are_those_of_the_plain_reference() {
    // Entries are rounded to 12 bits, or to 8 if the set's single prime has no room for more.
    let sets = [("rlwe-4096-q100-flood40", 1e-3), ("rlwe-2048-q50", 2e-2)];
    for (name, error_max) in sets {
        let set = ParameterSet::dangerous_from_name(name).expect("a set");
        let (set, entry_max) = direct::derive_parameters(&set).expect("room");
        let mut rng = Rng::from_seed([14; 32]);
        let pair = pair(1536, 32, 256, &mut rng);
        let rounding = WeightRounding { entry_max, noise_sigma: 0.0 };
        let pairs = [(Projection::Query, &pair)];
        let weights =
            QuantisedWeights::with_rounding(0, &pairs, ProtectedMatrices::A, &set, rounding)
                .expect("fits");
        let x = activations(1536, &mut rng);
        let (products, scale) = direct(&set, &weights, &x, &mut rng);
        let error = error(&weights.terms, Projection::Query, &pair, &products, scale, &x);
        assert!(error < error_max, "{name}: {error:.2e}");
    }
}

fn normal(rng: &mut Rng) -> f64 {
    (0..12).map(|_| rng.next_below(1 << 30) as f64 / f64::from(1 << 30)).sum::<f64>() - 6.0
}

fn pair(columns: usize, rank: usize, width: usize, rng: &mut Rng) -> LoraPair {
    let mut matrix = |rows: usize, columns: usize| Matrix {
        rows,
        columns,
        values: (0..rows * columns).map(|_| (normal(rng) * 0.02) as f32).collect(),
    };
    LoraPair { a: matrix(rank, columns), b: matrix(width, rank), scale: 2.0 }
}

/// Draws activations in which eight channels are sixty times as large as the others.
fn activations(columns: usize, rng: &mut Rng) -> Vec<f32> {
    let size = |at: usize| if at % (columns / 8) == 3 { 60.0 } else { 1.0 };
    (0..columns).map(|at| (normal(rng) * size(at)) as f32).collect()
}

fn error(
    terms: &InputTerms,
    projection: Projection,
    pair: &LoraPair,
    products: &[u64],
    scale: f64,
    x: &[f32],
) -> f64 {
    let mut outputs = vec![0f32; pair.b.rows];
    assert!(terms.add_deltas(projection, products, &[scale], &mut outputs));
    let x: Vec<f64> = x.iter().map(|value| f64::from(*value)).collect();
    let wanted = plain::delta(pair, &x);
    let square = |values: &mut dyn Iterator<Item = f64>| values.map(|v| v * v).sum::<f64>();
    let off = square(&mut outputs.iter().zip(&wanted).map(|(got, want)| f64::from(*got) - want));
    (off / square(&mut wanted.iter().copied())).sqrt()
}

fn run_masked(
    set: &ParameterSet,
    weights: &QuantisedWeights,
    x: &[f32],
    rng: &mut Rng,
) -> (Vec<u64>, f64) {
    let context = Context::new(set).expect("a set");
    let input = HostWeights::new(&context, weights).expect("fits");
    let key = SecretKey::generate(&context, rng);
    let public = key.public_key(rng);
    let process = ProcessKey::random(rng);
    let (epoch, meter) = (process.epoch(), &mut StepMeter::default());
    let slot =
        CounterSlot { client: [0; 32], adapter: [0; 32], layer: 0, input: LayerInput::Attention };
    let mut sequence = input.new_counter_sequence(&process, slot, rng);
    let mut requesting = MaskRequest::new(&key, input.terms(), epoch, 0, rng).expect("fits");
    let mut preparing = input.start_batch(&process, &mut sequence, epoch, 0).expect("next");
    loop {
        let block = requesting.next_block(meter).expect("columns");
        if block.is_empty() {
            break;
        }
        preparing = preparing.push(&block, meter).expect("in order");
    }
    let mut answering = preparing.finish(&input, meter).expect("complete");
    let mut answers = Vec::new();
    while let Some(answer) = answering.next_row(&public, rng, meter).expect("same ring") {
        answers.push(answer);
    }
    answering.commit(&mut sequence).expect("all answered");
    let accepted =
        requesting.finish().expect("all").accept_answers(&key, &answers, meter).expect("whole");
    let BatchState::Ready(mut batch) = accepted else { panic!("all rows were answered") };

    let quantised = quantise_vector(x, weights.terms.norm_limit).expect("fits");
    let masked = batch.mask(&quantised.values, meter).expect("left");
    let (counter, vectors) = (masked.counter, &masked.vectors[..]);
    let job = ApplyJob { sequence: &mut sequence, epoch, counter, vectors };
    let answer = input.apply(&mut [job], &mut DigitScratch::default(), rng, meter).remove(0);
    let products = batch.unmask(counter, &answer.expect("fresh"), meter).expect("asked");
    (products, quantised.scale)
}

fn direct(
    set: &ParameterSet,
    weights: &QuantisedWeights,
    x: &[f32],
    rng: &mut Rng,
) -> (Vec<u64>, f64) {
    let context = Context::new(set).expect("a set");
    let key = SecretKey::generate(&context, rng);
    let public = key.public_key(rng);
    let job = direct::tiling_problem(&context, &weights.terms);
    let tile = job.best_tile(&NetworkLink::LAN, &OperationCosts::GIVEN).expect("fits");
    let host = match set.flood_bits() {
        0 => EncryptedProductHost::dangerous_unflooded(&context, weights, tile),
        _ => EncryptedProductHost::new(&context, weights, tile),
    };
    let holder = EncryptedProductHolder::new(&context, &weights.terms, tile).expect("fits");
    let quantised = quantise_vector(x, weights.terms.norm_limit).expect("fits");
    let meter = &mut StepMeter::default();
    let request = holder.encrypt_request(&key, &quantised.values, rng, meter).expect("whole");
    let answers = host.expect("fits").answer(request, &public, rng, meter).expect("whole");
    (holder.decrypt_answers(&key, &answers, meter).expect("whole"), quantised.scale)
}
