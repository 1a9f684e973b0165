use std::collections::HashMap;

use polyrpc_core::protobuf::{Reader, WireType};

/// Comments of the declarations in `.proto` files, by the full names of messages, fields, extensions, enums, their
/// values, services and methods. A value has the name of its scope, which is that of the enum: `shop.RED`, and not
/// `shop.Colour.RED`.
///
/// Only sets with `source_code_info` have comments: those of `protoc --include_source_info`, and `.proto` files that
/// were read as text. Servers usually omit it.
#[derive(Debug, Clone, Default)]
pub struct Comments(HashMap<String, String>);

impl Comments {
    /// Reads the comments of a serialized `FileDescriptorSet`. Malformed parts have none.
    pub fn from_set(set: &[u8]) -> Self {
        let mut comments = HashMap::new();
        for file in fields(set, 1) {
            read_file(file, &mut comments);
        }
        Self(comments)
    }

    /// Returns the comment of a declaration without its markers: the one before it, or else the one after it.
    pub fn comment(&self, full_name: &str) -> Option<&str> {
        self.0.get(full_name).map(String::as_str)
    }
}

fn read_file(file: &[u8], comments: &mut HashMap<String, String>) {
    let mut locations = fields(file, 9).flat_map(|info| fields(info, 1)).peekable();
    if locations.peek().is_none() {
        return;
    }
    let root = Declaration::read(Kind::File, file, MAX_DEPTH);
    let package = text(file, 2);
    for location in locations {
        let comment = match text(location, 3) {
            "" => text(location, 4),
            leading => leading,
        };
        if comment.trim().is_empty() {
            continue;
        }
        if let Some(name) = root.find(package, fields(location, 1).flat_map(varints)) {
            comments.entry(name).or_insert_with(|| unindent(comment));
        }
    }
}

/// A named part of a file.
struct Declaration<'a> {
    kind: Kind,
    name: &'a str,
    /// Parts by the numbers of the fields that contain them (`google/protobuf/descriptor.proto`).
    parts: Vec<(u64, Vec<Self>)>,
}

#[derive(Clone, Copy)]
enum Kind {
    File,
    Message,
    Enum,
    Service,
    Other,
}

impl Kind {
    /// The fields that contain declarations, with the kinds of these.
    fn parts(self) -> &'static [(u32, Self)] {
        match self {
            Self::File => &[(4, Self::Message), (5, Self::Enum), (6, Self::Service), (7, Self::Other)],
            Self::Message => {
                &[(2, Self::Other), (3, Self::Message), (4, Self::Enum), (6, Self::Other), (8, Self::Other)]
            }
            Self::Enum | Self::Service => &[(2, Self::Other)],
            Self::Other => &[],
        }
    }
}

impl<'a> Declaration<'a> {
    fn read(kind: Kind, bytes: &'a [u8], depth: usize) -> Self {
        let part = |&(number, kind): &(u32, Kind)| {
            let each = fields(bytes, number).filter(|_| depth > 0);
            (u64::from(number), each.map(|part| Self::read(kind, part, depth - 1)).collect())
        };
        Self { kind, name: text(bytes, 1), parts: kind.parts().iter().map(part).collect() }
    }

    /// Returns the full name of the declaration that a path of fields and indices leads to.
    fn find(&self, package: &str, path: impl Iterator<Item = u64>) -> Option<String> {
        let (mut holder, mut name, mut path) = (self, package.to_owned(), path);
        while let Some(number) = path.next() {
            if matches!(holder.kind, Kind::Enum) {
                // Its values are declared beside it.
                name.truncate(name.rfind('.').unwrap_or(0));
            }
            let (_, parts) = holder.parts.iter().find(|(known, _)| *known == number)?;
            holder = parts.get(usize::try_from(path.next()?).ok()?)?;
            if !name.is_empty() {
                name.push('.');
            }
            name.push_str(holder.name);
        }
        (!std::ptr::eq(holder, self)).then_some(name)
    }
}

/// The length-delimited values of a field, up to the first malformed one.
fn fields(message: &[u8], wanted: u32) -> impl Iterator<Item = &[u8]> {
    let mut reader = Reader::new(message);
    std::iter::from_fn(move || {
        while !reader.is_empty() {
            match reader.tag()? {
                (number, WireType::Bytes) => {
                    let bytes = reader.bytes()?;
                    if number == wanted {
                        return Some(bytes);
                    }
                }
                (number, other) => reader.skip(number, other)?,
            }
        }
        None
    })
}

fn text(message: &[u8], field: u32) -> &str {
    fields(message, field).last().and_then(|text| std::str::from_utf8(text).ok()).unwrap_or_default()
}

fn varints(packed: &[u8]) -> impl Iterator<Item = u64> {
    let mut reader = Reader::new(packed);
    std::iter::from_fn(move || if reader.is_empty() { None } else { reader.varint() })
}

/// Removes the blank after `//` in each line.
fn unindent(comment: &str) -> String {
    let lines: Vec<_> =
        comment.lines().map(|line| line.strip_prefix(' ').unwrap_or(line).trim_end()).collect();
    lines.join("\n").trim().to_owned()
}

/// Maximum nesting of declared messages, as in protobuf's own parsers.
const MAX_DEPTH: usize = 100;

#[cfg(test)]
mod tests {
    use protox::file::{File, FileResolver};

    use super::*;

    struct Source;

    impl FileResolver for Source {
        fn open_file(&self, name: &str) -> Result<File, protox::Error> {
            File::from_source(name, SHOP)
        }
    }

    const SHOP: &str = r#"
        syntax = "proto3";
        package shop;
        // What a customer wants.
        //
        //   Indented.
        message Order {
          string id = 1; // Chosen by the customer.
          // A part.
          message Line { int32 count = 1; }
          repeated Line lines = 2;
          enum Kind {
            // The usual one.
            PLAIN = 0;
          }
        }
        // Of a thing.
        enum Colour {
          RED = 0; // As fire.
        }
        // Sells.
        service Shop {
          /* Buys things. */
          rpc Buy(Order) returns (Order);
        }
    "#;

    fn set(source_info: bool) -> Vec<u8> {
        let mut compiler = protox::Compiler::with_file_resolver(Source);
        compiler.include_source_info(source_info).open_file("shop.proto").unwrap();
        compiler.encode_file_descriptor_set()
    }

    #[test]
    fn comments_are_found_by_full_name() {
        let comments = Comments::from_set(&set(true));
        for (name, comment) in [
            ("shop.Order", Some("What a customer wants.\n\n  Indented.")),
            ("shop.Order.id", Some("Chosen by the customer.")),
            ("shop.Order.Line", Some("A part.")),
            ("shop.Order.PLAIN", Some("The usual one.")),
            ("shop.Colour", Some("Of a thing.")),
            ("shop.RED", Some("As fire.")),
            ("shop.Colour.RED", None),
            ("shop.Shop", Some("Sells.")),
            ("shop.Shop.Buy", Some("Buys things.")),
            ("shop.Order.lines", None),
            ("Order", None),
        ] {
            assert_eq!(comments.comment(name), comment, "{name}");
        }
        assert_eq!(Comments::from_set(&set(false)).comment("shop.Order"), None);
    }

    #[test]
    fn set_that_is_cut_anywhere_or_changed_does_not_panic() {
        let set = set(true);
        for end in 0..set.len() {
            Comments::from_set(&set[..end]);
            let mut changed = set.clone();
            changed[end] ^= 0x55;
            Comments::from_set(&changed);
        }
    }
}
