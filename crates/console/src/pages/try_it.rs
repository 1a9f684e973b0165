//! `/try`: forms that call methods.

use std::time::Duration;

use polyrpc::service::MethodInfo;
use serde::Serialize;

use super::layout::{Document, failure, render};
use crate::console::State;
use crate::html::Html;
use crate::observed::ObservedServer;
use crate::reply::Reply;
use crate::request::{self as page, PageRequest, Verb};
use crate::role::Role;
use crate::text::Text;
use crate::trial::{PROTOCOLS, STREAMING, Trial, TrialResult, example, local_address, url};

/// The methods that can be tried.
#[derive(Serialize)]
struct Methods {
    methods: Vec<String>,
}

/// A method, with the message to send, and the result if it was called.
#[derive(Serialize)]
struct Form {
    method: String,
    shape: Shape,
    protocol: &'static str,
    message: String,
    metadata: String,
    timeout_ms: u64,
    result: Option<TrialResult>,
    /// Command lines of other programs that make the same call.
    commands: Vec<(&'static str, String)>,
    #[serde(skip)]
    form_token: String,
}

/// Which sides send streams.
#[derive(Serialize, Clone, Copy)]
struct Shape {
    client_streams: bool,
    server_streams: bool,
}

/// Default and maximum timeout of a call, in milliseconds.
const TIMEOUT: u64 = 5_000;
const MAX_TIMEOUT: u64 = 30_000;

/// The attribute of the element that contains the messages of a stream.
const MESSAGES: &str = "role=log>";

pub(super) fn answer(state: &State, request: &PageRequest) -> Reply {
    if request.verb == Verb::Post {
        return failure(request, 405, "Methods are called on the admin listener.");
    }
    let target = request.rest();
    if target.is_empty() {
        let servers = state.servers();
        let methods = servers.iter().flat_map(|server| server.methods.iter());
        let mut methods: Vec<_> = methods.filter(|info| !info.is_standard).map(|info| name(info)).collect();
        methods.sort();
        methods.dedup();
        return render(request, &Methods { methods });
    }
    match find(state, &target) {
        Some((server, info)) => {
            let trial = Trial {
                message: example(&server, &info),
                target,
                protocol: default_protocol(&info),
                stream_type: info.stream_type,
                metadata: Vec::new(),
                timeout: Duration::from_millis(TIMEOUT),
            };
            render(request, &Form::new(state, &server, &trial, None))
        }
        None => failure(request, 404, "No server has such a method."),
    }
}

/// Parses the call from a submitted form; the error is the response.
pub(crate) fn trial(state: &State, request: &PageRequest) -> Result<(ObservedServer, Trial), Reply> {
    let target = request.rest();
    let Some((server, info)) = find(state, &target) else {
        return Err(failure(request, 404, "No server has such a method."));
    };
    let wanted = request.parameter("protocol").unwrap_or_else(|| default_protocol(&info));
    let Some((protocol, _)) = PROTOCOLS.into_iter().find(|(protocol, _)| *protocol == wanted) else {
        return Err(failure(request, 400, "The protocol is not one of the form's."));
    };
    // In the other protocols the names are those of HTTP's fields, whose case means nothing.
    let keeps_case = matches!(protocol, "baidu-std" | "rpcx");
    let cased = |name: &str| if keeps_case { name.to_owned() } else { name.to_lowercase() };
    let metadata: Option<Vec<_>> = request
        .parameter("metadata")
        .unwrap_or_default()
        .lines()
        .filter(|line| !line.trim().is_empty())
        .map(|line| line.split_once(':').map(|(name, value)| (cased(name.trim()), value.trim().to_owned())))
        .collect();
    let Some(metadata) = metadata else {
        return Err(failure(request, 400, "A line of metadata is `name: value`."));
    };
    let message = request.parameter("message").unwrap_or_default().to_owned();
    let timeout = match request.parameter("timeout_ms").filter(|millis| !millis.is_empty()) {
        None => Some(TIMEOUT),
        Some(millis) => millis.parse().ok().filter(|millis| (1..=MAX_TIMEOUT).contains(millis)),
    };
    let Some(timeout) = timeout.map(Duration::from_millis) else {
        return Err(failure(request, 400, "timeout_ms is 1 to 30000."));
    };
    Ok((server, Trial { target, protocol, stream_type: info.stream_type, message, metadata, timeout }))
}

/// Answers with the result.
pub(crate) fn trial_result(
    state: &State,
    request: &PageRequest,
    server: &ObservedServer,
    trial: &Trial,
    result: TrialResult,
) -> Reply {
    render(request, &Form::new(state, server, trial, Some(result)))
}

/// Returns the parts of the page before and after the messages of a stream: the page is sent while messages arrive.
/// `result` has no messages.
pub(crate) fn around_messages(
    state: &State,
    request: &PageRequest,
    server: &ObservedServer,
    trial: &Trial,
    result: TrialResult,
) -> (String, String) {
    let page = render(request, &Form::new(state, server, trial, Some(result))).body;
    // Values are escaped, so that none contains the marker.
    match page.split_once(MESSAGES) {
        Some((before, after)) => ([before, MESSAGES].concat(), after.to_owned()),
        None => (String::new(), page),
    }
}

/// Returns a message of a stream as a line of the answer.
pub(crate) fn message_line(request: &PageRequest, message: &str) -> String {
    match request.format {
        page::PageFormat::Html | page::PageFormat::Part => {
            let mut html = Html::default();
            html.text(message).raw("\n");
            html.into_string()
        }
        page::PageFormat::Text | page::PageFormat::Json => {
            let mut text = Text::default();
            text.value(message).raw("\n");
            text.into_string()
        }
    }
}

/// Returns the protocol that is preselected for a method.
fn default_protocol(info: &MethodInfo) -> &'static str {
    if info.stream_type.is_unary() { PROTOCOLS[0].0 } else { STREAMING[0] }
}

