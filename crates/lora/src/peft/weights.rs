//! PEFT's matrices, `adapter_model.safetensors`.

use std::collections::BTreeMap;

use safetensors::{SafeTensors, tensor::TensorView};

use super::{
    base::BaseWeights,
    config::Config,
    dora,
    error::PeftError,
    limits::{ELEMENTS_MAX, HEADER_BYTES_MAX, LAYERS_MAX, RANK_MAX, WIDTH_MAX},
    tensors::{PREFIX, STACKS, floats, path_of},
};
use crate::{
    adapter::{Matrix, Pair},
    site::{Input, Projection, Site},
};

/// Reads all pairs, by the rules of `config`.
pub(super) fn read(
    config: &Config,
    bytes: &[u8],
    base: Option<&dyn BaseWeights>,
) -> Result<BTreeMap<Site, Pair>, PeftError> {
    if config.is_dora() && base.is_none() {
        return Err(PeftError::BaseNeeded);
    }
    let file = open(bytes)?;
    let (stack, modules) = sort(&file)?;
    refuse_missing(config, stack, &modules)?;
    let mut pairs = BTreeMap::new();
    let mut elements = 0;
    for (site, module) in &modules {
        let path = path_of(stack, *site);
        let pair = module.pair(config, &path)?;
        let pair = match (config.is_dora(), base) {
            (true, Some(base)) => {
                let magnitude = module.magnitude(&path, pair.width().output)?;
                dora::fold(*site, &pair, &magnitude, base)?
            }
            _ => pair,
        };
        elements += (pair.a.values.len() + pair.b.values.len()) as u64;
        limit("elements of the adapter", ELEMENTS_MAX, elements)?;
        pairs.insert(*site, pair);
    }
    match pairs.is_empty() {
        true => Err(PeftError::Missing { tensor: "any lora_A".into() }),
        false => same_inputs(&pairs).map(|()| pairs),
    }
}

/// The tensors of one module, with the names that the file gives them.
#[derive(Default)]
struct Module<'a> {
    parts: BTreeMap<WeightPart, (String, TensorView<'a>)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum WeightPart {
    A,
    B,
    Magnitude,
}

fn open(bytes: &[u8]) -> Result<SafeTensors<'_>, PeftError> {
    let bad = |reason: String| PeftError::Weights { reason };
    if bytes.starts_with(b"PK\x03\x04") {
        return Err(bad("wanted safetensors, got a zip archive, as torch writes pickles".into()));
    }
    let length = bytes.first_chunk::<8>().ok_or_else(|| bad("wanted a header, got none".into()))?;
    limit(
        "header bytes of adapter_model.safetensors",
        HEADER_BYTES_MAX,
        u64::from_le_bytes(*length),
    )?;
    SafeTensors::deserialize(bytes).map_err(|error| bad(error.to_string()))
}

/// Puts every tensor at its site. All must lie in one stack of layers, under one adapter's name.
fn sort<'a>(
    file: &SafeTensors<'a>,
) -> Result<(&'static str, BTreeMap<Site, Module<'a>>), PeftError> {
    let mut modules: BTreeMap<Site, Module<'a>> = BTreeMap::new();
    let mut one: Option<(&'static str, Option<String>)> = None;
    let mut tensors = file.tensors();
    // The crate keeps the tensors in a hash map; the first error should not depend on its order.
    tensors.sort_by(|a, b| a.0.cmp(&b.0));
    for (name, view) in tensors {
        let unexpected = |reason| PeftError::Unexpected { tensor: name.clone(), reason };
        let found = Name::parse(&name).map_err(unexpected)?;
        let here = (found.stack, found.adapter.map(String::from));
        if *one.get_or_insert_with(|| here.clone()) != here {
            return Err(unexpected("it is of another stack of layers or another adapter"));
        }
        let (site, part) = (found.site, found.part);
        let parts = &mut modules.entry(site).or_default().parts;
        if let Some((first, _)) = parts.insert(part, (name, view)) {
            return Err(PeftError::Unexpected { tensor: first, reason: "it is there twice" });
        }
    }
    Ok((one.map_or(STACKS[0], |(stack, _)| stack), modules))
}

/// A tensor's name, taken apart.
#[derive(Debug, PartialEq)]
struct Name<'a> {
    stack: &'static str,
    site: Site,
    part: WeightPart,
    adapter: Option<&'a str>,
}

