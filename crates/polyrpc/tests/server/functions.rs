//! Functions registered by name.

use std::time::Duration;

use polyrpc::client::{CallOptions, Request};
use polyrpc::codec::Body;
use polyrpc::{Client, Code, Context, Format, Json, Protocol, Server, Status};
use serde::{Deserialize, Serialize};

use crate::common::{PROTOCOLS, client, serve, url};

fn sums() -> Server {
    type N = i32;
    Server::new()
        .function("sum0", || async { 0 })
        .function("sum1", |a: N| async move { a })
        .function("sum2", |a: N, b: N| async move { a + b })
        .function("sum3", |a: N, b: N, c: N| async move { a + b + c })
        .function("sum4", |a: N, b: N, c: N, d: N| async move { a + b + c + d })
        .function("sum5", |a: N, b: N, c: N, d: N, e: N| async move { a + b + c + d + e })
        .function("sum6", |a: N, b: N, c: N, d: N, e: N, f: N| async move { a + b + c + d + e + f })
        .function("sum7", |a: N, b: N, c: N, d: N, e: N, f: N, g: N| async move { a + b + c + d + e + f + g })
        .function("sum8", |a: N, b: N, c: N, d: N, e: N, f: N, g: N, h: N| async move {
            a + b + c + d + e + f + g + h
        })
}

#[tokio::test]
async fn function_takes_up_to_eight_arguments() {
    let server = serve(sums()).await;
    let urls = PROTOCOLS.map(|protocol| url(protocol, &server));
    let json_rpc = format!("http://{}?dialect=json-rpc", server.address());
    for url in urls.iter().chain([&json_rpc]) {
        let client = Client::new(url).unwrap();
        assert_eq!(client.call::<i32>("sum0", &()).await.expect(url), 0);
        assert_eq!(client.call::<i32>("sum1", &1).await.expect(url), 1);
        assert_eq!(client.call::<i32>("sum2", &(1, 2)).await.expect(url), 3);
        assert_eq!(client.call::<i32>("sum3", &(1, 2, 3)).await.expect(url), 6);
        assert_eq!(client.call::<i32>("sum4", &(1, 2, 3, 4)).await.expect(url), 10);
        assert_eq!(client.call::<i32>("sum5", &(1, 2, 3, 4, 5)).await.expect(url), 15);
        assert_eq!(client.call::<i32>("sum6", &(1, 2, 3, 4, 5, 6)).await.expect(url), 21);
        assert_eq!(client.call::<i32>("sum7", &(1, 2, 3, 4, 5, 6, 7)).await.expect(url), 28);
        assert_eq!(client.call::<i32>("sum8", &(1, 2, 3, 4, 5, 6, 7, 8)).await.expect(url), 36);
    }
}

#[tokio::test]
async fn sole_argument_is_accepted_alone_and_in_a_list() {
    let server = serve(sums().function("length", |list: Vec<String>| async move { list.len() })).await;
    for protocol in PROTOCOLS {
        let client = client(protocol, &server);
        assert_eq!(client.call::<i32>("sum1", &(5,)).await.unwrap(), 5, "{protocol:?}");
        assert_eq!(client.call::<usize>("length", &["a", "b"]).await.unwrap(), 2, "{protocol:?}");
        assert_eq!(client.call::<usize>("length", &(["a", "b"],)).await.unwrap(), 2, "{protocol:?}");
    }
}

#[tokio::test]
async fn function_can_fail_with_any_error() {
    let server = serve(
        Server::new()
            .function(
                "parse",
                |text: String| async move { Ok::<i32, polyrpc::Failure>(text.parse::<i32>()?) },
            )
            .function("std", |text: String| async move { text.parse::<i32>() })
            .function("find", |key: String| async move {
                Err::<String, _>(Status::not_found(format!("no {key} here")))
            }),
    )
    .await;
    for protocol in PROTOCOLS {
        let client = client(protocol, &server);
        assert_eq!(client.call::<i32>("parse", "12").await.unwrap(), 12);
        for function in ["parse", "std"] {
            let error = client.call::<i32>(function, "twelve").await.unwrap_err();
            assert!(error.message().contains("internal error"), "{protocol:?}: {error}");
        }
        let error = client.call::<String>("find", "key").await.unwrap_err();
        assert!(error.message().contains("no key here"), "{protocol:?}: {error}");
        if !matches!(protocol, Protocol::Rpcx | Protocol::NetRpc) {
            // These protocols carry only the text.
            assert_eq!(error.code(), Code::NotFound, "{protocol:?}");
        }
    }
}

