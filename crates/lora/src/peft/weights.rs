//! Reading of PEFT's matrices, `adapter_model.safetensors`.

use std::collections::BTreeMap;

use safetensors::{SafeTensors, tensor::TensorView};

use super::{
    base::BaseWeights,
    config::Config,
    dora,
    error::PeftError,
    limits::{ELEMENTS_MAX, HEADER_BYTES_MAX, LAYERS_MAX, RANK_MAX, WIDTH_MAX},
    tensors::{PREFIX, STACKS, module_path, to_floats},
};
use crate::{
    adapter::{LoraPair, Matrix},
    site::{LayerInput, Projection, ProjectionSite},
};

/// Parses the pairs in a safetensors file, as `config` defines them.
pub(super) fn parse_pairs(
    config: &Config,
    bytes: &[u8],
    base: Option<&dyn BaseWeights>,
) -> Result<BTreeMap<ProjectionSite, LoraPair>, PeftError> {
    if config.is_dora() && base.is_none() {
        return Err(PeftError::BaseNeeded);
    }
    let file = parse_safetensors(bytes)?;
    let (stack, modules) = group_by_site(&file)?;
    check_tensors_match_targets(config, stack, &modules)?;
    let mut pairs = BTreeMap::new();
    let mut elements = 0;
    for (site, module) in &modules {
        let path = module_path(stack, *site);
        let pair = module.to_lora_pair(config, &path)?;
        let pair = match (config.is_dora(), base) {
            (true, Some(base)) => {
                let magnitude = module.magnitude(&path, pair.width().output)?;
                dora::fold_magnitudes(*site, &pair, &magnitude, base)?
            }
            _ => pair,
        };
        elements += (pair.a.values.len() + pair.b.values.len()) as u64;
        check_limit("elements of the adapter", ELEMENTS_MAX, elements)?;
        pairs.insert(*site, pair);
    }
    match pairs.is_empty() {
        true => Err(PeftError::Missing { tensor: "every lora_A".into() }),
        false => check_input_widths(&pairs).map(|()| pairs),
    }
}

/// The tensors of one module, with their names in the file.
#[derive(Default)]
struct ModuleTensors<'a> {
    parts: BTreeMap<LoraTensorKind, (String, TensorView<'a>)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum LoraTensorKind {
    A,
    B,
    Magnitude,
}

fn parse_safetensors(bytes: &[u8]) -> Result<SafeTensors<'_>, PeftError> {
    let bad = |reason: String| PeftError::Weights { reason };
    if bytes.starts_with(b"PK\x03\x04") {
        return Err(bad(
            "wanted safetensors, got a zip archive, which is torch's pickle format".into()
        ));
    }
    let length = bytes.first_chunk::<8>().ok_or_else(|| bad("wanted a header, got none".into()))?;
    check_limit(
        "header bytes of adapter_model.safetensors",
        HEADER_BYTES_MAX,
        u64::from_le_bytes(*length),
    )?;
    SafeTensors::deserialize(bytes).map_err(|error| bad(error.to_string()))
}

/// Groups the tensors by site. All must be in one stack of layers and have the same adapter name.
fn group_by_site<'a>(
    file: &SafeTensors<'a>,
) -> Result<(&'static str, BTreeMap<ProjectionSite, ModuleTensors<'a>>), PeftError> {
    let mut modules: BTreeMap<ProjectionSite, ModuleTensors<'a>> = BTreeMap::new();
    let mut one: Option<(&'static str, Option<String>)> = None;
    let mut tensors = file.tensors();
    // The crate keeps the tensors in a hash map; the first error should not depend on its order.
    tensors.sort_by(|a, b| a.0.cmp(&b.0));
    for (name, view) in tensors {
        let unexpected = |reason| PeftError::Unexpected { tensor: name.clone(), reason };
        let found = TensorName::parse(&name).map_err(unexpected)?;
        let here = (found.stack, found.adapter.map(String::from));
        if *one.get_or_insert_with(|| here.clone()) != here {
            return Err(unexpected("it belongs to another stack of layers or another adapter"));
        }
        let (site, part) = (found.site, found.part);
        let parts = &mut modules.entry(site).or_default().parts;
        if let Some((first, _)) = parts.insert(part, (name, view)) {
            return Err(PeftError::Unexpected { tensor: first, reason: "it is in the file twice" });
        }
    }
    Ok((one.map_or(STACKS[0], |(stack, _)| stack), modules))
}

/// The parts of a tensor's name.
#[derive(Debug, PartialEq)]
struct TensorName<'a> {
    stack: &'static str,
    site: ProjectionSite,
    part: LoraTensorKind,
    adapter: Option<&'a str>,
}

