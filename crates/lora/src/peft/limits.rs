//! The names of PEFT's files, and the limits of what is read.

/// The configuration's file.
pub const CONFIG_FILE: &str = "adapter_config.json";
/// The matrices' file.
pub const WEIGHTS_FILE: &str = "adapter_model.safetensors";

/// Bytes of a configuration. One that names every module of a large model has a tenth of it.
pub const CONFIG_BYTES_MAX: u64 = 1 << 20;
/// Bytes of the matrices' file, which is read whole: rank 256 on a model of 70 billion weights has
/// 3.3 GB in 16 bits.
pub const WEIGHTS_BYTES_MAX: u64 = 4 << 30;
/// Bytes of a safetensors header: a hundred for each of some 30,000 tensors.
pub const HEADER_BYTES_MAX: u64 = 4 << 20;
/// Rank of a pair, before a magnitude is folded.
pub const RANK_MAX: usize = 4096;
/// Width of a projection. The widest in use are near 60,000.
pub const WIDTH_MAX: usize = 1 << 17;
/// Layers. The deepest models in use have 126.
pub const LAYERS_MAX: u32 = 1024;
/// Elements of all matrices after folding, 4 bytes each.
pub const ELEMENTS_MAX: u64 = 1 << 30;
/// Entries of `rank_pattern`, `alpha_pattern` and `layers_pattern`: one for each module of the
/// deepest model.
pub const PATTERNS_MAX: usize = 2048;
/// Names in `target_modules` and `exclude_modules`.
pub const NAMES_MAX: usize = 1 << 14;
/// Bytes of one regular expression.
pub const PATTERN_BYTES_MAX: usize = 1 << 14;
