//! rest_rpc through the public API, in every version.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use polyrpc::blocking;
use polyrpc::codec::Serde;
use polyrpc::payload::ByteString;
use polyrpc::rest_rpc::{ByteOrder, Version};
use polyrpc::server::{Limits, Listen, ServerHandle};
use polyrpc::service::ServiceBuilder;
use polyrpc::{Client, Code, Context, Format, Result, Server, Status};
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::common::{Prober, serve, soon};

const ALL: [Version; 7] = [
    Version::V0_04,
    Version::V0_11,
    Version::From20221223,
    Version::From20230216,
    Version::V0_20,
    Version::V0_21(ByteOrder::Little),
    Version::V0_21(ByteOrder::Big),
];

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Person {
    id: i32,
    name: String,
    age: i32,
}

impl Person {
    fn tom(age: i32) -> Self {
        Self { id: 1, name: "tom".to_owned(), age }
    }
}

fn functions() -> Server {
    Server::new()
        .function("add", |a: i32, b: i32| async move { a + b })
        .function("half", |n: f64| async move { n / 2.0 })
        .function("not", |truth: bool| async move { !truth })
        .function("echo", |text: String| async move { text })
        .function("zero", || async { 42_i32 })
        .function("hello", |_: String| async {})
        .function("maybe", |n: i32| async move { (n > 0).then_some(n) })
        .function("names", |people: Vec<Person>| async move {
            people.into_iter().map(|person| person.name).collect::<Vec<_>>()
        })
        .function("get_person", |person: Person| async move { Person { age: person.age + 1, ..person } })
        .function("thr", |_: i32| async { Result::<i32>::Err(Status::unknown("boom").into()) })
        .function("dummy::add", |a: i32, b: i32| async move { a + b })
}

async fn listening(server: Server, version: Version) -> ServerHandle {
    server.bind(Listen::on("127.0.0.1:0").rest_rpc(version)).await.expect("a port is free").start()
}

fn url(server: &ServerHandle, version: Version) -> String {
    format!("rest-rpc://{}?{}", server.address(), version.url_parameters())
}

fn client(server: &ServerHandle, version: Version) -> Client {
    Client::new(&url(server, version)).expect("the URL is valid")
}

#[tokio::test]
async fn functions_accept_and_return_cpp_types() {
    for version in ALL {
        let server = listening(functions(), version).await;
        let client = client(&server, version);
        assert_eq!(client.rest_rpc_version(), Some(version));
        assert_eq!(client.call::<i32>("add", &(7, 8)).await.unwrap(), 15, "{version}");
        assert_eq!(client.call::<i32>("dummy::add", &(7, 8)).await.unwrap(), 15);
        assert_eq!(client.call::<f64>("half", &3.0).await.unwrap(), 1.5);
        assert!(!client.call::<bool>("not", &true).await.unwrap());
        assert_eq!(client.call::<String>("echo", "hello").await.unwrap(), "hello");
        assert_eq!(client.call::<String>("echo", &("hello",)).await.unwrap(), "hello");
        assert_eq!(client.call::<i32>("zero", &()).await.unwrap(), 42);
        client.call::<()>("hello", "bob").await.unwrap();
        assert_eq!(client.call::<Option<i32>>("maybe", &0).await.unwrap(), None);
        assert_eq!(client.call::<Option<i32>>("maybe", &7).await.unwrap(), Some(7));
        assert_eq!(client.call::<Person>("get_person", &Person::tom(20)).await.unwrap(), Person::tom(21));
        assert_eq!(client.call::<Person>("get_person", &(Person::tom(20),)).await.unwrap(), Person::tom(21));
        let people = vec![Person::tom(1), Person::tom(2)];
        assert_eq!(client.call::<Vec<String>>("names", &people).await.unwrap(), ["tom", "tom"]);
    }
}

/// A server's response to these bytes.
async fn answer(server: &ServerHandle, request: &str, length: usize) -> Vec<u8> {
    let digits: Vec<u8> = request.bytes().filter(|byte| !byte.is_ascii_whitespace()).collect();
    let digit = |byte: u8| (byte as char).to_digit(16).expect("a digit") as u8;
    let bytes: Vec<u8> = digits.chunks_exact(2).map(|pair| digit(pair[0]) << 4 | digit(pair[1])).collect();
    let mut stream = TcpStream::connect(server.address().to_string()).await.expect("it listens");
    stream.write_all(&bytes).await.expect("it reads");
    let mut answer = vec![0; length];
    soon(stream.read_exact(&mut answer)).await.expect("it answers");
    answer
}

