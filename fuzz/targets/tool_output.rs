//! Any tool's output, read by every row of `bench/tools/tools.toml`.
#![no_main]

use confide_tools::{WorkShape, read_output, tool_table};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let bare = WorkShape::default();
    for tool in tool_table().values() {
        let shapes = tool.shapes.values().chain(tool.shapes.is_empty().then_some(&bare));
        for reading in shapes.filter_map(|shape| read_output(tool, shape, 2, text).ok()) {
            let mut numbers = reading.figures.iter().chain(&reading.values);
            assert!(numbers.all(|(_, number)| number.is_finite() && *number >= 0.0));
            let figure = |name: &str| reading.figures.get(name);
            let quantiles = figure("single_p50_us").zip(figure("single_p99_us"));
            assert!(quantiles.is_none_or(|(p50, p99)| p50 <= p99));
        }
    }
});
