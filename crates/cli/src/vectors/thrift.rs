//! Request: a struct of two numbers; response: a struct of their product; in Thrift's binary protocol. The format is
//! only passed through, so the handler encodes and decodes it itself.

use bytes::Bytes;
use polyrpc::codec::Raw;
use polyrpc::service::ServiceBuilder;
use polyrpc::{Context, Result, Status};

pub(super) fn service() -> ServiceBuilder {
    ServiceBuilder::new("ThriftArith").method::<Raw, Bytes, Bytes, _, _>("Mul", mul)
}

async fn mul(cx: Context, body: Bytes) -> (Context, Result<Bytes>) {
    let product = factors(&body).map(|(a, b)| written(a.wrapping_mul(b)));
    (cx, product.ok_or_else(|| Status::invalid_argument("want a struct of two i32").into()))
}

/// The fields 1 and 2; absent ones are 0.
fn factors(mut rest: &[u8]) -> Option<(i32, i32)> {
    let (mut a, mut b) = (0, 0);
    loop {
        match rest {
            [STOP] => return Some((a, b)),
            [I32, field @ ..] => {
                let (id, value) = field.split_first_chunk::<2>()?;
                let (value, behind) = value.split_first_chunk::<4>()?;
                match u16::from_be_bytes(*id) {
                    1 => a = i32::from_be_bytes(*value),
                    2 => b = i32::from_be_bytes(*value),
                    _ => {}
                }
                rest = behind;
            }
            _ => return None,
        }
    }
}

fn written(c: i32) -> Bytes {
    let mut bytes = vec![I32, 0, 1];
    bytes.extend_from_slice(&c.to_be_bytes());
    bytes.push(STOP);
    bytes.into()
}

const STOP: u8 = 0;
const I32: u8 = 8;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_product_of_two_fields_is_field_1() {
        let request = [8, 0, 1, 0, 0, 0, 7, 8, 0, 2, 0, 0, 0, 8, 0];
        assert_eq!(factors(&request), Some((7, 8)));
        assert_eq!(&written(56)[..], [8, 0, 1, 0, 0, 0, 56, 0]);
        for end in 0..request.len() - 1 {
            assert_eq!(factors(&request[..end]), None, "{end}");
        }
    }
}
