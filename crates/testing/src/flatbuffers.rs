//! FlatBuffers: arbitrary bytes as messages.

use polyrpc_payload::flatbuffers::{
    Build, Builder, Fields, Invalid, Message, Offset, Table, TableVerifier, Text, UnionVerifier, Vector,
};

/// A buffer that is read unverified, and then verified. A valid one is written again, and reads the
/// same.
pub fn flatbuffers(input: &[u8]) {
    let unverified = Message::<Node>::unverified(input.to_vec());
    unverified.root().walk(MAX_DEPTH);
    let Ok(message) = Message::<Node>::read(input.to_vec()) else { return };
    // A few bytes can be read as many tables.
    if message.root().walk(MAX_DEPTH) > MAX_NODES {
        return;
    }
    let copy = Message::build(&message.root());
    let again = Message::<Node>::read(copy.into_bytes()).expect("the written buffer is valid");
    assert_eq!(format!("{:?}", again.root()), format!("{:?}", message.root()));
}

/// Maximum depth of tables.
const MAX_DEPTH: usize = 16;
/// Maximum number of tables to write again.
const MAX_NODES: usize = 256;

/// `table Node { number: int = 3; text: string; names: [string]; children: [Node]; any: Any; nested: [ubyte]; }`,
/// `union Any { Node, string }`.
enum Node {}

#[derive(Clone, Copy)]
struct NodeRef<'a>(Fields<'a>);

impl Table for Node {
    type Ref<'a> = NodeRef<'a>;
    const NAME: &'static str = "Node";

    fn over(fields: Fields<'_>) -> NodeRef<'_> {
        NodeRef(fields)
    }

    fn verify(fields: &mut TableVerifier<'_, '_>) -> Result<(), Invalid> {
        fields.field::<i32>("number", 0)?;
        fields.field::<Text<'_>>("text", 1)?;
        fields.field::<[Text<'_>]>("names", 2)?;
        fields.field::<[Self]>("children", 3)?;
        fields.union("any", 5, false, verify_any)?;
        fields.nested::<Self>("nested", 6)
    }
}

fn verify_any(kind: u8, value: &mut UnionVerifier<'_, '_>) -> Result<(), Invalid> {
    match kind {
        1 => value.value::<Node>(),
        2 => value.value::<Text<'_>>(),
        _ => Ok(()),
    }
}

impl<'a> NodeRef<'a> {
    /// Reads everything reachable, up to a depth and a number of tables; returns the number of tables.
    fn walk(self, depth: usize) -> usize {
        let mut seen = 0;
        self.count(depth, &mut seen);
        seen
    }

    fn count(self, depth: usize, seen: &mut usize) {
        *seen += 1;
        if depth == 0 || *seen > MAX_NODES {
            return;
        }
        let _ = (self.0.get::<i32>(0), self.0.get::<Text<'_>>(1));
        self.0.get::<[Text<'_>]>(2).iter().flat_map(Vector::iter).take(MAX_NODES).for_each(drop);
        for child in self.0.get::<[Node]>(3).iter().flat_map(Vector::iter).take(MAX_NODES) {
            child.count(depth - 1, seen);
        }
        match self.any() {
            Some(Any::Node(node)) => node.count(depth - 1, seen),
            Some(Any::Text(_)) | None => {}
        }
        if let Some(nested) = self.0.get::<[u8]>(6).and_then(|bytes| Fields::root(bytes.as_bytes())) {
            NodeRef(nested).count(depth - 1, seen);
        }
    }

    fn any(self) -> Option<Any<'a>> {
        match self.0.get::<u8>(4)? {
            1 => self.0.union::<Node>(5).map(Any::Node),
            2 => self.0.union::<Text<'_>>(5).map(Any::Text),
            _ => None,
        }
    }
}

#[derive(Debug)]
enum Any<'a> {
    Node(NodeRef<'a>),
    Text(Text<'a>),
}

impl std::fmt::Debug for NodeRef<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Node")
            .field("number", &self.0.get::<i32>(0).unwrap_or(3))
            .field("text", &self.0.get::<Text<'_>>(1))
            .field("names", &self.0.get::<[Text<'_>]>(2))
            .field("children", &self.0.get::<[Node]>(3))
            .field("any", &self.any())
            .field("nested", &self.0.get::<[u8]>(6))
            .finish()
    }
}

impl Build for NodeRef<'_> {
    type Table = Node;

    fn build(&self, builder: &mut Builder) -> Offset<Node> {
        let text = self.0.get::<Text<'_>>(1).map(|text| builder.string(text));
        let names = self
            .0
            .get::<[Text<'_>]>(2)
            .map(|names| builder.vector_of(names, |builder, name| builder.string(name)));
        let children = self
            .0
            .get::<[Node]>(3)
            .map(|children| builder.vector_of(children, |builder, child| child.build(builder)));
        let any = self.any().map(|any| match any {
            Any::Node(node) => (1_u8, node.build(builder).untyped()),
            Any::Text(text) => (2, builder.string(text).untyped()),
        });
        let nested = self.0.get::<[u8]>(6).map(|bytes| builder.bytes(bytes.as_bytes()));
        let mut table = builder.table();
        table.put_unless(0, self.0.get::<i32>(0).unwrap_or(3), 3);
        table.refer_if(1, text);
        table.refer_if(2, names);
        table.refer_if(3, children);
        table.put_if(4, any.map(|(kind, _)| kind));
        table.refer_if(5, any.map(|(_, value)| value));
        table.refer_if(6, nested);
        table.end()
    }
}

/// Seeds of the fuzzer: valid messages.
pub fn whole_flatbuffers() -> Vec<(&'static str, Vec<u8>)> {
    let leaf = Seed::default();
    let named = Seed { number: 9, text: Some("text"), names: &["a", "bc"], ..leaf };
    let inner = [named, leaf];
    let nested = Message::build(&named).into_bytes();
    let seeds = [
        ("empty", leaf),
        ("strings", named),
        ("children", Seed { children: &inner, ..named }),
        ("union_of_table", Seed { any: Some(&named), ..leaf }),
        ("nested", Seed { nested: Some(&nested), ..named }),
    ];
    seeds.into_iter().map(|(name, seed)| (name, Message::build(&seed).into_bytes().to_vec())).collect()
}

#[derive(Clone, Copy, Default)]
struct Seed<'a> {
    number: i32,
    text: Option<&'a str>,
    names: &'a [&'a str],
    children: &'a [Self],
    any: Option<&'a Self>,
    nested: Option<&'a [u8]>,
}

impl Build for Seed<'_> {
    type Table = Node;

    fn build(&self, builder: &mut Builder) -> Offset<Node> {
        let text = self.text.map(|text| builder.string(text));
        let names = builder.vector_of(self.names, |builder, name| builder.string(*name));
        let children = builder.tables(self.children);
        let any = self.any.map(|any| any.build(builder));
        let nested = self.nested.map(|bytes| builder.bytes(bytes));
        let mut table = builder.table();
        table.put_unless(0, self.number, 3);
        table.refer_if(1, text);
        table.refer(2, names);
        table.refer(3, children);
        table.put_if(4, any.map(|_| 1_u8));
        table.refer_if(5, any);
        table.refer_if(6, nested);
        table.end()
    }
}