impl<'a> TensorName<'a> {
    fn parse(name: &'a str) -> Result<TensorName<'a>, &'static str> {
        let path =
            name.strip_prefix(PREFIX).ok_or("its name does not begin with base_model.model")?;
        let (module, rest) = path.rsplit_once(".lora_").ok_or("it is not part of a LoRA")?;
        let rest: Vec<&str> = rest.split('.').collect();
        let (part, adapter) = match rest[..] {
            ["A", "weight"] => (LoraTensorKind::A, None),
            ["A", adapter, "weight"] => (LoraTensorKind::A, Some(adapter)),
            ["B", "weight"] => (LoraTensorKind::B, None),
            ["B", adapter, "weight"] => (LoraTensorKind::B, Some(adapter)),
            ["B", "bias"] | ["B", _, "bias"] => return Err("biases of B are not supported"),
            // PEFT writes it without `weight`, but has used both forms in memory.
            ["magnitude_vector"] | ["magnitude_vector", "weight"] => {
                (LoraTensorKind::Magnitude, None)
            }
            ["magnitude_vector", adapter] | ["magnitude_vector", adapter, "weight"] => {
                (LoraTensorKind::Magnitude, Some(adapter))
            }
            ["embedding_A" | "embedding_B", ..] => return Err("embeddings are not supported"),
            _ => return Err("it is not a known part of a LoRA"),
        };
        let (stack, site) = parse_site(module)?;
        Ok(TensorName { stack, site, part, adapter })
    }
}