impl<'a> Name<'a> {
    fn parse(name: &'a str) -> Result<Name<'a>, &'static str> {
        let path =
            name.strip_prefix(PREFIX).ok_or("its name does not begin with base_model.model")?;
        let (module, rest) = path.rsplit_once(".lora_").ok_or("it is not part of a LoRA")?;
        let rest: Vec<&str> = rest.split('.').collect();
        let (part, adapter) = match rest[..] {
            ["A", "weight"] => (WeightPart::A, None),
            ["A", adapter, "weight"] => (WeightPart::A, Some(adapter)),
            ["B", "weight"] => (WeightPart::B, None),
            ["B", adapter, "weight"] => (WeightPart::B, Some(adapter)),
            ["B", "bias"] | ["B", _, "bias"] => return Err("biases of B are not supported"),
            // PEFT writes it without `weight`, and has had both forms in memory.
            ["magnitude_vector"] | ["magnitude_vector", "weight"] => (WeightPart::Magnitude, None),
            ["magnitude_vector", adapter] | ["magnitude_vector", adapter, "weight"] => {
                (WeightPart::Magnitude, Some(adapter))
            }
            ["embedding_A" | "embedding_B", ..] => return Err("embeddings are not supported"),
            _ => return Err("it is no known part of a LoRA"),
        };
        let (stack, site) = site_of(module)?;
        Ok(Name { stack, site, part, adapter })
    }
}

fn site_of(path: &str) -> Result<(&'static str, Site), &'static str> {
    let unknown = "its module is not q, k, v, o, gate, up or down_proj of a decoder layer";
    let stack = STACKS.into_iter().find(|stack| path.starts_with(stack)).ok_or(unknown)?;
    let (layer, module) = path[stack.len()..].split_once('.').ok_or(unknown)?;
    let (_, name) = module.split_once('.').ok_or(unknown)?;
    let layer: u32 = layer.parse().map_err(|_| unknown)?;
    let projection: Projection = name.parse().map_err(|_| unknown)?;
    let site = Site { layer, projection };
    if layer >= LAYERS_MAX {
        return Err("its layer is beyond the 1024 that are supported");
    }
    // One spelling for each site: no `+1`, no `01`, no q_proj in mlp.
    match projection != Projection::FinalHidden && path_of(stack, site) == path {
        true => Ok((stack, site)),
        false => Err(unknown),
    }
}

/// The configuration and the file must name the same modules. PEFT itself only warns of a missing
/// one, and leaves out one that is not chosen.
fn refuse_missing(
    config: &Config,
    stack: &str,
    modules: &BTreeMap<Site, Module<'_>>,
) -> Result<(), PeftError> {
    let listed = config.target.layers.as_ref();
    let last_listed = listed.and_then(|layers| layers.indices.last().copied());
    let Some(last_seen) = modules.keys().map(|site| site.layer).max() else { return Ok(()) };
    for layer in 0..=last_seen.max(last_listed.unwrap_or(0)) {
        for projection in Projection::ALL {
            let site = Site { layer, projection };
            let path = path_of(stack, site);
            match (config.includes(&path)?, modules.contains_key(&site)) {
                (true, false) => {
                    let tensor = format!("{PREFIX}{path}.lora_A.weight");
                    return Err(PeftError::Missing { tensor });
                }
                (false, true) => return Err(PeftError::NotTargeted { module: path }),
                _ => {}
            }
        }
    }
    Ok(())
}

impl Module<'_> {
    fn pair(&self, config: &Config, path: &str) -> Result<Pair, PeftError> {
        let rank = config.rank_of(path)?;
        let a = self.matrix(WeightPart::A, path)?;
        let b = self.matrix(WeightPart::B, path)?;
        if a.rows != rank {
            return Err(self.shape(WeightPart::A, format!("[{rank}, input]")));
        }
        if b.columns != rank {
            return Err(self.shape(WeightPart::B, format!("[output, {rank}]")));
        }
        if let (false, Some((name, _))) = (config.is_dora(), self.parts.get(&WeightPart::Magnitude))
        {
            let reason = "the configuration does not say use_dora";
            return Err(PeftError::Unexpected { tensor: name.clone(), reason });
        }
        Ok(Pair { a, b, scale: config.scale_of(path)? })
    }

    fn matrix(&self, part: WeightPart, path: &str) -> Result<Matrix, PeftError> {
        let (name, view) = self.part(part, path)?;
        let (longest_rows, longest_columns) = match part {
            WeightPart::A => (RANK_MAX, WIDTH_MAX),
            _ => (WIDTH_MAX, RANK_MAX),
        };
        let &[rows, columns] = view.shape() else {
            return Err(self.shape(part, "[rows, columns]".into()));
        };
        if rows == 0 || columns == 0 || rows > longest_rows || columns > longest_columns {
            return Err(self.shape(part, format!("at most [{longest_rows}, {longest_columns}]")));
        }
        Ok(Matrix { rows, columns, values: floats(name, view)? })
    }

    fn magnitude(&self, path: &str, output: usize) -> Result<Vec<f32>, PeftError> {
        let (name, view) = self.part(WeightPart::Magnitude, path)?;
        match view.shape() == [output] {
            true => floats(name, view),
            false => Err(self.shape(WeightPart::Magnitude, format!("[{output}]"))),
        }
    }

    fn part(&self, part: WeightPart, path: &str) -> Result<&(String, TensorView<'_>), PeftError> {
        self.parts.get(&part).ok_or_else(|| {
            let name = match part {
                WeightPart::A => "lora_A.weight",
                WeightPart::B => "lora_B.weight",
                WeightPart::Magnitude => "lora_magnitude_vector",
            };
            PeftError::Missing { tensor: format!("{PREFIX}{path}.{name}") }
        })
    }

    fn shape(&self, part: WeightPart, wanted: String) -> PeftError {
        let found = self.parts.get(&part);
        let (tensor, got) = found
            .map_or_else(Default::default, |(name, view)| (name.clone(), view.shape().to_vec()));
        PeftError::Shape { tensor, wanted, got }
    }
}