fn name(info: &MethodInfo) -> String {
    match info.service.as_str() {
        "" => info.name.clone(),
        service => format!("{service}/{}", info.name),
    }
}

fn find(state: &State, target: &str) -> Option<(ObservedServer, std::sync::Arc<MethodInfo>)> {
    state.servers().into_iter().find_map(|server| {
        let info = server.methods.iter().find(|info| !info.is_standard && name(info) == target)?.clone();
        Some((server, info))
    })
}

impl Form {
    fn streams(&self) -> bool {
        self.shape.client_streams || self.shape.server_streams
    }

    fn new(state: &State, server: &ObservedServer, trial: &Trial, result: Option<TrialResult>) -> Self {
        let lines = trial.metadata.iter().map(|(name, value)| format!("{name}: {value}\n"));
        Self {
            method: trial.target.clone(),
            shape: Shape {
                client_streams: trial.stream_type.client_streaming,
                server_streams: trial.stream_type.server_streaming,
            },
            protocol: trial.protocol,
            message: trial.message.clone(),
            metadata: lines.collect(),
            timeout_ms: u64::try_from(trial.timeout.as_millis()).unwrap_or(u64::MAX),
            result,
            commands: local_address(server).map(|address| commands(&address, trial)).unwrap_or_default(),
            form_token: state.form_token(Role::Call).to_owned(),
        }
    }
}

/// Returns the call as commands for a shell.
fn commands(address: &str, trial: &Trial) -> Vec<(&'static str, String)> {
    let Trial { target, message, protocol, .. } = trial;
    let message = serde_json::from_str::<serde_json::Value>(message)
        .map_or_else(|_| message.clone(), |value| value.to_string());
    let flags = |flag: &str| {
        trial
            .metadata
            .iter()
            .map(|(name, value)| format!(" {flag} {}", quote(&format!("{name}: {value}"))))
            .collect::<String>()
    };
    let url = quote(&url(protocol, address));
    let path = quote(&format!("http://{address}/{target}"));
    let mut commands = vec![
        ("polyrpc", format!("polyrpc call {url} {} {}{}", quote(target), quote(&message), flags("-H"))),
        (
            "curl",
            format!("curl {path} -H 'Content-Type: application/json'{} -d {}", flags("-H"), quote(&message)),
        ),
    ];
    if target.contains('/') {
        let line = format!(
            "grpcurl -plaintext{} -d {} {} {}",
            flags("-H"),
            quote(&message),
            quote(address),
            quote(target)
        );
        commands.push(("grpcurl", line));
    }
    commands
}

/// Quotes a text for a shell.
fn quote(text: &str) -> String {
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "-_./:@".contains(letter);
    match !text.is_empty() && text.chars().all(is_plain) {
        true => text.to_owned(),
        false => format!("'{}'", text.replace('\'', "'\\''")),
    }
}

impl Document for Methods {
    const NAME: &'static str = "try";
    const TITLE: &'static str = "Try a method";

    fn text(&self) -> Text {
        let mut text = Text::default();
        for method in &self.methods {
            text.raw("/try/").value(method).raw("\n");
        }
        text
    }

    fn html(&self) -> Html {
        let mut html = Html::default();
        html.raw("<ul>");
        for method in &self.methods {
            html.raw("<li><a href=\"/try");
            write_path(&mut html, method);
            html.raw("\">").text(method).raw("</a></li>");
        }
        html.raw("</ul>");
        html
    }
}

impl Document for Form {
    const NAME: &'static str = "try";
    const TITLE: &'static str = "Try a method";

