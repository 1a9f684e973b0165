//! The requests of a call that has several.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use buffa::Message;
use polyrpc::Streaming;
use polyrpc::client::CancelHandle;
use tokio::sync::Semaphore;

use crate::cancel::cancel_in;
use crate::proto::client_compat_request::cancel::CancelTiming;
use crate::proto::{ClientCompatRequest, StreamType};

/// The requests, and what becomes of the call behind them.
pub(crate) struct Requests<T> {
    messages: Vec<T>,
    pause: Duration,
    turns: Option<Turns>,
    behind: Behind,
    cancel: CancelHandle,
    unsent: Unsent,
}

/// What follows the last request.
enum Behind {
    /// The end of the requests.
    End,
    /// That, and the call is cancelled so long afterwards.
    Cancel(Duration),
    /// The call is cancelled, and there is no end.
    CancelInstead,
}

/// How many requests were not sent.
#[derive(Clone)]
pub(crate) struct Unsent(Arc<AtomicUsize>);

/// Each request waits for the answer to the one before.
#[derive(Clone)]
pub(crate) struct Turns(Arc<Semaphore>);

impl<T: Message + Send + 'static> Requests<T> {
    pub(crate) fn new(
        asked: &ClientCompatRequest,
        cancel: &CancelHandle,
        turns: Option<Turns>,
    ) -> Result<Self, buffa::DecodeError> {
        let read = |message: &buffa_types::google::protobuf::Any| T::decode_from_slice(&message.value);
        let messages = asked.request_messages.iter().map(read).collect::<Result<Vec<_>, _>>()?;
        let behind = match asked.cancel.as_option().map(|asked| asked.cancel_timing.as_ref()) {
            None | Some(Some(CancelTiming::AfterNumResponses(_))) => Behind::End,
            Some(Some(CancelTiming::BeforeCloseSend(_))) => Behind::CancelInstead,
            Some(Some(CancelTiming::AfterCloseSendMs(millis))) => {
                Behind::Cancel(Duration::from_millis((*millis).into()))
            }
            Some(None) => Behind::Cancel(Duration::ZERO),
        };
        let unsent = Unsent(Arc::new(AtomicUsize::new(messages.len())));
        let pause = Duration::from_millis(asked.request_delay_ms.into());
        Ok(Self { messages, pause, turns, behind, cancel: cancel.clone(), unsent })
    }

    pub(crate) fn unsent(&self) -> Unsent {
        self.unsent.clone()
    }

    /// The requests as they are sent.
    pub(crate) fn stream(self) -> Streaming<T> {
        Streaming::produce(move |sender| async move {
            for message in self.messages {
                if let Some(turns) = &self.turns {
                    turns.wait().await;
                }
                tokio::time::sleep(self.pause).await;
                sender.send(message).await?;
                self.unsent.0.fetch_sub(1, Ordering::Relaxed);
            }
            // In full duplex, the end is behind the answer to the last request.
            if let Some(turns) = &self.turns {
                turns.wait().await;
            }
            match self.behind {
                Behind::End => {}
                Behind::Cancel(pause) => cancel_in(pause, &self.cancel),
                Behind::CancelInstead => {
                    self.cancel.cancel();
                    std::future::pending::<()>().await;
                }
            }
            Ok(())
        })
    }
}

impl Unsent {
    pub(crate) fn left(&self) -> i32 {
        i32::try_from(self.0.load(Ordering::Relaxed)).unwrap_or(i32::MAX)
    }
}

impl Turns {
    /// Those of a call in full duplex.
    pub(crate) fn from_request(asked: &ClientCompatRequest) -> Option<Self> {
        let full = StreamType::STREAM_TYPE_FULL_DUPLEX_BIDI_STREAM;
        (asked.stream_type.as_known() == Some(full)).then(|| Self(Arc::new(Semaphore::new(1))))
    }

    /// An answer has come: the next request may leave.
    pub(crate) fn pass(&self) {
        self.0.add_permits(1);
    }

    async fn wait(&self) {
        if let Ok(turn) = self.0.acquire().await {
            turn.forget();
        }
    }
}
