//! Services of plain types and of bytes.

use bytes::Bytes;
use polyrpc::codec::{Raw, Serde};
use polyrpc::service::ServiceBuilder;
use polyrpc::{Context, Result};
use serde::{Deserialize, Serialize};

use super::rich::Rich;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct Args {
    pub(super) a: i64,
    pub(super) b: i64,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct Reply {
    pub(super) c: i64,
}

/// A text, alone or as the member `S` of a struct.
#[derive(Debug, Serialize, Deserialize)]
#[serde(untagged)]
enum Text {
    Alone(String),
    Member {
        #[serde(rename = "S")]
        text: String,
    },
}

/// Answers with what it was sent, whatever that was.
pub(super) fn echo() -> ServiceBuilder {
    ServiceBuilder::new("Echo")
        .method::<Raw, Bytes, Bytes, _, _>("Raw", same)
        .method::<Raw, Bytes, Bytes, _, _>("Echo", same)
        .method::<Serde, Text, Text, _, _>("Str", same)
        .method::<Serde, Rich, Rich, _, _>("Rich", same)
}

/// What rpcx's server offers by a raw handler (rpcx `server/router.go`).
pub(super) fn router() -> ServiceBuilder {
    ServiceBuilder::new("Router").method::<Serde, Args, Reply, _, _>("Hi", |cx, args: Args| async move {
        (cx, Ok(Reply { c: args.a.wrapping_add(args.b) }))
    })
}

async fn same<T>(cx: Context, message: T) -> (Context, Result<T>) {
    (cx, Ok(message))
}