#[tokio::test]
async fn invalid_utf8_round_trips() {
    let server = Server::new().function("echo", |text: ByteString| async move { text });
    let old = listening(server, Version::V0_20).await;
    let request = "27000000 03000000 0100000000000000 d81eb1cb 91a1ff";
    assert_eq!(answer(&old, request, 24).await[20..], *b"\x92\0\xa1\xff");

    let server = Server::new().function("echo", |text: ByteString| async move { text });
    let new = listening(server, Version::default()).await;
    let request = "27000000 d81eb1cb 0000000000000000 0100000000000000 0000000000000000 ff";
    assert_eq!(answer(&new, request, 34).await[32..], *b"\0\xff");

    for version in ALL {
        let server = Server::new().function("both", |name: String, file: ByteString| async move {
            assert_eq!(name, "name");
            file
        });
        let server = listening(server, version).await;
        let file = ByteString::from(b"\xfe\xff".to_vec());
        let back: ByteString = client(&server, version).call("both", &("name", &file)).await.unwrap();
        assert_eq!(back, file, "{version}");
    }
}

#[tokio::test]
async fn wrong_number_of_arguments_is_rejected_naming_both_numbers() {
    for version in ALL.into_iter().take(5) {
        let server = listening(functions(), version).await;
        let client = client(&server, version);
        let refused = async |name: &str, arguments: &[i32], want: &str| {
            let answer = match arguments {
                [] => client.call::<i32>(name, &()).await,
                [a] => client.call::<i32>(name, &(a,)).await,
                [a, b] => client.call::<i32>(name, &(a, b)).await,
                [a, b, c, ..] => client.call::<i32>(name, &(a, b, c)).await,
            };
            let error = answer.unwrap_err();
            assert_eq!(error.code(), Code::InvalidArgument, "{version} {name}: {error}");
            let want = format!("unpack failed: Args not match! {want}");
            assert_eq!(error.message(), want, "{version} {name}");
        };
        refused("add", &[1, 2, 3], "expected 2 arguments, found 3").await;
        refused("add", &[1], "expected 2 arguments, found 1").await;
        refused("add", &[], "expected 2 arguments, found 0").await;
        refused("echo", &[1, 2], "expected 1 argument, found 2").await;
        refused("echo", &[], "expected 1 argument, found 0").await;
        refused("zero", &[1], "expected 0 arguments, found 1").await;
        assert_eq!(client.call::<i32>("add", &(1, 2)).await.unwrap(), 3, "the connection goes on");
        assert_eq!(client.call::<i32>("zero", &()).await.unwrap(), 42);
    }
    let server = listening(functions(), Version::V0_20).await;
    let request = "27000000 04000000 0100000000000000 fc78ec34 93010203";
    let text = b"\x92\x01\xd9\x3cunpack failed: Args not match! expected 2 arguments, found 3";
    assert_eq!(answer(&server, request, 20 + text.len()).await[20..], *text);
}

#[tokio::test]
async fn struct_as_an_array_may_have_more_or_fewer_members() {
    for version in ALL.into_iter().take(5) {
        let server = listening(functions(), version).await;
        let client = client(&server, version);
        let more = ((1, "tom", 20, 5),);
        assert_eq!(client.call::<Person>("get_person", &more).await.unwrap(), Person::tom(21), "{version}");
        let fewer = ((1, "tom"),);
        assert_eq!(client.call::<Person>("get_person", &fewer).await.unwrap(), Person::tom(1));
        let people = (((1, "tom"), (2, "bob", 20, [1, 2])),);
        assert_eq!(client.call::<Vec<String>>("names", &people).await.unwrap(), ["tom", "bob"]);
    }
}

