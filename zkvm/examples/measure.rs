//! Runs, proves and checks one program, and prints what the memory model is fitted to: weight of
//! each segment, seconds of each part, peak of resident memory.
//!
//! ```text
//! measure ELF LOG_HEIGHT EXTENSIONS INPUT_HEX LIMIT_MIB [prove|LEAF,INTERNAL …]
//! ```
//!
//! `EXTENSIONS` is a comma-separated list of `sha2`, `int256`, `p256`, or `none`. The proof is
//! aggregated once for each pair of fan-ins. A peak is that since the one printed before it.

use std::{error::Error, time::Instant};

use confide_zkvm_machine::{
    Blueprint, FanIn, Machine, Program, ProofStep, VerifyingKeys, aggregate, check_aggregated,
    check_segments,
};

#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [elf, height, extensions, input, limit, rest @ ..] = arguments.as_slice() else {
        return Err("usage: measure ELF LOG_HEIGHT EXTENSIONS INPUT_HEX LIMIT_MIB".into());
    };
    let has = |name: &str| extensions.split(',').any(|given| given == name);
    let blueprint = Blueprint {
        name: "measured",
        log_height: height.parse()?,
        sha2: has("sha2"),
        int256: has("int256"),
        p256: has("p256"),
    };
    let input = from_hex(input)?;
    let mut clock = Stopwatch(Instant::now());
    let program = Program::load(&std::fs::read(elf)?, blueprint)?;
    let machine = Machine::new(&program)?;
    clock.lap("machine");
    let plan = machine.plan_segments(&input, limit.parse::<u64>()? << 20)?;
    clock.lap("plan");
    println!("cycles {} public values {:02x?}", plan.cycles, plan.public_values);
    for load in &plan.loads {
        println!("{load:?}");
    }
    println!("model {} kB", plan.peak_bytes >> 10);
    if rest.is_empty() {
        return Ok(());
    }
    let prover = machine.into_prover()?;
    let commitment = prover.program_commitment();
    clock.lap("commit");
    let cycles = plan.cycles;
    let start = Instant::now();
    let proof = prover
        .prove(plan, &input, &mut |step: ProofStep| println!("{step:?} {}", take_peak_memory()))?;
    println!("kHz {:.1}", cycles as f64 / start.elapsed().as_secs_f64() / 1e3);
    clock.lap("prove");
    let body = proof.encode()?;
    println!("bytes {}", body.len());
    let keys = VerifyingKeys::derive(blueprint)?;
    println!(
        "keys {} bytes, bits {} {}",
        keys.encode()?.len(),
        keys.proven_bits(false),
        keys.proven_bits(true)
    );
    clock.lap("keys");
    println!("{:?}", check_segments(&body, &keys, blueprint, &commitment));
    clock.lap("check");
    for pair in rest.iter().filter_map(|text| text.split_once(',')) {
        let fan_in = FanIn { leaf: pair.0.parse()?, internal: pair.1.parse()? };
        println!("{fan_in:?}");
        let body = aggregate(proof.clone(), fan_in, &mut |step| {
            println!("{step:?} {}", take_peak_memory())
        })?;
        clock.lap("aggregate");
        println!("bytes {}", body.len());
        println!("{:?}", check_aggregated(&body, &keys, blueprint, &commitment));
        clock.lap("check");
    }
    Ok(())
}

struct Stopwatch(Instant);

impl Stopwatch {
    fn lap(&mut self, name: &str) {
        println!("{name} {:.3} s, {}", self.0.elapsed().as_secs_f64(), take_peak_memory());
        self.0 = Instant::now();
    }
}

/// Peak of resident memory since the last call.
fn take_peak_memory() -> String {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let peak = status.lines().find(|line| line.starts_with("VmHWM")).unwrap_or("VmHWM: ?");
    // 5: the peak begins again (proc(5)). Where that is not allowed, it only grows.
    if let Err(error) = std::fs::write("/proc/self/clear_refs", "5") {
        return format!("{peak} (since the start: {error})");
    }
    peak.replace('\t', " ")
}

fn from_hex(text: &str) -> Result<Vec<u8>, Box<dyn Error>> {
    (0..text.len())
        .step_by(2)
        .map(|at| Ok(u8::from_str_radix(text.get(at..at + 2).ok_or("odd")?, 16)?))
        .collect()
}
