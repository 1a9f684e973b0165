//! The `.proto` files that describe a server's services, indexed by declared name.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::iter;

use buffa::encoding::{Tag, WireType, decode_varint, skip_field};
use bytes::{Buf, Bytes};

/// Files by every key of a reflection request.
#[derive(Debug, Default)]
pub(super) struct Files {
    files: Vec<File>,
    by_name: HashMap<String, FileId>,
    by_symbol: HashMap<String, FileId>,
    /// By the extended message and the extension's number.
    extensions: HashMap<String, BTreeMap<i32, FileId>>,
    services: HashSet<String>,
}

/// A file among [`Files`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct FileId(usize);

#[derive(Debug)]
struct File {
    /// The serialized `FileDescriptorProto`.
    encoded: Bytes,
    imports: Vec<String>,
}

impl Files {
    /// Adds the files of a serialized `FileDescriptorSet`. Sets share files: one with a known name is not
    /// added again.
    pub(super) fn add(&mut self, set: &[u8]) {
        for file in Descriptor(Bytes::copy_from_slice(set)).each(SET_FILE) {
            let name = file.text(NAME);
            if !self.by_name.contains_key(&name) {
                self.add_file(name, &file);
            }
        }
    }

    fn add_file(&mut self, name: String, file: &Descriptor) {
        let id = FileId(self.files.len());
        self.by_name.insert(name, id);
        self.files.push(File { encoded: file.0.clone(), imports: file.texts(FILE_IMPORT).collect() });

        let package = file.text(FILE_PACKAGE);
        file.each(FILE_MESSAGE).for_each(|message| self.add_message(id, &package, &message));
        file.each(FILE_ENUM).for_each(|declared| self.add_enum(id, &package, &declared));
        file.each(FILE_SERVICE).for_each(|service| self.add_service(id, &package, &service));
        file.each(FILE_EXTENSION).for_each(|extension| self.add_extension(id, &package, &extension));
    }

    fn add_message(&mut self, file: FileId, scope: &str, message: &Descriptor) {
        let scope = self.declare(file, scope, message);
        for part in message.each(MESSAGE_FIELD).chain(message.each(MESSAGE_ONEOF)) {
            self.declare(file, &scope, &part);
        }
        message.each(MESSAGE_MESSAGE).for_each(|inner| self.add_message(file, &scope, &inner));
        message.each(MESSAGE_ENUM).for_each(|declared| self.add_enum(file, &scope, &declared));
        message.each(MESSAGE_EXTENSION).for_each(|extension| self.add_extension(file, &scope, &extension));
    }

    /// The values of an enum are its siblings, as in C++ (`descriptor.proto`, `EnumValueDescriptorProto`).
    fn add_enum(&mut self, file: FileId, scope: &str, declared: &Descriptor) {
        self.declare(file, scope, declared);
        for value in declared.each(ENUM_VALUE) {
            self.declare(file, scope, &value);
        }
    }

    fn add_service(&mut self, file: FileId, scope: &str, service: &Descriptor) {
        let name = self.declare(file, scope, service);
        for method in service.each(SERVICE_METHOD) {
            self.declare(file, &name, &method);
        }
        self.services.insert(name);
    }

    fn add_extension(&mut self, file: FileId, scope: &str, extension: &Descriptor) {
        self.declare(file, scope, extension);
        let extended = extension.text(FIELD_EXTENDEE);
        let extended = extended.strip_prefix('.').unwrap_or(&extended).to_owned();
        let number = extension.number(FIELD_NUMBER);
        self.extensions.entry(extended).or_default().entry(number).or_insert(file);
    }

    /// Records where a name is declared, and returns its full name.
    fn declare(&mut self, file: FileId, scope: &str, declared: &Descriptor) -> String {
        let name = declared.text(NAME);
        let full = if scope.is_empty() { name } else { format!("{scope}.{name}") };
        self.by_symbol.entry(full.clone()).or_insert(file);
        full
    }

    pub(super) fn file_by_filename(&self, name: &str) -> Option<FileId> {
        self.by_name.get(name).copied()
    }

    /// The file that declares a name.
    pub(super) fn file_containing_symbol(&self, symbol: &str) -> Option<FileId> {
        self.by_symbol.get(symbol).copied()
    }

