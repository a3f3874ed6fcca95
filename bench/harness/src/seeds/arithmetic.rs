//! Sums over printed numbers: `(2803 / 4544 - 1) * 100`.

/// The deepest nesting of brackets; a deeper one is a mistake.
const DEPTH_MAX: usize = 16;

/// Computes the value of an expression of numbers, `+ - * /` and brackets; `None` when the text is
/// no expression, or has no finite value.
pub(super) fn evaluate(text: &str) -> Option<f64> {
    let mut parser = Parser { bytes: text.as_bytes(), at: 0 };
    let value = parser.parse_sum(0)?;
    (parser.peek().is_none() && value.is_finite()).then_some(value)
}

struct Parser<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl Parser<'_> {
    /// Returns the next byte that is not a space, without taking it.
    fn peek(&mut self) -> Option<u8> {
        while self.bytes.get(self.at) == Some(&b' ') {
            self.at += 1;
        }
        self.bytes.get(self.at).copied()
    }

    fn accept_byte(&mut self, wanted: u8) -> bool {
        let taken = self.peek() == Some(wanted);
        self.at += usize::from(taken);
        taken
    }

    fn parse_sum(&mut self, depth: usize) -> Option<f64> {
        let mut value = self.parse_product(depth)?;
        loop {
            if self.accept_byte(b'+') {
                value += self.parse_product(depth)?;
            } else if self.accept_byte(b'-') {
                value -= self.parse_product(depth)?;
            } else {
                return Some(value);
            }
        }
    }

    fn parse_product(&mut self, depth: usize) -> Option<f64> {
        let mut value = self.parse_atom(depth)?;
        loop {
            if self.accept_byte(b'*') {
                value *= self.parse_atom(depth)?;
            } else if self.accept_byte(b'/') {
                value /= self.parse_atom(depth)?;
            } else {
                return Some(value);
            }
        }
    }

    fn parse_atom(&mut self, depth: usize) -> Option<f64> {
        if depth > DEPTH_MAX {
            return None;
        }
        if self.accept_byte(b'-') {
            return self.parse_atom(depth + 1).map(|value| -value);
        }
        if self.accept_byte(b'(') {
            let value = self.parse_sum(depth + 1)?;
            return self.accept_byte(b')').then_some(value);
        }
        self.peek()?;
        let rest = &self.bytes[self.at..];
        let is_part = |byte: &u8| byte.is_ascii_digit() || *byte == b'.';
        let length = rest.iter().position(|byte| !is_part(byte)).unwrap_or(rest.len());
        self.at += length;
        std::str::from_utf8(&rest[..length]).ok()?.parse().ok()
    }
}

#[cfg(test)]
mod tests {
    use super::evaluate;

    #[test]
    fn products_bind_before_sums_and_brackets_before_both() {
        for (text, wanted) in [
            ("1 + 2 * 3", Some(7.0)),
            ("(1 + 2) * 3", Some(9.0)),
            ("8 / 4 / 2", Some(1.0)),
            ("-3 - -2", Some(-1.0)),
            ("10 - 2 - 3", Some(5.0)),
            ("2.5*4", Some(10.0)),
        ] {
            assert_eq!(evaluate(text), wanted, "{text}");
        }
    }

    #[test]
    fn what_is_no_expression_has_no_value() {
        for text in ["", "1 +", "(1", "1)", "1 2", "a", "1 / 0", "1..2", "--", &"(".repeat(99)] {
            assert_eq!(evaluate(text), None, "{text}");
        }
    }
}
