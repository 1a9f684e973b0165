use buffa::bytes::{Buf, Bytes};
use buffa::encoding::{Tag, WireType, decode_varint, encode_varint};

use crate::reflection::v1;

/// Returns the descriptors of `grpc.reflection.v1alpha`, the name of `grpc.reflection.v1` before it became stable, as a
/// serialized `FileDescriptorSet`. Except for the package the two are the same, so that this crate has the messages of
/// v1 only.
pub fn v1alpha_descriptors() -> Vec<u8> {
    rename(Bytes::from_static(v1::FILE_DESCRIPTOR_SET), &SET)
}

/// A message of `google/protobuf/descriptor.proto`.
struct Descriptor {
    /// Its fields that are messages too, as far as they contain names of the package.
    parts: &'static [(u32, &'static Self)],
    /// Encoded fields that v1alpha has and v1 has not.
    added: &'static [u8],
}

const SET: Descriptor = Descriptor { parts: &[(1, &FILE)], added: &[] };
/// `options = { deprecated: true }`
const FILE: Descriptor =
    Descriptor { parts: &[(4, &MESSAGE), (6, &SERVICE)], added: b"\x42\x03\xb8\x01\x01" };
const MESSAGE: Descriptor = Descriptor { parts: &[(2, &FIELD)], added: &[] };
const FIELD: Descriptor = Descriptor { parts: &[], added: &[] };
const SERVICE: Descriptor = Descriptor { parts: &[(2, &METHOD)], added: &[] };
const METHOD: Descriptor = Descriptor { parts: &[], added: &[] };

/// Replaces the package in all texts of a descriptor.
///
/// # Panics
///
/// If it is malformed: it is part of the program, not input.
fn rename(mut descriptor: Bytes, kind: &Descriptor) -> Vec<u8> {
    let mut renamed = Vec::new();
    while descriptor.has_remaining() {
        let tag = Tag::decode(&mut descriptor).expect("a tag");
        tag.encode(&mut renamed);
        match tag.wire_type() {
            WireType::Varint => encode_varint(read_varint(&mut descriptor), &mut renamed),
            WireType::LengthDelimited => {
                let length = usize::try_from(read_varint(&mut descriptor)).expect("a length");
                let value = descriptor.split_to(length);
                let part = kind.parts.iter().find(|(number, _)| *number == tag.field_number());
                let value = match part {
                    Some((_, part)) => rename(value, part),
                    None => rename_text(&value),
                };
                encode_varint(value.len() as u64, &mut renamed);
                renamed.extend_from_slice(&value);
            }
            other => panic!("a descriptor has no field of type {other:?}"),
        }
    }
    renamed.extend_from_slice(kind.added);
    renamed
}

fn read_varint(descriptor: &mut Bytes) -> u64 {
    decode_varint(descriptor).expect("a number")
}

/// Replaces the package in a type's name, or the folder in a file's name.
fn rename_text(text: &[u8]) -> Vec<u8> {
    match std::str::from_utf8(text) {
        Ok(text) => text
            .replace("grpc.reflection.v1", "grpc.reflection.v1alpha")
            .replace("grpc/reflection/v1/", "grpc/reflection/v1alpha/")
            .into_bytes(),
        Err(_) => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use protox::prost::Message;
    use protox::prost_reflect::prost_types::FileDescriptorSet;

    use super::*;

    #[test]
    fn renamed_descriptors_equal_those_of_the_older_proto() {
        let protos = concat!(env!("CARGO_MANIFEST_DIR"), "/proto");
        let mut compiler = protox::Compiler::new([protos]).unwrap();
        compiler.open_file("grpc/reflection/v1alpha/reflection.proto").unwrap();
        let compiled = compiler.include_source_info(false).file_descriptor_set();
        assert_eq!(FileDescriptorSet::decode(&v1alpha_descriptors()[..]).unwrap(), compiled);
    }
}
