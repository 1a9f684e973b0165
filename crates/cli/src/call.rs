//! `polyrpc call`: one call of any method, JSON in, JSON out.

use std::fs;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use bytes::Bytes;
use clap::{Args, ValueEnum};
use polyrpc::client::{self, Response};
use polyrpc::codec::Body;
use polyrpc::{Client, Compression, Metadata, Push};

use crate::failure::Failure;
use crate::message::{self, Translator, readable};
use crate::terminal;

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Options {
    /// The server: baidu-std://, rpcx:// or http:// with host:port; also rpcx+unix:///path and
    /// http+json-rpc://host:port
    url: String,
    /// The method, `Service/Method`, or a function's name
    target: String,
    /// The message as JSON, @FILE to read it from a file, - from standard input
    #[arg(value_name = "JSON")]
    argument: Option<String>,
    #[command(flatten)]
    message: message::Options,
    #[command(flatten)]
    beside: Beside,
    /// Compress the message
    #[arg(long, value_enum)]
    compress: Option<Compress>,
    /// Metadata, a user field or a header; may be repeated
    #[arg(short = 'H', long = "header", value_name = "KEY=VALUE", value_parser = header)]
    headers: Vec<(String, String)>,
    /// Do not wait for a reply
    #[arg(long)]
    oneway: bool,
    /// Send the bytes of this file beside the message (baidu_std)
    #[arg(long, value_name = "FILE")]
    attachment: Option<PathBuf>,
    /// Show on standard error what comes beside the reply
    #[arg(short, long)]
    verbose: bool,
}

/// What every call of a server says, and `bench` too.
#[derive(Debug, Clone, Args)]
pub(crate) struct Beside {
    /// What proves who calls
    #[arg(long, value_name = "TOKEN")]
    auth: Option<String>,
    /// How long to wait, for example 500ms or 2s
    #[arg(long, value_name = "TIME", value_parser = terminal::duration, default_value = "10s")]
    timeout: Duration,
}

impl Beside {
    pub(crate) fn client(&self, url: &str) -> client::Builder {
        let builder = Client::builder(url).timeout(self.timeout);
        match &self.auth {
            Some(token) => builder.credential(token.clone()),
            None => builder,
        }
    }
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Compress {
    Gzip,
    Zlib,
    Snappy,
    Lz4,
    Zstd,
}

impl From<Compress> for Compression {
    fn from(compress: Compress) -> Self {
        match compress {
            Compress::Gzip => Self::Gzip,
            Compress::Zlib => Self::Zlib,
            Compress::Snappy => Self::Snappy,
            Compress::Lz4 => Self::Lz4,
            Compress::Zstd => Self::Zstd,
        }
    }
}

pub(crate) fn run(options: Options) -> Result<ExitCode, Failure> {
    let client = options.client()?;
    let translator = Translator::new(client.protocol(), &options.target, &options.message)?;
    let request = translator.request(&argument(options.argument.as_deref())?)?;
    let response = exchange(&client, &options, request)?;
    if options.verbose {
        tell_beside(&response);
    }
    if !options.oneway {
        print(&translator.reply(&response.message)?)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// The message that the command line gives or leads to.
pub(crate) fn argument(argument: Option<&str>) -> Result<Vec<u8>, Failure> {
    match argument {
        None => Ok(Vec::new()),
        Some("-") => {
            let mut bytes = Vec::new();
            let read = io::stdin().lock().read_to_end(&mut bytes);
            read.map(|_| bytes).map_err(|error| Failure::system("read standard input", &error))
        }
        Some(argument) => match argument.strip_prefix('@') {
            Some(path) => file(Path::new(path)),
            None => Ok(argument.as_bytes().to_vec()),
        },
    }
}

fn file(path: &Path) -> Result<Vec<u8>, Failure> {
    fs::read(path).map_err(|error| Failure::system(format!("read {}", path.display()), &error))
}

impl Options {
    fn client(&self) -> Result<Client, Failure> {
        let builder = self.beside.client(&self.url);
        let builder = if self.verbose { builder.on_push(|push| tell_push(&push)) } else { builder };
        Ok(builder.build()?)
    }

    fn beside_message(&self) -> Result<client::Options, Failure> {
        let attachment = match &self.attachment {
            Some(path) => file(path)?.into(),
            None => Bytes::new(),
        };
        Ok(client::Options {
            metadata: Metadata::from_iter(self.headers.iter().cloned()),
            attachment,
            compression: self.compress.map(Compression::from),
            oneway: self.oneway,
            ..client::Options::default()
        })
    }
}

fn exchange(client: &Client, options: &Options, request: Body) -> Result<Response<Body>, Failure> {
    let beside = options.beside_message()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| Failure::system("start a runtime", &error))?;
    let response = runtime.block_on(client.call_raw(&options.target, request, beside));
    response.map_err(|error| Failure::of_call(error.status(), &options.url))
}

fn tell_beside(response: &Response<Body>) {
    for (key, value) in response.metadata.iter() {
        eprintln!("< {key}: {}", readable(value));
    }
    let attachment = &response.attachment;
    if !attachment.is_empty() {
        eprintln!("< attachment of {} bytes:\n{}", attachment.len(), readable(attachment));
    }
}

fn tell_push(push: &Push) {
    eprintln!("< pushed {}/{}: {}", push.service, push.method, readable(&push.body));
    for (key, value) in push.metadata.iter() {
        eprintln!("<   {key}: {}", readable(value));
    }
}

/// Prints the reply; a reader that has gone away is no failure.
fn print(text: &str) -> Result<(), Failure> {
    match writeln!(io::stdout().lock(), "{text}") {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(Failure::system("write to standard output", &error))
        }
        _ => Ok(()),
    }
}

fn header(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.is_empty() => Ok((key.to_owned(), value.to_owned())),
        _ => Err("want KEY=VALUE".to_owned()),
    }
}

const EXAMPLES: &str = r#"Examples:
  polyrpc call rpcx://127.0.0.1:8002 Arith/Mul '{"A":7,"B":8}'
  polyrpc call baidu-std://127.0.0.1:8002 example.EchoService/Echo '{"message":"hi"}' --compress gzip
  polyrpc call http+json-rpc://127.0.0.1:8002 add '[1,2]'
  polyrpc call rpcx://127.0.0.1:8972 pkg.Service/Method @request.json --proto service.proto -v"#;
