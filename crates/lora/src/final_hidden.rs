//! The adapter of report 003, which is applied to the last hidden state.

use std::collections::BTreeMap;

use crate::{
    adapter::Adapter,
    peft::PeftError,
    site::{Projection, Site, Width},
};

impl Adapter {
    /// Keeps the first pair alone, that of `q_proj` in layer 0, and adds it to the last hidden
    /// state after the last norm, as report 003 does. This is not a LoRA; it is here to be compared
    /// with.
    ///
    /// # Errors
    /// If there is no such pair, or it does not give a vector as long as it reads.
    pub fn into_final_hidden(mut self) -> Result<Adapter, PeftError> {
        let first = Site { layer: 0, projection: Projection::Query };
        let refused = |got: String| PeftError::NoFinalHidden { got };
        let pair = self.modules.remove(&first).ok_or_else(|| refused("no pair".into()))?;
        let Width { input, output } = pair.width();
        if input != output {
            return Err(refused(format!("{output}x{input}")));
        }
        let site = Site { layer: 0, projection: Projection::FinalHidden };
        Ok(Adapter { modules: BTreeMap::from([(site, pair)]), ..self })
    }
}
