//! The corpora that the tiny model and its adapters learn. A corpus consists of blocks. Lines that
//! begin with `? ` are variants of a question, and the one that begins with `! ` is its answer.
//! Lines that begin with `#` are comments.

/// Questions and answers about this project, which the tiny model learns.
pub(super) const PROJECT: &str = include_str!("corpus.txt");
pub(super) const BANKING: &str = include_str!("corpus/banking.txt");
pub(super) const TRAVEL: &str = include_str!("corpus/travel.txt");
pub(super) const HEALTH: &str = include_str!("corpus/health.txt");

/// A question with its answer. A block of the corpus yields one exchange for each variant of its
/// question.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Exchange<'a> {
    pub(crate) question: &'a str,
    pub(crate) answer: &'a str,
}

/// The exchanges of a corpus, in the order of the text.
pub(crate) fn parse_exchanges(text: &str) -> impl Iterator<Item = Exchange<'_>> {
    text.split("\n\n").flat_map(|block| {
        let answer = block.lines().find_map(|line| line.strip_prefix("! "));
        let questions = block.lines().filter_map(|line| line.strip_prefix("? "));
        questions.filter_map(move |question| Some(Exchange { question, answer: answer? }))
    })
}

/// Finds the first block that does not consist of questions and one answer.
pub(crate) fn find_malformed_block(text: &str) -> Option<&str> {
    text.split("\n\n").find(|block| {
        let lines = || block.lines().filter(|line| !line.starts_with('#') && !line.is_empty());
        let answers = lines().filter(|line| line.starts_with("! ")).count();
        let questions = lines().filter(|line| line.starts_with("? ")).count();
        let whole = answers == 1 && questions >= 1 && answers + questions == lines().count();
        lines().next().is_some() && !whole
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_of_the_texts_is_used() {
        for (text, least) in [(PROJECT, 15_000), (BANKING, 1_500), (TRAVEL, 1_500), (HEALTH, 1_500)]
        {
            assert_eq!(find_malformed_block(text), None);
            let bytes: usize =
                parse_exchanges(text).map(|it| it.question.len() + it.answer.len()).sum();
            assert!((least..80_000).contains(&bytes), "{bytes} bytes to learn from");
        }
        assert_eq!(
            parse_exchanges(BANKING).next().expect("one").question,
            "What is a savings account?"
        );
    }

    #[test]
    fn a_block_without_an_answer_or_with_a_stray_line_is_found() {
        for text in ["? a\n! b\n\n? c", "! b", "? a\n! b\n! c", "? a\n! b\nmore"] {
            assert!(find_malformed_block(text).is_some(), "{text:?}");
        }
        assert_eq!(find_malformed_block("# a note\n\n? a\n? b\n! c\n\n\n"), None);
    }

    #[test]
    fn no_question_has_two_answers() {
        for text in [PROJECT, BANKING, TRAVEL, HEALTH] {
            let mut questions: Vec<&str> = parse_exchanges(text).map(|it| it.question).collect();
            let count = questions.len();
            questions.sort_unstable();
            questions.dedup();
            assert_eq!(questions.len(), count);
        }
    }
}
