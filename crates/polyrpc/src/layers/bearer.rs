use std::fmt;
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use polyrpc_core::{Code, Status};
use tokio::sync::Mutex;
use tokio::time::Instant as Time;

use crate::call::Outcome;
use crate::layer::{Call, Layer, Next, Side};
use crate::runtime::{AbortOnDrop, resume_panic};

/// Adds a bearer token to each call of a client. The token is fetched by a function of the program, as from an OAuth
/// server: once, and again when it expires or a server rejects it. An error of the function fails the call.
///
/// ```
/// use std::time::{Duration, Instant};
/// use polyrpc::layers::{Token, bearer};
///
/// let bearer = bearer(|| async {
///     // Ask the authority.
///     let token = String::from("…");
///     Ok(Token { value: token, expires_at: Some(Instant::now() + Duration::from_secs(3600)) })
/// });
/// let client = polyrpc::Client::builder("grpc://127.0.0.1:8000").layer(bearer);
/// ```
///
/// Calls wait while a token is fetched, up to their own deadline; it is fetched in a task of its own, which continues
/// for the next call if the first one times out. A call that was rejected as
/// [`Unauthenticated`](Code::Unauthenticated), which no server has started, is retried once with a new token. A call
/// with a credential of its own is left unchanged.
pub fn bearer<F: Future<Output = Result<Token, Status>> + Send + 'static>(
    fetch: impl Fn() -> F + Send + Sync + 'static,
) -> impl Layer + fmt::Debug {
    Bearer { fetch: Box::new(move || Box::pin(fetch())), current: Mutex::default() }
}

struct Bearer {
    fetch: Box<dyn Fn() -> BoxFuture<'static, Result<Token, Status>> + Send + Sync>,
    /// Locked while a token is fetched or awaited, so that it is fetched once.
    current: Mutex<TokenState>,
}

#[derive(Default)]
struct TokenState {
    held: Option<CachedToken>,
    /// The fetch of the next token, which may outlive the call that started it.
    fetching: Option<Fetching>,
}

type Fetching = AbortOnDrop<Result<Token, Status>>;

/// Bearer token of a client, as fetched by the function that [`bearer`] takes.
#[derive(Clone)]
pub struct Token {
    /// The token itself, without `Bearer`.
    pub value: String,
    /// When it expires. `None`: it is used until a server rejects it.
    pub expires_at: Option<Instant>,
}

#[derive(Clone)]
struct CachedToken {
    credential: Bytes,
    until: Option<Instant>,
}

impl Bearer {
    /// Returns a valid token, other than `refused`.
    async fn credential(&self, refused: Option<&Bytes>) -> Result<Bytes, Status> {
        let mut current = self.current.lock().await;
        if let Some(held) = &current.held
            && !has_ended(held.until)
            && refused != Some(&held.credential)
        {
            return Ok(held.credential.clone());
        }
        let Token { value: text, expires_at: until } = self.token(&mut current.fetching).await?;
        let credential = Bytes::from(format!("Bearer {text}"));
        current.held = Some(CachedToken { credential: credential.clone(), until });
        Ok(credential)
    }

    /// Returns the next token, from the task that already fetches it or from a new one.
    async fn token(&self, fetching: &mut Option<Fetching>) -> Result<Token, Status> {
        // The failure of a fetch that no call waited for is outdated.
        if let Some(fetched) = fetching.take_if(|fetching| fetching.is_finished())
            && let Ok(Ok(token)) = fetched.await
            && !has_ended(token.expires_at)
        {
            return Ok(token);
        }
        let fetched = fetching.get_or_insert_with(|| tokio::spawn((self.fetch)()).into()).await;
        *fetching = None;
        fetched.unwrap_or_else(|error| {
            resume_panic(error);
            Err(Status::unavailable("the runtime of the token fetch has ended"))
        })
    }

    /// Adds the token to a call within the call's own time.
    async fn attach_token(
        &self,
        call: &mut Call,
        deadline: Option<Instant>,
        refused: Option<&Bytes>,
    ) -> Result<Bytes, Status> {
        let fetched = self.credential(refused);
        let credential = match deadline {
            None => fetched.await?,
            Some(deadline) => tokio::time::timeout_at(deadline.into(), fetched)
                .await
                .unwrap_or_else(|_| Err(Status::deadline_exceeded("no token in time")))?,
        };
        call.set_deadline(deadline);
        if let Some(options) = call.options_mut() {
            options.credential = Some(credential.clone());
        }
        Ok(credential)
    }
}

fn has_ended(until: Option<Instant>) -> bool {
    until.is_some_and(|until| until <= Instant::now())
}

impl Layer for Bearer {
    async fn call(self: Arc<Self>, mut call: Call, next: Next) -> Outcome {
        if call.options().is_none_or(|options| options.credential.is_some()) {
            return next.call(call).await;
        }
        let now = Time::now().into_std();
        let deadline = call.remaining().and_then(|remaining| now.checked_add(remaining));
        let shown = match self.attach_token(&mut call, deadline, None).await {
            Ok(shown) => shown,
            Err(status) => return Outcome::failed(status),
        };
        // A streaming call belongs to the caller once it is opened, so it is not retried.
        let Some((mut again, once_more)) = call.try_clone().zip(next.try_clone()) else {
            return next.call(call).await;
        };
        let outcome = next.call(call).await;
        if outcome.failure().is_none_or(|status| status.code() != Code::Unauthenticated) {
            return outcome;
        }
        match self.attach_token(&mut again, deadline, Some(&shown)).await {
            Ok(_) => once_more.call(again).await,
            Err(status) => Outcome::failed(status),
        }
    }

