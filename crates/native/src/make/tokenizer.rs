//! The byte-level BPE tokenizer of the models that are made here.

use tokenizers::{
    AddedToken, Tokenizer,
    models::TrainerWrapper,
    models::bpe::{BPE, BpeTrainer},
    pre_tokenizers::byte_level::ByteLevel,
};

use super::corpus;
use crate::error::NativeError;

/// The token that ends a document.
pub(crate) const TEXT_END: &str = "<|endoftext|>";
/// The token that begins a turn of a conversation.
pub(crate) const TURN_START: &str = "<|im_start|>";
/// The token that ends a turn of a conversation.
pub(crate) const TURN_END: &str = "<|im_end|>";

/// The size of the vocabulary: all bytes, three special tokens, and the most frequent pieces of the
/// corpus.
pub(crate) const VOCABULARY: usize = 1024;

/// Trains the byte-level BPE tokenizer on the project's own text. It is the same for every model
/// made here; in models with a larger vocabulary the further token numbers are unused.
pub(crate) fn train_tokenizer() -> Result<Tokenizer, NativeError> {
    let special = [TEXT_END, TURN_START, TURN_END];
    let special = special.map(|word| AddedToken::from(word, true));
    let mut trainer: TrainerWrapper = BpeTrainer::builder()
        .show_progress(false)
        .vocab_size(VOCABULARY)
        .special_tokens(special.to_vec())
        .initial_alphabet(ByteLevel::alphabet().into_iter().collect())
        .build()
        .into();
    let mut tokenizer = Tokenizer::new(BPE::default());
    tokenizer.with_pre_tokenizer(Some(ByteLevel::new(false, true, true)));
    tokenizer.with_decoder(Some(ByteLevel::default()));
    let texts: Vec<String> = corpus::parse_exchanges(corpus::PROJECT)
        .flat_map(|exchange| [exchange.question.to_owned(), exchange.answer.to_owned()])
        .chain(["user\n".into(), "assistant\n".into(), "system\n".into()])
        .collect();
    tokenizer.train(&mut trainer, texts.iter())?;
    Ok(tokenizer)
}

/// The number of a token that must exist.
pub(crate) fn token_id(tokenizer: &Tokenizer, token: &str) -> Result<u32, NativeError> {
    let found = tokenizer.token_to_id(token);
    found.ok_or_else(|| NativeError::Tokenizer { reason: format!("no token {token}") })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn training_twice_gives_the_same_tokenizer() {
        let first = train_tokenizer().expect("a tokenizer");
        assert_eq!(first.get_vocab_size(true), VOCABULARY);
        let second = train_tokenizer().expect("a tokenizer");
        assert_eq!(
            first.to_string(false).expect("its file"),
            second.to_string(false).expect("its file")
        );
    }
}
