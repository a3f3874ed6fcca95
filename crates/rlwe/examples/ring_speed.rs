//! Prints the times of this crate's operations on this machine, each the best of several runs, for
//! work on the code. Published figures come from the bench.
//!
//! `cargo run --release -p confide-rlwe --example ring_speed`

use std::{hint::black_box, time::Instant};

use confide_rlwe::{
    Context, Modulus, NttPath, NttTable, ParameterSet, RlweError, Rng, ScalarMatrix,
    ScalarProducts, SecretKey, ntt_primes_below,
};

const COLUMNS: usize = 1536;
const ROWS: usize = 32;
/// The number of ciphertexts that the products take at a time.
const BLOCK: usize = 128;

fn main() -> Result<(), RlweError> {
    measure_transforms()?;
    measure_sampling();
    measure_products()
}

fn measure_transforms() -> Result<(), RlweError> {
    println!("{:<36} {:>10} {:>10}", "transform", "forward us", "inverse us");
    for (bits, degrees) in [(50, 10..=15), (60, 14..=15)] {
        for n in degrees.map(|log| 1 << log) {
            let modulus = Modulus::new(ntt_primes_below(bits, n, 1)[0])?;
            for path in NttPath::available(modulus) {
                let table = NttTable::with_path(n, modulus, path)?;
                let mut values = vec![1; n];
                let forward = least_time_us(40, || table.forward(&mut values));
                let inverse = least_time_us(40, || table.inverse(&mut values));
                println!("{n:>6} {bits} bits {path:<20} {forward:>12.2} {inverse:>10.2}");
            }
        }
    }
    Ok(())
}

fn measure_sampling() {
    let mut rng = Rng::from_seed([1; 32]);
    let mut bytes = vec![0; 1 << 20];
    let us = least_time_us(10, || rng.fill_bytes(&mut bytes));
    println!("keystream {:.0} MB/s", (1 << 20) as f64 / us);
    let mut errors = vec![0; 4096];
    println!("4096 errors {:.2} us", least_time_us(40, || rng.fill_errors(&mut errors)));
    let mut ternary = vec![0; 4096];
    println!("4096 ternary {:.2} us", least_time_us(40, || rng.fill_ternary(&mut ternary)));
    let modulus = Modulus::new(ntt_primes_below(50, 4096, 1)[0]).expect("a prime");
    let mut uniform = vec![0; 4096];
    println!(
        "4096 uniform {:.2} us",
        least_time_us(40, || rng.fill_uniform(modulus, &mut uniform))
    );
}

fn measure_products() -> Result<(), RlweError> {
    let set = ParameterSet::from_name("rlwe-4096-q100-flood40")?;
    println!("{set}");
    let context = Context::new(&set)?;
    let n = context.n();
    let mut rng = Rng::from_seed([2; 32]);
    let key = SecretKey::generate(&context, &mut rng);
    let public = key.public_key(&mut rng);
    let mut messages = vec![0; n];
    rng.fill_bits(set.plaintext_bits(), &mut messages);
    let mut encryptor = key.encryptor(rng.fork());
    let fresh = encryptor.encrypt(&messages)?;
    let encrypt = least_time_us(40, || {
        black_box(encryptor.encrypt(&messages)).ok();
    });
    let bytes = fresh.to_bytes(&context);
    let write = least_time_us(40, || {
        black_box(fresh.to_bytes(&context));
    });
    let read = least_time_us(40, || {
        black_box(confide_rlwe::SeededCiphertext::from_bytes(&context, &bytes)).ok();
    });
    let expand = least_time_us(40, || {
        black_box(fresh.c1());
    });
    println!("ciphertext: encrypt {encrypt:.1}, write {write:.1}, read {read:.1} us, ");
    println!("  expand {expand:.1} us; {:.3} of each for a token", COLUMNS as f64 / n as f64);
    let zero = least_time_us(20, || {
        black_box(public.encrypt(&context, &messages, &mut rng)).ok();
    });
    let weights: Vec<i16> = (0..ROWS * COLUMNS).map(|i| (i * 7919 % 4095) as i16 - 2047).collect();
    let matrix = ScalarMatrix::new(&context, ROWS, COLUMNS, &weights)?;
    let mut products = ScalarProducts::new(&context, &matrix);
    let mut blocks_us = Vec::new();
    for _ in 0..COLUMNS / BLOCK {
        let start = Instant::now();
        (0..BLOCK).try_for_each(|_| products.push(&fresh))?;
        blocks_us.push(start.elapsed().as_secs_f64() * 1e6);
    }
    let answers = products.finish()?;
    let product = blocks_us.into_iter().fold(f64::INFINITY, f64::min) / BLOCK as f64;
    let share = COLUMNS as f64 / n as f64;
    println!(
        "scalar products, {COLUMNS} to {ROWS}: {:.2} us for a token, of which",
        product * share
    );
    println!("  {:.2} us expand the public polynomials", expand * share);
    let small = answers[0].clone().switch_down();
    let switch = least_time_us(20, || {
        black_box(answers[0].clone().switch_down());
    });
    let decrypt = least_time_us(20, || {
        black_box(key.decrypt(&small)).ok();
    });
    println!("answer: zero {zero:.1}, switch {switch:.1}, decrypt {decrypt:.1} us");
    Ok(())
}

fn least_time_us(runs: usize, mut run: impl FnMut()) -> f64 {
    let timed = |_| {
        let start = Instant::now();
        run();
        start.elapsed().as_secs_f64() * 1e6
    };
    (0..runs).map(timed).fold(f64::INFINITY, f64::min)
}