fn parse_site(path: &str) -> Result<(&'static str, ProjectionSite), &'static str> {
    let unknown = "its module is not q, k, v, o, gate, up or down_proj of a decoder layer";
    let stack = STACKS.into_iter().find(|stack| path.starts_with(stack)).ok_or(unknown)?;
    let (layer, module) = path[stack.len()..].split_once('.').ok_or(unknown)?;
    let (_, name) = module.split_once('.').ok_or(unknown)?;
    let layer: u32 = layer.parse().map_err(|_| unknown)?;
    let projection: Projection = name.parse().map_err(|_| unknown)?;
    let site = ProjectionSite { layer, projection };
    if layer >= LAYERS_MAX {
        return Err("its layer is beyond the 1024 that are supported");
    }
    // Only one spelling of each site is accepted: not `+1`, `01` or q_proj in mlp.
    match projection != Projection::FinalHidden && module_path(stack, site) == path {
        true => Ok((stack, site)),
        false => Err(unknown),
    }
}

/// Checks that the configuration and the file have the same modules. PEFT only warns about a missing
/// module, and ignores one that is not chosen.
fn check_tensors_match_targets(
    config: &Config,
    stack: &str,
    modules: &BTreeMap<ProjectionSite, ModuleTensors<'_>>,
) -> Result<(), PeftError> {
    let listed = config.target.layers.as_ref();
    let last_listed = listed.and_then(|layers| layers.indices.last().copied());
    let Some(last_seen) = modules.keys().map(|site| site.layer).max() else { return Ok(()) };
    for layer in 0..=last_seen.max(last_listed.unwrap_or(0)) {
        for projection in Projection::ALL {
            let site = ProjectionSite { layer, projection };
            let path = module_path(stack, site);
            match (config.targets_module(&path)?, modules.contains_key(&site)) {
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

impl ModuleTensors<'_> {
    fn to_lora_pair(&self, config: &Config, path: &str) -> Result<LoraPair, PeftError> {
        let rank = config.module_rank(path)?;
        let a = self.matrix(LoraTensorKind::A, path)?;
        let b = self.matrix(LoraTensorKind::B, path)?;
        if a.rows != rank {
            return Err(self.shape_error(LoraTensorKind::A, format!("[{rank}, input]")));
        }
        if b.columns != rank {
            return Err(self.shape_error(LoraTensorKind::B, format!("[output, {rank}]")));
        }
        if let (false, Some((name, _))) =
            (config.is_dora(), self.parts.get(&LoraTensorKind::Magnitude))
        {
            let reason = "use_dora is not set in the configuration";
            return Err(PeftError::Unexpected { tensor: name.clone(), reason });
        }
        Ok(LoraPair { a, b, scale: config.module_scale(path)? })
    }

    fn matrix(&self, part: LoraTensorKind, path: &str) -> Result<Matrix, PeftError> {
        let (name, view) = self.find_tensor(part, path)?;
        let (longest_rows, longest_columns) = match part {
            LoraTensorKind::A => (RANK_MAX, WIDTH_MAX),
            _ => (WIDTH_MAX, RANK_MAX),
        };
        let &[rows, columns] = view.shape() else {
            return Err(self.shape_error(part, "[rows, columns]".into()));
        };
        if rows == 0 || columns == 0 || rows > longest_rows || columns > longest_columns {
            return Err(
                self.shape_error(part, format!("at most [{longest_rows}, {longest_columns}]"))
            );
        }
        Ok(Matrix { rows, columns, values: to_floats(name, view)? })
    }

    fn magnitude(&self, path: &str, output: usize) -> Result<Vec<f32>, PeftError> {
        let (name, view) = self.find_tensor(LoraTensorKind::Magnitude, path)?;
        match view.shape() == [output] {
            true => to_floats(name, view),
            false => Err(self.shape_error(LoraTensorKind::Magnitude, format!("[{output}]"))),
        }
    }

    fn find_tensor(
        &self,
        part: LoraTensorKind,
        path: &str,
    ) -> Result<&(String, TensorView<'_>), PeftError> {
        self.parts.get(&part).ok_or_else(|| {
            let name = match part {
                LoraTensorKind::A => "lora_A.weight",
                LoraTensorKind::B => "lora_B.weight",
                LoraTensorKind::Magnitude => "lora_magnitude_vector",
            };
            PeftError::Missing { tensor: format!("{PREFIX}{path}.{name}") }
        })
    }

    fn shape_error(&self, part: LoraTensorKind, wanted: String) -> PeftError {
        let found = self.parts.get(&part);
        let (tensor, got) = found
            .map_or_else(Default::default, |(name, view)| (name.clone(), view.shape().to_vec()));
        PeftError::Shape { tensor, wanted, got }
    }
}

fn check_input_widths(pairs: &BTreeMap<ProjectionSite, LoraPair>) -> Result<(), PeftError> {
    let mut widths: BTreeMap<(u32, LayerInput), usize> = BTreeMap::new();
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

fn check_limit(what: &str, limit: u64, got: u64) -> Result<(), PeftError> {
    if got <= limit { Ok(()) } else { Err(PeftError::Limit { what: what.into(), limit, got }) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_taken_apart_in_every_spelling_that_peft_has_had() {
        let module = "base_model.model.model.layers.12.self_attn.q_proj.lora_";
        let site = ProjectionSite { layer: 12, projection: Projection::Query };
        for (end, part, adapter) in [
            ("A.weight", LoraTensorKind::A, None),
            ("B.weight", LoraTensorKind::B, None),
            ("A.default.weight", LoraTensorKind::A, Some("default")),
            ("B.banking.weight", LoraTensorKind::B, Some("banking")),
            ("magnitude_vector", LoraTensorKind::Magnitude, None),
            ("magnitude_vector.weight", LoraTensorKind::Magnitude, None),
            ("magnitude_vector.default", LoraTensorKind::Magnitude, Some("default")),
            ("magnitude_vector.default.weight", LoraTensorKind::Magnitude, Some("default")),
        ] {
            let wanted = TensorName { stack: "model.layers.", site, part, adapter };
            assert_eq!(TensorName::parse(&format!("{module}{end}")), Ok(wanted));
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
            assert!(TensorName::parse(name).is_err(), "{name}");
        }
    }

    #[test]
    fn every_site_has_one_path() {
        for stack in STACKS {
            for projection in Projection::ALL {
                let site = ProjectionSite { layer: 7, projection };
                assert_eq!(parse_site(&module_path(stack, site)), Ok((stack, site)));
            }
        }
    }
}
