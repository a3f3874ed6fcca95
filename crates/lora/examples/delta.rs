//! Prints the deltas of an adapter, to be compared with another implementation.
//!
//! `cargo run -p confide-lora --example delta -- DIR [--base DIR] [--save DIR]` reads vectors from
//! standard input, `{"0.q_proj": [1.5, …], …}` for layer and projection, and prints the deltas with
//! the same names. `--base` folds DoRA's magnitudes, and `--save` first saves the adapter.

use std::{
    collections::{BTreeMap, BTreeSet},
    error::Error,
    path::PathBuf,
    process::ExitCode,
};

use confide_lora::{Adapter, ProjectionSite, peft::BaseFolder, plain};

fn main() -> ExitCode {
    match print_deltas() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("delta: {error}");
            ExitCode::from(2)
        }
    }
}

fn print_deltas() -> Result<(), Box<dyn Error>> {
    let (mut dir, mut base, mut save) = (None, None, None);
    let mut arguments = std::env::args_os().skip(1);
    while let Some(argument) = arguments.next() {
        match argument.to_str() {
            Some("--base") => base = arguments.next().map(PathBuf::from),
            Some("--save") => save = arguments.next().map(PathBuf::from),
            _ => dir = Some(PathBuf::from(argument)),
        }
    }
    let dir = dir.ok_or("the folder of an adapter is missing")?;
    let adapter = match base {
        None => Adapter::load(dir)?,
        Some(base) => Adapter::load_with_base(dir, &BaseFolder::open(base)?)?,
    };
    if let Some(save) = save {
        adapter.save(save)?;
    }
    let inputs: BTreeMap<String, Vec<f64>> = serde_json::from_reader(std::io::stdin())?;
    let asked: BTreeSet<ProjectionSite> =
        inputs.keys().map(|name| parse_site(name)).collect::<Result<_, _>>()?;
    if let Some(site) = adapter.modules.keys().find(|site| !asked.contains(site)) {
        return Err(format!("{site} is adapted, but the input has no vector for it").into());
    }
    let mut deltas = BTreeMap::new();
    for (name, input) in &inputs {
        let pair =
            adapter.modules.get(&parse_site(name)?).ok_or(format!("{name} is not adapted"))?;
        if pair.width().input != input.len() {
            return Err(format!("{name}: wanted {} elements", pair.width().input).into());
        }
        deltas.insert(name, plain::delta(pair, input));
    }
    println!("{}", serde_json::to_string(&deltas)?);
    Ok(())
}

fn parse_site(name: &str) -> Result<ProjectionSite, Box<dyn Error>> {
    let (layer, projection) = name.split_once('.').ok_or("wanted LAYER.PROJECTION")?;
    Ok(ProjectionSite { layer: layer.parse()?, projection: projection.parse()? })
}
