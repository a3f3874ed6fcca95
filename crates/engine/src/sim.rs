//! An engine without a model, which sends simulated tokens at known instants.
//!
//! The seed and the prompt determine the answer. Token *i* (from 0) is due at exactly
//! `start + ttft + i / rate`, computed from `start` each time, so that errors do not accumulate; late tokens come
//! together. Generations do not slow each other down. With `slots` and answers of `n` tokens the
//! engine is saturated at `slots / (ttft + (n - 1) / rate)` answers a second; further requests wait
//! in the server's queue.

use std::{
    borrow::Cow,
    pin::Pin,
    task::{Context, Poll, Waker},
    time::{Duration, Instant},
};

use futures_util::Stream;

use crate::{
    Engine, Model,
    error::EngineError,
    generation::{FinishReason, Generation, GenerationEvent, Token, Usage},
    request::{Prompt, Request},
    stop::StopFilter,
    timer::Timer,
};

/// Configuration of the simulated model.
#[derive(Clone, Debug, PartialEq)]
pub struct SimOptions {
    /// The model's name in requests.
    pub model_name: String,
    /// The time from the request to the first token.
    pub ttft: Duration,
    /// Tokens per second after the first; with `None`, as fast as they are read.
    pub tokens_per_second: Option<f64>,
    /// The length of an answer in tokens if the request sets no `max_tokens`.
    pub answer_tokens: u32,
    /// The longest prompt and completion together, in tokens.
    pub context_tokens: u32,
    /// Generations that run at once.
    pub slots: usize,
}

/// The largest number of slots. Generations share nothing, so only memory limits them.
pub const SLOTS_MAX: usize = 4096;

impl Default for SimOptions {
    fn default() -> Self {
        Self {
            model_name: "sim".into(),
            ttft: Duration::ZERO,
            tokens_per_second: None,
            answer_tokens: 64,
            context_tokens: 131_072,
            slots: SLOTS_MAX,
        }
    }
}

/// The simulated engine.
#[derive(Debug)]
pub struct Sim {
    options: SimOptions,
    timer: Timer,
}

impl Sim {
    /// Starts the engine and its timer thread.
    ///
    /// # Errors
    /// [`EngineError::Failed`] if the thread cannot be started.
    pub fn new(options: SimOptions) -> Result<Self, EngineError> {
        let timer = Timer::start()
            .map_err(|error| EngineError::failure(format!("timer thread: {error}")))?;
        Ok(Self { options, timer })
    }

    fn check_model(&self, model: &str) -> Result<(), EngineError> {
        if model == self.options.model_name {
            return Ok(());
        }
        Err(EngineError::UnknownModel { got: model.into() })
    }
}

impl Engine for Sim {
    fn models(&self) -> Vec<Model> {
        vec![Model {
            name: self.options.model_name.clone(),
            context_tokens: self.options.context_tokens,
            manifest_sha256: None,
            weights: None,
            parent: None,
        }]
    }

    fn count_prompt_tokens(&self, model: &str, prompt: &Prompt) -> Result<u32, EngineError> {
        self.check_model(model)?;
        Ok(count_prompt_word_pieces(prompt))
    }

    fn generate(&self, request: Request) -> Result<Generation, EngineError> {
        let start = Instant::now();
        let got = self.count_prompt_tokens(&request.model, &request.prompt)?;
        let room = request.remaining_completion_tokens(got, self.options.context_tokens)?;
        let wanted = request.max_tokens.unwrap_or(self.options.answer_tokens);
        let (length, at_length) = match request.max_tokens {
            None if wanted <= room => (wanted, FinishReason::Stop),
            _ => (wanted.min(room), FinishReason::Length),
        };
        let schedule =
            TokenSchedule { start, ttft: self.options.ttft, rate: self.options.tokens_per_second };
        let events = SimulatedEvents {
            alarm: None,
            at_length,
            ended: false,
            length,
            random: request_seed(&request),
            schedule,
            sent: 0,
            stop: StopFilter::new(&request.stop),
            timer: self.timer.clone(),
            prompt_tokens: got,
        };
        Ok(Generation::new(got, events))
    }

