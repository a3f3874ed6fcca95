//! The text that the tiny model learns: questions and answers about this project.
//!
//! `corpus.txt` holds blocks: lines that begin with `? ` are ways to ask, the one with `! ` is the
//! answer. Lines that begin with `#` are notes.

const TEXT: &str = include_str!("corpus.txt");

/// One way to ask, with its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Exchange {
    pub(crate) question: &'static str,
    pub(crate) answer: &'static str,
}

/// All ways to ask, in the order of the text.
pub(crate) fn exchanges() -> impl Iterator<Item = Exchange> {
    TEXT.split("\n\n").flat_map(|block| {
        let answer = block.lines().find_map(|line| line.strip_prefix("! "));
        let questions = block.lines().filter_map(|line| line.strip_prefix("? "));
        questions.filter_map(move |question| Some(Exchange { question, answer: answer? }))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_of_the_text_is_used() {
        for block in TEXT.split("\n\n") {
            let lines: Vec<&str> = block.lines().filter(|line| !line.starts_with('#')).collect();
            let answers = lines.iter().filter(|line| line.starts_with("! ")).count();
            let questions = lines.iter().filter(|line| line.starts_with("? ")).count();
            assert!(lines.is_empty() || (answers == 1 && questions >= 1), "{block}");
            assert_eq!(answers + questions, lines.len(), "{block}");
        }
        let bytes: usize = exchanges().map(|it| it.question.len() + it.answer.len()).sum();
        assert!((15_000..80_000).contains(&bytes), "{bytes} bytes to learn from");
    }

    #[test]
    fn no_question_has_two_answers() {
        let mut questions: Vec<&str> = exchanges().map(|exchange| exchange.question).collect();
        let count = questions.len();
        questions.sort_unstable();
        questions.dedup();
        assert_eq!(questions.len(), count);
    }
}
