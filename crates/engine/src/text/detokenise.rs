//! Decodes tokens to text one at a time.

use tokenizers::Tokenizer;

/// Decodes tokens to text as they arrive. A character whose bytes are spread over several tokens is
/// returned with the last of them.
#[derive(Clone, Debug, Default)]
pub struct Detokeniser {
    ids: Vec<u32>,
    /// The index of the first token that serves as context for decoding.
    context: usize,
    /// The index of the first token whose text has not been returned.
    given: usize,
}

/// The largest number of tokens that are held back for the rest of a character. The longest
/// character takes four tokens of one byte each.
const HELD_TOKENS_MAX: usize = 4;

impl Detokeniser {
    /// Adds a token and returns the text that is now certain.
    ///
    /// # Errors
    /// The tokenizer's error for a number that is not a token.
    pub fn push(&mut self, tokenizer: &Tokenizer, id: u32) -> tokenizers::Result<String> {
        self.ids.push(id);
        let text = self.pending(tokenizer)?;
        let half = text.ends_with(char::REPLACEMENT_CHARACTER);
        if half && self.ids.len() - self.given < HELD_TOKENS_MAX {
            return Ok(String::new());
        }
        self.context = self.given;
        self.given = self.ids.len();
        Ok(text)
    }

    /// Ends the text and returns that of the held-back tokens.
    ///
    /// # Errors
    /// Those of [`Detokeniser::push`].
    pub fn finish(&mut self, tokenizer: &Tokenizer) -> tokenizers::Result<String> {
        let text = self.pending(tokenizer)?;
        self.given = self.ids.len();
        Ok(text)
    }

    /// The text that has not been returned, decoded with some context, on which spaces may depend.
    fn pending(&self, tokenizer: &Tokenizer) -> tokenizers::Result<String> {
        let before = tokenizer.decode(&self.ids[self.context..self.given], true)?;
        let all = tokenizer.decode(&self.ids[self.context..], true)?;
        Ok(all.get(before.len()..).unwrap_or_default().to_owned())
    }
}
