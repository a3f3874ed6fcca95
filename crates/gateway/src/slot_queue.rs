//! Cuts a stream of server-sent events into slots of one size, filled up with comments.
//!
//! A comment is a line that begins with a colon, which every reader of such a stream ignores (HTML
//! standard, section 9.2.6). Comments lie between events, never inside one: an event is sent only
//! once it is complete.

use bytes::{BufMut, Bytes, BytesMut};

/// The number of bytes from which no more are read until some have left. It bounds the memory of an
/// answer, and the length of one event.
pub(crate) const WAITING_BYTES_MAX: usize = 256 * 1024;
/// What fills a comment.
const FILLER: u8 = b' ';
/// A comment is a colon, its text and an empty line, which keeps it apart from the next event for
/// readers that split the stream at empty lines.
const SHORTEST_COMMENT_BYTES: usize = 3;

/// The values of `event:` fields after which no event follows, in the APIs of OpenAI and Anthropic.
const LAST_EVENTS: [&[u8]; 4] =
    [b"message_stop", b"response.completed", b"response.incomplete", b"response.failed"];

/// One event is longer than what may wait, or the last one with what follows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("an event is too long for a shaped stream: wanted less than 262144 bytes")]
pub struct EventTooLong;

/// The bytes of a stream that wait for their slots.
///
/// The last event is held back until the last slot: a client that closes its connection when it has
/// read that event would show the length of the answer otherwise.
#[derive(Debug)]
pub struct SlotQueue {
    record_bytes: usize,
    slots_step: u64,
    waiting: BytesMut,
    /// The number of bytes at the front that may be sent: complete events.
    complete_bytes: usize,
    /// The position of the event that is being read.
    event_start: usize,
    /// The number of bytes that were read for the ends of events.
    read_bytes: usize,
    /// Whether the line that is being read is empty so far.
    is_line_empty: bool,
    /// Whether the last byte that was read is a carriage return.
    after_return: bool,
    /// Whether the last event has been found, which waits for the last slot.
    has_last_event: bool,
    /// The line feeds that the comment at the end of the last slot still lacks.
    owed_line_feeds: usize,
    is_ended: bool,
    /// The slots with which the stream ends, once they are known.
    closing: Option<Bytes>,
    slots: u64,
}

impl SlotQueue {
    /// A stream in slots of `record_bytes`, whose number is a multiple of `slots_step`.
    pub fn new(record_bytes: u16, slots_step: u16) -> Self {
        Self {
            record_bytes: usize::from(record_bytes).max(SHORTEST_COMMENT_BYTES),
            slots_step: u64::from(slots_step).max(1),
            waiting: BytesMut::new(),
            complete_bytes: 0,
            event_start: 0,
            read_bytes: 0,
            is_line_empty: true,
            after_return: false,
            has_last_event: false,
            owed_line_feeds: 0,
            is_ended: false,
            closing: None,
            slots: 0,
        }
    }

    /// Whether more bytes may be added.
    pub fn has_room(&self) -> bool {
        self.waiting.len() < WAITING_BYTES_MAX
    }

    /// Whether complete events wait for a slot.
    pub fn has_complete_event(&self) -> bool {
        self.complete_bytes > 0
    }

    /// Adds the next bytes of the stream. Afterwards there is room, or there will be once the complete
    /// events have left.
    ///
    /// # Errors
    /// [`EventTooLong`] if what has to wait for the end of its event, or for that of the stream,
    /// leaves no room. The complete events before it can still be taken.
    pub fn push(&mut self, piece: &[u8]) -> Result<(), EventTooLong> {
        self.waiting.extend_from_slice(piece);
        self.find_events();
        match self.waiting.len() - self.complete_bytes < WAITING_BYTES_MAX {
            true => Ok(()),
            false => Err(EventTooLong),
        }
    }

    /// Lets the last event leave with the next slots if it is complete: the stream has broken off, so
    /// that no last slot will come.
    pub fn release_last_event(&mut self) {
        self.has_last_event = false;
        self.complete_bytes = self.event_start;
    }

