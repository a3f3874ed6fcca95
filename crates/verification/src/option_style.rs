//! How options are written in errors and hints: as flags of the program, or as arguments of a Python function.

/// The way in which a caller writes the names of options.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OptionStyle {
    /// `--endorsement-key`, as a shell takes it.
    Flag,
    /// `endorsement_key`, the keyword argument of a Python function.
    Keyword,
}

impl OptionStyle {
    /// The name of an option, which is given in words with underscores.
    pub fn format(self, option: &str) -> String {
        match self {
            Self::Flag => format!("--{}", option.replace('_', "-")),
            Self::Keyword => option.to_owned(),
        }
    }

    /// The name of an option with the kind of its value, which only a shell needs to be told.
    pub fn format_with_value(self, option: &str, value: &str) -> String {
        match self {
            Self::Flag => format!("{} {value}", self.format(option)),
            Self::Keyword => self.format(option),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::OptionStyle;

    #[test]
    fn an_option_is_written_as_its_caller_writes_it() {
        let written = |style: OptionStyle| style.format_with_value("endorsement_key", "DER");
        assert_eq!(written(OptionStyle::Flag), "--endorsement-key DER");
        assert_eq!(written(OptionStyle::Keyword), "endorsement_key");
    }
}
