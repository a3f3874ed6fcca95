//! `confide-arm adapter-make`: a PEFT adapter of a real model's shape with random values, because
//! speed does not depend on them.

use std::path::PathBuf;

use confide_arm_line::Outcome;
use confide_lora::{Adapter, LoraPair, Projection, ProjectionSite};

use super::problem::Random;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// The model whose widths are used: qwen-1.5b (Qwen2.5-1.5B).
    #[arg(long, default_value = "qwen-1.5b")]
    shape: String,
    /// Layers, from the first.
    #[arg(long, default_value_t = 28)]
    layers: u32,
    /// Rank of every pair.
    #[arg(long, default_value_t = 32)]
    rank: usize,
    /// Adapted projections.
    #[arg(long, value_delimiter = ',', default_value = "q_proj,k_proj,v_proj,o_proj")]
    projections: Vec<Projection>,
    /// Folder to write; it is created.
    #[arg(long)]
    out: PathBuf,
}

/// Hidden width, width of keys and values, width of the feed-forward part.
struct ModelWidths {
    hidden: usize,
    kv: usize,
    inner: usize,
}

pub(crate) fn run(args: Args) -> Outcome {
    let widths = match args.shape.as_str() {
        "qwen-1.5b" => ModelWidths { hidden: 1536, kv: 256, inner: 8960 },
        other => return Err(format!("--shape {other}: wanted qwen-1.5b").into()),
    };
    let adapter = random_adapter(&widths, args.layers, args.rank, &args.projections);
    Ok(adapter.save(&args.out)?)
}

fn random_adapter(
    widths: &ModelWidths,
    layers: u32,
    rank: usize,
    projections: &[Projection],
) -> Adapter {
    let mut random = Random(11);
    let sites = (0..layers).flat_map(|layer| {
        projections.iter().map(move |projection| ProjectionSite { layer, projection: *projection })
    });
    let modules = sites
        .map(|site| {
            let (input, output) = widths.dimensions(site.projection);
            let a = random.matrix(rank, input, 0.02);
            let b = random.matrix(output, rank, 0.02);
            (site, LoraPair { a, b, scale: 2.0 })
        })
        .collect();
    Adapter { name: "random".into(), base_model: None, modules }
}

impl ModelWidths {
    /// Input and output width of a projection.
    fn dimensions(&self, projection: Projection) -> (usize, usize) {
        match projection {
            Projection::Key | Projection::Value => (self.hidden, self.kv),
            Projection::MlpGate | Projection::MlpUp => (self.hidden, self.inner),
            Projection::MlpDown => (self.inner, self.hidden),
            _ => (self.hidden, self.hidden),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_made_adapter_has_the_widths_of_the_model() {
        let widths = ModelWidths { hidden: 12, kv: 4, inner: 20 };
        let adapter = random_adapter(&widths, 2, 3, &Projection::ALL);
        assert_eq!(adapter.modules.len(), 14);
        let site = ProjectionSite { layer: 1, projection: Projection::MlpDown };
        assert_eq!((adapter.sites()[&site].input, adapter.sites()[&site].output), (20, 12));
    }
}