    /// The file that declares an extension.
    pub(super) fn file_containing_extension(&self, message: &str, number: i32) -> Option<FileId> {
        self.extensions.get(message)?.get(&number).copied()
    }

    /// The numbers of a message's extensions, in ascending order.
    pub(super) fn extensions(&self, message: &str) -> impl Iterator<Item = i32> {
        self.extensions.get(message).into_iter().flat_map(|extensions| extensions.keys().copied())
    }

    pub(super) fn has_service(&self, name: &str) -> bool {
        self.services.contains(name)
    }

    /// Returns a file, then its imports that are not in `sent` yet, to which they are added.
    ///
    /// The requested file itself is always included (grpc-go `reflection/internal/reflection.go`).
    pub(super) fn with_imports(&self, file: FileId, sent: &mut HashSet<FileId>) -> Vec<Bytes> {
        let mut encoded = Vec::new();
        let mut seen = HashSet::from([file]);
        let mut queue = VecDeque::from([file]);
        while let Some(id) = queue.pop_front() {
            let Some(next) = self.files.get(id.0) else { continue };
            if sent.insert(id) || id == file {
                encoded.push(next.encoded.clone());
            }
            let imports = next.imports.iter().filter_map(|import| self.file_by_filename(import));
            queue.extend(imports.filter(|&import| seen.insert(import)));
        }
        encoded
    }
}

/// A serialized message of `google/protobuf/descriptor.proto`, which was validated when its service was built.
struct Descriptor(Bytes);

impl Descriptor {
    /// The length-delimited values of a field.
    fn each(&self, field: u32) -> impl Iterator<Item = Self> {
        self.values().filter_map(move |(number, value)| match value {
            Value::Bytes(bytes) if number == field => Some(Self(bytes)),
            _ => None,
        })
    }

    fn texts(&self, field: u32) -> impl Iterator<Item = String> {
        self.each(field).map(|text| String::from_utf8_lossy(&text.0).into_owned())
    }

    fn text(&self, field: u32) -> String {
        self.texts(field).last().unwrap_or_default()
    }

    fn number(&self, field: u32) -> i32 {
        let numbers = self.values().filter_map(|(number, value)| match value {
            Value::Number(value) if number == field => i32::try_from(value).ok(),
            _ => None,
        });
        numbers.last().unwrap_or_default()
    }

    fn values(&self) -> impl Iterator<Item = (u32, Value)> + use<> {
        let mut rest = self.0.clone();
        iter::from_fn(move || next_value(&mut rest))
    }
}

enum Value {
    Number(u64),
    Bytes(Bytes),
    Other,
}

fn next_value(rest: &mut Bytes) -> Option<(u32, Value)> {
    let tag = Tag::decode(rest).ok()?;
    let value = match tag.wire_type() {
        WireType::Varint => Value::Number(decode_varint(rest).ok()?),
        WireType::LengthDelimited => {
            let length = usize::try_from(decode_varint(rest).ok()?).ok()?;
            Value::Bytes((length <= rest.remaining()).then(|| rest.copy_to_bytes(length))?)
        }
        _ => {
            skip_field(tag, rest).ok()?;
            Value::Other
        }
    };
    Some((tag.field_number(), value))
}

// The numbers of fields in `google/protobuf/descriptor.proto`.
const SET_FILE: u32 = 1;
/// Field `name` of all descriptors.
const NAME: u32 = 1;
const FILE_PACKAGE: u32 = 2;
const FILE_IMPORT: u32 = 3;
const FILE_MESSAGE: u32 = 4;
const FILE_ENUM: u32 = 5;
const FILE_SERVICE: u32 = 6;
const FILE_EXTENSION: u32 = 7;
const MESSAGE_FIELD: u32 = 2;
const MESSAGE_MESSAGE: u32 = 3;
const MESSAGE_ENUM: u32 = 4;
const MESSAGE_EXTENSION: u32 = 6;
const MESSAGE_ONEOF: u32 = 8;
const FIELD_EXTENDEE: u32 = 2;
const FIELD_NUMBER: u32 = 3;
const ENUM_VALUE: u32 = 2;
const SERVICE_METHOD: u32 = 2;
