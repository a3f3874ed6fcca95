//! `vllm bench serve --save-result`: one flat object, `mean_ttft_ms`, `p99_ttft_ms` and the like.

use std::collections::BTreeMap;

use serde::{Deserialize, de::IgnoredAny};

use crate::views::{Figure, Quantiles, Quantity, Tool, View};

/// Percentiles are there where `--metric-percentiles` named them; `e2el` where
/// `--percentile-metrics` did.
#[derive(Deserialize)]
pub(super) struct File {
    completed: u64,
    failed: Option<u64>,
    #[serde(flatten)]
    fields: BTreeMap<String, Field>,
}

/// The lists of `--save-detailed` are passed over.
#[derive(Deserialize)]
#[serde(untagged)]
enum Field {
    Number(f64),
    Other(IgnoredAny),
}

pub(super) fn view(file: &File) -> View {
    let mut view = View::new(Tool::Vllm);
    (view.completed, view.failed) = (Some(file.completed), file.failed);
    if file.completed == 0 {
        return view;
    }
    for (quantity, name, count) in [
        (Quantity::First, "ttft", Some(file.completed)),
        (Quantity::ChunkGap, "itl", None),
        (Quantity::PerTokenAfterFirst, "tpot", None),
        (Quantity::Whole, "e2el", Some(file.completed)),
    ] {
        view.put(quantity, file.spread(name, count));
    }
    view.put(Quantity::Requests, file.number("request_throughput").map(Figure::Rate));
    view.put(Quantity::Tokens, file.number("output_throughput").map(Figure::Rate));
    view
}

impl File {
    fn spread(&self, name: &str, count: Option<u64>) -> Option<Figure> {
        let of = |stat: &str| self.number(&format!("{stat}_{name}_ms"));
        let mean = Some(of("mean")?);
        Some(Figure::Spread(Quantiles {
            count,
            mean,
            min: None,
            p50: of("median"),
            p90: of("p90"),
            p95: of("p95"),
            p99: of("p99"),
            max: None,
        }))
    }

    fn number(&self, name: &str) -> Option<f64> {
        match self.fields.get(name)? {
            Field::Number(value) => Some(*value),
            Field::Other(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::{
        readers::{
            read_results,
            tests::{example, spread},
        },
        views::{Figure, Quantity, Tool},
    };

    #[test]
    fn a_file_in_its_format_is_read_by_its_own_names() {
        let views = read_results(&example("vllm-written-by-hand.json")).expect("a result file");
        let [view] = views.as_slice() else { panic!("one run") };
        assert_eq!((view.tool, view.completed, view.failed), (Tool::Vllm, Some(30), Some(0)));
        let ttft = spread(view, Quantity::First);
        assert_eq!((ttft.mean, ttft.p50, ttft.p99), (Some(41.5), Some(41.0), Some(44.0)));
        assert_eq!(spread(view, Quantity::ChunkGap).mean, Some(10.0));
        let (definition, figure) = view.about(Quantity::Tokens).expect("a rate");
        assert_eq!((definition.id, figure), ("vllm.tokens", Figure::Rate(152.0)));
        // Not asked for with --percentile-metrics: absent, not 0.
        assert_eq!(view.about(Quantity::Whole), None);
    }

    #[test]
    fn zeros_of_a_run_in_which_nothing_came_are_no_figures() {
        let file = br#"{"completed":0,"failed":3,"request_throughput":0.0,"mean_ttft_ms":0.0}"#;
        let views = read_results(file).expect("a result file");
        assert_eq!((views[0].failed, views[0].figures.len()), (Some(3), 0));
    }

    #[test]
    fn a_figure_that_is_no_number_is_absent() {
        let file = br#"{"completed":1,"request_throughput":"fast","mean_ttft_ms":[1,2]}"#;
        assert_eq!(read_results(file).expect("a result file")[0].figures, []);
    }
}
