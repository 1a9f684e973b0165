//! The types of the fields of messages that `polyrpc-build` generates.
//!
//! | in the `.proto` | field in Rust |
//! |---|---|
//! | `string`, `bytes` | `String`, `Vec<u8>` |
//! | `int32`, `uint64`, `double`, `bool`, … | `i32`, `u64`, `f64`, `bool`, … |
//! | `optional` of these | `Option<T>` |
//! | a message | [`MessageField<T>`](MessageField) |
//! | an enum of proto3 | [`EnumValue<T>`](EnumValue) |
//! | an enum of proto2 | `T`, or `Option<T>` where it is `optional` |
//! | `repeated T` | `Vec<T>` |
//! | `map<K, V>` | [`HashMap<K, V>`](std::collections::HashMap) |
//! | `oneof` | `Option` of an enum in the module of the message |
//! | `google.protobuf.Timestamp` and other well-known types | [`MessageField`] of a type in [`well_known`] |
//!
//! Messages are encoded and decoded without a call by the trait [`Message`]:
//!
//! ```
//! use polyrpc::protobuf::well_known::Timestamp;
//! use polyrpc::protobuf::{Message, MessageField};
//!
//! let at = Timestamp { seconds: 1, ..Default::default() };
//! assert_eq!(Timestamp::decode_from_slice(&at.encode_to_vec()).unwrap(), at);
//!
//! let field: MessageField<Timestamp> = at.into();
//! assert_eq!(field.as_option().map(|at| at.seconds), Some(1));
//! ```

pub use buffa::{DecodeError, EnumValue, Enumeration, Message, MessageField, UnknownFields};

/// The messages of `google.protobuf`, such as `Timestamp`, `Duration`, `Any` and `Struct`.
pub mod well_known {
    pub use buffa_types::google::protobuf::{
        Any, BoolValue, BytesValue, DoubleValue, Duration, Empty, FieldMask, FloatValue, Int32Value,
        Int64Value, ListValue, NullValue, StringValue, Struct, Timestamp, UInt32Value, UInt64Value, Value,
        value,
    };
}

/// The messages of `google/protobuf/descriptor.proto`, such as `FileDescriptorSet`.
#[cfg(feature = "descriptor")]
pub mod descriptor {
    pub use buffa_descriptor::generated::descriptor::*;
}
