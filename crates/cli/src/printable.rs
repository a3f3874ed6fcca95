//! Text for a terminal: what moves its cursor, turns its direction or is invisible is written as an escape.
//!
//! Names, messages and files come from servers and people who may want a terminal to show something
//! else. Everything that is printed passes here, so that no command has to think of it.

/// Escapes all such characters, line ends and quotes too: for a value within quotes.
pub(crate) fn to_printable(text: &str) -> String {
    escape_line(&text.replace('\\', "\\\\").replace('"', "\\\""))
}

/// Escapes all such characters, line ends too: for a value that draws no line of its own.
pub(crate) fn escape_line(text: &str) -> String {
    let mut printable = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '\n' => printable.push_str("\\n"),
            '\r' => printable.push_str("\\r"),
            '\t' => printable.push_str("\\t"),
            _ => push_printable(character, &mut printable),
        }
    }
    printable
}

/// Escapes such characters but for line ends and tabs: for whole answers. The escapes are those of
/// JSON, so that a JSON text stays the same document.
pub(crate) fn escape_terminal(text: &str) -> String {
    let mut printable = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '\n' | '\t' => printable.push(character),
            _ => push_printable(character, &mut printable),
        }
    }
    printable
}

fn push_printable(character: char, printable: &mut String) {
    match is_acting(character) {
        true => printable.push_str(&format!("\\u{:04x}", u32::from(character))),
        false => printable.push(character),
    }
}

/// Whether a terminal does something else than draw the character. All such characters have at most
/// 16 bits.
fn is_acting(character: char) -> bool {
    character.is_control()
        || matches!(character, '\u{61c}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{2069}' | '\u{feff}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_acts_on_a_terminal_is_escaped() {
        let text = "größe\u{1b}[2K\u{9b}1A\u{202e}\u{7f}\u{2028}\r\n\t\"x\"";
        let shown = escape_terminal(text);
        assert_eq!(shown, "größe\\u001b[2K\\u009b1A\\u202e\\u007f\\u2028\\u000d\n\t\"x\"");
        let value = to_printable(text);
        assert!(value.ends_with("\\r\\n\\t\\\"x\\\"") && !value.contains('\n'), "{value}");
    }

    #[test]
    fn a_json_text_stays_the_same_document() {
        let document = serde_json::json!({ "a\u{202e}": "b\u{1b}\u{7f}\n\u{2028}\\" });
        let shown = escape_terminal(&document.to_string());
        assert!(!shown.chars().any(is_acting), "{shown}");
        assert_eq!(serde_json::from_str::<serde_json::Value>(&shown).unwrap(), document);
    }
}