    fn slots(&self) -> usize {
        self.options.slots.clamp(1, SLOTS_MAX)
    }
}

/// Counts the word pieces of a text. A piece is up to eight letters or digits with the space before
/// them, or one other character; every simulated token is one piece.
pub fn count_word_pieces(text: &str) -> u32 {
    const PIECE_CHARS_MAX: u32 = 8;
    let (mut count, mut letters) = (0u32, 0u32);
    let mut after_space = false;
    for character in text.chars() {
        if character.is_alphanumeric() {
            if letters == 0 || letters == PIECE_CHARS_MAX {
                letters = 0;
                // The space before a word belongs to the word and is already counted.
                count += u32::from(!after_space);
            }
            letters += 1;
            after_space = false;
        } else {
            letters = 0;
            after_space = character == ' ';
            count = count.saturating_add(1);
        }
    }
    count
}

/// The instants at which the tokens of one generation are due.
#[derive(Clone, Copy, Debug)]
struct TokenSchedule {
    start: Instant,
    ttft: Duration,
    rate: Option<f64>,
}

impl TokenSchedule {
    /// The instant at which token `index` is due; `None` if it is due at once.
    fn due_at(&self, index: u32) -> Option<Instant> {
        let after = match self.rate {
            Some(rate) if rate > 0.0 => f64::from(index) / rate,
            _ if self.ttft.is_zero() => return None,
            _ => 0.0,
        };
        // A delay that cannot be represented becomes `FOREVER`.
        let after = Duration::try_from_secs_f64(after).unwrap_or(FOREVER).min(FOREVER);
        Some(self.start + self.ttft.min(FOREVER) + after)
    }
}

const FOREVER: Duration = Duration::from_secs(365 * 24 * 3600);

struct SimulatedEvents {
    alarm: Option<(Instant, Waker)>,
    at_length: FinishReason,
    ended: bool,
    length: u32,
    random: u64,
    schedule: TokenSchedule,
    sent: u32,
    stop: StopFilter,
    timer: Timer,
    prompt_tokens: u32,
}

impl SimulatedEvents {
    fn next_token(&mut self) -> Token {
        let id = (next_split_mix(&mut self.random) % WORDS.len() as u64) as u32;
        let word = WORDS[id as usize];
        let word = if self.sent == 0 { &word[1..] } else { word };
        self.sent += 1;
        if self.stop.has_no_stop_strings() {
            return Token { id, text: Cow::Borrowed(word) };
        }
        Token { id, text: Cow::Owned(self.stop.push(word)) }
    }

    /// Sets an alarm for `due`, unless the same alarm is already set.
    fn set_alarm(&mut self, due: Instant, waker: &Waker) {
        if let Some((set, by)) = &self.alarm
            && *set == due
            && by.will_wake(waker)
        {
            return;
        }
        self.timer.wake_at(due, waker.clone());
        self.alarm = Some((due, waker.clone()));
    }

    fn finish(&mut self, reason: FinishReason) -> GenerationEvent {
        self.ended = true;
        let usage = Usage { prompt_tokens: self.prompt_tokens, completion_tokens: self.sent };
        GenerationEvent::Finished { reason, tail: self.stop.finish(), usage, adapter: None }
    }
}

impl Stream for SimulatedEvents {
    type Item = GenerationEvent;

