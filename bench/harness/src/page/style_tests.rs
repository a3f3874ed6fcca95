//! The contrast of every colour of the style sheet, in light and dark, by WCAG 2.1.

use std::collections::{BTreeMap, BTreeSet};

const STYLE: &str = include_str!("style.css");

/// The least contrast of text with what is behind it (WCAG 2.1, 1.4.3 for text of any size).
const CONTRAST_MIN: f64 = 4.5;
/// The backgrounds that any text or line may stand on: the page, cards, the margin of a ratio.
const GROUNDS: [&str; 3] = ["ground", "card", "band"];
/// Lines that only part what a reader tells apart without them.
const DECORATION: [&str; 1] = ["line"];
/// The share of its colour in the fill of a stage's bar, which has text on it.
const STAGE_OPACITY: f64 = 0.32;

type Colours = BTreeMap<String, [f64; 3]>;

/// Reads the colours that a block of the style sheet sets.
fn read_colours(block: &str) -> Colours {
    let declarations = block.split([';', '{', '}']).filter_map(|one| one.trim().split_once(": "));
    let colours = declarations.filter_map(|(name, value)| {
        let (name, hex) = (name.strip_prefix("--")?, value.strip_prefix('#')?);
        let channel =
            |at: usize| f64::from(u8::from_str_radix(&hex[at..at + 2], 16).unwrap()) / 255.0;
        Some((name.to_owned(), [0, 2, 4].map(channel)))
    });
    colours.collect()
}

/// Returns the colours of the light and of the dark page.
fn themes() -> [(&'static str, Colours); 2] {
    let (light, rest) = STYLE.split_once("@media (prefers-color-scheme: dark)").unwrap();
    let light = read_colours(light);
    let mut dark = light.clone();
    dark.extend(read_colours(rest.split_once("\n}\n").unwrap().0));
    [("light", light), ("dark", dark)]
}

/// The relative luminance of a colour.
fn luminance(colour: [f64; 3]) -> f64 {
    let linear = |c: f64| if c <= 0.03928 { c / 12.92 } else { ((c + 0.055) / 1.055).powf(2.4) };
    let [red, green, blue] = colour.map(linear);
    0.2126 * red + 0.7152 * green + 0.0722 * blue
}

fn contrast(one: [f64; 3], other: [f64; 3]) -> f64 {
    let (one, other) = (luminance(one), luminance(other));
    (one.max(other) + 0.05) / (one.min(other) + 0.05)
}

/// Lists the rules of the style sheet: selector and declarations.
fn rules() -> Vec<(&'static str, &'static str)> {
    let rules = STYLE.split('}').filter_map(|rule| rule.rsplit_once('{'));
    rules.map(|(selector, body)| (selector.rsplit('{').next().unwrap().trim(), body)).collect()
}

/// Returns the names of the colours in one property of a rule.
fn colours_of(body: &'static str, properties: &[&str]) -> Vec<&'static str> {
    let declarations = body.split(';').filter_map(|one| one.trim().split_once(": "));
    let mine = declarations.filter(|(property, _)| properties.contains(property));
    mine.flat_map(|(_, value)| value.split("var(--").skip(1))
        .filter_map(|rest| rest.split(')').next())
        .collect()
}

/// Lists the colours that draw text, signs or lines, each with the ground that its rule sets or with every
/// common one.
fn pairs() -> BTreeSet<(&'static str, &'static str)> {
    let mut pairs = BTreeSet::new();
    for (_, body) in rules() {
        let drawn = ["color", "fill", "stroke", "border-left", "border", "--s"];
        let grounds = colours_of(body, &["background"]);
        for colour in colours_of(body, &drawn) {
            if colour == "s" || DECORATION.contains(&colour) {
                continue;
            }
            let grounds = if grounds.is_empty() { &GROUNDS[..] } else { &grounds[..] };
            pairs.extend(grounds.iter().map(|ground| (colour, *ground)));
        }
    }
    // The lines of charts take their colours from the code.
    for colour in ["a0", "a1", "a2", "a3", "a4", "a5", "twin"] {
        pairs.extend(GROUNDS.map(|ground| (colour, ground)));
    }
    pairs
}

#[test]
fn text_and_lines_stand_out_from_every_ground_in_light_and_dark() {
    let pairs = pairs();
    assert!(pairs.len() > 40, "{pairs:?}");
    for wanted in
        [("good", "good-ground"), ("soft", "mute-ground"), ("faint", "card"), ("ink", "ground")]
    {
        assert!(pairs.contains(&wanted), "{wanted:?} in {pairs:?}");
    }
    let mut weak = Vec::new();
    for (theme, colours) in themes() {
        for (colour, ground) in &pairs {
            let ratio = contrast(colours[*colour], colours[*ground]);
            if ratio < CONTRAST_MIN {
                weak.push(format!("{theme}: {colour} on {ground}: {ratio:.2}"));
            }
        }
    }
    assert!(weak.is_empty(), "{weak:#?}");
}

#[test]
fn numbers_in_the_bars_of_stages_can_be_read() {
    assert!(STYLE.contains("fill-opacity: .32"), "the opacity of a bar");
    for (theme, colours) in themes() {
        for (selector, body) in rules().iter().filter(|(_, body)| body.contains("--s: ")) {
            for colour in colours_of(body, &["--s"]) {
                let (bar, card) = (colours[colour], colours["card"]);
                let mixed =
                    [0, 1, 2].map(|at| STAGE_OPACITY * bar[at] + (1.0 - STAGE_OPACITY) * card[at]);
                let ratio = contrast(colours["ink"], mixed);
                assert!(ratio >= CONTRAST_MIN, "{theme}: {selector}: {ratio:.2}");
            }
        }
    }
}

#[test]
fn the_contrast_of_black_on_white_is_21() {
    assert!((contrast([0.0; 3], [1.0; 3]) - 21.0).abs() < 1e-9);
}
