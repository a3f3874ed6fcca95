//! Projections of a model, the vectors that they read, and their names.

use std::{fmt, str::FromStr};

/// A matrix of the base model that an adapter can change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Projection {
    /// `self_attn.q_proj`.
    Query,
    /// `self_attn.k_proj`.
    Key,
    /// `self_attn.v_proj`.
    Value,
    /// `self_attn.o_proj`.
    Output,
    /// `mlp.gate_proj`.
    MlpGate,
    /// `mlp.up_proj`.
    MlpUp,
    /// `mlp.down_proj`.
    MlpDown,
    /// A delta on the last hidden state, after the last norm, instead of a matrix of the model. Report
    /// 003 calls this a LoRA; it is supported for comparison.
    FinalHidden,
}

/// A vector inside the model that projections read. Projections that read the same vector share the
/// encrypted or masked form that is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum LayerInput {
    /// The normed hidden state before attention: q, k and v read it.
    Attention,
    /// The output of attention: o reads it.
    AttentionOutput,
    /// The normed hidden state before the feed-forward part: gate and up read it.
    FeedForward,
    /// The gated product: down reads it.
    FeedForwardInner,
    /// The last hidden state after the last norm.
    FinalHidden,
}

impl LayerInput {
    /// All inputs, in the order of their codes in messages and budget files.
    pub const ALL: [LayerInput; 5] = [
        LayerInput::Attention,
        LayerInput::AttentionOutput,
        LayerInput::FeedForward,
        LayerInput::FeedForwardInner,
        LayerInput::FinalHidden,
    ];
}

/// A projection of a layer. [`Projection::FinalHidden`] belongs to layer 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ProjectionSite {
    /// The layer, from 0.
    pub layer: u32,
    /// The projection of the layer.
    pub projection: Projection,
}

/// The widths of a projection, in elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProjectionWidth {
    /// The length of the input vector.
    pub input: usize,
    /// The length of the output vector.
    pub output: usize,
}

impl Projection {
    /// The projections of the model itself, in the order of its computation.
    pub const ALL: [Projection; 7] = [
        Projection::Query,
        Projection::Key,
        Projection::Value,
        Projection::Output,
        Projection::MlpGate,
        Projection::MlpUp,
        Projection::MlpDown,
    ];

    /// The name that PEFT and Hugging Face use.
    pub fn name(self) -> &'static str {
        match self {
            Projection::Query => "q_proj",
            Projection::Key => "k_proj",
            Projection::Value => "v_proj",
            Projection::Output => "o_proj",
            Projection::MlpGate => "gate_proj",
            Projection::MlpUp => "up_proj",
            Projection::MlpDown => "down_proj",
            Projection::FinalHidden => "final-hidden",
        }
    }

    /// The vector that the projection reads.
    pub fn input(self) -> LayerInput {
        match self {
            Projection::Query | Projection::Key | Projection::Value => LayerInput::Attention,
            Projection::Output => LayerInput::AttentionOutput,
            Projection::MlpGate | Projection::MlpUp => LayerInput::FeedForward,
            Projection::MlpDown => LayerInput::FeedForwardInner,
            Projection::FinalHidden => LayerInput::FinalHidden,
        }
    }
}

impl FromStr for Projection {
    type Err = UnknownProjection;

    fn from_str(name: &str) -> Result<Self, UnknownProjection> {
        let all = Projection::ALL.into_iter().chain([Projection::FinalHidden]);
        all.into_iter()
            .find(|projection| projection.name() == name)
            .ok_or_else(|| UnknownProjection(name.into()))
    }
}

impl fmt::Display for Projection {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.name())
    }
}

impl fmt::Display for ProjectionSite {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "layer {} {}", self.layer, self.projection)
    }
}

/// No projection has this name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "projection: wanted q_proj, k_proj, v_proj, o_proj, gate_proj, up_proj or down_proj, got {0:?}"
)]
pub struct UnknownProjection(String);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_projection_is_found_by_its_name() {
        for projection in Projection::ALL {
            assert_eq!(projection.name().parse(), Ok(projection));
        }
        assert!("w_pack".parse::<Projection>().is_err());
    }
}
