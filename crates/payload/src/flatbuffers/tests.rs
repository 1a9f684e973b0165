//! The layout, compared with Google's implementation.

use flatbuffers as google;
use polyrpc_core::Code;
use polyrpc_core::testing::damage;

use super::{
    Build, Builder, Fields, Inline, Invalid, Limits, Message, Offset, Table, TableVerifier, Text, Value,
    Vector, Verifier,
};

#[test]
fn written_message_is_read_back() {
    let message = full().to_message();
    let message = Message::<Node>::read(message.into_bytes()).expect("the buffer is valid");
    let root = message.root().0;
    assert_eq!(root.get::<i32>(0), Some(-7));
    assert_eq!(root.get::<Text<'_>>(1), Some("héllo".into()));
    assert_eq!(root.get::<Point>(2), Some(Point { x: 1.5, y: -2 }));
    let numbers = root.get::<[i64]>(3).expect("numbers");
    assert_eq!(numbers.iter().collect::<Vec<_>>(), [1, -1, i64::MAX]);
    let names = root.get::<[Text<'_>]>(4).expect("names");
    assert_eq!(names.iter().collect::<Vec<_>>(), ["a", "", "bcd"]);
    let children = root.get::<[Node]>(5).expect("children");
    assert_eq!(children.len(), 2);
    assert_eq!(children.get(1).and_then(|child| child.0.get::<i32>(0)), Some(9));
    assert!(children.get(2).is_none());
    assert_eq!(root.get::<[u8]>(6).map(|bytes| bytes.as_bytes()), Some(&[1, 2, 3][..]));
    assert_eq!(root.get::<bool>(7), None);
    assert!(!root.has(7) && root.has(8) && !root.has(9) && !root.has(u16::MAX));
}

#[test]
fn message_is_read_at_any_alignment() {
    let bytes = full().to_message().into_bytes();
    for shift in 0..8 {
        let shifted = bytes::Bytes::from([vec![0; shift], bytes.to_vec()].concat()).slice(shift..);
        assert_eq!(
            Message::<Node>::read(shifted).expect("the buffer is valid").root().0.get::<Text<'_>>(1),
            Some("héllo".into())
        );
    }
}

#[test]
fn received_message_is_not_copied() {
    let received = full().to_message().into_bytes();
    let message = Message::<Node>::read(received.clone()).expect("the buffer is valid");
    let inside = |part: &[u8]| received.as_ptr_range().contains(&part.as_ptr());
    assert!(inside(message.root().0.get::<Text<'_>>(1).expect("a text").as_bytes()));
    assert!(inside(message.root().0.get::<[u8]>(6).expect("bytes").as_bytes()));
}

#[test]
fn missing_data_reads_as_absent_without_a_panic() {
    for bytes in [&b""[..], b"\0", b"\x04\0\0\0", b"\xff\xff\xff\xff", &[0xff; 64], &[0; 64]] {
        let message = Message::<Node>::unverified(bytes.to_vec());
        assert_eq!(message.root().0.get::<Text<'_>>(1), None);
        assert!(Message::<Node>::read(bytes.to_vec()).is_err());
    }
}

#[test]
fn damaged_message_is_rejected_or_readable() {
    let bytes = full().to_message().into_bytes();
    damage(&bytes, |damaged| {
        walk(Fields::root(damaged), 8);
        judged_as_by_google(damaged);
    });
}

#[test]
fn verifier_agrees_with_that_of_google_on_random_damage() {
    let mut random = Random(1);
    for _ in 0..2_000 {
        let mut bytes = random.node(3).to_message().into_bytes().to_vec();
        for _ in 0..=random.below(3) {
            let at = random.below(bytes.len());
            bytes[at] = random.next() as u8;
        }
        judged_as_by_google(&bytes);
        walk(Fields::root(&bytes), 8);
    }
}

#[test]
fn builder_output_equals_that_of_google_for_random_messages() {
    let mut random = Random(7);
    for _ in 0..2_000 {
        let node = random.node_without_structs(3);
        let mut builder = google::FlatBufferBuilder::new();
        let root = node.build_by_google(&mut builder);
        builder.finish_minimal(google::WIPOffset::<google::TableUnfinishedWIPOffset>::new(root));
        let message = node.to_message();
        assert_eq!(message.bytes()[..], *builder.finished_data());
        verify(message.bytes()).expect("the written buffer is valid");
    }
}

#[test]
fn file_identifier_follows_the_root_offset() {
    let mut builder = Builder::new();
    let root = Own::default().build(&mut builder);
    let message = builder.finish_identified(root);
    assert_eq!(&message.bytes()[4..8], b"NODE");
    assert!(message.has_identifier());
    assert!(!Own::default().to_message().has_identifier());
    verify(message.bytes()).expect("the buffer is valid");
}

#[test]
fn equal_tables_share_a_vtable() {
    let one = Own { children: vec![Own::default()], ..Own::default() };
    let many = Own { children: vec![Own::default(); 100], ..Own::default() };
    let added = many.to_message().bytes().len() - one.to_message().bytes().len();
    // A table without fields consists of its distance to the vtable, and the distance to it.
    assert_eq!(added, 99 * (4 + 4));
}

#[test]
fn depth_tables_and_apparent_size_are_limited() {
    let chain = (0..70).fold(Own::default(), |inner, _| Own { children: vec![inner], ..Own::default() });
    let told = |own: &Own, limits: &Limits| {
        Message::<Node>::read_within(own.to_message().into_bytes(), limits)
            .map(drop)
            .map_err(|error| error.to_string())
    };
    assert!(told(&chain, &Limits::default()).unwrap_err().ends_with("the limit on the depth is exceeded"));
    assert_eq!(told(&chain, &Limits { depth: 71, ..Limits::default() }), Ok(()));
    let wide = Own { children: vec![Own::default(); 100], ..Own::default() };
    let error = told(&wide, &Limits { tables: 100, ..Limits::default() }).unwrap_err();
    assert_eq!(error, "children: the limit on the number of tables is exceeded");
    let error = told(&wide, &Limits { apparent_size: 64, ..Limits::default() }).unwrap_err();
    assert!(error.ends_with("the limit on the apparent size is exceeded"), "{error}");
}

#[test]
fn checks_of_shared_parts_are_limited_by_the_length_of_the_message() {
    /// A root whose `children` are `tables` times one table, whose `names` are `strings` times one string.
    fn sharing(tables: usize, strings: usize) -> bytes::Bytes {
        let mut builder = Builder::new();
        let name = builder.string("x");
        let names = builder.offsets(&vec![name; strings]);
        let mut child = builder.table::<Node>();
        child.refer(4, names);
        let child = child.end();
        let children = builder.offsets(&vec![child; tables]);
        let mut root = builder.table::<Node>();
        root.refer(5, children);
        let root = root.end();
        builder.finish(root).into_bytes()
    }
    // 64 KB, for which Google's limits allow 100 million checks.
    let bytes = sharing(8_000, 8_000);
    assert!(bytes.len() < 65_000);
    let limits = Limits { tables: usize::MAX, apparent_size: usize::MAX, ..Limits::default() };
    let mut verifier = Verifier::new(&bytes, &limits);
    let error = verifier.root::<Node>().unwrap_err().to_string();
    assert_eq!(
        error,
        "children.names: the limit on the number of checks for a message of this length is exceeded"
    );
    // What a builder shares on purpose is far from it: equal strings, or a few equal tables.
    assert_eq!(verify(&sharing(1, 10_000)), Ok(()));
    assert_eq!(verify(&sharing(10_000, 2)), Ok(()));
    assert_eq!(verify(&sharing(8, 10_000)), Ok(()));
}

#[test]
fn message_without_shared_parts_takes_fewer_than_two_checks_per_byte() {
    let flag = Own { flag: Some(true), ..Own::default() };
    for own in [full(), Own { children: vec![flag; 1_000], ..Own::default() }] {
        let bytes = own.to_message().into_bytes();
        let limits = Limits::default();
        let mut verifier = Verifier::new(&bytes, &limits);
        verifier.root::<Node>().expect("the buffer is valid");
        assert!(verifier.checks_left > 14 * bytes.len(), "{} of {}", verifier.checks_left, bytes.len());
    }
}

#[test]
fn error_names_the_path_of_the_field() {
    let inner = Own { text: Some("é".into()), ..Own::default() };
    let mut bytes = Own { children: vec![inner], ..Own::default() }.to_message().into_bytes().to_vec();
    let at = bytes.windows(2).position(|two| two == "é".as_bytes()).expect("the text");
    bytes[at + 2] = b'!';
    let error = Message::<Node>::read(bytes).map(drop).unwrap_err().to_string();
    assert_eq!(error, format!("children.text: the string at {} does not end with a zero", at - 4));
}

#[test]
fn invalid_utf8_string_is_kept_and_reported_when_read() {
    let mut bytes =
        Own { text: Some("caf\u{e9}".into()), ..Own::default() }.to_message().into_bytes().to_vec();
    let at = bytes.windows(2).position(|two| two == "é".as_bytes()).expect("the text");
    bytes[at] = 0xff;
    let message = Message::<Node>::read(bytes).expect("the buffer is valid for C++");
    let text = message.root().0.get::<Text<'_>>(1).expect("a text");
    assert_eq!((text.as_bytes(), text.len()), (&b"caf\xff\xa9"[..], 5));
    let error = text.to_str().unwrap_err();
    assert_eq!(
        (error.code(), error.message()),
        (Code::InvalidArgument, "a string is not UTF-8 from its byte 3 on")
    );
    assert_eq!(
        (text.to_string(), format!("{text:?}")),
        ("caf\u{fffd}\u{fffd}".into(), r#""caf\xff\xa9""#.into())
    );
    let mut builder = Builder::new();
    let copy = builder.string(text);
    let mut table = builder.table();
    table.refer(1, copy);
    let root = table.end();
    let copy: Message<Node> = builder.finish(root);
    assert_eq!(copy.root().0.get::<Text<'_>>(1), Some(text));
}

#[test]
fn missing_required_field_is_an_error() {
    struct Strict;
    impl Table for Strict {
        type Ref<'a> = NodeRef<'a>;
        const NAME: &'static str = "Strict";
        fn over(fields: Fields<'_>) -> NodeRef<'_> {
            NodeRef(fields)
        }
        fn verify(fields: &mut TableVerifier<'_, '_>) -> Result<(), Invalid> {
            fields.required::<Text<'_>>("text", 1)
        }
    }
    let read = |own: Own| Message::<Strict>::read(own.to_message().into_bytes()).map(drop);
    assert_eq!(read(full()), Ok(()));
    assert_eq!(read(Own::default()).unwrap_err().to_string(), "text: it is required and absent");
}

// ---------------------------------------------------------------------- a table, by hand

/// Corresponds to the schema
/// `table Node { number: int; text: string; point: Point; numbers: [long]; names: [string]; children: [Node];
/// bytes: [ubyte]; flag: bool; points: [Point]; }`.
#[derive(Debug)]
enum Node {}

#[derive(Debug, Clone, Copy)]
struct NodeRef<'a>(Fields<'a>);

impl Table for Node {
    type Ref<'a> = NodeRef<'a>;
    const NAME: &'static str = "Node";
    const FILE_IDENTIFIER: Option<[u8; 4]> = Some(*b"NODE");

    fn over(fields: Fields<'_>) -> NodeRef<'_> {
        NodeRef(fields)
    }

    fn verify(fields: &mut TableVerifier<'_, '_>) -> Result<(), Invalid> {
        fields.field::<i32>("number", 0)?;
        fields.field::<Text<'_>>("text", 1)?;
        fields.field::<Point>("point", 2)?;
        fields.field::<[i64]>("numbers", 3)?;
        fields.field::<[Text<'_>]>("names", 4)?;
        fields.field::<[Self]>("children", 5)?;
        fields.field::<[u8]>("bytes", 6)?;
        fields.field::<bool>("flag", 7)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Default)]
struct Point {
    x: f64,
    y: i16,
}

impl Value for Point {
    type View<'a> = Self;
    const SIZE: usize = 16;
    const ALIGN: usize = 8;

    fn view(buffer: &[u8], at: usize) -> Option<Self> {
        Some(Self { x: super::member(buffer, at, 0)?, y: super::member(buffer, at, 8)? })
    }

    fn verify(verifier: &mut Verifier<'_>, at: usize) -> Result<(), Invalid> {
        verifier.inline::<Self>(at)
    }
}

impl Inline for Point {
    fn write(self, out: &mut [u8]) {
        self.x.write(&mut out[0..8]);
        self.y.write(&mut out[8..10]);
    }
}

/// A node to be written.
#[derive(Debug, Clone, Default)]
struct Own {
    number: i32,
    text: Option<String>,
    point: Option<Point>,
    numbers: Option<Vec<i64>>,
    names: Option<Vec<String>>,
    children: Vec<Self>,
    bytes: Option<Vec<u8>>,
    flag: Option<bool>,
    points: Option<Vec<Point>>,
}

fn full() -> Own {
    Own {
        number: -7,
        text: Some("héllo".into()),
        point: Some(Point { x: 1.5, y: -2 }),
        numbers: Some(vec![1, -1, i64::MAX]),
        names: Some(vec!["a".into(), String::new(), "bcd".into()]),
        children: vec![Own { flag: Some(true), ..Own::default() }, Own { number: 9, ..Own::default() }],
        bytes: Some(vec![1, 2, 3]),
        flag: None,
        points: Some(vec![Point::default(), Point { x: 0.25, y: 4 }]),
    }
}

impl Build for Own {
    type Table = Node;

    fn build(&self, builder: &mut Builder) -> Offset<Node> {
        let text = self.text.as_ref().map(|text| builder.string(text));
        let numbers = self.numbers.as_ref().map(|numbers| builder.vector(numbers));
        let names =
            self.names.as_ref().map(|names| builder.vector_of(names, |builder, name| builder.string(name)));
        let children = (!self.children.is_empty()).then(|| builder.tables(&self.children));
        let bytes = self.bytes.as_ref().map(|bytes| builder.bytes(bytes));
        let points = self.points.as_ref().map(|points| builder.vector(points));
        let mut table = builder.table();
        table.put_if(2, self.point);
        table.refer_if(8, points);
        table.refer_if(6, bytes);
        table.refer_if(5, children);
        table.refer_if(4, names);
        table.refer_if(3, numbers);
        table.refer_if(1, text);
        table.put_unless(0, self.number, 0);
        table.put_if(7, self.flag);
        table.end()
    }
}

impl Own {
    fn to_message(&self) -> Message<Node> {
        Message::build(self)
    }

    /// Makes the same calls to Google's builder; returns the position of the table.
    fn build_by_google(&self, builder: &mut google::FlatBufferBuilder<'_>) -> u32 {
        let slot = |id: u16| 4 + 2 * id;
        let text = self.text.as_ref().map(|text| builder.create_string(text));
        let numbers = self.numbers.as_ref().map(|numbers| builder.create_vector(numbers));
        let names = self.names.as_ref().map(|names| {
            let names: Vec<_> = names.iter().map(|name| builder.create_string(name)).collect();
            builder.create_vector(&names)
        });
        let children = (!self.children.is_empty()).then(|| {
            let children: Vec<_> = self
                .children
                .iter()
                .map(|child| {
                    google::WIPOffset::<google::TableUnfinishedWIPOffset>::new(child.build_by_google(builder))
                })
                .collect();
            builder.create_vector(&children)
        });
        let bytes = self.bytes.as_ref().map(|bytes| builder.create_vector(bytes));
        let table = builder.start_table();
        if let Some(bytes) = bytes {
            builder.push_slot_always(slot(6), bytes);
        }
        if let Some(children) = children {
            builder.push_slot_always(slot(5), children);
        }
        if let Some(names) = names {
            builder.push_slot_always(slot(4), names);
        }
        if let Some(numbers) = numbers {
            builder.push_slot_always(slot(3), numbers);
        }
        if let Some(text) = text {
            builder.push_slot_always(slot(1), text);
        }
        builder.push_slot(slot(0), self.number, 0);
        if let Some(flag) = self.flag {
            builder.push_slot_always(slot(7), flag);
        }
        builder.end_table(table).value()
    }
}

/// Reads everything that is reachable.
fn walk(fields: Option<Fields<'_>>, depth: usize) {
    let Some(fields) = fields.filter(|_| depth > 0) else { return };
    let _ = (fields.get::<i32>(0), fields.get::<Text<'_>>(1), fields.get::<Point>(2), fields.get::<bool>(7));
    fields.get::<[i64]>(3).iter().flat_map(Vector::iter).take(64).for_each(drop);
    fields.get::<[Text<'_>]>(4).iter().flat_map(Vector::iter).take(64).for_each(drop);
    for child in fields.get::<[Node]>(5).iter().flat_map(Vector::iter).take(8) {
        walk(Some(child.0), depth - 1);
    }
    let _ = fields.get::<[u8]>(6).map(|bytes| bytes.as_bytes());
}

fn verify(bytes: &[u8]) -> Result<(), Invalid> {
    Message::<Node>::read(bytes.to_vec()).map(drop)
}

// ---------------------------------------------------------------------- Google's view of it

struct GoogleNode;

impl google::Verifiable for GoogleNode {
    fn run_verifier(
        verifier: &mut google::Verifier<'_, '_>,
        at: usize,
    ) -> Result<(), google::InvalidFlatbuffer> {
        type Far<T> = google::ForwardsUOffset<T>;
        verifier
            .visit_table(at)?
            .visit_field::<i32>("number", 4, false)?
            .visit_field::<Far<&str>>("text", 6, false)?
            .visit_field::<GooglePoint>("point", 8, false)?
            .visit_field::<Far<google::Vector<'_, i64>>>("numbers", 10, false)?
            .visit_field::<Far<google::Vector<'_, Far<&str>>>>("names", 12, false)?
            .visit_field::<Far<google::Vector<'_, Far<Self>>>>("children", 14, false)?
            .visit_field::<Far<google::Vector<'_, u8>>>("bytes", 16, false)?
            .visit_field::<bool>("flag", 18, false)?
            .finish();
        Ok(())
    }
}

#[derive(Debug, Clone, Copy, PartialEq)]
struct GooglePoint(Point);

impl google::Verifiable for GooglePoint {
    fn run_verifier(
        verifier: &mut google::Verifier<'_, '_>,
        at: usize,
    ) -> Result<(), google::InvalidFlatbuffer> {
        // Its alignment and size are those of its first member.
        verifier.is_aligned::<f64>(at)?;
        verifier.range_in_buffer(at, Point::SIZE)
    }
}

/// Our verifier gives the same result as Google's for Rust, except for two things that we handle as in C++: Google's
/// rejects a distance of zero, and anything shorter than a root, and it accepts strings that are not UTF-8.
fn judged_as_by_google(bytes: &[u8]) {
    let options = google::VerifierOptions::default();
    let mut verifier = google::Verifier::new(&options, bytes);
    let theirs = <google::ForwardsUOffset<GoogleNode> as google::Verifiable>::run_verifier(&mut verifier, 0);
    if !matches!(theirs, Err(google::InvalidFlatbuffer::Utf8Error { .. })) {
        let ours = verify(bytes).map_err(|invalid| invalid.to_string());
        let as_in_cpp =
            |told: &String| told.ends_with("refers to itself") || told.ends_with("than an empty table");
        if !ours.as_ref().is_err_and(as_in_cpp) {
            assert_eq!(ours.is_ok(), theirs.is_ok(), "{ours:?}: {}", bytes.escape_ascii());
        }
    }
}

/// Reproducible pseudo-random numbers (xorshift64*).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }

    fn maybe<T>(&mut self, make: impl Fn(&mut Self) -> T) -> Option<T> {
        (self.below(2) == 0).then(|| make(self))
    }

    fn some<T>(&mut self, make: impl Fn(&mut Self) -> T) -> Vec<T> {
        (0..self.below(4)).map(|_| make(self)).collect()
    }

    fn text(&mut self) -> String {
        (0..self.below(20)).map(|_| ['a', 'é', '世', '0'][self.below(4)]).collect()
    }

    fn point(&mut self) -> Point {
        Point { x: self.below(1000) as f64 / 8.0, y: self.next() as i16 }
    }

    /// Google's builder requires `unsafe` to write a struct.
    fn node_without_structs(&mut self, depth: usize) -> Own {
        fn without(own: Own) -> Own {
            Own {
                point: None,
                points: None,
                children: own.children.into_iter().map(without).collect(),
                ..own
            }
        }
        without(self.node(depth))
    }

    fn node(&mut self, depth: usize) -> Own {
        Own {
            number: if self.below(2) == 0 { 0 } else { self.next() as i32 },
            text: self.maybe(Self::text),
            point: self.maybe(Self::point),
            numbers: self.maybe(|random| random.some(|random| random.next() as i64)),
            names: self.maybe(|random| random.some(Self::text)),
            children: if depth == 0 { Vec::new() } else { self.some(|random| random.node(depth - 1)) },
            bytes: self.maybe(|random| random.some(|random| random.next() as u8)),
            flag: self.maybe(|random| random.below(2) == 0),
            points: self.maybe(|random| random.some(Self::point)),
        }
    }
}
