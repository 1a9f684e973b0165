//! Shared by server and client: a trait and the types of its methods.

use polyrpc::Result;
use serde::{Deserialize, Serialize};

/// As in rpcx's own example; the capital letters are the field names on the wire.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub struct Args {
    pub a: i32,
    pub b: i32,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub struct Reply {
    pub c: i32,
}

/// `mul` is `Mul` on the wire, as peers write it.
#[polyrpc::service]
pub trait Arith {
    async fn mul(&self, args: Args) -> Result<Reply>;

    async fn div(&self, args: Args) -> Result<Reply>;
}
