//! What hosts and key holders of private adapters in Python take from `confide-lora`. A call handles a whole file.

mod arrays;
mod errors;
pub(crate) mod peft;
