//! Prints the costs of both schemes for 1536 -> rank 32 on one core, the least of many runs, for work on
//! the code: `cargo run -p confide-lora --example speed`. Published measurements come from the bench.

use std::{error::Error, time::Instant};

use confide_lora::{
    CounterSlot, DigitScratch, IntMatrix, LayerInput, LoraPair, Matrix, NetworkLink,
    OperationCosts, ProcessKey, Projection, ProtectedMatrices, QuantisedWeights, StepMeter,
    TileShape, WeightRounding,
    direct::{self, EncryptedProductHolder, EncryptedProductHost},
    masked::{ApplyJob, BatchState, CounterSequence, HolderBatch, HostWeights, MaskRequest},
    quantise_vector,
};
use confide_rlwe::{Context, ParameterSet, PublicKey, Rng, SecretKey};

const COLUMNS: usize = 1536;
const RANK: usize = 32;

fn main() -> Result<(), Box<dyn Error>> {
    let mut rng = Rng::from_os()?;
    let pair = random_pair(&mut rng);
    measure_online(&pair, &mut rng)?;
    for (name, dangerous) in [("rlwe-4096-q100-flood40", false), ("rlwe-2048-q50", true)] {
        measure_direct(&pair, name, dangerous, &mut rng)?;
    }
    Ok(())
}

fn random_pair(rng: &mut Rng) -> LoraPair {
    let mut normal = || {
        let sum: u64 = (0..12).map(|_| rng.next_below(1 << 20)).sum();
        (sum as f64 / (1 << 20) as f64 - 6.0) as f32 * 0.02
    };
    let mut matrix = |rows: usize, columns: usize| Matrix {
        rows,
        columns,
        values: (0..rows * columns).map(|_| normal()).collect(),
    };
    LoraPair { a: matrix(RANK, COLUMNS), b: matrix(COLUMNS, RANK), scale: 2.0 }
}

struct MaskedParties {
    input: HostWeights,
    key: SecretKey,
    public: PublicKey,
    process: ProcessKey,
}

fn measure_online(pair: &LoraPair, rng: &mut Rng) -> Result<(), Box<dyn Error>> {
    let set = ParameterSet::from_name("rlwe-4096-q100-flood40")?;
    println!("{set}");
    let context = Context::new(&set)?;
    let weights =
        QuantisedWeights::new(0, &[(Projection::Query, pair)], ProtectedMatrices::A, &set)?;
    let key = SecretKey::generate(&context, rng);
    let parties = MaskedParties {
        input: HostWeights::new(&context, &weights)?,
        public: key.public_key(rng),
        process: ProcessKey::random(rng),
        key,
    };
    let slot =
        CounterSlot { client: [0; 32], adapter: [0; 32], layer: 0, input: LayerInput::Attention };
    let mut sequence = parties.input.new_counter_sequence(&parties.process, slot, rng);
    let mut batch = prepare_batch(&parties, &mut sequence, rng)?;
    let real: Vec<f32> = (0..COLUMNS).map(|at| (at as f32 * 0.37).sin()).collect();
    measure_product(&weights.matrix);
    let (mut least, mut steps) = (f64::MAX, [f64::MAX; 6]);
    let mut digits = DigitScratch::default();
    let mut output = vec![0f32; COLUMNS];
    for _ in 0..4000 {
        let mut meter = StepMeter::default();
        let mut at = [0f64; 6];
        let mut clock = Instant::now();
        let mut lap = |step: usize, at: &mut [f64; 6]| {
            at[step] = clock.elapsed().as_secs_f64() * 1e6;
            clock = Instant::now();
        };
        batch.precompute_masks();
        lap(0, &mut at);
        let x = quantise_vector(&real, weights.terms.norm_limit)?;
        lap(1, &mut at);
        let masked = batch.mask(&x.values, &mut meter)?;
        lap(2, &mut at);
        let epoch = parties.process.epoch();
        let vectors = &masked.vectors;
        let job = ApplyJob { sequence: &mut sequence, epoch, counter: masked.counter, vectors };
        let answer = parties.input.apply(&mut [job], &mut digits, rng, &mut meter).remove(0)?;
        lap(3, &mut at);
        let words = batch.unmask(masked.counter, &answer, &mut meter)?;
        lap(4, &mut at);
        weights.terms.add_deltas(Projection::Query, &words, &[x.scale], &mut output);
        lap(5, &mut at);
        steps.iter_mut().zip(at).for_each(|(least, now)| *least = least.min(now));
        least = least.min(at[2..].iter().sum());
    }
    let names = ["refill", "quantise", "mask", "host", "unmask", "b"];
    print!("masked, online: mask to B {least:.2} us; least of each:");
    names.iter().zip(steps).for_each(|(name, us)| print!(" {name} {us:.2}"));
    println!();
    Ok(())
}

