//! Rotary position embeddings, including those of Llama 3.1.

use std::f64::consts::PI;

use candle_core::{Device, Result, Tensor};

use crate::config::{DecoderConfig, RopeScaling};

/// The cosines and sines of the rotary position embedding, `[positions, head_dim / 2]` each.
pub(crate) struct RotaryEmbedding {
    cos: Tensor,
    sin: Tensor,
}

impl RotaryEmbedding {
    pub(crate) fn new(config: &DecoderConfig, positions: usize) -> Result<Self> {
        let frequencies = frequencies(config);
        let angles: Vec<f64> = (0..positions)
            .flat_map(|at| frequencies.iter().map(move |frequency| at as f64 * frequency))
            .collect();
        let shape = (positions, frequencies.len());
        let table = |wave: fn(f64) -> f64| {
            let values: Vec<f32> = angles.iter().map(|angle| wave(*angle) as f32).collect();
            Tensor::from_vec(values, shape, &Device::Cpu)
        };
        Ok(Self { cos: table(f64::cos)?, sin: table(f64::sin)? })
    }

    /// The cosines and sines of `count` positions, beginning at `at`.
    pub(crate) fn position_range(&self, at: usize, count: usize) -> Result<(Tensor, Tensor)> {
        Ok((self.cos.narrow(0, at, count)?, self.sin.narrow(0, at, count)?))
    }
}

fn frequencies(config: &DecoderConfig) -> Vec<f64> {
    let dim = config.head_dim;
    let plain = (0..dim / 2).map(|i| config.rope_theta.powf(-2.0 * i as f64 / dim as f64));
    match &config.rope_scaling {
        None => plain.collect(),
        Some(scaling) => plain.map(|frequency| scale_frequency(frequency, scaling)).collect(),
    }
}

/// Scales a frequency as Llama 3.1 does: long waves are stretched, short ones stay, and those in
/// between are interpolated.
fn scale_frequency(frequency: f64, scaling: &RopeScaling) -> f64 {
    let turns = scaling.original_max_position_embeddings * frequency / (2.0 * PI);
    let (low, high) = (scaling.low_freq_factor, scaling.high_freq_factor);
    let kept = ((turns - low) / (high - low)).clamp(0.0, 1.0);
    frequency * (kept + (1.0 - kept) / scaling.factor)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn llama_3_1_keeps_short_waves_and_stretches_long_ones() {
        let scaling = RopeScaling {
            factor: 8.0,
            low_freq_factor: 1.0,
            high_freq_factor: 4.0,
            original_max_position_embeddings: 8192.0,
        };
        let frequency = |wavelength: f64| 2.0 * PI / wavelength;
        let stretch = |wavelength: f64| {
            frequency(wavelength) / scale_frequency(frequency(wavelength), &scaling)
        };
        assert!((stretch(2000.0) - 1.0).abs() < 1e-12);
        assert!((stretch(8200.0) - 8.0).abs() < 1e-12);
        let between = stretch(4000.0);
        assert!(between > 1.0 && between < 8.0);
    }
}
