//! The admin listener: a separate server on its own thread, so that neither the limits nor the handlers of the observed
//! servers delay it.

mod access;
mod address;
mod origin;
#[cfg(feature = "profile")]
mod profiles;
mod taps;

mod live;
mod trials;

use std::io;
use std::sync::{Arc, OnceLock, mpsc};
use std::time::Duration;

use polyrpc::fallback::{HttpRequest, HttpResponse};
use polyrpc::server::{BoundServer, Limits, Listen, Monitor};
use polyrpc::{Address, Protocol, Result, Server};
use tokio::sync::{Semaphore, oneshot};
use tokio::time::{sleep, timeout};

use self::access::{Access, DenialReason};
use self::live::Live;
use self::trials::Trials;
use crate::console::Console;
use crate::reply::{Reply, TEXT};
use crate::request::{Accepts, PageRequest, Verb};
use crate::role::Role;
use crate::{pages, respond};

/// Listener for the pages of a [`Console`].
///
/// It listens on a loopback address or a Unix socket. Any other address needs a [token](Self::token) or [client
/// certificates](Self::client_certificates), or starting fails. Requests must name the listener by an IP address, by
/// `localhost` or by one of its [hosts](Self::hosts), and may not come from pages of other origins.
///
/// Without tokens, callers have the role [`Read`](Role::Read). With tokens, only callers with one have a role;
/// `/health`, `/readyz` and `/livez` need no role.
///
/// ```
/// # fn main() -> std::io::Result<()> {
/// use polyrpc_console::{Admin, Console, Role};
///
/// let console = Console::new();
/// let admin = Admin::on("127.0.0.1:0")
///     .token(Role::Read, "a-token-for-reading")
///     .token(Role::Write, "a-token-for-changes")
///     .writable()
///     .start(&console)?;
/// println!("curl -H 'Authorization: Bearer a-token-for-reading' http://{}/status", admin.address());
/// # Ok(())
/// # }
/// ```
///
/// A browser prompts for a name and a password: the password is the token; changes are recorded with the name.
#[derive(Debug)]
#[must_use = "it listens once it is started"]
pub struct Admin {
    address: String,
    access: Access,
    #[cfg(feature = "tls")]
    tls: Option<polyrpc::tls::Server>,
}

impl Admin {
    /// Listens on this address: `127.0.0.1:8001`, `[::1]:8001`, `unix:/run/admin.sock`. Port 0 picks a free one.
    pub fn on(address: impl Into<String>) -> Self {
        Self {
            address: address.into(),
            access: Access::default(),
            #[cfg(feature = "tls")]
            tls: None,
        }
    }

    /// Gives callers with this token a role. It is sent as `Authorization: Bearer TOKEN`, or as the password of basic
    /// authentication. At least 16 bytes long.
    pub fn token(mut self, role: Role, token: impl Into<String>) -> Self {
        self.access.tokens.push((role, token.into()));
        self
    }

    /// Gives callers without a token this role although tokens are configured; only on loopback addresses and Unix
    /// sockets, and not [`Write`](Role::Write).
    pub fn anonymous(mut self, role: Role) -> Self {
        self.access.anonymous = Some(role.min(Role::Profile));
        self
    }

    /// Lets callers with the role [`Write`](Role::Write) change settings and close connections. Default: no caller may.
    pub fn writable(mut self) -> Self {
        self.access.writable = true;
        self
    }

    /// Adds names under which requests may call the listener, besides IP addresses and `localhost`.
    pub fn hosts<N: Into<String>>(mut self, names: impl IntoIterator<Item = N>) -> Self {
        self.access.hosts.extend(names.into_iter().map(Into::into));
        self
    }

    /// Uses TLS. Requests in clear text are rejected, since they would reveal their tokens.
    #[cfg(feature = "tls")]
    pub fn tls(mut self, tls: polyrpc::tls::Server) -> Self {
        self.access.tls = true;
        self.tls = Some(tls);
        self
    }

    /// Gives callers with a verified certificate a role; needs [`tls`](Self::tls) with
    /// [`client_ca`](polyrpc::tls::Builder::client_ca).
    #[cfg(feature = "tls")]
    pub fn client_certificates(mut self, role: Role) -> Self {
        self.access.certificates = Some(role);
        self
    }

