//! Pages on the port of a server, as brpc has them.

use bytes::Bytes;
use polyrpc::codec::Raw;
use polyrpc::fallback::HttpRequest;
use polyrpc::service::ServiceBuilder;
use polyrpc::{Context, Protocol, Server};

use crate::console::{Console, State};
use crate::own_page::Menu;
use crate::reply::{Reply, TEXT};
use crate::request::{Accepts, Caller, PageRequest, Verb};
use crate::role::Role;
use crate::{pages, respond};

impl Console {
    /// Adds the pages to the port of a server, where all its callers can read them, as brpc's servers do. Nothing can
    /// be changed there. The server still has to be [observed](Self::observe) once it runs.
    ///
    /// The pages reveal callers, methods and the state of the process: prefer an [admin listener](crate::Admin) where
    /// peers are not trusted. Methods of the server, its built-in pages and its metrics come first. The services
    /// `brpc.status` and `brpc.list` are there for callers by baidu_std.
    ///
    /// ```no_run
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> std::io::Result<()> {
    /// use polyrpc::Server;
    /// use polyrpc_console::Console;
    ///
    /// let console = Console::new();
    /// let server = console.serve_pages(Server::new().function("echo", |text: String| async move { text }));
    /// let running = server.bind("127.0.0.1:8000").await?.start();
    /// console.observe(&running);
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn serve_pages(&self, server: Server) -> Server {
        let console = self.clone();
        let handler = move |request: HttpRequest| {
            let reply = match parse_request(&request) {
                Some(mut request) => {
                    // The program's own pages are on the admin listener only.
                    request.menu = Menu { own: Vec::new(), ..console.state().menu() };
                    respond::answer(console.state(), &request)
                }
                None => Reply::new(405, TEXT, "GET and HEAD are allowed\n").with("allow", "GET, HEAD"),
            };
            async move { Ok(respond::response(reply)) }
        };
        let names = pages::PAGES.iter().map(|page| page.name);
        let text = |state: &State| pages::status_text(state).into_bytes();
        server
            .pages(names, handler)
            .introspection(self.page_service("brpc.status", Part::Attachment, text))
            .introspection(self.page_service("brpc.list", Part::Message, pages::encode_list))
    }

    /// Returns a service whose method answers with a page (`builtin_service.proto`).
    fn page_service(
        &self,
        name: &str,
        part: Part,
        page: impl Fn(&State) -> Vec<u8> + Send + Sync + 'static,
    ) -> ServiceBuilder {
        let console = self.clone();
        let answer = move |mut cx: Context, _: Bytes| {
            let page = Bytes::from(page(console.state()));
            let beside = part == Part::Attachment && cx.protocol() == Protocol::BaiduStd;
            let message = match beside {
                true => {
                    cx.reply_options().attachment = page;
                    Bytes::new()
                }
                false => page,
            };
            std::future::ready((cx, Ok(message)))
        };
        ServiceBuilder::new(name).method::<Raw, Bytes, Bytes, _, _>("default_method", answer)
    }
}

/// Part of a reply over baidu_std that has the page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    Message,
    Attachment,
}

/// Every caller may only read. `None` if no page has this method.
fn parse_request(request: &HttpRequest) -> Option<PageRequest> {
    let caller = Caller { role: Role::Read, name: request.context.peer().to_string(), no_browser: false };
    let verb = match request.method.as_str() {
        "GET" | "HEAD" => Verb::Get,
        "POST" => Verb::Post,
        _ => return None,
    };
    let field = |name| request.headers.get(name);
    let (accept, user_agent, encodings) = (field("accept"), field("user-agent"), field("accept-encoding"));
    let accepts = Accepts { accept, user_agent, encodings };
    Some(PageRequest::parse(verb, &request.target, "", accepts, caller))
}
