use std::marker::PhantomData;

use bytes::Bytes;
use polyrpc_core::{Format, Status};
use polyrpc_payload::schema;

use super::{Body, Codec, Serde, TypeSchema};

/// User-defined format, with a number of rpcx's `SerializeType`: registered in Go as `share.Codecs[4]`.
///
/// [`WithFormat`] adds it to the codec of a service.
pub trait NumberedFormat<T>: Send + Sync + 'static {
    /// Number of the format: 4, which rpcx itself uses for Thrift, or 5 to 15, which are free for users. Others do not
    /// compile.
    const NUMBER: u8;

    /// Decodes a value.
    ///
    /// # Errors
    ///
    /// [`InvalidArgument`](polyrpc_core::Code::InvalidArgument) if the bytes do not decode as `T`.
    fn decode(bytes: Bytes) -> Result<T, Status>;

    /// Encodes a value.
    ///
    /// # Errors
    ///
    /// If the format cannot represent it.
    fn encode(value: &T) -> Result<Bytes, Status>;
}

/// Codec `C`, plus the format `F` over rpcx.
///
/// It applies to a service's server and its client. The server accepts calls in every format of `C` and, over rpcx and
/// its HTTP gateway, in `F`, and replies in the format of the call. A client uses `F` over rpcx, and the default format
/// of `C` over other protocols, unless [another](crate::client::Builder::format) format is set.
///
/// ```
/// use bytes::Bytes;
/// use polyrpc::codec::{NumberedFormat, WithFormat};
/// use polyrpc::{Context, Result, Status};
///
/// /// Numbers as text, where callers of rpcx have registered it as 7.
/// struct Text;
///
/// impl NumberedFormat<i64> for Text {
///     const NUMBER: u8 = 7;
///
///     fn decode(bytes: Bytes) -> std::result::Result<i64, Status> {
///         let text = std::str::from_utf8(&bytes).unwrap_or_default();
///         text.parse().map_err(|_| Status::invalid_argument("expected a number"))
///     }
///
///     fn encode(value: &i64) -> std::result::Result<Bytes, Status> {
///         Ok(value.to_string().into())
///     }
/// }
///
/// type Wire = WithFormat<Text>;
///
/// #[polyrpc::service(codec = Wire)]
/// trait Numbers {
///     async fn double(&self, n: i64) -> Result<i64>;
/// }
/// ```
#[derive(Debug, Clone, Copy)]
pub struct WithFormat<F, C = Serde>(PhantomData<fn() -> (F, C)>);

impl<T, F: NumberedFormat<T>, C: Codec<T>> Codec<T> for WithFormat<F, C> {
    const PREFERRED: Format = C::PREFERRED;
    const RPCX: Option<Format> = {
        assert!(F::NUMBER >= 4 && F::NUMBER <= 15, "rpcx leaves the numbers 4 to 15 to its users");
        Some(Format::Other(F::NUMBER))
    };

    fn carries(format: Format) -> bool {
        Some(format) == Self::RPCX || C::carries(format)
    }

    fn describe(pool: &schema::Pool) -> Option<schema::Message> {
        C::describe(pool)
    }

    fn type_schema(schema: Option<&schema::Message>) -> TypeSchema {
        C::type_schema(schema)
    }

    fn decodes_slowly(body: &Body, schema: Option<&schema::Message>) -> bool {
        Some(body.format) == Self::RPCX || C::decodes_slowly(body, schema)
    }

    fn decode(body: Body, schema: Option<&schema::Message>) -> Result<T, Status> {
        match Some(body.format) == Self::RPCX {
            true => F::decode(body.bytes),
            false => C::decode(body, schema),
        }
    }

    fn encode(value: &T, format: Format, schema: Option<&schema::Message>) -> Result<Bytes, Status> {
        match Some(format) == Self::RPCX {
            true => F::encode(value),
            false => C::encode(value, format, schema),
        }
    }

    fn encode_owned(value: T, format: Format, schema: Option<&schema::Message>) -> Result<Bytes, Status> {
        match Some(format) == Self::RPCX {
            true => F::encode(&value),
            false => C::encode_owned(value, format, schema),
        }
    }

    fn encode_request(value: T, format: Format, schema: Option<&schema::Message>) -> Result<Body, Status> {
        match Some(format) == Self::RPCX {
            true => Ok(Body::new(format, F::encode(&value)?)),
            false => C::encode_request(value, format, schema),
        }
    }
}