#[tokio::test]
async fn service_method_receives_the_available_members() {
    let lists = ServiceBuilder::new("People")
        .method::<Serde, Person, Person, _, _>("Older", |cx: Context, person: Person| async move {
            (cx, Ok(Person { age: person.age + 1, ..person }))
        });
    let server = listening(Server::new().service(lists), Version::V0_20).await;
    let client = client(&server, Version::V0_20);
    let nobody = Person { id: 0, name: String::new(), age: 1 };
    assert_eq!(client.call::<Person>("People/Older", &()).await.unwrap(), nobody);
    assert_eq!(client.call::<Person>("People/Older", &((1, "tom"),)).await.unwrap(), Person::tom(1));
    assert_eq!(client.call::<Person>("People/Older", &(1, "tom")).await.unwrap(), Person::tom(1));
    assert_eq!(client.call::<Person>("People/Older", &(1, "tom", 20)).await.unwrap(), Person::tom(21));
}

#[tokio::test]
async fn malformed_argument_lists_are_rejected() {
    let no_match = b"\x92\x01\xbeunpack failed: Args not match!";
    let server = listening(functions(), Version::V0_20).await;
    for broken in [
        // add with a truncated string after its arguments, zero with a number, and with a truncated list.
        "27000000 05000000 0100000000000000 fc78ec34 930102a561",
        "27000000 01000000 0100000000000000 4c4c2cd0 05",
        "27000000 02000000 0100000000000000 4c4c2cd0 91a5",
    ] {
        assert_eq!(answer(&server, broken, 20 + 33).await[20..], *no_match, "{broken}");
    }
    let zero = "27000000 01000000 0100000000000000 4c4c2cd0 90";
    assert_eq!(answer(&server, zero, 23).await[20..], *b"\x92\0\x2a");

    let server = listening(functions(), Version::V0_11).await;
    let unnamed = "01000000 0100000000000000 00 90";
    assert_eq!(answer(&server, unnamed, 34).await[13..], *b"\x92\x01\xb2unknown function: ");
    let cut = "08000000 0100000000000000 00 92a66e6f73756368";
    assert_eq!(answer(&server, cut, 13 + 33).await[13..], *no_match);
}

#[tokio::test]
async fn client_waits_before_its_first_call_to_a_v0_04_server() {
    let server = listening(functions(), Version::V0_04).await;
    let began = Instant::now();
    assert_eq!(client(&server, Version::V0_04).call::<i32>("add", &(7, 8)).await.unwrap(), 15);
    assert!(began.elapsed() >= Duration::from_millis(30));

    let began = Instant::now();
    let client = blocking::Client::new(&url(&server, Version::V0_04)).unwrap();
    let sum = tokio::task::spawn_blocking(move || client.call::<i32>("add", &(7, 8)));
    assert_eq!(sum.await.unwrap().unwrap(), 15);
    assert!(began.elapsed() >= Duration::from_millis(30));
}

#[tokio::test]
async fn failures_have_the_texts_of_the_peer() {
    for version in ALL {
        let server = listening(functions(), version).await;
        let client = client(&server, version);
        let failure = client.call::<i32>("thr", &1).await.unwrap_err();
        assert_eq!((failure.code(), failure.message()), (Code::Unknown, "boom"), "{version}");
        let failure = client.call::<i32>("nosuch", &1).await.unwrap_err();
        assert_eq!(failure.code(), Code::Unimplemented);
        assert!(failure.message().starts_with("unknown function: "), "{failure}");
        let failure = client.call::<i32>("add", &("x", 1)).await.unwrap_err();
        let reported = (Code::InvalidArgument, "unpack failed: Args not match!");
        assert_eq!((failure.code(), failure.message()), reported);
        assert_eq!(client.call::<i32>("add", &(1, 2)).await.unwrap(), 3, "the connection lives on");
    }
}

#[tokio::test]
async fn service_written_for_other_protocols_is_served() {
    for version in ALL {
        let prober = Prober::default();
        let server = listening(prober.server(), version).await;
        let client = client(&server, version);
        assert_eq!(client.call::<String>("Probe/Echo", "hi").await.unwrap(), "hi", "{version}");
        assert_eq!(client.call::<String>("Probe::Echo", "hi").await.unwrap(), "hi");
        let probe = crate::common::ProbeClient::new(client);
        assert_eq!(probe.echo("hi".into()).await.unwrap(), "hi");
        assert!(probe.peer().await.unwrap().starts_with("127.0.0.1:"));
    }
}