    /// Starts to listen, and to answer on its own thread, until the handle is dropped.
    ///
    /// # Errors
    ///
    /// If the address is invalid or in use, if it is not local and callers are not authenticated, if a token is short,
    /// or if the system has no thread left.
    pub fn start(self, console: &Console) -> io::Result<AdminHandle> {
        self.check()?;
        let (bound, is_bound) = mpsc::channel();
        let (stop, stopped) = oneshot::channel::<()>();
        let console = console.clone();
        std::thread::Builder::new().name("polyrpc-admin".into()).spawn(move || {
            let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
                Ok(runtime) => runtime,
                Err(error) => return drop(bound.send(Err(error))),
            };
            runtime.block_on(async move {
                let (server, service) = match self.bind(console).await {
                    Ok(bound) => bound,
                    Err(error) => return drop(bound.send(Err(error))),
                };
                let address = server.address().clone();
                let running = server.start();
                let _ = service.server.set(running.monitor());
                let _ = bound.send(Ok(address));
                // Both the handle's drop and its message end the wait.
                let _ = stopped.await;
                running.shutdown(Duration::from_millis(200)).await;
            });
        })?;
        let gone = |_| io::Error::other("the admin listener's thread has ended");
        let address = is_bound.recv().map_err(gone)??;
        Ok(AdminHandle { address, _stop: stop })
    }

    /// Checks the address and the tokens as [`start`](Self::start) does. Nothing listens.
    ///
    /// # Errors
    ///
    /// If the address is invalid, if it is not local and nothing authenticates callers, or if a token is short.
    pub fn check(&self) -> io::Result<()> {
        address::check(&self.address, &self.access)
    }

    async fn bind(self, console: Console) -> io::Result<(BoundServer, Arc<AdminService>)> {
        // A web page cannot reach a Unix socket.
        let hosts = if self.address.starts_with("unix:") { Vec::new() } else { self.access.hosts.clone() };
        let authenticates = self.access.authenticates();
        let service = Arc::new(AdminService {
            server: OnceLock::new(),
            console,
            access: self.access,
            live: Live::new(),
            trials: Trials::new(),
            wrong: Semaphore::new(MAX_DELAYED_DENIALS),
        });
        let answering = service.clone();
        let handler = move |request: HttpRequest| {
            let service = answering.clone();
            async move { service.answer(request).await }
        };
        let listen = Listen::on(self.address).protocols([Protocol::Http, Protocol::Grpc]).hosts(hosts);
        let listen = if authenticates { listen.expect_credentials() } else { listen };
        #[cfg(feature = "tls")]
        let listen = match self.tls {
            Some(tls) => listen.tls(tls),
            None => listen,
        };
        let bound = Server::new().limits(limits()).http_handler(handler).bind(listen).await?;
        Ok((bound, service))
    }
}

/// Enough for some people, scrapers and probes.
fn limits() -> Limits {
    Limits {
        message: MAX_BODY_LEN,
        header: 32 << 10,
        memory: 8 << 20,
        connections: 64,
        // No peer keeps the probes of another one out.
        connections_per_peer: 32,
        idle_timeout: Some(Duration::from_secs(75)),
        // Beyond half of this a head that is still incomplete gives way to a further connection.
        first_byte_timeout: Duration::from_secs(2),
        header_timeout: Duration::from_secs(2),
        message_timeout: Duration::from_secs(5),
        ..Limits::default()
    }
}

/// Maximum length of a form.
const MAX_BODY_LEN: usize = 64 << 10;

/// Time in which a form must be complete.
const FORM_TIMEOUT: Duration = Duration::from_secs(5);

/// Delay of the answer to a wrong credential, which slows down guessing.
const DENIAL_DELAY: Duration = Duration::from_millis(500);

/// Number of wrong credentials that are answered at a time: a connection of HTTP/2 carries many guesses.
const MAX_DELAYED_DENIALS: usize = 4;

/// State for answering requests.
struct AdminService {
    /// The listener's own server, once it is started.
    server: OnceLock<Monitor>,
    console: Console,
    access: Access,
    live: Live,
    trials: Trials,
    /// Permits for callers with a wrong credential.
    wrong: Semaphore,
}

