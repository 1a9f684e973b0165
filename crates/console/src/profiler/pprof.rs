//! The format of `go tool pprof` (`github.com/google/pprof`, `proto/profile.proto`), written by hand: a few messages of
//! numbers.

use std::collections::HashMap;
use std::time::UNIX_EPOCH;

use super::kind::ProfileKind;
use super::profile::{Frame, Profile, Stack};

/// Encodes a profile. `go tool pprof` reads it as it is, without compression.
pub(crate) fn encode_pprof(profile: &Profile) -> Vec<u8> {
    let mut writer =
        Writer { message: Message::default(), strings: Strings::new(), locations: HashMap::new() };
    let period = match profile.kind {
        ProfileKind::Cpu => 1_000_000_000 / u64::from(profile.frequency.max(1)),
        ProfileKind::Contention | ProfileKind::Heap => 1,
    };
    let (counted, (kind, unit)) = match profile.kind {
        ProfileKind::Cpu => (Some("samples"), ("cpu", "nanoseconds")),
        ProfileKind::Contention => (Some("contentions"), ("delay", "nanoseconds")),
        // jemalloc counts bytes.
        ProfileKind::Heap => (None, ("inuse_space", "bytes")),
    };
    if let Some(counted) = counted {
        let counted = writer.value_type(counted, "count");
        writer.message.submessage(1, &counted);
    }
    let weighed = writer.value_type(kind, unit);
    writer.message.submessage(1, &weighed);
    for stack in &profile.stacks {
        let weight = match profile.kind {
            ProfileKind::Cpu => stack.weight.saturating_mul(period),
            ProfileKind::Contention | ProfileKind::Heap => stack.weight,
        };
        writer.sample(stack, counted.map(|_| stack.count), weight);
    }
    writer.mapping();
    writer.functions(profile);
    let began = profile.began.duration_since(UNIX_EPOCH).unwrap_or_default();
    let period_type = match profile.kind {
        ProfileKind::Cpu => writer.value_type(kind, unit),
        ProfileKind::Contention => writer.value_type("contentions", "count"),
        ProfileKind::Heap => writer.value_type("space", "bytes"),
    };
    let Writer { mut message, strings, .. } = writer;
    strings.all.iter().for_each(|text| message.bytes(6, text.as_bytes()));
    message.number(9, u64::try_from(began.as_nanos()).unwrap_or(u64::MAX));
    message.number(10, u64::try_from(profile.took.as_nanos()).unwrap_or(u64::MAX));
    message.submessage(11, &period_type);
    message.number(12, period);
    message.0
}

struct Writer {
    message: Message,
    strings: Strings,
    /// The number of each location in a function.
    locations: HashMap<Frame, u64>,
}

impl Writer {
    fn value_type(&mut self, kind: &str, unit: &str) -> Message {
        let mut value_type = Message::default();
        value_type.number(1, self.strings.number(kind));
        value_type.number(2, self.strings.number(unit));
        value_type
    }

    fn sample(&mut self, stack: &Stack, count: Option<u64>, weight: u64) {
        let (mut sample, mut locations, mut values) =
            (Message::default(), Message::default(), Message::default());
        // The innermost first.
        for frame in stack.frames.iter().rev() {
            let next = self.locations.len() as u64 + 1;
            locations.varint(*self.locations.entry(*frame).or_insert(next));
        }
        count.into_iter().chain([weight]).for_each(|value| values.varint(value));
        sample.submessage(1, &locations);
        sample.submessage(2, &values);
        let labels = [("thread", stack.thread.as_str()), ("method", stack.method.as_deref().unwrap_or(""))];
        // A string of the number 0 would be none.
        for (key, value) in labels.into_iter().filter(|(_, value)| !value.is_empty()) {
            let mut label = Message::default();
            label.number(1, self.strings.number(key));
            label.number(2, self.strings.number(value));
            sample.submessage(3, &label);
        }
        self.message.submessage(2, &sample);
    }

    /// Adds the mapping that says that names are known.
    fn mapping(&mut self) {
        let mut mapping = Message::default();
        mapping.number(1, 1);
        for field in [7, 8, 9, 10] {
            mapping.number(field, 1);
        }
        self.message.submessage(3, &mapping);
    }

    /// Adds the locations of all samples, and the functions.
    fn functions(&mut self, profile: &Profile) {
        for (frame, id) in &self.locations {
            let (mut location, mut line) = (Message::default(), Message::default());
            line.number(1, frame.function as u64 + 1);
            line.number(2, frame.line.into());
            location.number(1, *id);
            location.number(2, 1);
            location.submessage(4, &line);
            self.message.submessage(4, &location);
        }
        for (index, known) in profile.functions.iter().enumerate() {
            let mut function = Message::default();
            let (name, file) = (self.strings.number(&known.name), self.strings.number(&known.file));
            function.number(1, index as u64 + 1);
            function.number(2, name);
            function.number(3, name);
            function.number(4, file);
            self.message.submessage(5, &function);
        }
    }
}

/// The table of strings, whose first is empty.
struct Strings {
    all: Vec<String>,
    numbers: HashMap<String, u64>,
}

impl Strings {
    fn new() -> Self {
        Self { all: vec![String::new()], numbers: HashMap::from([(String::new(), 0)]) }
    }

    fn number(&mut self, text: &str) -> u64 {
        if let Some(known) = self.numbers.get(text) {
            return *known;
        }
        let number = self.all.len() as u64;
        self.all.push(text.to_owned());
        self.numbers.insert(text.to_owned(), number);
        number
    }
}

/// A message of protobuf.
#[derive(Default)]
struct Message(Vec<u8>);

impl Message {
    fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.0.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.0.push(value as u8);
    }

    fn number(&mut self, field: u64, value: u64) {
        self.varint(field << 3);
        self.varint(value);
    }

    fn bytes(&mut self, field: u64, bytes: &[u8]) {
        self.varint(field << 3 | 2);
        self.varint(bytes.len() as u64);
        self.0.extend_from_slice(bytes);
    }

    fn submessage(&mut self, field: u64, message: &Self) {
        self.bytes(field, &message.0);
    }
}

#[cfg(test)]
mod tests {
    use super::super::flame::tests::profile;
    use super::*;

    #[test]
    fn labels_are_those_that_a_stack_has() {
        let mut profile = profile(&[("a;b", 1)]);
        let has = |profile: &Profile, text: &str| {
            encode_pprof(profile).windows(text.len()).any(|window| window == text.as_bytes())
        };
        assert!(has(&profile, "thread") && !has(&profile, "method"));
        profile.stacks[0].thread.clear();
        profile.stacks[0].method = Some("Shop/Grind".into());
        assert!(!has(&profile, "thread") && has(&profile, "method") && has(&profile, "Shop/Grind"));
    }
}
