//! The names of PEFT's files, and the limits on their content.

/// The name of the configuration file.
pub const CONFIG_FILE: &str = "adapter_config.json";
/// The name of the file of matrices.
pub const WEIGHTS_FILE: &str = "adapter_model.safetensors";

/// The greatest length of a configuration in bytes. One with every module of a large model has a
/// tenth of it.
pub(super) const CONFIG_BYTES_MAX: u64 = 1 << 20;
/// The greatest length in bytes of the file of matrices, which is read into memory: rank 256 on a
/// model of 70 billion weights has 3.3 GB in 16 bits.
pub(super) const WEIGHTS_BYTES_MAX: u64 = 4 << 30;
/// The greatest length of a safetensors header in bytes: a hundred for each of some 30,000 tensors.
pub(super) const HEADER_BYTES_MAX: u64 = 4 << 20;
/// The greatest rank of a pair, before a magnitude is folded.
pub const RANK_MAX: usize = 4096;
/// The greatest width of a projection. The widest in use are near 60,000.
pub(super) const WIDTH_MAX: usize = 1 << 17;
/// The greatest number of layers. The deepest models in use have 126.
pub(super) const LAYERS_MAX: u32 = 1024;
/// The greatest number of elements of all matrices after folding, 4 bytes each.
pub(super) const ELEMENTS_MAX: u64 = 1 << 30;
/// The greatest number of entries of `rank_pattern`, `alpha_pattern` and `layers_pattern`: one for
/// each module of the deepest model.
pub(super) const PATTERNS_MAX: usize = 2048;
/// The greatest number of names in `target_modules` and `exclude_modules`.
pub(super) const NAMES_MAX: usize = 1 << 14;
/// The greatest length of one regular expression, in bytes.
pub(super) const PATTERN_BYTES_MAX: usize = 1 << 14;
