use tokenizers::Tokenizer;

/// Turns tokens into text as they come. A character whose bytes are spread over several tokens comes
/// with the last of them.
pub(crate) struct Detokeniser<'a> {
    tokenizer: &'a Tokenizer,
    ids: Vec<u32>,
    /// Tokens before this are context no longer.
    context: usize,
    /// Tokens before this have been given out.
    given: usize,
}

/// The longest character takes four tokens of a byte each; more that end in half a character are
/// no character at all.
const HELD_TOKENS_MAX: usize = 4;

impl<'a> Detokeniser<'a> {
    pub(crate) fn new(tokenizer: &'a Tokenizer) -> Self {
        Self { tokenizer, ids: Vec::new(), context: 0, given: 0 }
    }

    /// Takes a token and gives the text that became certain.
    pub(crate) fn push(&mut self, id: u32) -> tokenizers::Result<String> {
        self.ids.push(id);
        let text = self.pending()?;
        let half = text.ends_with(char::REPLACEMENT_CHARACTER);
        if half && self.ids.len() - self.given < HELD_TOKENS_MAX {
            return Ok(String::new());
        }
        self.context = self.given;
        self.given = self.ids.len();
        Ok(text)
    }

    /// The text of what is held back when no token follows.
    pub(crate) fn finish(&mut self) -> tokenizers::Result<String> {
        let text = self.pending()?;
        self.given = self.ids.len();
        Ok(text)
    }

    /// The text after what was given, decoded behind some context, on which spaces may depend.
    fn pending(&self) -> tokenizers::Result<String> {
        let before = self.tokenizer.decode(&self.ids[self.context..self.given], true)?;
        let all = self.tokenizer.decode(&self.ids[self.context..], true)?;
        Ok(all.get(before.len()..).unwrap_or_default().to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::make::train_tokenizer;

    #[test]
    fn no_piece_holds_half_a_character_and_all_make_the_text() {
        let tokenizer = train_tokenizer().expect("a tokenizer");
        for text in ["größe 😀 ok", "日本語テキスト", "plain words, no more", "👩‍👩‍👧", ""]
        {
            let ids = tokenizer.encode(text, false).expect("tokens").get_ids().to_vec();
            let mut detokeniser = Detokeniser::new(&tokenizer);
            let mut joined = String::new();
            for id in ids {
                let piece = detokeniser.push(id).expect("text");
                assert!(!piece.contains(char::REPLACEMENT_CHARACTER), "{text}: {piece:?}");
                joined.push_str(&piece);
            }
            assert_eq!(joined + &detokeniser.finish().expect("text"), text);
        }
    }

    #[test]
    fn bytes_that_are_no_character_do_not_stall_the_text() {
        let tokenizer = train_tokenizer().expect("a tokenizer");
        let lead = tokenizer.encode("é", false).expect("tokens").get_ids()[0];
        let mut detokeniser = Detokeniser::new(&tokenizer);
        let pieces: Vec<String> = (0..20).map(|_| detokeniser.push(lead).expect("text")).collect();
        assert!(pieces[..HELD_TOKENS_MAX].iter().any(|piece| !piece.is_empty()));
        assert!(pieces.concat().chars().count() >= 16);
    }
}
