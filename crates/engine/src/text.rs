//! Text to tokens and back, as the folder of a model has it: its chat template, its tokenizer, its
//! end-of-text tokens and the manifest of its files. Engines share this, whatever computes their
//! logits.

mod answer;
mod chat_template;
mod detokenise;
mod error;
mod folder;
pub mod manifest;

pub use answer::Answer;
pub use chat_template::{CHATML, ChatTemplate};
pub use detokenise::Detokeniser;
pub use error::FolderError;
pub use folder::{Text, folder_name};
pub use manifest::read_limited;
