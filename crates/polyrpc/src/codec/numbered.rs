use std::marker::PhantomData;

use bytes::Bytes;
use polyrpc_core::{Format, Status};
use polyrpc_payload::schema;

use super::{Body, Codec, Serde, TypeSchema};

/// A format of one's own, under a number of rpcx's `SerializeType`: what Go registers as `share.Codecs[4]`.
///
/// It is given to a service by [`WithFormat`], which adds it to another codec.
pub trait NumberedFormat<T>: Send + Sync + 'static {
    /// The number: 4, which rpcx itself uses for Thrift, or 5 to 15, which are its users'. Another does not compile.
    const NUMBER: u8;

    /// Reads a value.
    ///
    /// # Errors
    ///
    /// [`InvalidArgument`](polyrpc_core::Code::InvalidArgument) when the bytes are no `T`.
    fn decode(bytes: Bytes) -> Result<T, Status>;

    /// Writes a value.
    ///
    /// # Errors
    ///
    /// When the format has no way to say it.
    fn encode(value: &T) -> Result<Bytes, Status>;
}

/// The codec `C`, and over rpcx the format `F` too.
///
/// Named once for a service, it holds for its server and its client: the server takes calls in every format of `C` and,
/// by rpcx and its HTTP gateway, in `F`, and answers in the format of the call; a client calls in `F` over rpcx, and as
/// `C` prefers over other protocols, unless it is told [another](crate::client::Builder::format) format.
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
///         text.parse().map_err(|_| Status::invalid_argument("want a number"))
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

    fn outline(schema: Option<&schema::Message>) -> TypeSchema {
        C::outline(schema)
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
