//! Converts text to tokens and back with the files of a model's folder: its tokenizer, chat
//! template and end-of-text tokens; also checks the manifest of these files. All engines share this
//! module.

mod answer;
mod chat_template;
mod detokenise;
mod error;
mod folder;
pub mod manifest;

pub use answer::AnswerDecoder;
pub use chat_template::{CHATML, ChatTemplate};
pub use detokenise::Detokeniser;
pub use error::FolderError;
pub use folder::{ModelText, model_name_from_folder};
pub use manifest::read_file_limited;
