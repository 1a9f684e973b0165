use std::time::Duration;

use polyrpc::codec::Protobuf;
use polyrpc::service::{Service, ServiceBuilder};
use polyrpc::{Context, Metadata, Push, Result, Status};

use crate::proto::{ArithArgs, ArithReply, ArithServer};
use crate::services::Calculator;

/// The demo's `Arith` with the methods that show what only some protocols have.
pub(super) fn service() -> ServiceBuilder {
    ArithServer::new(Calculator)
        .into_builder()
        .method::<Protobuf, _, _, _, _>("Meta", meta)
        .method::<Protobuf, _, _, _, _>("Push", push)
        .method::<Protobuf, _, _, _, _>("Sleep", sleep)
}

/// Answers like `Mul`, and sends the request's `k1` back as `echo`.
async fn meta(mut cx: Context, args: ArithArgs) -> (Context, Result<ArithReply>) {
    let told = cx.metadata().bytes("k1").cloned().unwrap_or_default();
    cx.reply().metadata.insert("echo", told);
    (cx, Ok(reply(args.A.wrapping_mul(args.B))))
}

/// Sends a message to the caller before it answers.
async fn push(cx: Context, _: ArithArgs) -> (Context, Result<ArithReply>) {
    let pushed = cx.pusher().push(Push {
        service: "push_path".into(),
        method: "push_method".into(),
        metadata: Metadata::from_iter([("pk", "pv")]),
        body: "abcde".into(),
    });
    (cx, pushed.map(|()| reply(1)).map_err(Into::into))
}

/// Waits `A` milliseconds, unless the caller's deadline ends it, and answers `A`.
async fn sleep(cx: Context, args: ArithArgs) -> (Context, Result<ArithReply>) {
    let result = match u64::try_from(args.A) {
        Ok(millis) => {
            tokio::time::sleep(Duration::from_millis(millis)).await;
            Ok(reply(args.A))
        }
        Err(_) => Err(Status::invalid_argument("A must not be negative").into()),
    };
    (cx, result)
}

fn reply(c: i64) -> ArithReply {
    ArithReply { C: c, ..ArithReply::default() }
}