impl AdminService {
    async fn answer(&self, mut request: HttpRequest) -> Result<HttpResponse> {
        let Self { console, access, live, trials, .. } = self;
        if let Some(refusal) = origin::refusal(&request, access) {
            return Ok(respond::response(refusal));
        }
        let verb = match request.method.as_str() {
            "GET" | "HEAD" => Verb::Get,
            "POST" => Verb::Post,
            _ => {
                let reply = Reply::new(405, TEXT, "GET, HEAD and POST are allowed\n")
                    .with("allow", "GET, HEAD, POST");
                return Ok(respond::response(reply));
            }
        };
        let connection = request.context.connection_id();
        let (caller, denied) = match access.caller(&request) {
            Ok(caller) => {
                if let Some(server) = self.server.get().filter(|_| access::has_credential(&request)) {
                    server.prove_connection(connection);
                }
                (caller, None)
            }
            Err(denied) => (access::anonymous(), Some(denied)),
        };
        // Callers without a credential are answered before their forms: one that never ends would hold a connection.
        let form = match denied {
            Some(_) => Ok(Ok(Some(String::new()))),
            None => timeout(FORM_TIMEOUT, form(&mut request, verb)).await,
        };
        let body = match form {
            Ok(Ok(Some(body))) => body,
            Ok(Ok(None)) => return Ok(respond::response(Reply::new(413, TEXT, "the form is too long\n"))),
            Ok(Err(error)) => return Err(error),
            Err(_) => return Ok(respond::response(Reply::new(408, TEXT, "the form did not end\n"))),
        };
        let field = |name| request.headers.get(name);
        let (accept, user_agent, encodings) =
            (field("accept"), field("user-agent"), field("accept-encoding"));
        let accepts = Accepts { accept, user_agent, encodings };
        let mut page = PageRequest::parse(verb, &request.target, &body, accepts, caller);
        page.menu = console.state().menu();
        let is_probe = pages::find(&page).is_some_and(|page| page.is_probe);
        match denied {
            Some(denied) if !is_probe => {
                if let Some(server) = self.server.get() {
                    server.drain_connection(connection);
                }
                match denied {
                    DenialReason::Wrong => self.delay_denial(request.context.peer().to_string()).await,
                    // The connection begins to drain first, so that the answer says that it closes.
                    DenialReason::Missing => tokio::task::yield_now().await,
                }
                let reply = pages::failure(&page, 401, "A credential is needed.");
                Ok(respond::response(reply.with("www-authenticate", CHALLENGE)))
            }
            Some(_) => Ok(respond::response(respond::answer(console.state(), &page))),
            None => {
                if let Some(target) = Live::target(&page) {
                    return Ok(live.stream_page(console, &page, target));
                }
                if taps::is_tap(&page) {
                    return Ok(taps::answer(&page).await);
                }
                #[cfg(feature = "profile")]
                if let Some(kind) = profiles::kind(&page) {
                    return Ok(profiles::answer(console.state(), &page, kind).await);
                }
                Ok(match respond::answer_own_page(console.state(), &page) {
                    Some(reply) => respond::response(reply),
                    None => trials.answer(console, page).await,
                })
            }
        }
    }
}

impl AdminService {
    /// Waits before the answer to a wrong credential, and logs it; both have a rate of at most eight a second.
    async fn delay_denial(&self, peer: String) {
        // The semaphore is never closed.
        let _turn = self.wrong.acquire().await;
        tracing::warn!(peer, "a wrong credential on the admin listener");
        sleep(DENIAL_DELAY).await;
    }
}

const CHALLENGE: &str = "Basic realm=\"polyrpc\", charset=\"UTF-8\"";

/// Reads a form; `None` if it is too long.
async fn form(request: &mut HttpRequest, verb: Verb) -> Result<Option<String>> {
    let mut body = Vec::new();
    if verb == Verb::Post {
        while let Some(piece) = request.body.message().await? {
            if body.len() + piece.len() > MAX_BODY_LEN {
                return Ok(None);
            }
            body.extend_from_slice(&piece);
        }
    }
    Ok(Some(String::from_utf8_lossy(&body).into_owned()))
}

/// An admin listener that runs until this is dropped.
#[derive(Debug)]
pub struct AdminHandle {
    address: Address,
    _stop: oneshot::Sender<()>,
}

impl AdminHandle {
    /// Returns the address, with the port that was actually assigned.
    pub fn address(&self) -> &Address {
        &self.address
    }
}