    /// The result, or the message to send.
    fn text(&self) -> Text {
        let mut text = Text::default();
        let lines = match &self.result {
            Some(TrialResult { failure: Some(failure), .. }) => {
                text.raw("failed: ").value(failure).raw("\n");
                return text;
            }
            Some(result) => &result.reply,
            None => &self.message,
        };
        for line in lines.lines() {
            text.value(line).raw("\n");
        }
        text
    }

    fn html(&self) -> Html {
        let mut html = Html::default();
        html.raw("<h2>").text(&self.method).raw("</h2>");
        html.raw("<form class=try method=post action=\"/try");
        write_path(&mut html, &self.method);
        html.raw("\"><input type=hidden name=token value=\"").text(&self.form_token).raw("\">");
        html.raw("<label>Protocol <select name=protocol>");
        let fits = |protocol: &str| !self.streams() || STREAMING.contains(&protocol);
        for (protocol, label) in PROTOCOLS.into_iter().filter(|(protocol, _)| fits(protocol)) {
            html.raw("<option value=\"").raw(protocol).raw(if protocol == self.protocol {
                "\" selected>"
            } else {
                "\">"
            });
            html.raw(label).raw("</option>");
        }
        html.raw("</select></label> <label>Timeout in ms <input name=timeout_ms type=number min=1 max=")
            .text(MAX_TIMEOUT)
            .raw(" value=")
            .text(self.timeout_ms);
        html.raw("></label><label>")
            .raw(match self.shape.client_streams {
                true => "Messages as JSON, one after the other",
                false => "Message as JSON",
            })
            .raw(" <textarea name=message rows=10>");
        write_lines(&mut html, &self.message);
        html.raw("</textarea></label><label>Metadata, a line <code>name: value</code> each <textarea name=metadata rows=2>");
        write_lines(&mut html, &self.metadata);
        html.raw("</textarea></label><button>Call</button></form>");
        if let Some(result) = &self.result {
            match self.streams() {
                true => write_stream(&mut html, result),
                false => write_reply(&mut html, result),
            }
        }
        html.raw("<h2>Equivalent commands</h2><dl>");
        for (program, line) in &self.commands {
            html.raw("<dt>").raw(program).raw("</dt><dd><pre tabindex=0>").text(line).raw("</pre></dd>");
        }
        html.raw("</dl>");
        html
    }
}

/// Writes the end of a stream; its messages are written where [`around_messages`] divides the page.
fn write_stream(html: &mut Html, result: &TrialResult) {
    html.raw("<h2>Messages</h2><pre tabindex=0 ").raw(MESSAGES);
    write_lines(html, &result.reply);
    html.raw("</pre>");
    if let Some(failure) = &result.failure {
        html.raw("<p role=alert>It failed: ").text(failure).raw("</p>");
    }
    write_facts(html, result);
}

fn write_reply(html: &mut Html, result: &TrialResult) {
    html.raw("<h2>")
        .raw(if result.failure.is_some() { "It failed" } else { "Reply" })
        .raw("</h2><pre tabindex=0 role=status>");
    match &result.failure {
        Some(failure) => {
            html.text(failure);
        }
        None => {
            let value = serde_json::from_str::<serde_json::Value>(&result.reply).ok();
            let pretty = value.and_then(|value| serde_json::to_string_pretty(&value).ok());
            write_lines(html, pretty.as_deref().unwrap_or(&result.reply));
        }
    }
    html.raw("</pre>");
    write_facts(html, result);
}

/// Writes how long a call took, and what came with its reply.
fn write_facts(html: &mut Html, result: &TrialResult) {
    if let Some(note) = result.note {
        html.raw("<p role=note>").raw(note).raw("</p>");
    }
    html.raw("<p>").text(result.took).raw(" µs, <a href=\"/rpcz?trace=").segment(&result.trace);
    html.raw("\">its trace</a></p>");
    if result.metadata.is_empty() {
        return;
    }
    html.table("Metadata of the reply", &["Name", "Value"]);
    for (name, value) in &result.metadata {
        html.row(name, value);
    }
    html.end_table();
}

/// Adds the path of a method.
fn write_path(html: &mut Html, method: &str) {
    for part in method.split('/') {
        html.raw("/").segment(part);
    }
}

/// Adds text whose line breaks are kept.
fn write_lines(html: &mut Html, text: &str) {
    for line in text.lines() {
        html.text(line).raw("\n");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shells_see_one_word() {
        assert_eq!(quote("a/b.C:1"), "a/b.C:1");
        assert_eq!(quote("it's $(x) `y` \"z\""), "'it'\\''s $(x) `y` \"z\"'");
        assert_eq!(quote(""), "''");
    }
}
