//! Runs the command during a test.

pub(crate) mod reflection;

use std::env;
use std::fs;
use std::io::{self, BufRead, BufReader, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, ExitStatus, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

use serde_json::Value;
use tokio::net::TcpSocket;

/// Forwards connections to a server. Returns its own address, and the number of connections so far.
pub(crate) fn counting_proxy(server: &str) -> (String, Arc<AtomicU32>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let (server, count) = (server.to_owned(), Arc::new(AtomicU32::new(0)));
    let counted = count.clone();
    thread::spawn(move || {
        for accepted in listener.incoming() {
            counted.fetch_add(1, Ordering::SeqCst);
            let (client, server) = (accepted.unwrap(), TcpStream::connect(&server).unwrap());
            let ways = [(client.try_clone().unwrap(), server.try_clone().unwrap()), (server, client)];
            for (mut from, mut to) in ways {
                thread::spawn(move || {
                    // Either side may close the connection.
                    let _ = io::copy(&mut from, &mut to);
                    let _ = to.shutdown(Shutdown::Write);
                });
            }
        }
    });
    (address, count)
}

/// Outcome of a run of the command.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) stdout: String,
    pub(crate) stderr: String,
    pub(crate) code: i32,
}

impl Ran {
    /// The printed JSON values, if it succeeded.
    pub(crate) fn values(&self) -> Vec<Value> {
        assert_eq!(self.code, 0, "{self:?}");
        let values = serde_json::Deserializer::from_str(&self.stdout).into_iter();
        values.collect::<Result<_, _>>().unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// Its output, if it succeeded.
    pub(crate) fn json(&self) -> Value {
        assert_eq!(self.code, 0, "{self:?}");
        self.json_of_failure()
    }

    /// Its output, whether or not it succeeded.
    pub(crate) fn json_of_failure(&self) -> Value {
        serde_json::from_str(&self.stdout).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }
}

/// Runs the command to its end.
pub(crate) fn polyrpc(arguments: impl IntoIterator<Item = impl AsRef<str>>) -> Ran {
    command(arguments).stdin(Stdio::null()).output().unwrap().into()
}

/// Runs the command to its end, with this standard input.
pub(crate) fn polyrpc_with_input(arguments: impl IntoIterator<Item = impl AsRef<str>>, input: &str) -> Ran {
    let mut command = command(arguments);
    let piped = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = piped.spawn().unwrap();
    // It may exit without reading.
    let _ = child.stdin.take().unwrap().write_all(input.as_bytes());
    child.wait_with_output().unwrap().into()
}

/// Runs the command to its end with its output closed.
pub(crate) fn run_without_reader(arguments: &[&str]) -> ExitStatus {
    let mut child = command(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop((child.stdout.take(), child.stderr.take()));
    child.wait().unwrap()
}

/// An interactive run of the command.
pub(crate) struct InteractiveRun {
    child: Child,
    stdout: BufReader<ChildStdout>,
}

impl InteractiveRun {
    pub(crate) fn start(arguments: impl IntoIterator<Item = impl AsRef<str>>) -> Self {
        let mut command = command(arguments);
        let piped = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = piped.spawn().unwrap();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        Self { child, stdout }
    }

    /// Writes to its standard input.
    pub(crate) fn write_input(&mut self, text: &str) {
        self.child.stdin.as_mut().unwrap().write_all(text.as_bytes()).unwrap();
    }

    /// Reads the next JSON value that it prints.
    pub(crate) fn read_json(&mut self) -> Value {
        let mut values = serde_json::Deserializer::from_reader(&mut self.stdout).into_iter();
        values.next().expect("the process prints a line").expect("the process prints JSON")
    }

    /// Kills it.
    pub(crate) fn stop(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Closes its standard input and waits until it exits.
    pub(crate) fn end(self) -> Ran {
        self.child.wait_with_output().unwrap().into()
    }
}

impl From<Output> for Ran {
    fn from(output: Output) -> Self {
        Self {
            stdout: String::from_utf8(output.stdout).unwrap(),
            stderr: String::from_utf8(output.stderr).unwrap(),
            code: output.status.code().unwrap_or(-1),
        }
    }
}

fn command(arguments: impl IntoIterator<Item = impl AsRef<str>>) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_polyrpc"));
    arguments.into_iter().for_each(|argument| {
        command.arg(argument.as_ref());
    });
    command
}

/// The command as a server; stopped when dropped.
pub(crate) struct Server {
    child: Child,
    output: String,
}

impl Server {
    /// `polyrpc serve` on a free port.
    pub(crate) fn serve<const N: usize>(more: [&str; N]) -> Self {
        Self::start(["serve", "--listen", "127.0.0.1:0"].iter().chain(&more), "ready")
    }

    /// Reads lines up to one that starts with `last`.
    pub(crate) fn start(arguments: impl IntoIterator<Item = impl AsRef<str>>, last: &str) -> Self {
        let mut child = command(arguments).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        let mut server = Self { child, output: String::new() };
        server.listen_until(last, stdout);
        server
    }

    /// `polyrpc serve` on a free port, with standard error closed.
    pub(crate) fn serve_without_reader<const N: usize>(more: [&str; N]) -> Self {
        Self::serve_with_stderr(Stdio::piped(), more)
    }

    /// `polyrpc serve` on a free port, with standard error in a file on a full disk.
    #[cfg(target_os = "linux")]
    pub(crate) fn serve_on_full_disk<const N: usize>(more: [&str; N]) -> Self {
        let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
        Self::serve_with_stderr(full.into(), more)
    }

    /// `polyrpc serve` on a free port, with standard error in this file.
    pub(crate) fn serve_with_log<const N: usize>(log: &Path, more: [&str; N]) -> Self {
        Self::serve_with_stderr(fs::File::create(log).unwrap().into(), more)
    }

    fn serve_with_stderr<const N: usize>(stderr: Stdio, more: [&str; N]) -> Self {
        let arguments = ["serve", "--listen", "127.0.0.1:0"];
        let mut command = command(arguments.iter().chain(&more));
        let mut child = command.stdout(Stdio::piped()).stderr(stderr).spawn().unwrap();
        drop(child.stderr.take());
        let stdout = BufReader::new(child.stdout.take().unwrap());
        let mut server = Self { child, output: String::new() };
        server.listen_until("ready", stdout);
        server
    }

    fn listen_until(&mut self, last: &str, mut stdout: impl BufRead) {
        let mut line = String::new();
        while !line.starts_with(last) {
            line.clear();
            assert_ne!(stdout.read_line(&mut line).unwrap(), 0, "it ended after\n{}", self.output);
            self.output.push_str(&line);
        }
    }

    pub(crate) fn output(&self) -> &str {
        &self.output
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// The address of a listener by its name.
    pub(crate) fn listener(&self, name: &str) -> &str {
        let line = self.output.lines().find_map(|line| line.strip_prefix("listening ")?.strip_prefix(name));
        line.unwrap_or_else(|| panic!("no {name} in\n{}", self.output)).trim()
    }

    /// The address of the main listener.
    pub(crate) fn address(&self) -> &str {
        match self.output.strip_prefix("PolyRPC on ") {
            Some(demo) => demo.split(": ").next().unwrap(),
            None => self.listener("main"),
        }
    }

    pub(crate) fn url(&self, scheme: &str) -> String {
        url_of(scheme, self.address())
    }

    /// Sends SIGTERM, and waits until it has exited.
    pub(crate) fn stop(mut self) -> ExitStatus {
        let asked = Command::new("kill").arg(self.child.id().to_string()).status().unwrap();
        assert!(asked.success());
        self.child.wait().unwrap()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have exited already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The URL of a server for a scheme with parameters, as in `rpcx?transport=ws`.
pub(crate) fn url_of(scheme: &str, address: &str) -> String {
    match scheme.split_once('?') {
        Some((scheme, parameters)) => format!("{scheme}://{address}?{parameters}"),
        None => format!("{scheme}://{address}"),
    }
}

/// An address at which nothing listens. Its port stays bound, so that no other test or program listens there either.
pub(crate) fn free_address() -> String {
    static RESERVED: Mutex<Vec<TcpSocket>> = Mutex::new(Vec::new());
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind(SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
    let address = socket.local_addr().unwrap().to_string();
    RESERVED.lock().unwrap().push(socket);
    address
}

/// Runs a call that the server never ends, until its timeout, which is given in seconds. On a busy machine the first
/// message may come later than that: then again with a longer one.
pub(crate) fn until_the_timeout(mut run: impl FnMut(&str) -> Ran) -> Ran {
    let mut ran = run("1");
    for longer in ["8", "60"] {
        if !ran.stdout.is_empty() {
            break;
        }
        ran = run(longer);
    }
    ran
}

/// A directory that is removed when dropped.
pub(crate) struct TempDir(PathBuf);

impl TempDir {
    pub(crate) fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let n = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = env::temp_dir().join(format!("polyrpc-cli-{}-{n}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for TempDir {
    fn drop(&mut self) {
        // Leftovers are in the directory for temporary files.
        let _ = fs::remove_dir_all(&self.0);
    }
}
