//! Parser for the text with which rpcx's server reports a handler's panic: `…: oops, method: M, argv: …, stack: …`
//! (rpcx `server/service.go`, `call`).

use polyrpc_core::Code;
use polyrpc_core::protobuf::{WireType, put_tag, put_varint};

/// A panic's text.
pub(super) struct Panic<'t> {
    /// The message up to the stack trace.
    message: &'t str,
    stack: &'t str,
}

impl<'t> Panic<'t> {
    /// Parses the text; `None` if it has only one line.
    pub(super) fn parse(text: &'t str) -> Option<Self> {
        let (message, stack) = text.split_once(", stack: ").or_else(|| text.split_once('\n'))?;
        Some(Self { message, stack })
    }

    /// Returns the line that is shown to the user.
    pub(super) fn first_line(&self) -> &'t str {
        self.message.lines().next().unwrap_or_default()
    }

    /// Returns the rest as a status's details: a `google.rpc.Status` with a `google.rpc.DebugInfo`.
    pub(super) fn details(&self) -> Vec<u8> {
        let mut info = Vec::new();
        self.stack.lines().for_each(|line| put(&mut info, 1, line.as_bytes()));
        put(&mut info, 2, self.message.as_bytes());
        let mut any = Vec::new();
        put(&mut any, 1, b"type.googleapis.com/google.rpc.DebugInfo");
        put(&mut any, 2, &info);
        let mut status = Vec::new();
        put_tag(&mut status, 1, WireType::Varint);
        put_varint(&mut status, Code::Internal as u64);
        put(&mut status, 2, self.first_line().as_bytes());
        put(&mut status, 3, &any);
        status
    }
}

fn put(out: &mut Vec<u8>, number: u32, bytes: &[u8]) {
    put_tag(out, number, WireType::Bytes);
    put_varint(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}
