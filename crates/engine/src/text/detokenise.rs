//! Tokens to text, one at a time.

use tokenizers::Tokenizer;

/// Turns tokens into text as they come. A character whose bytes are spread over several tokens comes
/// with the last of them.
#[derive(Clone, Debug, Default)]
pub struct Detokeniser {
    ids: Vec<u32>,
    /// Tokens before this are context no longer.
    context: usize,
    /// Tokens before this have been given out.
    given: usize,
}

/// The longest character takes four tokens of a byte each; more that end in half a character are
/// no character at all.
const HELD_TOKENS_MAX: usize = 4;

impl Detokeniser {
    /// Takes a token and gives the text that became certain.
    ///
    /// # Errors
    /// What the tokenizer says of a number that is no token.
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

    /// The text of what is held back when no token follows.
    ///
    /// # Errors
    /// As [`Detokeniser::push`].
    pub fn finish(&mut self, tokenizer: &Tokenizer) -> tokenizers::Result<String> {
        let text = self.pending(tokenizer)?;
        self.given = self.ids.len();
        Ok(text)
    }

    /// The text after what was given, decoded behind some context, on which spaces may depend.
    fn pending(&self, tokenizer: &Tokenizer) -> tokenizers::Result<String> {
        let before = tokenizer.decode(&self.ids[self.context..self.given], true)?;
        let all = tokenizer.decode(&self.ids[self.context..], true)?;
        Ok(all.get(before.len()..).unwrap_or_default().to_owned())
    }
}