fn measure_product(matrix: &IntMatrix) {
    let vector = vec![0x1_2345_6789u64; COLUMNS];
    let mut digits = DigitScratch::default();
    for count in [1, 8] {
        let vectors = vec![&vector[..]; count];
        let mut products = vec![0; RANK * count];
        let mut least = f64::MAX;
        for _ in 0..2000 {
            let clock = Instant::now();
            matrix.multiply_vectors(&vectors, 33, &mut digits, &mut products);
            least = least.min(clock.elapsed().as_secs_f64() * 1e6);
        }
        println!("product of {count} vectors: {:.2} us each", least / count as f64);
    }
}

fn prepare_batch(
    parties: &MaskedParties,
    sequence: &mut CounterSequence,
    rng: &mut Rng,
) -> Result<HolderBatch, Box<dyn Error>> {
    let (epoch, terms) = (parties.process.epoch(), parties.input.terms());
    let mut ends = [StepMeter::default(), StepMeter::default()];
    let [holder, host] = &mut ends;
    let mut spent = [0f64; 2];
    let mut clock = Instant::now();
    let mut lap = |end: usize| {
        spent[end] += clock.elapsed().as_secs_f64() * 1e3;
        clock = Instant::now();
    };
    let mut requesting = MaskRequest::new(&parties.key, terms, epoch, 0, rng)?;
    let mut preparing = parties.input.start_batch(&parties.process, sequence, epoch, 0)?;
    loop {
        let block = requesting.next_block(holder)?;
        lap(0);
        if block.is_empty() {
            break;
        }
        preparing = preparing.push(&block, host)?;
        lap(1);
    }
    let mut awaiting = requesting.finish()?;
    let mut answering = preparing.finish(&parties.input, host)?;
    loop {
        let answer = answering.next_row(&parties.public, rng, host)?.ok_or("a row is missing")?;
        lap(1);
        let accepted = awaiting.accept_answers(&parties.key, &[answer], holder)?;
        lap(0);
        match accepted {
            BatchState::Pending(more) => awaiting = more,
            BatchState::Ready(batch) => {
                answering.commit(sequence)?;
                let [holder, host] = spent.map(|ms| ms / 4096.0);
                println!(
                    "masked, offline: {:.4} ms a token (key holder {holder:.4}, host {host:.4})",
                    holder + host
                );
                return Ok(batch);
            }
        }
    }
}

fn measure_direct(
    pair: &LoraPair,
    name: &str,
    dangerous: bool,
    rng: &mut Rng,
) -> Result<(), Box<dyn Error>> {
    let (set, entry_max) = direct::derive_parameters(&ParameterSet::dangerous_from_name(name)?)?;
    let context = Context::new(&set)?;
    let rounding = WeightRounding { entry_max, noise_sigma: 0.0 };
    let pairs = [(Projection::Query, pair)];
    let weights = QuantisedWeights::with_rounding(0, &pairs, ProtectedMatrices::A, &set, rounding)?;
    let key = SecretKey::generate(&context, rng);
    let public = key.public_key(rng);
    let job = direct::tiling_problem(&context, &weights.terms);
    let best = job.best_tile(&NetworkLink::LOOPBACK, &OperationCosts::GIVEN);
    println!("{set}\n  at most {} rows a tile, best {best:?}", weights.terms.outputs_max);
    let real: Vec<f32> = (0..COLUMNS).map(|at| (at as f32 * 0.37).sin()).collect();
    let x = quantise_vector(&real, weights.terms.norm_limit)?;
    for requests in 1..=12 {
        let inputs = COLUMNS.div_ceil(requests);
        let outputs = (context.n() / inputs).min(weights.terms.outputs_max).min(RANK);
        if outputs == 0 {
            continue;
        }
        let tile = TileShape { inputs, outputs };
        let host = match dangerous {
            true => EncryptedProductHost::dangerous_unflooded(&context, &weights, tile)?,
            false => EncryptedProductHost::new(&context, &weights, tile)?,
        };
        let holder = EncryptedProductHolder::new(&context, &weights.terms, tile)?;
        let mut least = [f64::MAX; 4];
        for _ in 0..40 {
            let mut meter = StepMeter::default();
            let start = Instant::now();
            let request = holder.encrypt_request(&key, &x.values, rng, &mut meter)?;
            let sent = start.elapsed().as_secs_f64();
            let answers = host.answer(request, &public, rng, &mut meter)?;
            let answered = start.elapsed().as_secs_f64();
            holder.decrypt_answers(&key, &answers, &mut meter)?;
            let opened = start.elapsed().as_secs_f64();
            let now = [opened, sent, answered - sent, opened - answered];
            least.iter_mut().zip(now).for_each(|(least, now)| *least = least.min(now * 1e3));
        }
        let estimate = job.estimate_cost(tile, &NetworkLink::LAN, &OperationCosts::GIVEN);
        let [total, request, answer, open] = least;
        println!(
            "  {inputs:4} x {outputs:2}: {total:.3} ms ({request:.3} + {answer:.3} + {open:.3}), {} B up, {} B down",
            estimate.up_bytes, estimate.down_bytes
        );
    }
    Ok(())
}
