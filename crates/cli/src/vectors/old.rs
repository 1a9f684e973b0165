//! Servers with which two codecs of the rpcx of 2016 were recorded: as `Arith.Mul` they offer other messages than its
//! other servers, so each is a separate server.

use bytes::Bytes;
use polyrpc::codec::{Protobuf, Raw};
use polyrpc::service::ServiceBuilder;
use polyrpc::{Context, Result, Server, Status};

use crate::proto::PBReply;

/// Answers a number with twice as much. `PBReply` is on the wire what `google.protobuf.Int32Value` is.
pub(crate) fn protobuf() -> Server {
    let arith = ServiceBuilder::new("Arith")
        .method::<Protobuf, PBReply, PBReply, _, _>("Mul", double)
        .method::<Protobuf, PBReply, PBReply, _, _>("Error", fail);
    Server::new().service(arith)
}

/// Answers two numbers with their product. Nothing in a message of gencode says what it holds, so that the handler
/// reads and writes it by itself.
pub(crate) fn gencode() -> Server {
    let arith = ServiceBuilder::new("Arith")
        .method::<Raw, Bytes, Bytes, _, _>("Mul", mul)
        .method::<Raw, Bytes, Bytes, _, _>("Error", fail);
    Server::new().service(arith)
}

async fn double(cx: Context, number: PBReply) -> (Context, Result<PBReply>) {
    (cx, Ok(PBReply { C: number.C.wrapping_mul(2), ..number }))
}

async fn mul(cx: Context, body: Bytes) -> (Context, Result<Bytes>) {
    let product = factors(&body).map(|(a, b)| Bytes::copy_from_slice(&a.wrapping_mul(b).to_le_bytes()));
    (cx, product.ok_or_else(|| Status::invalid_argument("want a struct of two int32").into()))
}

async fn fail<T>(cx: Context, _: T) -> (Context, Result<T>) {
    (cx, Err(Status::unknown("boom").into()))
}

/// Two numbers of four bytes.
fn factors(body: &[u8]) -> Option<(i32, i32)> {
    let (a, rest) = body.split_first_chunk()?;
    let (b, rest) = rest.split_first_chunk()?;
    rest.is_empty().then(|| (i32::from_le_bytes(*a), i32::from_le_bytes(*b)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_two_numbers_and_nothing_else() {
        let message = [7, 0, 0, 0, 0xf8, 0xff, 0xff, 0xff];
        assert_eq!(factors(&message), Some((7, -8)));
        for end in 0..message.len() {
            assert_eq!(factors(&message[..end]), None);
        }
        assert_eq!(factors(&[0; 9]), None);
    }
}