    /// Ends the stream: what waits is all that is left.
    pub fn end(&mut self) {
        self.is_ended = true;
    }

    /// The next slot; `None` after the last one.
    pub fn next_slot(&mut self) -> Option<Bytes> {
        if self.is_ended && self.closing.is_none() {
            self.closing = self.close();
        }
        let slot = match &mut self.closing {
            None => self.fill_slot(),
            Some(closing) if closing.is_empty() => return None,
            Some(closing) => closing.split_to(self.record_bytes),
        };
        self.slots += 1;
        Some(slot)
    }

    /// The bytes that no slot has taken yet. The first of them end the comment in the last slot.
    pub(crate) fn untaken_bytes(&self) -> [&[u8]; 2] {
        match &self.closing {
            Some(closing) => [&[], closing],
            None => [&b"\n\n"[..self.owed_line_feeds], &self.waiting],
        }
    }

    /// Whether the last slot was taken.
    pub fn is_over(&self) -> bool {
        self.closing.as_ref().is_some_and(Bytes::is_empty)
    }

    /// Finds the events that are complete.
    fn find_events(&mut self) {
        while let Some(&byte) = self.waiting.get(self.read_bytes) {
            self.read_bytes += 1;
            if std::mem::take(&mut self.after_return) && byte == b'\n' {
                // It belongs to the line end before, and so to the event that this has ended.
                if self.event_start + 1 == self.read_bytes {
                    self.end_event();
                }
                continue;
            }
            self.after_return = byte == b'\r';
            match byte {
                b'\n' | b'\r' if self.is_line_empty => self.end_event(),
                b'\n' | b'\r' => self.is_line_empty = true,
                _ => self.is_line_empty = false,
            }
        }
    }

    fn end_event(&mut self) {
        let event = &self.waiting[self.event_start..self.read_bytes];
        self.has_last_event |= is_last_event(event);
        if !self.has_last_event {
            self.complete_bytes = self.read_bytes;
        }
        self.event_start = self.read_bytes;
    }

    /// A slot of what may be sent, filled up with a comment.
    fn fill_slot(&mut self) -> Bytes {
        let mut slot = BytesMut::with_capacity(self.record_bytes);
        slot.put_bytes(b'\n', std::mem::take(&mut self.owed_line_feeds));
        let taken = self.complete_bytes.min(self.record_bytes - slot.len());
        slot.extend_from_slice(&self.waiting.split_to(taken));
        self.complete_bytes -= taken;
        self.event_start = self.event_start.saturating_sub(taken);
        self.read_bytes -= taken;
        // A comment that does not fit ends in the next slot.
        match self.record_bytes - slot.len() {
            0 => {}
            1 => {
                slot.put_u8(b':');
                self.owed_line_feeds = 2;
            }
            2 => {
                slot.put_slice(b":\n");
                self.owed_line_feeds = 1;
            }
            gap => put_comment(&mut slot, gap),
        }
        slot.freeze()
    }

    /// The last slots with all that waits, if the number of slots comes out even with them. The last
    /// event is at their end.
    fn close(&mut self) -> Option<Bytes> {
        let bytes = self.owed_line_feeds + self.waiting.len();
        let mut records = bytes.div_ceil(self.record_bytes).max(1);
        if (1..SHORTEST_COMMENT_BYTES).contains(&(records * self.record_bytes - bytes)) {
            records += 1;
        }
        if !(self.slots + records as u64).is_multiple_of(self.slots_step) {
            return None;
        }
        let length = records * self.record_bytes;
        let mut closing = BytesMut::with_capacity(length);
        closing.put_bytes(b'\n', self.owed_line_feeds);
        closing.extend_from_slice(&self.waiting.split_to(self.complete_bytes));
        if length > bytes {
            put_comment(&mut closing, length - bytes);
        }
        closing.extend_from_slice(&self.waiting.split());
        Some(closing.freeze())
    }
}

/// Appends a comment of `length` bytes, which is at least that of the shortest one.
fn put_comment(buffer: &mut BytesMut, length: usize) {
    buffer.put_u8(b':');
    buffer.put_bytes(FILLER, length - SHORTEST_COMMENT_BYTES);
    buffer.put_slice(b"\n\n");
}

