//! The LM head, as report 003 measures it: 151,936 rows of 1,536 floats, by wide registers on all
//! cores or by a loop over one float at a time.

use std::{fs, path::Path, thread, time::Instant};

use clap::ValueEnum;
use confide_arm_line::{Hello, Outcome, Report, Run, Sample, read_file, serve_runs};
use safetensors::{Dtype, SafeTensors};
use serde_json::json;

use super::{dot::dot_product, problem::Random};
use crate::version::VERSION;

/// How rows are multiplied.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum MultiplyKernel {
    /// Sixteen sums side by side, on all cores.
    Fast,
    /// One float at a time, on one core.
    Slow,
}

#[derive(clap::Args)]
pub(crate) struct Args {
    /// How rows are multiplied.
    #[arg(long, value_enum)]
    speed: MultiplyKernel,
}

/// Vocabulary and hidden width of Qwen2.5-1.5B.
const VOCABULARY: usize = 151_936;
const WIDTH: usize = 1536;

/// An output matrix.
pub(crate) struct LmHead {
    width: usize,
    values: Vec<f32>,
}

pub(crate) fn run(args: Args) -> Outcome {
    let mut random = Random(5);
    // A few rows again and again: speed does not depend on the values, memory does on the bytes.
    let few = random.matrix(64, WIDTH, 0.02).values;
    let values = few.iter().copied().cycle().take(VOCABULARY * WIDTH).collect();
    let head = LmHead { width: WIDTH, values };
    let hello = Hello {
        guarantee: Some(confide_lora::Guarantee::NONE.to_string()),
        threads: thread::available_parallelism().map_or(1, usize::from),
        ..Hello::new(format!("LM head of {VOCABULARY} x {WIDTH}, {:?}", args.speed), VERSION)
    };
    serve_runs(&hello, |order| measure(order, &head, args.speed))
}

fn measure(order: &Run, head: &LmHead, speed: MultiplyKernel) -> Outcome<Report> {
    order.refuse_unknown_params(&[])?;
    order.measure_each(|number| {
        let mut random = Random(order.seed ^ number);
        let hidden: Vec<f32> = (0..head.width).map(|_| random.normal()).collect();
        let began = Instant::now();
        let row = head.argmax_logit(&hidden, speed);
        let mut sample = Sample::new([("head_ms", began.elapsed().as_secs_f64() * 1e3)]);
        // Rows repeat, and sums differ in their last bits: the row within the few says which it is.
        sample.answer = json!({ "row": row % 64 });
        Ok(sample)
    })
}

impl LmHead {
    /// The output matrix of a model's folder: its head, or its embeddings where they are tied.
    pub(crate) fn load(folder: &Path) -> Outcome<Self> {
        let files = fs::read_dir(folder)?.flatten();
        let mut embeddings = None;
        for path in files.map(|file| file.path()) {
            if path.extension().is_none_or(|end| end != "safetensors") {
                continue;
            }
            let bytes = read_file(&path)?;
            let tensors = SafeTensors::deserialize(&bytes)?;
            if let Ok(head) = tensors.tensor("lm_head.weight") {
                return Self::from_tensor(head.dtype(), head.shape(), head.data());
            }
            if let Ok(tied) = tensors.tensor("model.embed_tokens.weight") {
                embeddings = Some(Self::from_tensor(tied.dtype(), tied.shape(), tied.data())?);
            }
        }
        Ok(embeddings.ok_or_else(|| format!("no output matrix in {}", folder.display()))?)
    }

    fn from_tensor(dtype: Dtype, shape: &[usize], bytes: &[u8]) -> Outcome<Self> {
        let values = match dtype {
            Dtype::F32 => {
                bytes.as_chunks().0.iter().map(|four| f32::from_le_bytes(*four)).collect()
            }
            // The upper half of a 32-bit float.
            Dtype::BF16 => bytes
                .as_chunks()
                .0
                .iter()
                .map(|two| f32::from_bits(u32::from(u16::from_le_bytes(*two)) << 16))
                .collect(),
            other => return Err(format!("output matrix: wanted F32 or BF16, got {other:?}").into()),
        };
        let width = shape.last().copied().filter(|width| *width > 0);
        Ok(Self { width: width.ok_or("output matrix without width")?, values })
    }

    /// The row whose product with this hidden state is greatest.
    pub(crate) fn argmax_logit(&self, hidden: &[f32], speed: MultiplyKernel) -> usize {
        let rows = self.values.len() / self.width;
        match speed {
            MultiplyKernel::Slow => {
                argmax(self.values.chunks_exact(self.width).map(|row| {
                    // The order of the sum is fixed, so the compiler may not use wide registers.
                    row.iter().zip(hidden).fold(0.0, |sum, (a, x)| sum + a * x)
                }))
                .0
            }
            MultiplyKernel::Fast => {
                let threads = thread::available_parallelism().map_or(1, usize::from);
                // A thread costs more than a small head.
                let threads = if self.values.len() < 1 << 20 { 1 } else { threads };
                let part = rows.div_ceil(threads).max(1);
                let parts: Vec<&[f32]> = self.values.chunks(part * self.width).collect();
                let search = |part: &[f32]| {
                    argmax(part.chunks_exact(self.width).map(|row| dot_product(row, hidden)))
                };
                if let [only] = parts[..] {
                    return search(only).0;
                }
                let found: Vec<(usize, f32)> = thread::scope(|scope| {
                    let threads: Vec<_> =
                        parts.iter().map(|part| scope.spawn(|| search(part))).collect();
                    threads.into_iter().filter_map(|thread| thread.join().ok()).collect()
                });
                let (at, (row, _)) = found
                    .iter()
                    .enumerate()
                    .max_by(|(_, (_, a)), (_, (_, b))| a.total_cmp(b))
                    .unwrap_or((0, &(0, 0.0)));
                at * part + row
            }
        }
    }
}

fn argmax(values: impl Iterator<Item = f32>) -> (usize, f32) {
    values.enumerate().max_by(|(_, a), (_, b)| a.total_cmp(b)).unwrap_or((0, 0.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fast_and_slow_find_the_same_row() {
        let mut random = Random(9);
        let head = LmHead { width: 48, values: random.matrix(100, 48, 1.0).values };
        for _ in 0..20 {
            let hidden: Vec<f32> = (0..48).map(|_| random.normal()).collect();
            assert_eq!(
                head.argmax_logit(&hidden, MultiplyKernel::Fast),
                head.argmax_logit(&hidden, MultiplyKernel::Slow)
            );
        }
    }
}
