//! Finds stop strings, which may span tokens.

/// Ends a text before the first stop string, which may span tokens.
///
/// It holds back the end of the text while that could still become a stop string.
#[derive(Clone, Debug, Default)]
pub struct StopFilter {
    stops: Vec<String>,
    held: String,
    longest: usize,
    stopped: bool,
}

impl StopFilter {
    /// Makes a filter for these strings; empty ones are ignored.
    pub fn new(stops: &[String]) -> Self {
        let stops: Vec<String> = stops.iter().filter(|stop| !stop.is_empty()).cloned().collect();
        let longest = stops.iter().map(String::len).max().unwrap_or(0);
        Self { stops, held: String::new(), longest, stopped: false }
    }

    /// Whether there are no stop strings, so that the filter can be skipped.
    pub fn has_no_stop_strings(&self) -> bool {
        self.stops.is_empty()
    }

    /// Whether a stop string was found.
    pub fn is_stopped(&self) -> bool {
        self.stopped
    }

    /// Adds text; returns the part that certainly precedes any stop string.
    pub fn push(&mut self, text: &str) -> String {
        if self.stopped {
            return String::new();
        }
        self.held.push_str(text);
        if let Some(at) = self.stops.iter().filter_map(|stop| self.held.find(stop)).min() {
            self.stopped = true;
            self.held.truncate(at);
            return std::mem::take(&mut self.held);
        }
        let certain = self.certain_len();
        let rest = self.held.split_off(certain);
        std::mem::replace(&mut self.held, rest)
    }

    /// Ends the text; returns the held-back part.
    pub fn finish(&mut self) -> String {
        std::mem::take(&mut self.held)
    }

    /// The length in bytes of the held text before the first position at which a stop string may
    /// begin.
    fn certain_len(&self) -> usize {
        let from = self.held.len().saturating_sub(self.longest.saturating_sub(1));
        (from..self.held.len())
            .filter(|&at| self.held.is_char_boundary(at))
            .find(|&at| self.stops.iter().any(|stop| stop.starts_with(&self.held[at..])))
            .unwrap_or(self.held.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filter_pieces(stops: &[&str], pieces: &[&str]) -> (String, bool) {
        let stops: Vec<String> = stops.iter().map(ToString::to_string).collect();
        let mut filter = StopFilter::new(&stops);
        let mut out: String = pieces.iter().map(|piece| filter.push(piece)).collect();
        out.push_str(&filter.finish());
        (out, filter.is_stopped())
    }

    #[test]
    fn text_without_a_stop_string_comes_through_whole() {
        assert_eq!(
            filter_pieces(&["END"], &["an E", "N", "ormous ", "EN"]),
            ("an ENormous EN".into(), false)
        );
        assert_eq!(filter_pieces(&[""], &["a", "b"]), ("ab".into(), false));
    }

    #[test]
    fn a_stop_string_across_token_borders_ends_the_text_before_it() {
        assert_eq!(filter_pieces(&["END"], &["one E", "N", "D two"]), ("one ".into(), true));
        assert_eq!(filter_pieces(&["aab"], &["a", "a", "a", "b", "c"]), ("a".into(), true));
        assert_eq!(filter_pieces(&["\n\n", "x"], &["ü\n", "\nx"]), ("ü".into(), true));
    }

    #[test]
    fn every_cut_of_a_text_gives_the_same_answer() {
        let text = "größe aaab endeEND rest";
        let whole = filter_pieces(&["END", "rest"], &[text]);
        for (at, _) in text.char_indices() {
            let (left, right) = text.split_at(at);
            assert_eq!(filter_pieces(&["END", "rest"], &[left, right]), whole, "cut at {at}");
        }
    }

    #[test]
    fn text_that_cannot_become_a_stop_string_is_not_held_back() {
        let mut filter = StopFilter::new(&["\nUser:".into()]);
        assert_eq!(filter.push("hello"), "hello");
        assert_eq!(filter.push("\n"), "");
        assert_eq!(filter.push("Us and them"), "\nUs and them");
    }
}