    fn poll_next(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<GenerationEvent>> {
        if self.ended {
            return Poll::Ready(None);
        }
        if self.stop.is_stopped() {
            return Poll::Ready(Some(self.finish(FinishReason::Stop)));
        }
        if self.sent == self.length {
            let reason = self.at_length;
            return Poll::Ready(Some(self.finish(reason)));
        }
        if let Some(due) = self.schedule.due_at(self.sent)
            && Instant::now() < due
        {
            self.set_alarm(due, context.waker());
            return Poll::Pending;
        }
        Poll::Ready(Some(GenerationEvent::Token(self.next_token())))
    }
}

fn count_prompt_word_pieces(prompt: &Prompt) -> u32 {
    match prompt {
        Prompt::Text(text) => count_word_pieces(text),
        // One token for the role of each message, as in chat templates.
        Prompt::Chat(messages) => messages
            .iter()
            .fold(0u32, |sum, message| sum.saturating_add(count_word_pieces(&message.content) + 1)),
    }
}

/// The seed of the answer: FNV-1a over the request's seed and prompt.
fn request_seed(request: &Request) -> u64 {
    let mut hash = 0xcbf2_9ce4_8422_2325u64;
    let mut take = |bytes: &[u8]| {
        for byte in bytes {
            hash = (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
    };
    take(&request.sampling.seed.to_le_bytes());
    match &request.prompt {
        Prompt::Text(text) => take(text.as_bytes()),
        Prompt::Chat(messages) => {
            for message in messages {
                take(message.role.as_str().as_bytes());
                take(&[0]);
                take(message.content.as_bytes());
                take(&[0]);
            }
        }
    }
    hash
}

/// SplitMix64 (Steele, Lea, Flood: Fast splittable pseudorandom number generators, 2014).
fn next_split_mix(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// The vocabulary. Each word with its space is one piece.
#[rustfmt::skip]
const WORDS: [&str; 64] = [
    " a", " about", " after", " all", " and", " answer", " as", " at", " be", " before", " by",
    " can", " clear", " close", " do", " each", " end", " far", " few", " find", " first", " for",
    " from", " give", " go", " good", " has", " have", " here", " how", " if", " in", " is", " it",
    " keep", " know", " less", " like", " long", " make", " many", " more", " new", " no", " not",
    " now", " of", " on", " one", " open", " or", " out", " read", " say", " see", " so", " that",
    " the", " then", " this", " to", " we", " what", " with",
];

#[cfg(test)]
mod tests {
    use futures_util::StreamExt;

    use super::*;
    use crate::{Message, Role};

    fn sim(options: SimOptions) -> Sim {
        Sim::new(options).expect("a timer thread")
    }

    fn ask(text: &str, max_tokens: Option<u32>) -> Request {
        Request { max_tokens, ..Request::new("sim", Prompt::Text(text.into())) }
    }

    async fn answer(sim: &Sim, request: Request) -> (String, u32, FinishReason, Usage) {
        let mut text = String::new();
        let mut tokens = 0;
        let mut generation = sim.generate(request).expect("a generation");
        while let Some(event) = generation.next().await {
            match event {
                GenerationEvent::Token(token) => {
                    tokens += 1;
                    text.push_str(&token.text);
                }
                GenerationEvent::Finished { reason, tail, usage, .. } => {
                    assert_eq!(generation.next().await, None);
                    return (text + &tail, tokens, reason, usage);
                }
                other => panic!("{other:?}"),
            }
        }
        panic!("the stream ended without an end");
    }

    #[tokio::test]
    async fn usage_is_the_number_of_events_and_of_pieces() {
        let sim = sim(SimOptions::default());
        for length in [1, 2, 64, 200] {
            let (text, tokens, reason, usage) =
                answer(&sim, ask("How many, please?", Some(length))).await;
            assert_eq!((tokens, count_word_pieces(&text)), (length, length));
            assert_eq!(usage, Usage { prompt_tokens: 5, completion_tokens: length });
            assert_eq!(reason, FinishReason::Length);
        }
    }

    #[test]
    fn slots_are_at_least_one_and_bounded_by_memory() {
        for (told, slots) in [(0, 1), (8, 8), (usize::MAX, SLOTS_MAX)] {
            assert_eq!(sim(SimOptions { slots: told, ..SimOptions::default() }).slots(), slots);
        }
    }

    #[tokio::test]
    async fn an_answer_without_a_limit_ends_by_itself() {
        let sim = sim(SimOptions { answer_tokens: 7, ..SimOptions::default() });
        let (_, tokens, reason, _) = answer(&sim, ask("hi", None)).await;
        assert_eq!((tokens, reason), (7, FinishReason::Stop));
    }

    #[tokio::test]
    async fn seed_and_prompt_decide_the_answer() {
        let sim = sim(SimOptions::default());
        let seeded = |seed| {
            let mut request = ask("hello", Some(20));
            request.sampling.seed = seed;
            request
        };
        let first = answer(&sim, seeded(1)).await;
        assert_eq!(first, answer(&sim, seeded(1)).await);
        assert_ne!(first.0, answer(&sim, seeded(2)).await.0);
        assert_ne!(first.0, answer(&sim, ask("other", Some(20))).await.0);
    }

    #[tokio::test]
    async fn a_stop_string_ends_the_answer_and_counts_its_tokens() {
        let sim = sim(SimOptions::default());
        let (whole, ..) = answer(&sim, ask("stop", Some(50))).await;
        let words: Vec<&str> = whole.split(' ').collect();
        let stop = format!("{} {}", words[10], words[11]);
        let cut = whole.find(&stop).expect("it is there");
        let request = Request { stop: vec![stop], ..ask("stop", Some(50)) };
        let (text, tokens, reason, usage) = answer(&sim, request).await;
        assert_eq!(text, whole[..cut]);
        assert_eq!(reason, FinishReason::Stop);
        assert_eq!(usage.completion_tokens, tokens);
    }

    #[tokio::test]
    async fn tokens_are_never_early() {
        let sim = sim(SimOptions {
            ttft: Duration::from_millis(5),
            tokens_per_second: Some(1000.0),
            ..SimOptions::default()
        });
        let before = Instant::now();
        let mut generation = sim.generate(ask("when", Some(10))).expect("a generation");
        let mut index = 0;
        while let Some(GenerationEvent::Token(_)) = generation.next().await {
            let due = before + Duration::from_millis(5) + Duration::from_millis(1) * index;
            assert!(Instant::now() >= due);
            index += 1;
        }
        assert_eq!(index, 10);
    }

    #[test]
    fn instants_are_computed_from_the_start_and_do_not_drift() {
        let start = Instant::now();
        let schedule = TokenSchedule { start, ttft: Duration::from_millis(40), rate: Some(3.0) };
        let third = schedule.due_at(300_000).expect("an instant") - start;
        assert_eq!(third.as_secs_f64(), 100_000.04);
        let unlimited = TokenSchedule { start, ttft: Duration::ZERO, rate: None };
        assert_eq!(unlimited.due_at(5), None);
        let never = TokenSchedule { start, ttft: Duration::MAX, rate: Some(1e-300) };
        assert!(never.due_at(u32::MAX).is_some());
    }

    #[test]
    fn a_prompt_beyond_the_limit_is_refused() {
        let sim = sim(SimOptions { context_tokens: 10, ..SimOptions::default() });
        let long = "word ".repeat(11);
        assert!(matches!(
            sim.generate(ask(&long, None)),
            Err(EngineError::PromptTooLong { got: 12, limit: 9 })
        ));
        let request = Request { prompt_tokens_max: 2, ..ask("a b c", None) };
        assert!(matches!(
            sim.generate(request),
            Err(EngineError::PromptTooLong { got: 3, limit: 2 })
        ));
        assert!(matches!(
            sim.generate(Request::new("gpt", Prompt::Text("a".into()))),
            Err(EngineError::UnknownModel { .. })
        ));
    }

    #[test]
    fn pieces_are_words_with_their_space_cut_at_eight() {
        let message = |content: &str| Message { role: Role::User, content: content.into() };
        for (text, count) in
            [("", 0), ("one", 1), (" one two", 2), ("a,b", 3), ("ninechars", 2), ("\n\n", 2)]
        {
            assert_eq!(count_word_pieces(text), count, "{text:?}");
        }
        assert_eq!(
            count_prompt_word_pieces(&Prompt::Chat(vec![message("one"), message("two")])),
            4
        );
        assert!(WORDS.iter().all(|word| count_word_pieces(word) == 1));
    }
}
