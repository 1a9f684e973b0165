use std::fmt::{self, Write};

use polyrpc_core::Status;
use serde::Serialize;

use super::go;
use crate::client::Result;
use crate::client::balance::PickContext;

/// Returns the key by which an rpcx client in Go chooses the server for a call: the hash (FNV-1a, 64 bits) of
/// `/service/method/arguments`, with the arguments as Go's `%v` prints them.
///
/// The arguments are passed by pointer, as in rpcx's examples. Numbers, strings, booleans, structs, slices and maps are printed as in Go. Pointers below the outermost level, whose
/// address Go prints, have no counterpart.
///
/// ```
/// use polyrpc::client::balance::rpcx_key;
///
/// #[derive(serde::Serialize)]
/// struct Args {
///     a: i32,
///     b: i32,
/// }
///
/// let key = rpcx_key("Arith", "Mul", &Args { a: 7, b: 8 })?;
/// assert_eq!(key, 15772451828796049065); // of "/Arith/Mul/&{7 8}"
/// # Ok::<(), polyrpc::Error>(())
/// ```
///
/// # Errors
///
/// If the arguments fail to serialize.
pub fn rpcx_key(service: &str, method: &str, arguments: &(impl Serialize + ?Sized)) -> Result<u64> {
    key(service, method, true, arguments)
}

/// The same for a Go client that passes its arguments by value, `Args{7, 8}` instead of `&Args{7, 8}`, which are printed
/// as `{7 8}` instead of `&{7 8}`.
///
/// # Errors
///
/// If the arguments fail to serialize.
pub fn rpcx_key_by_value(service: &str, method: &str, arguments: &(impl Serialize + ?Sized)) -> Result<u64> {
    key(service, method, false, arguments)
}

fn key(service: &str, method: &str, by_pointer: bool, arguments: &(impl Serialize + ?Sized)) -> Result<u64> {
    let mut hash = Fnv::default();
    let refused =
        |error: go::Refusal| Status::invalid_argument(format!("the arguments have no key: {error}"));
    write!(hash, "/{service}/{method}/").map_err(|error| refused(error.into()))?;
    go::print(arguments, by_pointer, &mut hash).map_err(refused)?;
    Ok(hash.0)
}

/// Hash key of a call; calls with the same key go to the same server.
pub(super) fn hash_key(context: &PickContext<'_>) -> u64 {
    context.key.unwrap_or_else(|| {
        let mut hash = Fnv::default();
        for part in ["/", context.service, "/", context.method, "/"] {
            hash.push(part.as_bytes());
        }
        hash.push(&context.request[..context.request.len().min(MAX_HASHED_BYTES)]);
        hash.0
    })
}

/// Number of request bytes that are hashed; bounds the cost of a pick for a long request.
const MAX_HASHED_BYTES: usize = 1024;

/// FNV-1a, 64 bits.
struct Fnv(u64);

impl Fnv {
    fn push(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.0 = (self.0 ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
        }
    }
}

impl Default for Fnv {
    fn default() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }
}

impl Write for Fnv {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.push(text.as_bytes());
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::balance::tests::vectors;

    #[test]
    fn hash_equals_that_of_go() {
        for vector in vectors()["fnv1a64"].as_array().unwrap() {
            let mut hash = Fnv::default();
            hash.push(vector["s"].as_str().unwrap().as_bytes());
            assert_eq!(hash.0.to_string(), vector["fnv1a64"].as_str().unwrap());
        }
    }

    #[test]
    fn key_is_the_hash_of_the_go_representation() {
        let hash = |text: &str| {
            let mut hash = Fnv::default();
            hash.push(text.as_bytes());
            hash.0
        };
        assert_eq!(rpcx_key("S", "m", &7).unwrap(), hash("/S/m/7"));
        assert_eq!(rpcx_key("S", "m", "x y").unwrap(), hash("/S/m/x y"));
        assert_eq!(rpcx_key("S", "m", &[1, 2]).unwrap(), hash("/S/m/&[1 2]"));
        assert_eq!(rpcx_key_by_value("S", "m", &(1, "a")).unwrap(), hash("/S/m/[1 a]"));
    }

    #[test]
    fn unserializable_value_has_no_key() {
        struct NotSerializable;
        impl Serialize for NotSerializable {
            fn serialize<S: serde::Serializer>(&self, _: S) -> Result<S::Ok, S::Error> {
                Err(serde::ser::Error::custom("not today"))
            }
        }
        let error = rpcx_key("S", "m", &NotSerializable).unwrap_err();
        assert!(error.to_string().contains("not today"), "{error}");
    }
}