fn same_inputs(pairs: &BTreeMap<Site, Pair>) -> Result<(), PeftError> {
    let mut widths: BTreeMap<(u32, Input), usize> = BTreeMap::new();
    for (site, pair) in pairs {
        let (layer, input) = (site.layer, site.projection.input());
        let got = pair.width().input;
        let wanted = *widths.entry((layer, input)).or_insert(got);
        if wanted != got {
            return Err(PeftError::InputWidth { layer, input, wanted, got });
        }
    }
    Ok(())
}

fn limit(what: &str, limit: u64, got: u64) -> Result<(), PeftError> {
    if got <= limit { Ok(()) } else { Err(PeftError::Limit { what: what.into(), limit, got }) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_taken_apart_in_every_spelling_that_peft_has_had() {
        let module = "base_model.model.model.layers.12.self_attn.q_proj.lora_";
        let site = Site { layer: 12, projection: Projection::Query };
        for (end, part, adapter) in [
            ("A.weight", WeightPart::A, None),
            ("B.weight", WeightPart::B, None),
            ("A.default.weight", WeightPart::A, Some("default")),
            ("B.banking.weight", WeightPart::B, Some("banking")),
            ("magnitude_vector", WeightPart::Magnitude, None),
            ("magnitude_vector.weight", WeightPart::Magnitude, None),
            ("magnitude_vector.default", WeightPart::Magnitude, Some("default")),
            ("magnitude_vector.default.weight", WeightPart::Magnitude, Some("default")),
        ] {
            let wanted = Name { stack: "model.layers.", site, part, adapter };
            assert_eq!(Name::parse(&format!("{module}{end}")), Ok(wanted));
        }
    }

    #[test]
    fn names_of_anything_else_have_no_place() {
        for name in [
            "model.layers.0.self_attn.q_proj.lora_A.weight",
            "base_model.model.model.layers.0.self_attn.q_proj.weight",
            "base_model.model.model.layers.0.self_attn.q_proj.lora_B.bias",
            "base_model.model.model.layers.0.self_attn.q_proj.lora_C.weight",
            "base_model.model.model.layers.0.self_attn.qkv_proj.lora_A.weight",
            "base_model.model.model.layers.0.mlp.q_proj.lora_A.weight",
            "base_model.model.model.layers.00.mlp.up_proj.lora_A.weight",
            "base_model.model.model.layers.+1.mlp.up_proj.lora_A.weight",
            "base_model.model.model.layers.1024.mlp.up_proj.lora_A.weight",
            "base_model.model.model.layers.0.x.final-hidden.lora_A.weight",
            "base_model.model.model.embed_tokens.lora_embedding_A",
            "base_model.model.lm_head.lora_A.weight",
            "base_model.model.vision.encoder.layers.0.self_attn.q_proj.lora_A.weight",
            "base_model.model.model.layers.0.mlp.experts.0.up_proj.lora_A.weight",
            "",
        ] {
            assert!(Name::parse(name).is_err(), "{name}");
        }
    }

    #[test]
    fn every_site_has_one_path() {
        for stack in STACKS {
            for projection in Projection::ALL {
                let site = Site { layer: 7, projection };
                assert_eq!(site_of(&path_of(stack, site)), Ok((stack, site)));
            }
        }
    }
}