#[tokio::test]
async fn function_name_with_a_slash_names_a_service() {
    let server = serve(
        Server::new()
            .function("a.fake.service/mul", |a: i32, b: i32| async move { a * b })
            .function("a.fake.service/neg", |a: i32| async move { -a })
            .alias("Other", "a.fake.service"),
    )
    .await;
    for protocol in PROTOCOLS {
        let client = client(protocol, &server);
        for service in ["a.fake.service", "service", "Other"] {
            let mul = format!("{service}/mul");
            assert_eq!(client.call::<i32>(&mul, &(6, 7)).await.expect(&mul), 42, "{protocol:?}");
            assert_eq!(client.call::<i32>(&format!("{service}/neg"), &6).await.unwrap(), -6);
        }
        let error = client.call::<i32>("mul", &(6, 7)).await.unwrap_err();
        assert_eq!(error.code(), Code::Unimplemented, "{protocol:?}: {error}");
    }
}

#[tokio::test]
async fn mismatched_arguments_are_reported_without_running_the_function() {
    let server =
        serve(Server::new().function("never", |_: i32, _: i32| async { unreachable!() as i32 })).await;
    for protocol in PROTOCOLS {
        let client = client(protocol, &server);
        for error in [
            client.call::<i32>("never", &("a", "b")).await.unwrap_err(),
            client.call::<i32>("never", &(1,)).await.unwrap_err(),
            client.call::<i32>("never", &()).await.unwrap_err(),
        ] {
            assert!(error.message().contains("cannot read the value"), "{protocol:?}: {error}");
        }
    }
}

#[tokio::test]
async fn wrong_number_of_arguments_is_rejected() {
    let server = serve(sums().function("pair", |_: String, _: i64| async { 1_i64 })).await;
    for protocol in PROTOCOLS {
        let client = client(protocol, &server);
        for (error, count) in [
            (client.call::<i32>("sum2", &(1, 2, 3)).await.unwrap_err(), "expected 2, found 3"),
            (client.call::<i32>("sum2", &[1, 2, 3]).await.unwrap_err(), "expected 2, found 3"),
            (client.call::<i32>("sum2", &(1,)).await.unwrap_err(), "expected 2, found 1"),
            (client.call::<i32>("sum2", &vec![1, 2, 3]).await.unwrap_err(), "expected 2, found 3"),
            (client.call::<i32>("sum1", &(1, 2)).await.unwrap_err(), "expected 1, found 2"),
            (client.call::<i64>("pair", &("a", 1, true)).await.unwrap_err(), "expected 2, found 3"),
        ] {
            assert!(error.message().contains("cannot read the value"), "{protocol:?}: {error}");
            // net/rpc's gob reads a tuple by position and would skip the rest.
            let is_told = error.message().ends_with(&format!("wrong number of arguments: {count}"));
            assert!(is_told || protocol != Protocol::NetRpc, "{error}");
        }
        assert_eq!(client.call::<i32>("sum2", &(1, 2)).await.unwrap(), 3, "{protocol:?}");
    }
}

#[tokio::test]
async fn gob_struct_may_have_unknown_fields() {
    #[derive(Serialize, Deserialize)]
    struct Known {
        a: i64,
    }
    #[derive(Serialize, Deserialize)]
    struct Sent {
        a: i64,
        b: String,
    }
    let server = serve(Server::new().function("take", |known: Known| async move { known.a })).await;
    let sent = Sent { a: 7, b: "beside it".into() };
    assert_eq!(client(Protocol::NetRpc, &server).call::<i64>("take", &sent).await.unwrap(), 7);
}

#[tokio::test]
async fn function_answers_in_the_format_of_the_request() {
    let server = serve(sums()).await;
    for (protocol, format) in [
        (Protocol::Rpcx, Format::MessagePack),
        (Protocol::Rpcx, Format::Json(Json::Go)),
        (Protocol::Http, Format::Json(Json::Brpc)),
    ] {
        let client = client(protocol, &server);
        let arguments = match format {
            Format::MessagePack => &[0x92, 20, 22][..],
            _ => b"[20, 22]",
        };
        let body = Body::new(format, bytes::Bytes::copy_from_slice(arguments));
        let reply = client.call_raw("sum2", body, CallOptions::default()).await.unwrap().message;
        assert_eq!(
            (reply.format, &reply.bytes[..]),
            match format {
                Format::MessagePack => (format, &[42][..]),
                _ => (format, &b"42"[..]),
            }
        );
    }
}

