//! Gob, against Go's own in a process beside this one: many values, made at random from seeds that do not change.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use bytes::BytesMut;
use polyrpc::payload::gob::{self, Complex, Limits, Reader, Time, Writer};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{Outcome, ensure};

pub(crate) fn cases(program: &str) -> Vec<(&'static str, Outcome)> {
    vec![
        ("gob_of_random_types_is_read_shown_and_sent_back", random_types(program)),
        ("gob_of_rust_types_is_read_and_sent_back", rust_types(program)),
    ]
}

const SEED: u64 = 20_261_121;

/// Of 20 values each.
const STREAMS: usize = 600;

/// Go makes types and values at random. What it writes must show as it shows it, and be the same to Go once more
/// when it was sent on in another stream.
fn random_types(program: &str) -> Outcome {
    let mut go = Program::start(program, &["random", &SEED.to_string(), &STREAMS.to_string()])?;
    let mut values = 0;
    for stream in 0..STREAMS {
        let within = |error: String| format!("stream {stream}: {error}");
        let line = go.line()?;
        let (count, hex) = line.split_once(' ').ok_or("expected a count and a stream")?;
        let count = count.parse().map_err(|_| format!("{count} is no count"))?;
        let wanted = (0..count).map(|_| go.line()).collect::<Result<Vec<_>, _>>()?;
        values += wanted.len();
        let sent = send_on(&bytes(hex)?, &wanted).map_err(within)?;
        go.say(&digits(&sent))?;
        let verdict = go.line()?;
        ensure(verdict == "ok", || within(verdict))?;
    }
    ensure(values >= 10_000, || format!("no more than {values} values"))
}

/// Reads a stream byte by byte, compares its values with what they show, and writes them in another.
fn send_on(stream: &[u8], wanted: &[String]) -> Result<Vec<u8>, String> {
    let (mut reader, mut inbox) = (Reader::new(Limits::default()), BytesMut::new());
    let (mut writer, mut sent, mut wanted) = (Writer::new(), Vec::new(), wanted.iter());
    for byte in stream {
        inbox.extend_from_slice(&[*byte]);
        while let Some(value) = reader.next(&mut inbox).map_err(|error| error.to_string())? {
            let body = value.into_bytes();
            let shown = gob::to_json(&body).map_err(|error| error.to_string())?;
            let want = wanted.next().ok_or_else(|| format!("one more value: {shown}"))?;
            ensure(json(&shown)? == json(want)?, || format!("shows {shown}, expected {want}"))?;
            writer.value(&body, &mut sent).map_err(|error| error.to_string())?;
        }
    }
    ensure(wanted.next().is_none(), || "a value is missing".into())?;
    Ok(sent)
}

fn json(text: &str) -> Result<Value, String> {
    serde_json::from_str(text).map_err(|error| format!("{text}: {error}"))
}

/// The values of a Rust type, made at random, come back from Go as they were.
fn rust_types(program: &str) -> Outcome {
    const STREAMS: usize = 500;
    let mut go = Program::start(program, &["echo"])?;
    let mut random = Random(SEED);
    for stream in 0..STREAMS {
        let (mut writer, mut sent, mut values) = (Writer::new(), Vec::new(), Vec::new());
        for index in 0..20 {
            let value = random.every();
            let written = match index % 4 {
                // As the arguments of a plain function, which the client refuses if nothing in them tells what an
                // empty list is of.
                0 => match gob::to_vec_plain(&value) {
                    Err(error) if error.to_string() == "the element type of an empty list is unknown" => {
                        continue;
                    }
                    body => body.and_then(|body| writer.value(&body, &mut sent)),
                },
                // As messages and results.
                1 => gob::to_vec(&value).and_then(|body| writer.value(&body, &mut sent)),
                _ => writer.encode(&value, &mut sent),
            };
            written.map_err(|error| error.to_string())?;
            values.push(value);
        }
        go.say(&digits(&sent))?;
        let answer = go.line()?;
        let back = read(&bytes(&answer)?)?;
        let differs = values.iter().zip(&back).find(|(sent, back)| sent != back);
        if let Some((sent, back)) = differs {
            return Err(format!("stream {stream}: sent {sent:?}, got {back:?}"));
        }
        let (want, got) = (values.len(), back.len());
        ensure(got == want, || format!("{got} values came back of {want}"))?;
    }
    Ok(())
}

