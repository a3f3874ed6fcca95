//! The numbers and names of projections and of their inputs in docs/worker.md.

use std::collections::BTreeMap;

use confide_lora::{LayerInput, Projection, ProjectionSite, ProjectionWidth};
use serde_json::{Value, json};

/// The projections in the order of their numbers, with their names in JSON.
const PROJECTIONS: [(Projection, &str); 8] = [
    (Projection::Query, "q"),
    (Projection::Key, "k"),
    (Projection::Value, "v"),
    (Projection::Output, "o"),
    (Projection::MlpGate, "gate"),
    (Projection::MlpUp, "up"),
    (Projection::MlpDown, "down"),
    (Projection::FinalHidden, "final_hidden"),
];

const SOURCES: [LayerInput; 5] = [
    LayerInput::Attention,
    LayerInput::AttentionOutput,
    LayerInput::FeedForward,
    LayerInput::FeedForwardInner,
    LayerInput::FinalHidden,
];

/// The largest number of layers that is accepted; no known model has more.
const LAYERS_MAX: u32 = 1024;
const WIDTH_MAX: usize = 1 << 20;

pub(crate) fn projection_from_number(number: u8) -> Option<Projection> {
    PROJECTIONS.get(usize::from(number)).map(|(projection, _)| *projection)
}

pub(crate) fn layer_input_from_number(number: u8) -> Option<LayerInput> {
    SOURCES.get(usize::from(number)).copied()
}

pub(crate) fn layer_input_number(input: LayerInput) -> u8 {
    SOURCES.iter().position(|source| *source == input).unwrap_or_default() as u8
}

fn projection_from_name(name: &str) -> Option<Projection> {
    PROJECTIONS.iter().find(|(_, known)| *known == name).map(|(projection, _)| *projection)
}

fn projection_name(projection: Projection) -> &'static str {
    let found = PROJECTIONS.iter().find(|(known, _)| *known == projection);
    found.map_or("", |(_, name)| name)
}

/// The projections of a model, from the worker's welcome.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ModelSites {
    layers: u32,
    widths: BTreeMap<Projection, ProjectionWidth>,
}

impl ModelSites {
    /// The widths of a projection; `None` if the model has no such layer.
    pub fn width(&self, site: ProjectionSite) -> Option<ProjectionWidth> {
        let layers = match site.projection {
            Projection::FinalHidden => 1,
            _ => self.layers,
        };
        self.widths.get(&site.projection).filter(|_| site.layer < layers).copied()
    }

    pub(crate) fn parse(value: &Value) -> Option<Self> {
        let layers = u32::try_from(value["layers"].as_u64()?).ok()?;
        let widths = value["widths"].as_object()?.iter().map(|(name, pair)| {
            let [input, output] = pair.as_array()?.as_slice() else { return None };
            Some((
                projection_from_name(name)?,
                ProjectionWidth { input: parse_width(input)?, output: parse_width(output)? },
            ))
        });
        let widths = widths.collect::<Option<BTreeMap<_, _>>>()?;
        ((1..=LAYERS_MAX).contains(&layers)).then_some(Self { layers, widths })
    }
}

/// Converts sites to JSON: `[[LAYER, PROJECTION, IN, OUT], …]`.
pub(crate) fn sites_to_json(sites: &BTreeMap<ProjectionSite, ProjectionWidth>) -> Value {
    let one = |(site, width): (&ProjectionSite, &ProjectionWidth)| {
        json!([site.layer, projection_name(site.projection), width.input, width.output])
    };
    sites.iter().map(one).collect()
}

pub(crate) fn sites_from_json(value: &Value) -> Option<BTreeMap<ProjectionSite, ProjectionWidth>> {
    let one = |entry: &Value| {
        let [layer, projection, input, output] = entry.as_array()?.as_slice() else { return None };
        let layer = u32::try_from(layer.as_u64()?).ok().filter(|layer| *layer < LAYERS_MAX)?;
        let site =
            ProjectionSite { layer, projection: projection_from_name(projection.as_str()?)? };
        Some((site, ProjectionWidth { input: parse_width(input)?, output: parse_width(output)? }))
    };
    value.as_array()?.iter().map(one).collect()
}

fn parse_width(value: &Value) -> Option<usize> {
    let width = usize::try_from(value.as_u64()?).ok()?;
    (1..=WIDTH_MAX).contains(&width).then_some(width)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sites_are_what_they_were_after_a_way_through_json() {
        let sites: BTreeMap<ProjectionSite, ProjectionWidth> = PROJECTIONS
            .iter()
            .enumerate()
            .map(|(index, (projection, _))| {
                let site = ProjectionSite { layer: index as u32, projection: *projection };
                (site, ProjectionWidth { input: 4 + index, output: 9 })
            })
            .collect();
        assert_eq!(sites_from_json(&sites_to_json(&sites)), Some(sites));
        for odd in [
            json!([[0, "q", 1]]),
            json!([[0, "q_proj", 1, 1]]),
            json!([[-1, "q", 1, 1]]),
            json!({}),
        ] {
            assert_eq!(sites_from_json(&odd), None);
        }
    }

    #[test]
    fn a_model_has_as_many_layers_as_it_says_and_one_last_hidden_state() {
        let value = json!({ "layers": 2, "widths": { "q": [8, 8], "final_hidden": [8, 8] } });
        let sites = ModelSites::parse(&value).expect("sites");
        let at = |layer, projection| sites.width(ProjectionSite { layer, projection });
        assert_eq!(at(1, Projection::Query), Some(ProjectionWidth { input: 8, output: 8 }));
        assert_eq!(at(2, Projection::Query), None);
        assert_eq!(at(0, Projection::Key), None);
        assert!(at(0, Projection::FinalHidden).is_some());
        assert_eq!(at(1, Projection::FinalHidden), None);
        assert_eq!(ModelSites::parse(&json!({ "layers": 0, "widths": {} })), None);
        assert_eq!(ModelSites::parse(&json!({ "layers": 2, "widths": { "w": [8, 8] } })), None);
    }
}