#[tokio::test]
async fn format_without_a_form_for_plain_types_is_rejected() {
    let server = serve(sums()).await;
    let client = client(Protocol::Rpcx, &server);
    let body = Body::new(Format::Raw, &b"\x92\x14\x16"[..]);
    let error = client.call_raw("sum2", body, CallOptions::default()).await.unwrap_err();
    assert!(error.message().contains("cannot be carried as raw"), "{error}");
    let signature = polyrpc::client::StubMethod::plain("", "sum1");
    let request = Request::new(1).with_format(Format::Raw);
    let error = client.invoke::<polyrpc::codec::Serde, i32, i32>(&signature, request).await.unwrap_err();
    assert_eq!(error.code(), Code::InvalidArgument, "{error}");
}

#[tokio::test]
async fn function_can_take_the_context_first() {
    let server = serve(
        Server::new()
            .function("where", |cx: Context| async move { format!("{}/{}", cx.service(), cx.method()) })
            .function("Shop/tenant", |cx: Context, item: String, n: u32| async move {
                let tenant = cx.metadata().get("tenant").ok_or_else(|| Status::permission_denied("who?"))?;
                Ok::<_, Status>(format!("{n} {item} for {tenant}"))
            })
            .function("tagged", |mut cx: Context, n: i32| async move {
                cx.reply_options().metadata.insert("tag", "t");
                (cx, n + 1)
            })
            .function("refused", |mut cx: Context| async move {
                cx.reply_options().metadata.insert("tag", "t");
                (cx, Err::<(), _>(Status::aborted("lost")))
            }),
    )
    .await;
    for protocol in PROTOCOLS {
        let client = client(protocol, &server);
        assert_eq!(client.call::<String>("where", &()).await.unwrap(), "/where", "{protocol:?}");
        assert_eq!(client.call::<i32>("tagged", &(1,)).await.unwrap(), 2, "{protocol:?}");
        let error = client.call::<()>("refused", &()).await.unwrap_err();
        assert!(error.message().ends_with("lost"), "{protocol:?}: {error}");
        if protocol == Protocol::NetRpc {
            continue; // It carries no metadata.
        }
        let reply = client.call_with::<i32>("tagged", Request::new((1,))).await.unwrap();
        assert_eq!((reply.message, reply.metadata.get("tag")), (2, Some("t")), "{protocol:?}");
        let asked = Request::new(("tea", 3)).with_metadata("tenant", "a");
        let reply = client.call_with::<String>("Shop/tenant", asked).await.unwrap();
        assert_eq!(reply.message, "3 tea for a", "{protocol:?}");
        let error = client.call::<String>("Shop/tenant", &("tea", 3)).await.unwrap_err();
        assert!(error.message().ends_with("who?"), "{protocol:?}: {error}");
    }
}

#[tokio::test]
async fn call_builder_sets_format_timeout_and_attachment() {
    let server = serve(
        Server::new()
            .function("format", |cx: Context, _: u32| async move { cx.format().as_str().to_owned() })
            .function("attached", |cx: Context| async move { cx.attachment().len() })
            .function("left", |cx: Context| async move { cx.remaining().map_or(0, |left| left.as_secs()) })
            .function("hang", || async { std::future::pending::<()>().await }),
    )
    .await;
    let client = client(Protocol::BaiduStd, &server);
    assert_eq!(
        client
            .call_with::<usize>("attached", Request::new(()).with_attachment("12345"))
            .await
            .unwrap()
            .message,
        5
    );
    let patient = Request::new(()).with_timeout(Duration::from_secs(3000));
    let left = client.call_with::<u64>("left", patient).await.unwrap().message;
    assert!((2900..=3000).contains(&left));
    let hasty = Request::new(()).with_timeout(Duration::from_millis(20));
    assert_eq!(client.call_with::<()>("hang", hasty).await.unwrap_err().code(), Code::DeadlineExceeded);
    let json = Request::new((1,)).with_format(Format::Json(Json::Brpc));
    assert_eq!(
        client.call_with::<String>("format", json).await.unwrap().message,
        Format::Json(Json::Brpc).as_str()
    );

    let rpcx = crate::common::client(Protocol::Rpcx, &server);
    rpcx.oneway("hang", ()).await.unwrap();

    let guarded = polyrpc::server::Listen::on("127.0.0.1:0").authenticate(|credential, _| match credential {
        Some(b"secret") => Ok(()),
        _ => Err(Status::unauthenticated("who are you?")),
    });
    let server = Server::new().function("in", || async { 1 }).bind(guarded).await.unwrap().start();
    let grpc = crate::common::client(Protocol::Grpc, &server);
    assert_eq!(
        grpc.call_with::<i32>("in", Request::new(()).with_credential("secret")).await.unwrap().message,
        1
    );
    assert_eq!(grpc.call::<i32>("in", &()).await.unwrap_err().code(), Code::Unauthenticated);
}
