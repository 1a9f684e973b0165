//! The layer on real servers and clients.

use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use polyrpc::client::CallOptions;
use polyrpc::codec::{Body, Serde};
use polyrpc::{Client, Context, Format, Server, Status};
use polyrpc_record::call::{Reason, Side};
use polyrpc_record::layer::{Recorder, RecorderOptions};
use polyrpc_record::redact::Redaction;
use polyrpc_record::{Call, Entry, Loss, Reader, RecordingEnd};

/// A folder of the test's own.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let name = format!("polyrpc-record-{}-{}", process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let folder = std::env::temp_dir().join(name);
        fs::create_dir_all(&folder).unwrap();
        Self(folder)
    }

    fn file(&self) -> PathBuf {
        self.0.join("calls.rec")
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Options that do not depend on the space of this machine.
fn options() -> RecorderOptions {
    Recorder::options().min_free(0)
}

fn read(path: &Path) -> (Vec<Call>, Loss, RecordingEnd) {
    let mut reader = Reader::new(File::open(path).unwrap()).unwrap();
    let (mut calls, mut loss) = (Vec::new(), Loss::default());
    while let Some(entry) = reader.next_entry().unwrap() {
        match entry {
            Entry::Call(call) => calls.push(*call),
            Entry::Loss(more) => loss.add(&more),
            Entry::Schema(_) => {}
        }
    }
    (calls, loss, reader.ending().unwrap().clone())
}

fn server() -> Server {
    Server::new()
        .function("double", |n: u64| async move { n * 2 })
        .function("fail", || async { Err::<(), _>(Status::not_found("no such thing")) })
        .function("wait", |cx: Context| async move {
            while !cx.is_cancelled() {
                tokio::task::yield_now().await;
            }
        })
}

#[tokio::test]
async fn server_and_client_record_the_same_call() {
    let folder = Folder::new();
    let (of_server, of_client) = (folder.0.join("server.rec"), folder.0.join("client.rec"));
    let (on_server, on_client) = (options().open(&of_server).unwrap(), options().open(&of_client).unwrap());
    let server = server().layer(on_server.clone()).bind("127.0.0.1:0").await.unwrap().start();
    let url = format!("rpcx://{}", server.address());
    let client = Client::builder(&url).layer(on_client.clone()).build().unwrap();
    let mut call_options = CallOptions { timeout: Some(Duration::from_secs(9)), ..CallOptions::default() };
    call_options.metadata.insert("tenant", "a");
    call_options.metadata.insert("x-token", "secret");
    let body = Body::new(Format::MessagePack, vec![21]);
    client.call_raw("double", body, call_options).await.unwrap();
    client.call::<()>("fail", &()).await.unwrap_err();
    server.shutdown(Duration::from_secs(5)).await;
    on_server.close();
    on_client.close();
    for (path, side) in [(&of_server, Side::Server), (&of_client, Side::Client)] {
        let (calls, loss, ending) = read(path);
        assert!(matches!(ending, RecordingEnd::Complete(_)) && loss.calls() == 0);
        let [double, fail] = calls.as_slice() else { panic!("{calls:?}") };
        assert_eq!((double.side, double.method.as_str(), double.protocol.as_str()), (side, "double", "rpcx"));
        let request = double.request.as_ref().unwrap();
        assert_eq!((request.format, &request.body[..]), (Some(Format::MessagePack), &[21][..]));
        let outcome = double.outcome.as_ref().unwrap();
        assert_eq!(outcome.response.as_ref().unwrap().body, &[42][..]);
        assert!(
            double.timeout.unwrap() <= Duration::from_secs(9)
                && !double.took.is_zero()
                && !double.peer.is_empty()
        );
        let value = |name: &str| double.metadata.iter().find(|field| field.name == name).unwrap();
        assert_eq!(&value("tenant").value[..], b"a");
        assert!(value("x-token").removed && value("x-token").value.is_empty());
        let failure = fail.failure().unwrap();
        assert_eq!((failure.message.as_str(), fail.reason), ("no such thing", Reason::Sampled));
        let mode = fs::metadata(path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }
    let whole = fs::read(&of_server).unwrap();
    assert!(!whole.windows(6).any(|part| part == b"secret"));
}

#[tokio::test]
async fn failures_are_recorded_whatever_the_share() {
    let folder = Folder::new();
    let recorder = options().sample_rate(0.0).failures().open(folder.file()).unwrap();
    let client = Client::mock(|call| match call.method {
        "fail" => Err(Status::internal("broken").into()),
        _ => call.encode_reply::<Serde, _>(&1u8),
    });
    let client = client.layered(recorder.clone());
    for _ in 0..10 {
        client.call::<u8>("double", &()).await.unwrap();
        client.call::<u8>("fail", &()).await.unwrap_err();
    }
    recorder.close();
    let (calls, ..) = read(&folder.file());
    assert_eq!(calls.len(), 10);
    assert!(
        calls.iter().all(|call| call.method == "fail" && call.reason == Reason::Failed && call.weight == 1.0)
    );
    assert_eq!(recorder.stats().recorded, 10);
}

#[tokio::test]
async fn share_and_method_limit_bound_what_is_recorded() {
    let folder = Folder::new();
    let recorder = options().sample_rate(0.1).open(folder.file()).unwrap();
    let client = Client::mock(|call| call.encode_reply::<Serde, _>(&1u8)).layered(recorder.clone());
    for _ in 0..200 {
        client.call::<u8>("double", &()).await.unwrap();
    }
    recorder.close();
    let (calls, ..) = read(&folder.file());
    assert!((19..=20).contains(&calls.len()), "{}", calls.len());
    assert!(calls.iter().all(|call| (call.weight - 10.0).abs() < 0.01));

    let folder = Folder::new();
    let recorder = options().per_method(3).open(folder.file()).unwrap();
    let client = Client::mock(|call| call.encode_reply::<Serde, _>(&1u8)).layered(recorder.clone());
    for _ in 0..100 {
        client.call::<u8>("one", &()).await.unwrap();
    }
    recorder.close();
    let (calls, loss, _) = read(&folder.file());
    // A slow machine may need more than a second.
    assert!(calls.len() >= 3 && calls.len() as u64 + loss.method_limit == 100, "{} {loss:?}", calls.len());
}

#[tokio::test]
async fn cancelled_call_is_recorded_as_such() {
    let folder = Folder::new();
    let recorder = options().open(folder.file()).unwrap();
    let server = server().bind("127.0.0.1:0").await.unwrap().start();
    let url = format!("rpcx://{}", server.address());
    let client = Client::builder(&url).layer(recorder.clone()).build().unwrap();
    let waiting = client.call::<()>("wait", &());
    tokio::select! {
        biased;
        _ = waiting => panic!("it waits"),
        () = tokio::task::yield_now() => {}
    }
    recorder.close();
    let (calls, ..) = read(&folder.file());
    assert_eq!(calls[0].failure().unwrap().code, "cancelled");
    server.shutdown(Duration::ZERO).await;
}

#[tokio::test]
async fn full_queue_loses_calls_and_counts_them() {
    let folder = Folder::new();
    let recorder = options().queue(10_000).open(folder.file()).unwrap();
    let client = Client::mock(|call| call.encode_reply::<Serde, _>(&1u8)).layered(recorder.clone());
    let body = Body::new(Format::MessagePack, vec![0; 20_000]);
    for _ in 0..5 {
        client.call_raw("large", body.clone(), CallOptions::default()).await.unwrap();
    }
    client.call::<u8>("small", &()).await.unwrap();
    recorder.close();
    let (calls, loss, ending) = read(&folder.file());
    assert_eq!((calls.len(), loss.queue_full), (1, 5));
    let RecordingEnd::Complete(index) = ending else { panic!("no index") };
    assert_eq!(index.loss.queue_full, 5);
}

#[tokio::test]
async fn full_files_are_numbered_and_the_oldest_removed() {
    let folder = Folder::new();
    fs::write(folder.file(), b"notes").unwrap();
    assert_eq!(options().open(folder.file()).unwrap_err().kind(), std::io::ErrorKind::AlreadyExists);
    // A recorder that was killed at once leaves an empty file.
    fs::write(folder.file(), b"").unwrap();
    let recorder = options().rotate_at(300_000).total(1_000_000).open(folder.file()).unwrap();
    let client = Client::mock(|call| call.encode_reply::<Serde, _>(&1u8)).layered(recorder.clone());
    let mut state = 1u32;
    for _ in 0..300 {
        // Bytes that do not compress.
        let bytes: Vec<u8> = (0..10_000)
            .map(|_| {
                state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                (state >> 24) as u8
            })
            .collect();
        client
            .call_raw("large", Body::new(Format::MessagePack, bytes), CallOptions::default())
            .await
            .unwrap();
    }
    recorder.close();
    let mut files: Vec<_> = fs::read_dir(&folder.0).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    let total: u64 = files.iter().map(|path| fs::metadata(path).unwrap().len()).sum();
    assert!((300_000..=1_000_000).contains(&total), "{total}");
    assert!(files.len() >= 2 && !files.iter().any(|path| path.ends_with("calls.rec.000001")), "{files:?}");
    for path in &files {
        let (calls, loss, ending) = read(path);
        assert!(matches!(ending, RecordingEnd::Complete(_)) && loss.calls() == 0, "{}", path.display());
        assert!(calls.iter().all(|call| call.request.as_ref().unwrap().body.len() == 10_000));
    }
    assert_eq!(recorder.stats().recorded, 300);
}

#[tokio::test]
async fn recorder_without_space_records_nothing_and_fails_no_call() {
    let folder = Folder::new();
    let recorder = Recorder::options().min_free(u64::MAX).open(folder.file()).unwrap();
    let client = Client::mock(|call| call.encode_reply::<Serde, _>(&1u8)).layered(recorder.clone());
    let deadline = std::time::Instant::now() + Duration::from_secs(60);
    while recorder.stats().not_written == 0 {
        assert!(std::time::Instant::now() < deadline, "{:?}", recorder.stats());
        client.call::<u8>("double", &()).await.unwrap();
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    recorder.close();
}

#[tokio::test]
async fn fields_are_removed_before_they_reach_the_file() {
    let folder = Folder::new();
    let redaction = Redaction::new().drop_field("password".parse().unwrap());
    let recorder = options().redaction(redaction).open(folder.file()).unwrap();
    let client = Client::mock(|call| match call.method {
        "raw" => Ok(Body::new(Format::Raw, "done")),
        _ => call.encode_reply::<Serde, _>(&1u8),
    });
    let client = client.layered(recorder.clone());
    let argument = serde_json::json!({"user": "ann", "password": "hunter2"});
    client.call::<u8>("login", &argument).await.unwrap();
    let opaque = Body::new(Format::Raw, "hunter2");
    client.call_raw("raw", opaque, CallOptions::default()).await.unwrap();
    recorder.close();
    let (calls, ..) = read(&folder.file());
    let bodies: Vec<_> = calls.iter().map(|call| call.request.clone().unwrap()).collect();
    assert!(bodies[0].body.windows(3).any(|part| part == b"ann"));
    assert!(bodies.iter().all(|body| !body.body.windows(7).any(|part| part == b"hunter2")));
    assert!(!bodies[1].omitted.is_empty());
}

#[tokio::test]
async fn dropped_recorder_completes_its_file() {
    let folder = Folder::new();
    let client = Client::mock(|call| call.encode_reply::<Serde, _>(&1u8));
    let client = client.layered(options().open(folder.file()).unwrap());
    client.call::<u8>("double", &()).await.unwrap();
    drop(client);
    let (calls, _, ending) = read(&folder.file());
    assert!(calls.len() == 1 && matches!(ending, RecordingEnd::Complete(_)));
}
