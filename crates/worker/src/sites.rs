//! Projections and the vectors that they read, as docs/worker.md numbers and names them.

use std::collections::BTreeMap;

use confide_lora::{Input, Projection, Site, Width};
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

const SOURCES: [Input; 5] = [
    Input::Attention,
    Input::AttentionOutput,
    Input::FeedForward,
    Input::FeedForwardInner,
    Input::FinalHidden,
];

/// Largest number of layers that is accepted: no known model has more.
const LAYERS_MAX: u32 = 1024;
const WIDTH_MAX: usize = 1 << 20;

pub(crate) fn projection(number: u8) -> Option<Projection> {
    PROJECTIONS.get(usize::from(number)).map(|(projection, _)| *projection)
}

pub(crate) fn source(number: u8) -> Option<Input> {
    SOURCES.get(usize::from(number)).copied()
}

pub(crate) fn source_number(input: Input) -> u8 {
    SOURCES.iter().position(|source| *source == input).unwrap_or_default() as u8
}

fn projection_by_name(name: &str) -> Option<Projection> {
    PROJECTIONS.iter().find(|(_, known)| *known == name).map(|(projection, _)| *projection)
}

fn projection_name(projection: Projection) -> &'static str {
    let found = PROJECTIONS.iter().find(|(known, _)| *known == projection);
    found.map_or("", |(_, name)| name)
}

/// The projections of a model, from the worker's welcome.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sites {
    layers: u32,
    widths: BTreeMap<Projection, Width>,
}

impl Sites {
    /// Widths of a projection; `None` if the model has no such layer.
    pub fn width(&self, site: Site) -> Option<Width> {
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
                projection_by_name(name)?,
                Width { input: width(input)?, output: width(output)? },
            ))
        });
        let widths = widths.collect::<Option<BTreeMap<_, _>>>()?;
        ((1..=LAYERS_MAX).contains(&layers)).then_some(Self { layers, widths })
    }
}

/// The sites as JSON: `[[LAYER, PROJECTION, IN, OUT], …]`.
pub(crate) fn to_json(sites: &BTreeMap<Site, Width>) -> Value {
    let one = |(site, width): (&Site, &Width)| {
        json!([site.layer, projection_name(site.projection), width.input, width.output])
    };
    sites.iter().map(one).collect()
}

pub(crate) fn from_json(value: &Value) -> Option<BTreeMap<Site, Width>> {
    let one = |entry: &Value| {
        let [layer, projection, input, output] = entry.as_array()?.as_slice() else { return None };
        let layer = u32::try_from(layer.as_u64()?).ok().filter(|layer| *layer < LAYERS_MAX)?;
        let site = Site { layer, projection: projection_by_name(projection.as_str()?)? };
        Some((site, Width { input: width(input)?, output: width(output)? }))
    };
    value.as_array()?.iter().map(one).collect()
}

fn width(value: &Value) -> Option<usize> {
    let width = usize::try_from(value.as_u64()?).ok()?;
    (1..=WIDTH_MAX).contains(&width).then_some(width)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sites_are_what_they_were_after_a_way_through_json() {
        let sites: BTreeMap<Site, Width> = PROJECTIONS
            .iter()
            .enumerate()
            .map(|(index, (projection, _))| {
                let site = Site { layer: index as u32, projection: *projection };
                (site, Width { input: 4 + index, output: 9 })
            })
            .collect();
        assert_eq!(from_json(&to_json(&sites)), Some(sites));
        for odd in [
            json!([[0, "q", 1]]),
            json!([[0, "q_proj", 1, 1]]),
            json!([[-1, "q", 1, 1]]),
            json!({}),
        ] {
            assert_eq!(from_json(&odd), None);
        }
    }

    #[test]
    fn a_model_has_as_many_layers_as_it_says_and_one_last_hidden_state() {
        let value = json!({ "layers": 2, "widths": { "q": [8, 8], "final_hidden": [8, 8] } });
        let sites = Sites::parse(&value).expect("sites");
        let at = |layer, projection| sites.width(Site { layer, projection });
        assert_eq!(at(1, Projection::Query), Some(Width { input: 8, output: 8 }));
        assert_eq!(at(2, Projection::Query), None);
        assert_eq!(at(0, Projection::Key), None);
        assert!(at(0, Projection::FinalHidden).is_some());
        assert_eq!(at(1, Projection::FinalHidden), None);
        assert_eq!(Sites::parse(&json!({ "layers": 0, "widths": {} })), None);
        assert_eq!(Sites::parse(&json!({ "layers": 2, "widths": { "w": [8, 8] } })), None);
    }
}
