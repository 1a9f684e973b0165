//! Services of plain types and of bytes.

use bytes::Bytes;
use polyrpc::codec::{Raw, Serde};
use polyrpc::service::ServiceBuilder;
use polyrpc::{Context, Result};
use serde::{Deserialize, Serialize};

use super::rich::Rich;

/// Go leaves out what it likes, and its JSON takes a name in any case.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub(super) struct Args {
    #[serde(alias = "a")]
    pub(super) a: i64,
    #[serde(alias = "b")]
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

#[cfg(test)]
mod tests {
    use polyrpc::codec::{Body, Codec};
    use polyrpc::{Format, Json};

    use super::*;

    #[test]
    fn what_go_leaves_out_is_zero_and_a_name_may_be_small() {
        for (text, want) in [("{}", (0, 0)), (r#"{"B":8}"#, (0, 8)), (r#"{"a":7,"b":8}"#, (7, 8))] {
            let args: Args = Serde::decode(Body::new(Format::Json(Json::Go), text), None).unwrap();
            assert_eq!((args.a, args.b), want, "{text}");
        }
    }
}
