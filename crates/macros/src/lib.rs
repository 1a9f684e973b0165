//! The attribute `#[polyrpc::service]`.

mod expand;
mod parse;

use proc_macro::TokenStream;

/// Turns a trait into a service: a server for its implementations, and client stubs.
///
/// ```ignore
/// #[polyrpc::service(name = "Arith")]
/// pub trait Arith {
///     async fn mul(&self, args: Args) -> polyrpc::Result<Reply>;
///
///     #[rpc(name = "Slow", blocking)]
///     async fn slow(&self, cx: &mut polyrpc::Context, args: Args) -> polyrpc::Result<Reply>;
/// }
/// ```
///
/// generates, in addition to the trait,
///
/// * `ArithServer<T>`: pass `ArithServer::new(implementation)` to `Server::service`;
/// * `ArithClient`: `ArithClient::new(client).mul(args).await`, and `mul_with(request)` for calls with metadata,
///   a timeout and so on, and for the metadata of the reply;
/// * `ArithBlockingClient`: the same without a runtime.
///
/// The attribute takes `name` (default: the trait's name), `codec` (default: `polyrpc::codec::Serde`) and
/// `schema` (a `&[u8]` with a serialized `FileDescriptorSet`, for the codec `Protobuf`). A method takes
/// `#[rpc(name = "…")]` (default: its name in `PascalCase`, as in the peers), `#[rpc(id = …)]` for protocols
/// with numbered methods (fb_rpc; default: its position in the trait) and `#[rpc(blocking)]` for one that may block
/// its thread.
///
/// A method's arguments are, after `&self` and an optional `cx: &mut Context`, its request: a single one is the message,
/// several form a list. It returns a `Result`.
///
/// A method that takes a `polyrpc::Streaming<T>` as its only argument, or returns a `Result` of one, has any number
/// of messages in that direction, for protocols with streams (gRPC):
///
/// ```ignore
/// #[polyrpc::service]
/// pub trait Numbers {
///     async fn count(&self, to: u64) -> polyrpc::Result<Streaming<u64>>;
///     async fn sum(&self, numbers: Streaming<u64>) -> polyrpc::Result<u64>;
///     async fn double(&self, numbers: Streaming<u64>) -> polyrpc::Result<Streaming<u64>>;
/// }
/// ```
///
/// The stub's methods take and return the same. The blocking stub omits such methods.
#[proc_macro_attribute]
pub fn service(attribute: TokenStream, item: TokenStream) -> TokenStream {
    let service = parse::Service::parse(attribute.into(), item.into());
    service.map(|service| expand::service(&service)).unwrap_or_else(|error| error.into_compile_error()).into()
}
