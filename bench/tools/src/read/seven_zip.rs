//! The table of `7z b`.

use super::{excerpt, limited, word};
use crate::error::ReadError;

const TOOL: &str = "7-zip";

/// What one benchmark gave. Ratings are 7-zip's own model of commands, not instructions.
#[derive(Clone, Debug, PartialEq)]
pub struct Ratings {
    /// 7-zip's version, `26.02`.
    pub version: String,
    /// Threads that it says it used.
    pub threads: u32,
    /// Dictionaries, as powers of two.
    pub dictionaries: Vec<u32>,
    /// Mean over the dictionaries.
    pub compress: Rating,
    /// Mean over the dictionaries.
    pub decompress: Rating,
    /// Mean of both ratings, in "MIPS".
    pub total_mips: f64,
}

/// One direction.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rating {
    /// Bytes before compression, in KiB in a second.
    pub kib_per_s: f64,
    /// CPU time over wall time in percent: 100 is one thread.
    pub usage_percent: f64,
    /// "MIPS" by 7-zip's cost model.
    pub mips: f64,
}

/// Reads the table of one benchmark.
///
/// # Errors
/// When there is no line of means or totals, or one without its numbers.
pub fn read(text: &str) -> Result<Ratings, ReadError> {
    let text = limited(TOOL, text)?;
    let missing = |what| ReadError::Missing { tool: TOOL, what };
    let (mut dictionaries, mut means, mut total_mips) = (Vec::new(), None, None);
    for line in text.lines().map(str::trim) {
        if let Some(rest) = line.strip_prefix("Avr:") {
            means = Some(sides(rest)?);
        } else if let Some(rest) = line.strip_prefix("Tot:") {
            let last = rest.split_whitespace().last().ok_or(missing("total rating"))?;
            total_mips = Some(word(TOOL, "the total rating", last)?);
        } else if let Some((dictionary, rest)) = line.split_once(':')
            && let Ok(dictionary) = dictionary.parse()
            && rest.contains('|')
        {
            dictionaries.push(dictionary);
        }
    }
    let (compress, decompress) = means.ok_or(missing("line of means (Avr:)"))?;
    Ok(Ratings {
        version: version(text).unwrap_or_default(),
        threads: threads(text).ok_or(missing("number of benchmark threads"))?,
        dictionaries,
        compress,
        decompress,
        total_mips: total_mips.ok_or(missing("line of totals (Tot:)"))?,
    })
}

/// `11732 100 10477 10453 | 59803 100 4847 4836`; without the bar in versions before 21.
fn sides(rest: &str) -> Result<(Rating, Rating), ReadError> {
    let words: Vec<&str> = rest.split_whitespace().filter(|word| *word != "|").collect();
    let [one, usage, _, mips, two, usage2, _, mips2] = words.as_slice() else {
        let got = excerpt(rest);
        return Err(ReadError::NoNumber { tool: TOOL, what: "the line of means", got });
    };
    let rating = |speed: &str, usage: &str, mips: &str| {
        Ok(Rating {
            kib_per_s: word(TOOL, "a speed", speed)?,
            usage_percent: word(TOOL, "a usage", usage)?,
            mips: word(TOOL, "a rating", mips)?,
        })
    };
    Ok((rating(one, usage, mips)?, rating(two, usage2, mips2)?))
}

/// `7-Zip (z) 26.02 (x64) : Copyright …`: the first word with a digit and a point.
fn version(text: &str) -> Option<String> {
    let line = text.lines().find(|line| line.starts_with("7-Zip"))?;
    let number =
        |word: &&str| word.contains('.') && word.chars().all(|c| c.is_ascii_digit() || c == '.');
    line.split_whitespace().find(number).map(str::to_owned)
}

fn threads(text: &str) -> Option<u32> {
    let (_, rest) = text.split_once("Benchmark threads:")?;
    rest.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_thread_and_two_are_read_with_their_usage() {
        let one = read(include_str!("../../recorded/7z-1.txt")).expect("recorded");
        assert_eq!((one.version.as_str(), one.threads), ("26.02", 1));
        assert_eq!(one.dictionaries, [18]);
        let wanted = Rating { kib_per_s: 11_732.0, usage_percent: 100.0, mips: 10_453.0 };
        assert_eq!(one.compress, wanted);
        let wanted = Rating { kib_per_s: 59_803.0, usage_percent: 100.0, mips: 4_836.0 };
        assert_eq!(one.decompress, wanted);
        assert_eq!(one.total_mips, 7_644.0);
        let two = read(include_str!("../../recorded/7z-2.txt")).expect("recorded");
        assert_eq!((two.threads, two.total_mips), (2, 8_232.0));
    }

    #[test]
    fn a_table_without_its_means_is_an_error() {
        let whole = include_str!("../../recorded/7z-1.txt");
        let cut = whole.replace("Avr:", "");
        assert!(matches!(read(&cut), Err(ReadError::Missing { .. })));
        let cut = whole.replace("Avr:     11732", "Avr:     fast");
        assert!(matches!(read(&cut), Err(ReadError::NoNumber { .. })));
        assert!(matches!(read(""), Err(ReadError::Missing { .. })));
    }
}