fn read(stream: &[u8]) -> Result<Vec<Every>, String> {
    let (mut reader, mut inbox, mut values) =
        (Reader::new(Limits::default()), BytesMut::from(stream), Vec::new());
    while let Some(value) = reader.next(&mut inbox).map_err(|error| error.to_string())? {
        let direct = value.decode::<Every>().map_err(|error| error.to_string())?;
        let body = gob::from_slice(&value.into_bytes()).map_err(|error| error.to_string())?;
        ensure(direct == body, || "a value is not what its bytes are".into())?;
        values.push(direct);
    }
    Ok(values)
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Every {
    b: bool,
    i8: i8,
    i: i64,
    u8: u8,
    u: u64,
    f32: f32,
    f: f64,
    c: Complex,
    s: String,
    bytes: Vec<u8>,
    list: Vec<i32>,
    lists: Vec<Vec<String>>,
    array: [u16; 3],
    map: BTreeMap<String, i64>,
    numbers: BTreeMap<i16, Point>,
    point: Point,
    pointer: Option<Point>,
    points: Vec<Point>,
    held: Option<Held>,
    many: Vec<Option<Held>>,
    time: Time,
    colour: Colour,
    tree: Option<Box<Node>>,
    sixteen: [u8; 16],
    optional: Option<i64>,
    empty: (),
    rune: char,
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Point {
    x: i64,
    y: i64,
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Circle {
    r: f64,
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Held {
    Circle(Circle),
    Points(Vec<Point>),
    String(String),
    Int(i64),
    #[serde(rename = "[]uint8")]
    Bytes(Vec<u8>),
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
enum Colour {
    Red,
    Green,
    Blue,
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Node {
    v: i64,
    next: Option<Box<Self>>,
    kids: Vec<Self>,
}

/// Numbers that are the same in every run.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    fn one_in(&mut self, many: u64) -> bool {
        self.below(many) == 0
    }

    /// Of any size.
    fn integer(&mut self) -> i64 {
        let shift = self.below(64);
        if self.one_in(5) { 0 } else { self.next() as i64 >> shift }
    }

    fn float(&mut self) -> f64 {
        let float = f64::from_bits(self.next());
        if float.is_nan() || self.one_in(4) { 0.0 } else { float }
    }

    fn text(&mut self) -> String {
        let length = self.below(8) * self.below(30);
        (0..length).map(|_| ['a', 'é', '世', '\0', '😀', ' '][self.below(6) as usize]).collect()
    }

    fn list<T>(&mut self, make: impl Fn(&mut Self) -> T) -> Vec<T> {
        (0..self.below(5)).map(|_| make(self)).collect()
    }

    fn option<T>(&mut self, make: impl Fn(&mut Self) -> T) -> Option<T> {
        (!self.one_in(3)).then(|| make(self))
    }

    fn point(&mut self) -> Point {
        Point { x: self.integer(), y: self.integer() }
    }

    fn node(&mut self, depth: u64) -> Node {
        let leaf = self.one_in(2) || depth == 0;
        Node {
            v: self.integer(),
            next: if leaf { None } else { Some(Box::new(self.node(depth - 1))) },
            kids: if leaf { Vec::new() } else { self.list(|random| random.node(depth.saturating_sub(2))) },
        }
    }

    fn held(&mut self) -> Held {
        match self.below(5) {
            0 => Held::Circle(Circle { r: self.float() }),
            1 => Held::Points(self.list(Self::point)),
            2 => Held::String(self.text()),
            3 => Held::Int(self.integer()),
            _ => Held::Bytes(self.list(|random| random.next() as u8)),
        }
    }

    fn every(&mut self) -> Every {
        Every {
            b: self.one_in(2),
            i8: self.next() as i8,
            i: self.integer(),
            u8: self.next() as u8,
            u: self.integer() as u64,
            f32: self.integer() as f32,
            f: self.float(),
            c: Complex { re: self.float(), im: self.float() },
            s: self.text(),
            bytes: self.list(|random| random.next() as u8),
            list: self.list(|random| random.integer() as i32),
            lists: self.list(|random| random.list(Self::text)),
            array: [self.next() as u16, 0, self.next() as u16],
            map: self.list(|random| (random.text(), random.integer())).into_iter().collect(),
            numbers: self.list(|random| (random.next() as i16, random.point())).into_iter().collect(),
            point: self.point(),
            pointer: self.option(Self::point),
            points: self.list(Self::point),
            held: self.option(Self::held),
            many: self.list(|random| random.option(Self::held)),
            time: if self.one_in(3) {
                Time::default()
            } else {
                Time::utc(self.integer() >> 20, self.below(1_000_000_000) as u32)
            },
            colour: [Colour::Red, Colour::Green, Colour::Blue]
                .into_iter()
                .nth(self.below(3) as usize)
                .unwrap_or(Colour::Red),
            tree: self.option(|random| Box::new(random.node(4))),
            sixteen: std::array::from_fn(|_| self.next() as u8),
            // Of a pointer to zero, gob sends nothing.
            optional: self.option(|random| random.integer() | 1),
            empty: (),
            rune: char::from_u32(self.below(0xd800) as u32).unwrap_or('a'),
        }
    }
}

/// A program that answers line by line.
struct Program {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Program {
    fn start(program: &str, arguments: &[&str]) -> Result<Self, String> {
        let mut command = Command::new(program);
        command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().map_err(|error| format!("{program}: {error}"))?;
        let input = child.stdin.take().ok_or("no standard input")?;
        let output = BufReader::new(child.stdout.take().ok_or("no standard output")?);
        Ok(Self { child, input, output })
    }

    fn say(&mut self, line: &str) -> Outcome {
        writeln!(self.input, "{line}").map_err(|error| error.to_string())
    }

    fn line(&mut self) -> Result<String, String> {
        let mut line = String::new();
        match self.output.read_line(&mut line) {
            Ok(0) => Err("it ended".into()),
            Ok(_) => Ok(line.trim_end().to_owned()),
            Err(error) => Err(error.to_string()),
        }
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn digits(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn bytes(digits: &str) -> Result<Vec<u8>, String> {
    let pairs = (0..digits.len()).step_by(2).map(|at| digits.get(at..at + 2).unwrap_or("?"));
    pairs.map(|pair| u8::from_str_radix(pair, 16).map_err(|_| digits.to_owned())).collect()
}
