//! The detokeniser on the tokenizer that is trained here: it has tokens of half a character.

use confide_engine::text::Detokeniser;

use crate::make::train_tokenizer;

#[test]
fn no_piece_holds_half_a_character_and_all_make_the_text() {
    let tokenizer = train_tokenizer().expect("a tokenizer");
    for text in ["größe 😀 ok", "日本語テキスト", "plain words, no more", "👩‍👩‍👧", ""]
    {
        let ids = tokenizer.encode(text, false).expect("tokens").get_ids().to_vec();
        let mut detokeniser = Detokeniser::default();
        let mut joined = String::new();
        for id in ids {
            let piece = detokeniser.push(&tokenizer, id).expect("text");
            assert!(!piece.contains(char::REPLACEMENT_CHARACTER), "{text}: {piece:?}");
            joined.push_str(&piece);
        }
        assert_eq!(joined + &detokeniser.finish(&tokenizer).expect("text"), text);
    }
}

#[test]
fn bytes_that_are_no_character_do_not_stall_the_text() {
    let tokenizer = train_tokenizer().expect("a tokenizer");
    let lead = tokenizer.encode("é", false).expect("tokens").get_ids()[0];
    let mut detokeniser = Detokeniser::default();
    let pieces: Vec<String> =
        (0..20).map(|_| detokeniser.push(&tokenizer, lead).expect("text")).collect();
    assert!(pieces[..4].iter().any(|piece| !piece.is_empty()));
    assert!(pieces.concat().chars().count() >= 16);
}