#[tokio::test]
async fn two_versions_share_a_port_by_detection() {
    let server = serve(functions()).await;
    for version in [Version::V0_20, Version::default()] {
        let client = client(&server, version);
        assert_eq!(client.call::<i32>("add", &(7, 8)).await.unwrap(), 15, "{version}");
    }
    let indeterminate_padding = "2700abcd 03000000 0100000000000000 fc78ec34 920708";
    assert_eq!(answer(&server, indeterminate_padding, 23).await[20..], *b"\x92\0\x0f");
}

#[tokio::test]
async fn struct_received_by_name_is_answered_by_name() {
    let server = listening(functions(), Version::V0_20).await;
    let client = Client::builder(&url(&server, Version::V0_20)).format(Format::MessagePack).build().unwrap();
    let by_name: BTreeMap<String, rmpv> = client.call("get_person", &Person::tom(20)).await.unwrap();
    assert_eq!(by_name["age"], rmpv::Number(21));
    assert_eq!(by_name["name"], rmpv::Text("tom".to_owned()));
}

/// A member of a struct sent by name.
#[derive(Debug, PartialEq, Deserialize)]
#[serde(untagged)]
#[allow(non_camel_case_types, reason = "it stands for a value of MessagePack")]
enum rmpv {
    Number(i32),
    Text(String),
}

#[tokio::test]
async fn concurrent_calls_get_their_own_responses() {
    for version in ALL {
        let server = listening(functions(), version).await;
        let client = client(&server, version);
        let calls = (0..50).map(|n| {
            let client = client.clone();
            async move { assert_eq!(client.call::<i32>("add", &(n, 1)).await.unwrap(), n + 1) }
        });
        futures_util::future::join_all(calls).await;
    }
}

#[tokio::test]
async fn slow_handler_does_not_block_others_if_calls_have_ids() {
    let prober = Prober::default();
    let server = listening(prober.server(), Version::V0_11).await;
    let probe = crate::common::ProbeClient::new(client(&server, Version::V0_11));
    let (waits, ()) = tokio::join!(probe.wait("late".into()), async {
        prober.gate.came(1).await;
        assert_eq!(probe.echo("early".into()).await.unwrap(), "early");
        prober.gate.open();
    });
    assert_eq!(waits.unwrap(), "late");
    assert_eq!(server.connection_count(), 1);
}

#[test]
fn blocking_client_calls_every_version() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    for version in ALL {
        let server = runtime.block_on(listening(functions(), version));
        let client = blocking::Client::new(&url(&server, version)).unwrap();
        assert_eq!(client.call::<i32>("add", &(7, 8)).unwrap(), 15, "{version}");
        assert_eq!(client.call::<Person>("get_person", &Person::tom(20)).unwrap(), Person::tom(21));
    }
}

#[tokio::test]
async fn published_messages_reach_only_subscribers() {
    for version in ALL.into_iter().skip(1) {
        let server = functions();
        let publisher = server.publisher();
        let server = listening(server, version).await;
        let client = client(&server, version);
        let mut news = client.subscribe::<String>("key", "").await.unwrap();
        let mut reported = client.subscribe::<String>("key", "tok1").await.unwrap();
        let mut people = client.subscribe::<Person>("people", "").await.unwrap();
        soon(async {
            while publisher.publish("key", "", "hello").unwrap() == 0 {
                tokio::task::yield_now().await;
            }
            while publisher.publish("key", "tok1", "for tok1").unwrap() == 0 {
                tokio::task::yield_now().await;
            }
            while publisher.publish("people", "", &Person::tom(20)).unwrap() == 0 {
                tokio::task::yield_now().await;
            }
        })
        .await;
        assert_eq!(publisher.publish("other", "", "hello").unwrap(), 0);
        assert_eq!(soon(news.message()).await.unwrap().as_deref(), Some("hello"), "{version}");
        assert_eq!(soon(reported.message()).await.unwrap().as_deref(), Some("for tok1"));
        assert_eq!(soon(people.message()).await.unwrap(), Some(Person::tom(20)));
        assert_eq!(client.call::<i32>("add", &(1, 2)).await.unwrap(), 3);
    }
}

#[tokio::test]
async fn oldest_version_has_no_topics() {
    let server = listening(functions(), Version::V0_04).await;
    let failure = client(&server, Version::V0_04).subscribe::<String>("key", "").await.unwrap_err();
    assert_eq!(failure.code(), Code::Unimplemented);
}

