//! The adapter of report 003, which is applied to the last hidden state.

use std::collections::BTreeMap;

use crate::{
    adapter::Adapter,
    peft::PeftError,
    site::{Projection, ProjectionSite, ProjectionWidth},
};

impl Adapter {
    /// Keeps only the first pair, that of `q_proj` in layer 0, and applies it to the last hidden
    /// state after the last norm, as report 003 does. The result is not a LoRA adapter and exists
    /// only for comparison.
    ///
    /// # Errors
    /// If there is no such pair, or if its input and output widths differ.
    pub fn into_final_hidden_adapter(mut self) -> Result<Adapter, PeftError> {
        let first = ProjectionSite { layer: 0, projection: Projection::Query };
        let refused = |got: String| PeftError::NoFinalHidden { got };
        let pair = self.modules.remove(&first).ok_or_else(|| refused("no pair".into()))?;
        let ProjectionWidth { input, output } = pair.width();
        if input != output {
            return Err(refused(format!("{output}x{input}")));
        }
        let site = ProjectionSite { layer: 0, projection: Projection::FinalHidden };
        Ok(Adapter { modules: BTreeMap::from([(site, pair)]), ..self })
    }
}
