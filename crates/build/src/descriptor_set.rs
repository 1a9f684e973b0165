//! Constant with a package's descriptors.

use std::ascii;

use buffa_codegen::encode_descriptor_set;
use buffa_codegen::generated::descriptor::FileDescriptorProto;

/// Returns the definition of the constant. It is a literal, not an `include_bytes!`, so that a checked-in file needs no
/// further file.
pub(crate) fn constant(files: &[FileDescriptorProto]) -> String {
    format!(
        "/// The descriptors of this package's services and of everything they import, as\n\
         /// `protoc --descriptor_set_out --include_imports` writes them.\n\
         pub const FILE_DESCRIPTOR_SET: &[u8] = b\"{}\";\n",
        literal(&encode_descriptor_set(files, &[]))
    )
}

/// Returns the contents of a byte string literal, in lines of about a hundred characters, so that a change of the
/// `.proto` is a small change here.
fn literal(bytes: &[u8]) -> String {
    let mut text = String::new();
    let mut column = WIDTH;
    for &byte in bytes {
        let starts_line = column >= WIDTH;
        if starts_line {
            text.push_str("\\\n    ");
            column = 0;
        }
        let at = text.len();
        match byte {
            // A line's leading blanks do not belong to the literal.
            b' ' if starts_line => text.push_str("\\x20"),
            _ => text.extend(ascii::escape_default(byte).map(char::from)),
        }
        column += text.len() - at;
    }
    text
}

const WIDTH: usize = 92;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_survives_the_literal_at_any_line_break() {
        for blanks in 0..WIDTH {
            let bytes: Vec<u8> = [vec![b' '; blanks], (0..=255).collect(), vec![b' '; WIDTH]].concat();
            let literal: syn::LitByteStr =
                syn::parse_str(&format!("b\"{}\"", literal(&bytes))).expect("a byte string");
            assert_eq!(literal.value(), bytes);
        }
    }
}
