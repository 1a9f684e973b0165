//! Messages that files of the command line describe.

use std::path::PathBuf;

use clap::Args;
use polyrpc_record::{Call, DeclaredMessages, Schema};
use polyrpc_transform::SchemaSource;

use crate::failure::Failure;

/// Files that describe the messages of calls.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct ProtoOptions {
    /// A .proto file for decoding messages; may be repeated
    #[arg(long, value_name = "FILE")]
    proto: Vec<PathBuf>,
    /// Directory of imports of .proto files; may be repeated
    #[arg(short = 'I', long, value_name = "DIR")]
    include: Vec<PathBuf>,
}

/// A description of messages.
pub(crate) struct DescribedMessages {
    pub(crate) schema: Schema,
    source: SchemaSource,
    messages: DeclaredMessages,
}

impl ProtoOptions {
    /// Reads the files, if there are any.
    ///
    /// # Errors
    ///
    /// If a file is missing or invalid.
    pub(crate) fn read(&self) -> Result<Option<DescribedMessages>, Failure> {
        if self.proto.is_empty() {
            return Ok(None);
        }
        let source = SchemaSource::read_proto(&self.proto, &self.include)?;
        let (schema, mut messages) = (Schema::new(source.encoded().to_vec()), DeclaredMessages::new());
        messages.add(&schema);
        Ok(Some(DescribedMessages { schema, source, messages }))
    }
}

impl DescribedMessages {
    /// Marks the call as described by these files, if they declare its method. Returns whether they do.
    pub(crate) fn declare(&self, call: &mut Call) -> bool {
        let is_declared = self.source.types(&call.full_name()).is_ok();
        call.schema = is_declared.then_some(self.schema.hash);
        is_declared
    }

    /// Returns the messages, for decoding.
    pub(crate) fn messages(&self) -> &DeclaredMessages {
        &self.messages
    }
}