/// Whether a client expects nothing more after this event.
fn is_last_event(event: &[u8]) -> bool {
    event.split(|byte| matches!(byte, b'\n' | b'\r')).any(|line| {
        let value_of = |name: &[u8]| {
            let value = line.strip_prefix(name)?;
            Some(value.strip_prefix(b" ").unwrap_or(value))
        };
        value_of(b"data:") == Some(b"[DONE]")
            || value_of(b"event:").is_some_and(|value| LAST_EVENTS.contains(&value))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The events of a stream as a client reads them: without comments and empty events.
    fn read_events(stream: &[u8]) -> Vec<String> {
        let text = String::from_utf8(stream.to_vec()).unwrap().replace("\r\n", "\n");
        let text = text.replace('\r', "\n");
        let blocks = text.split("\n\n").map(|block| {
            let lines = block.lines().filter(|line| !line.starts_with(':') && !line.is_empty());
            lines.collect::<Vec<_>>().join("\n")
        });
        blocks.filter(|block| !block.is_empty()).collect()
    }

    /// All slots of a stream whose pieces come one before each slot.
    fn cut(mut queue: SlotQueue, pieces: &[&str]) -> Vec<Bytes> {
        let mut slots = Vec::new();
        for piece in pieces {
            queue.push(piece.as_bytes()).unwrap();
            slots.extend(queue.next_slot());
        }
        queue.end();
        slots.extend(std::iter::from_fn(|| queue.next_slot()));
        assert!(queue.is_over());
        slots
    }

    fn event(length: usize) -> String {
        format!("data: {}\n\n", "x".repeat(length))
    }

    #[test]
    fn every_slot_has_the_same_size_and_every_event_arrives() {
        for length in 0..400 {
            let pieces = [event(length), event(3), event(700), "data: [DONE]\n\n".into()];
            let pieces = pieces.each_ref().map(String::as_str);
            let slots = cut(SlotQueue::new(128, 4), &pieces);
            assert!(slots.iter().all(|slot| slot.len() == 128), "{length}");
            assert_eq!(slots.len() % 4, 0, "{length}");
            assert_eq!(read_events(&slots.concat()), read_events(pieces.concat().as_bytes()));
        }
    }

    #[test]
    fn no_comment_lies_inside_an_event_wherever_the_engine_cuts_it() {
        let stream = "event: a\ndata: 1\n\ndata: 2\r\n\r\ndata: 3\r\rid: 4\ndata: 4\n\n";
        for first in 0..stream.len() {
            for second in first..stream.len() {
                let pieces = [&stream[..first], &stream[first..second], &stream[second..]];
                let slots = cut(SlotQueue::new(128, 1), &pieces);
                let text = String::from_utf8(slots.concat()).unwrap();
                for whole in ["event: a\ndata: 1\n", "id: 4\ndata: 4\n"] {
                    assert!(text.contains(whole), "{first} {second}: {text:?}");
                }
                assert_eq!(read_events(text.as_bytes()), read_events(stream.as_bytes()));
            }
        }
    }

    #[test]
    fn an_idle_stream_gets_slots_of_comments() {
        let mut queue = SlotQueue::new(128, 1);
        queue.push(b"data: begun").unwrap();
        for _ in 0..3 {
            let slot = queue.next_slot().unwrap();
            assert!(slot.starts_with(b":  ") && slot.ends_with(b" \n\n"), "{slot:?}");
        }
        queue.push(b"\n\n").unwrap();
        assert!(queue.next_slot().unwrap().starts_with(b"data: begun\n\n:  "));
    }

    #[test]
    fn the_last_event_is_at_the_end_of_the_last_slot() {
        for last in [
            "data: [DONE]\n\n",
            "data:[DONE]\r\n\r\n",
            "event: message_stop\ndata: {}\n\n",
            "event: response.completed\ndata: {\"long\":\"1234567890\"}\n\n",
        ] {
            let slots = cut(SlotQueue::new(128, 8), &[&event(9), &(event(9) + last)]);
            assert_eq!(slots.len(), 8);
            assert!(slots[7].ends_with(last.as_bytes()), "{slots:?}");
            assert!(slots[7].starts_with(b":  "), "{slots:?}");
            let before = slots[..7].concat();
            assert_eq!(read_events(&before).len(), 2, "{slots:?}");
        }
    }

    #[test]
    fn a_last_event_of_many_slots_ends_with_the_step() {
        let last = format!("event: response.completed\ndata: {}\n\n", "y".repeat(1000));
        let slots = cut(SlotQueue::new(128, 16), &[&event(5), &last]);
        assert_eq!(slots.len(), 16);
        assert!(slots.concat().ends_with(last.as_bytes()));
    }

    #[test]
    fn a_stream_that_ends_inside_an_event_ends_with_the_same_bytes() {
        let slots = cut(SlotQueue::new(128, 2), &["data: 1\n\ndata: 2"]);
        assert!(slots.concat().ends_with(b"\n\ndata: 2"));
        assert_eq!(cut(SlotQueue::new(128, 3), &[]).len(), 3);
    }

    #[test]
    fn an_engine_that_is_faster_than_its_slots_waits() {
        let mut queue = SlotQueue::new(128, 1);
        let piece = event(1000);
        let mut pushed = 0;
        while queue.has_room() {
            queue.push(piece.as_bytes()).unwrap();
            pushed += 1;
        }
        assert!(pushed < 300);
        queue.end();
        let slots: Vec<_> = std::iter::from_fn(|| queue.next_slot()).collect();
        assert_eq!(read_events(&slots.concat()).len(), pushed);
    }

    #[test]
    fn a_long_event_behind_a_complete_one_is_refused_and_leaves_no_queue_without_room() {
        let long = [b'x'; 1000];
        for (first, is_slotted) in [(event(10), false), (event(10), true), (String::new(), true)] {
            let mut queue = SlotQueue::new(128, 1);
            queue.push(first.as_bytes()).unwrap();
            let refused = (0..WAITING_BYTES_MAX / long.len() + 1).any(|_| {
                let pushed = queue.push(&long);
                if is_slotted {
                    queue.next_slot().unwrap();
                }
                assert!(pushed.is_err() || queue.has_room() || queue.has_complete_event());
                pushed == Err(EventTooLong)
            });
            assert!(refused, "{first:?} {is_slotted}");
        }
    }

    #[test]
    fn a_last_event_that_leaves_no_room_is_refused_and_can_still_be_taken() {
        let last = format!("event: response.completed\ndata: {}\n\n", "y".repeat(300_000));
        let mut queue = SlotQueue::new(1024, 1);
        queue.push(event(5).as_bytes()).unwrap();
        assert_eq!(queue.push(last.as_bytes()), Err(EventTooLong));
        queue.release_last_event();
        let mut sent = Vec::new();
        while queue.has_complete_event() {
            sent.extend(queue.next_slot().unwrap());
        }
        assert_eq!(read_events(&sent), read_events((event(5) + &last).as_bytes()));
    }

    #[test]
    fn a_last_event_leaves_without_what_follows_it_if_the_stream_breaks_off() {
        let mut queue = SlotQueue::new(128, 64);
        queue.push(b"data: 1\n\ndata: [DONE]\n\ndata: cut").unwrap();
        assert!(queue.next_slot().unwrap().starts_with(b"data: 1\n\n: "));
        assert!(!queue.has_complete_event());
        queue.release_last_event();
        assert!(queue.next_slot().unwrap().starts_with(b"data: [DONE]\n\n: "));
        assert!(!queue.has_complete_event());
    }

    #[test]
    fn an_event_that_never_ends_is_refused() {
        let mut queue = SlotQueue::new(1024, 1);
        let piece = [b'x'; 1024];
        let mut outcomes = (0..1024).map(|_| queue.push(&piece));
        assert!(outcomes.any(|outcome| outcome == Err(EventTooLong)));
    }
}
