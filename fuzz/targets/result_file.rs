//! A result file of another load generator: of whichever of the four tools has its marks.
#![no_main]

use confide_load::{
    Figure, ToolView,
    readers::{RUNS_MAX, read_results},
};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Ok(views) = read_results(data) else { return };
    assert!(views.len() <= RUNS_MAX);
    for ToolView { tool, figures, .. } in &views {
        for (definition, figure) in figures {
            assert_eq!(definition.tool, *tool);
            if let Figure::Rate(rate) = figure {
                assert!(rate.is_finite());
            }
        }
    }
});