#[tokio::test]
async fn client_publishes_through_a_server_function() {
    let version = Version::V0_20;
    let server = functions().allow_publish();
    let publisher = server.publisher();
    let server = listening(server, version).await;
    let client = client(&server, version);
    let mut news = client.subscribe::<String>("key", "").await.unwrap();
    while publisher.publish("key", "", "first").unwrap() == 0 {
        tokio::task::yield_now().await;
    }
    // What C++ sends: the packed value as a string.
    client.call::<()>("publish", &("key", "", "\u{6}")).await.unwrap();
    client.call::<()>("publish_by_token", &("ke", "y", "text")).await.unwrap();
    assert_eq!(soon(news.message()).await.unwrap().as_deref(), Some("first"));
    assert_eq!(soon(news.message()).await.unwrap().as_deref(), Some("\u{6}"));
    assert_eq!(soon(news.message()).await.unwrap().as_deref(), Some("text"));
}

#[tokio::test]
async fn topic_can_be_invalid_utf8_and_two_subscriptions_receive_two_copies() {
    let server = functions().allow_publish();
    let publisher = server.publisher();
    let server = listening(server, Version::V0_20).await;
    // It subscribes twice to the topic 0xff, then publishes to it.
    let subscription = "27010000 04000000 0000000000000000 00000000 92a1ffa0";
    let publication = "27000000 06000000 0100000000000000 b30b6d9b 93a1ffa0a178";
    let pushed = b"\x93\0\xa1\xff\xa1x";
    let reported = answer(&server, &[subscription, subscription, publication].concat(), 26 + 26 + 22).await;
    // The order of the response and the pushes is unspecified.
    let count = reported.windows(pushed.len()).filter(|window| window == pushed).count();
    assert_eq!(count, 2, "{reported:?}");
    soon(async {
        while publisher.publish(b"\xff", "", "hello").unwrap() > 0 {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

#[tokio::test]
async fn subscription_ends_with_its_connection() {
    for version in [Version::V0_20, Version::default()] {
        let server = functions();
        let publisher = server.publisher();
        let server = listening(server, version).await;
        let client = client(&server, version);
        let news = client.subscribe::<String>("key", "").await.unwrap();
        soon(async {
            while publisher.publish("key", "", "hello").unwrap() == 0 {
                tokio::task::yield_now().await;
            }
            drop((news, client));
            while publisher.publish("key", "", "hello").unwrap() > 0 {
                tokio::task::yield_now().await;
            }
        })
        .await;
    }
}

#[tokio::test]
async fn newer_subscription_replaces_the_one_with_the_same_id() {
    let server = functions();
    let publisher = server.publisher();
    let server = listening(server, Version::V0_21(ByteOrder::Little)).await;
    let mut stream = TcpStream::connect(server.address().to_string()).await.unwrap();
    let subscription = |topic: &[u8]| {
        let mut header = [0; 32];
        (header[0], header[3]) = (39, 1);
        header[4..8].copy_from_slice(&polyrpc_wire::rest_rpc::number(topic).to_le_bytes());
        header
    };
    for _ in 0..3 {
        stream.write_all(&subscription(b"old")).await.unwrap();
    }
    let mut reached = 0;
    soon(async {
        while reached == 0 {
            reached = publisher.publish("old", "", "hello").unwrap();
            tokio::task::yield_now().await;
        }
    })
    .await;
    assert_eq!(reached, 1);
    stream.write_all(&subscription(b"new")).await.unwrap();
    soon(async {
        while publisher.publish("new", "", "hello").unwrap() == 0 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    assert_eq!(publisher.publish("old", "", "hello").unwrap(), 0);
}

#[tokio::test]
async fn subscriptions_count_towards_the_memory_budget_until_disconnect() {
    let memory = 4 << 20;
    let limits =
        Limits { memory, memory_per_peer: memory, memory_per_connection: memory, ..Limits::default() };
    let server = listening(functions().limits(limits), Version::V0_20).await;
    let name = |n: usize, m: usize| format!("{n:08}{m:012}");
    let mut streams = Vec::new();
    let count =
        |counts: &[(&'static str, u64)], cause| counts.iter().find(|(name, _)| *name == cause).unwrap().1;
    for n in 0..20 {
        let mut stream = TcpStream::connect(server.address().to_string()).await.unwrap();
        let all: Vec<u8> = (0..1000)
            .flat_map(|m| {
                let body = [&b"\x92\xb4"[..], name(n, m).as_bytes(), b"\xa0"].concat();
                let header = [&[39, 1, 0, 0][..], &(body.len() as u32).to_le_bytes(), &[0; 12]].concat();
                [header, body].concat()
            })
            .collect();
        // A rejected one is not read to the end.
        let _ = soon(stream.write_all(&all)).await;
        streams.push(stream);
        let used = server.info().held_bytes;
        // Plus what one turn reads.
        assert!(used <= memory + (1 << 20), "{used}");
        if n == 2 {
            soon(async {
                while server.info().held_bytes < 3 * 500_000 {
                    tokio::task::yield_now().await;
                }
            })
            .await;
        }
    }
    soon(async {
        let ended = |facts: polyrpc::introspection::ServerInfo| {
            count(&facts.rejections, "memory") + count(&facts.closed_connections, "largest_holder")
        };
        while ended(server.info()) == 0 {
            tokio::task::yield_now().await;
        }
        drop(streams);
        while server.info().held_bytes > 0 {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

#[tokio::test]
async fn subscription_is_renewed_after_reconnecting() {
    let server = functions();
    let publisher = server.publisher();
    let version = Version::V0_20;
    let first = listening(server, version).await;
    let address = first.address().to_string();
    let client = client(&first, version);
    let mut news = client.subscribe::<String>("key", "").await.unwrap();
    while publisher.publish("key", "", "first").unwrap() == 0 {
        tokio::task::yield_now().await;
    }
    assert_eq!(soon(news.message()).await.unwrap().as_deref(), Some("first"));
    drop(first);

    let server = functions();
    let publisher = server.publisher();
    let _second = soon(async {
        let listen = || Listen::on(address.as_str()).rest_rpc(version);
        let mut server = Some(server);
        loop {
            // The first server may still hold the port for a moment.
            let free = tokio::net::TcpListener::bind(&address).await.is_ok();
            if free {
                return server.take().unwrap().bind(listen()).await.expect("the port is free").start();
            }
            tokio::task::yield_now().await;
        }
    })
    .await;
    let publish = async {
        loop {
            publisher.publish("key", "", "second").unwrap();
            tokio::task::yield_now().await;
        }
    };
    tokio::select! {
        message = soon(news.message()) => assert_eq!(message.unwrap().as_deref(), Some("second")),
        () = publish => {}
    }
}

#[tokio::test]
async fn guarded_server_cannot_be_called_over_rest_rpc() {
    let server = functions();
    let publisher = server.publisher();
    let listen = Listen::on("127.0.0.1:0").rest_rpc(Version::V0_20).authenticate(|credential, _| {
        credential.map(drop).ok_or_else(|| Status::unauthenticated("who are you?"))
    });
    let server = server.bind(listen).await.unwrap().start();
    let client = client(&server, Version::V0_20);
    let failure = client.call::<i32>("add", &(1, 2)).await.unwrap_err();
    assert_eq!(failure.message(), "who are you?");
    let _news = client.subscribe::<String>("key", "").await.unwrap();
    assert_eq!(publisher.publish("key", "", "secret").unwrap(), 0);
}

#[tokio::test]
async fn typed_method_encodes_empty_values_with_their_type() {
    let version = Version::default();
    let lists = ServiceBuilder::new("Lists").method::<Serde, Vec<Person>, Vec<Person>, _, _>(
        "Same",
        |cx: Context, people: Vec<Person>| async move { (cx, Ok(people)) },
    );
    let server = listening(Server::new().service(lists), version).await;
    let client = client(&server, version);
    let signature = polyrpc::client::StubMethod::plain("Lists", "Same");
    for people in [vec![], vec![Person::tom(1)]] {
        let same =
            client.invoke::<Serde, Vec<Person>, Vec<Person>>(&signature, people.clone()).await.unwrap();
        assert_eq!(same.message, people);
    }
    let failure = client.call::<Vec<Person>>("Lists/Same", &Vec::<Person>::new()).await.unwrap_err();
    assert_eq!(failure.code(), Code::Internal, "{failure}");
}
