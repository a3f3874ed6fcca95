//! Tokens to text, one at a time.

use tokenizers::Tokenizer;

/// Turns tokens into text as they arrive. A character whose bytes are spread over several tokens is
/// given out with the last of them.
#[derive(Clone, Debug, Default)]
pub struct Detokeniser {
    ids: Vec<u32>,
    /// Index of the first token that serves as context for decoding.
    context: usize,
    /// Index of the first token whose text has not been given out.
    given: usize,
}

/// Tokens that are held back for the rest of a character: the longest takes four tokens of one byte
/// each, so a longer run is not a character.
const HELD_TOKENS_MAX: usize = 4;

impl Detokeniser {
    /// Takes a token and returns the text that became certain.
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

    /// The text of the tokens that are held back, once no token follows.
    ///
    /// # Errors
    /// As [`Detokeniser::push`].
    pub fn finish(&mut self, tokenizer: &Tokenizer) -> tokenizers::Result<String> {
        let text = self.pending(tokenizer)?;
        self.given = self.ids.len();
        Ok(text)
    }

    /// The text after what was given out, decoded with some context before it, since spaces may
    /// depend on that.
    fn pending(&self, tokenizer: &Tokenizer) -> tokenizers::Result<String> {
        let before = tokenizer.decode(&self.ids[self.context..self.given], true)?;
        let all = tokenizer.decode(&self.ids[self.context..], true)?;
        Ok(all.get(before.len()..).unwrap_or_default().to_owned())
    }
}