    fn only_side(&self) -> Option<Side> {
        Some(Side::Client)
    }
}

impl fmt::Debug for Bearer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The token is secret.
        f.write_str("Bearer")
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Token").field("expires_at", &self.expires_at).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;

    use super::*;
    use crate::Client;
    use crate::call::CallOptions;
    use crate::codec::Body;

    /// Accepts the token with this number, and rejects all others.
    struct Guard(Arc<AtomicUsize>);

    impl Layer for Guard {
        async fn call(self: Arc<Self>, call: Call, next: Next) -> Outcome {
            let wanted = format!("Bearer {}", self.0.load(Ordering::SeqCst));
            match call.options().and_then(|options| options.credential.as_ref()) {
                Some(shown) if *shown == wanted => next.call(call).await,
                _ => Outcome::failed(Status::unauthenticated("who are you?")),
            }
        }
    }

    /// Returns a client that fetches tokens with ascending numbers, from 1, valid for this long; the number of fetches;
    /// and the number of the valid token.
    fn fetching(good_for: Option<Duration>) -> (Client, Arc<AtomicUsize>, Arc<AtomicUsize>) {
        let (fetched, good) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(1)));
        let counted = fetched.clone();
        let bearer = super::bearer(move || {
            let number = counted.fetch_add(1, Ordering::SeqCst) + 1;
            let until = good_for.map(|time| Instant::now() + time);
            async move { Ok(Token { value: number.to_string(), expires_at: until }) }
        });
        let client = Client::mock(|call| Ok(call.body)).layered(bearer).layered(Guard(good.clone()));
        (client, fetched, good)
    }

    #[tokio::test]
    async fn token_is_fetched_once_and_again_after_rejection() {
        let (client, fetched, good) = fetching(None);
        for _ in 0..3 {
            client.call::<()>("m", &()).await.unwrap();
        }
        assert_eq!(fetched.load(Ordering::SeqCst), 1);
        good.store(2, Ordering::SeqCst);
        client.call::<()>("m", &()).await.unwrap();
        assert_eq!(fetched.load(Ordering::SeqCst), 2);
        good.store(9, Ordering::SeqCst);
        assert_eq!(client.call::<()>("m", &()).await.unwrap_err().code(), Code::Unauthenticated);
        assert_eq!(fetched.load(Ordering::SeqCst), 3, "it is tried once more and not for ever");
    }

    #[tokio::test]
    async fn expired_token_is_not_sent() {
        let (client, fetched, good) = fetching(Some(Duration::ZERO));
        client.call::<()>("m", &()).await.unwrap();
        good.store(2, Ordering::SeqCst);
        client.call::<()>("m", &()).await.unwrap();
        assert_eq!(fetched.load(Ordering::SeqCst), 2);
    }

    #[tokio::test(start_paused = true)]
    async fn call_waits_for_its_token_up_to_its_deadline() {
        let never = super::bearer(std::future::pending::<Result<Token, Status>>);
        let client = Client::mock(|call| Ok(call.body)).layered(never);
        let options = CallOptions { timeout: Some(Duration::from_secs(1)), ..CallOptions::default() };
        let body = Body::new(polyrpc_core::Format::Raw, Bytes::new());
        let late = client.call_raw("m", body.clone(), options).await.unwrap_err();
        assert_eq!(late.code(), Code::DeadlineExceeded);
        let own = CallOptions { credential: Some("mine".into()), ..CallOptions::default() };
        client.call_raw("m", body, own).await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn token_fetch_can_outlast_every_call() {
        let fetched = Arc::new(AtomicUsize::new(0));
        let counted = fetched.clone();
        let slow = super::bearer(move || {
            let number = counted.fetch_add(1, Ordering::SeqCst) + 1;
            async move {
                tokio::time::sleep(Duration::from_millis(150)).await;
                Ok(Token { value: number.to_string(), expires_at: None })
            }
        });
        let client = Client::mock(|call| Ok(call.body)).layered(slow);
        let call = async || {
            let options = CallOptions { timeout: Some(Duration::from_millis(100)), ..CallOptions::default() };
            client.call_raw("m", Body::new(polyrpc_core::Format::Raw, Bytes::new()), options).await
        };
        assert_eq!(call().await.unwrap_err().code(), Code::DeadlineExceeded);
        call().await.unwrap();
        assert_eq!(fetched.load(Ordering::SeqCst), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn unobserved_fetch_failure_does_not_fail_later_calls() {
        let fetched = Arc::new(AtomicUsize::new(0));
        let counted = fetched.clone();
        let bearer = super::bearer(move || {
            let number = counted.fetch_add(1, Ordering::SeqCst) + 1;
            async move {
                tokio::time::sleep(Duration::from_millis(150)).await;
                let token = Token { value: number.to_string(), expires_at: None };
                if number == 1 { Err(Status::unavailable("the authority is gone")) } else { Ok(token) }
            }
        });
        let client = Client::mock(|call| Ok(call.body)).layered(bearer);
        let call = async |millis| {
            let options =
                CallOptions { timeout: Some(Duration::from_millis(millis)), ..CallOptions::default() };
            client.call_raw("m", Body::new(polyrpc_core::Format::Raw, Bytes::new()), options).await
        };
        call(100).await.unwrap_err();
        tokio::time::sleep(Duration::from_millis(100)).await;
        call(200).await.unwrap();
        assert_eq!(fetched.load(Ordering::SeqCst), 2);
    }
}
