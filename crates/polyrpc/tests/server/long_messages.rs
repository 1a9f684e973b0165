//! Long messages are decoded where no other connection waits for them.

use std::sync::{Condvar, Mutex, PoisonError};

use polyrpc::{Client, Format, Json, Protocol, Result, Server, Streaming};
use serde::de::{Deserialize, Deserializer, Error as _};
use serde::{Serialize, Serializer};

use crate::common::{PATIENCE, serve, soon, until, url};

/// A text. Decoding a long one waits until a short one was answered.
struct Text(String);

/// Longer than what is decoded in place.
const LONG: usize = 300 << 10;

#[derive(Clone, Copy, PartialEq)]
enum Progress {
    None,
    Decoding,
    Answered,
}

static PROGRESS: (Mutex<Progress>, Condvar) = (Mutex::new(Progress::None), Condvar::new());

fn progress() -> Progress {
    *PROGRESS.0.lock().unwrap_or_else(PoisonError::into_inner)
}

fn set(progress: Progress) {
    *PROGRESS.0.lock().unwrap_or_else(PoisonError::into_inner) = progress;
    PROGRESS.1.notify_all();
}

impl Serialize for Text {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        self.0.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Text {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        if text.len() >= LONG {
            let mut progress = PROGRESS.0.lock().unwrap_or_else(PoisonError::into_inner);
            if *progress == Progress::None {
                *progress = Progress::Decoding;
            }
            let waits = |progress: &mut Progress| *progress != Progress::Answered;
            let waited = PROGRESS.1.wait_timeout_while(progress, PATIENCE, waits);
            if waited.is_ok_and(|(_, timeout)| timeout.timed_out()) {
                return Err(D::Error::custom("the short call was not answered meanwhile"));
            }
        }
        Ok(Self(text))
    }
}

#[polyrpc::service]
trait Measure {
    async fn length(&self, text: Text) -> Result<usize>;
    #[rpc(blocking)]
    async fn length_of_blocking(&self, text: Text) -> Result<usize>;
    async fn total(&self, texts: Streaming<Text>) -> Result<usize>;
    async fn repeated(&self, text: Text) -> Result<Streaming<usize>>;
}

struct Ruler;

impl Measure for Ruler {
    async fn length(&self, text: Text) -> Result<usize> {
        Ok(text.0.len())
    }

    async fn length_of_blocking(&self, text: Text) -> Result<usize> {
        Ok(text.0.len())
    }

    async fn total(&self, mut texts: Streaming<Text>) -> Result<usize> {
        let mut total = 0;
        while let Some(text) = texts.message().await? {
            total += text.0.len();
        }
        Ok(total)
    }

    async fn repeated(&self, text: Text) -> Result<Streaming<usize>> {
        Ok(Streaming::once(text.0.len()))
    }
}

fn long() -> Text {
    Text("x".repeat(LONG))
}

// On one thread: nothing else would run while it decodes.
#[tokio::test(flavor = "current_thread")]
async fn short_calls_are_answered_while_a_long_message_is_decoded() {
    let _shared = crate::MEMORY.read().await;
    let server = serve(Server::new().service(MeasureServer::new(Ruler))).await;
    let calls = [
        (Protocol::Http, "length"),
        (Protocol::Rpcx, "length"),
        (Protocol::BaiduStd, "length"),
        (Protocol::Grpc, "length"),
        (Protocol::Http, "length_of_blocking"),
        (Protocol::Grpc, "total"),
        (Protocol::Grpc, "repeated"),
    ];
    for (protocol, method) in calls {
        set(Progress::None);
        let measure = || {
            let builder = Client::builder(&url(protocol, &server)).format(Format::Json(Json::Proto3));
            MeasureClient::new(builder.build().expect("the URL is valid"))
        };
        let asking = measure();
        let calling = tokio::spawn(async move {
            match method {
                "length" => asking.length(long()).await,
                "length_of_blocking" => asking.length_of_blocking(long()).await,
                "total" => asking.total(Streaming::from_iter([long(), long()])).await,
                _ => {
                    let mut lengths = asking.repeated(long()).await?;
                    lengths.message().await.map(|length| length.unwrap_or_default())
                }
            }
        });
        until(|| progress() == Progress::Decoding || calling.is_finished()).await;
        if calling.is_finished() {
            panic!("{protocol:?} {method}: {:?}", calling.await);
        }
        let short = soon(measure().length(Text("short".into()))).await.expect("it is short");
        set(Progress::Answered);
        let long = soon(calling).await.expect("no panic").expect("it is decoded in the end");
        let texts = if method == "total" { 2 } else { 1 };
        assert_eq!((short, long), (5, texts * LONG), "{protocol:?} {method}");
    }
}
