//! `polyrpc call`: one call of any method, JSON in, JSON out.

mod input;
mod several;
mod stream;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use bytes::Bytes;
use clap::{Args, ValueEnum};
use polyrpc::client::{self, Response};
use polyrpc::codec::Body;
use polyrpc::{Client, Code, Compression, Error, Format, Metadata, Protocol, Push};

use self::input::Input;
use self::several::MultiServerOptions;
use crate::failure::Failure;
use crate::kcp::Kcp;
use crate::message::{self, SchemaSource, Translator, readable};
use crate::reflection::Reflection;
use crate::terminal;
use crate::tls::ClientTlsOptions;

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Options {
    /// The server: baidu-std://, rpcx://, fb-rpc://, grpc://, grpc-web:// (grpc-web+h2:// over HTTP/2), connect://
    /// (connect+h2://), http://, rest-rpc:// or net-rpc:// with host:port; also
    /// rpcx+unix:///path, rpcx+ws://host:port, http+json-rpc://host:port; an older rest_rpc as rest-rpc+v0.11://,
    /// net-rpc+json:// (msgpack, protobuf, gencode) and net-rpc+http://; with TLS grpcs://, https://, rpcx+tls://,
    /// baidu-std+tls://; over UDP rpcx+kcp://, rpcx+quic://; in a registry rpcx+etcd://host:port/base/Service
    /// and so on, as `discover` knows them
    url: String,
    /// The method, `Service/Method`, or a function's name
    target: String,
    /// The message as JSON, @FILE to read it from a file, - from standard input; for a method that takes several,
    /// one after the other
    #[arg(value_name = "JSON")]
    argument: Option<String>,
    #[command(flatten)]
    message: message::Options,
    #[command(flatten)]
    beside: CommonOptions,
    /// Compress the message
    #[arg(long, value_enum)]
    compress: Option<Compress>,
    #[command(flatten)]
    headers: Headers,
    /// Do not wait for a reply
    #[arg(long)]
    oneway: bool,
    /// Send the bytes of this file beside the message (baidu_std, fb_rpc)
    #[arg(long, value_name = "FILE")]
    attachment: Option<PathBuf>,
    /// Show on standard error what comes beside the reply
    #[arg(short, long)]
    verbose: bool,
}

/// What every call of a server says, and `bench` too.
#[derive(Debug, Clone, Args)]
pub(crate) struct CommonOptions {
    /// What proves who calls
    #[arg(long, value_name = "TOKEN")]
    auth: Option<String>,
    /// How long to wait, for example 500ms or 2s [default: 10s, and as long as it takes for a method that streams]
    #[arg(long, value_name = "TIME", value_parser = terminal::duration)]
    timeout: Option<Duration>,
    #[command(flatten)]
    several: MultiServerOptions,
    #[command(flatten)]
    trust: ClientTlsOptions,
    #[command(flatten)]
    kcp: Kcp,
}

/// What travels beside the message.
#[derive(Debug, Clone, Args)]
pub(crate) struct Headers {
    /// Metadata, a user field or a header; may be repeated
    #[arg(short = 'H', long = "header", value_name = "KEY=VALUE", value_parser = header)]
    headers: Vec<(String, String)>,
}

impl Headers {
    fn metadata(&self) -> Metadata {
        self.headers.iter().cloned().collect()
    }
}

impl CommonOptions {
    /// What is said when the server is asked what it offers.
    pub(crate) fn asking(&self, headers: &Headers) -> client::CallOptions {
        client::CallOptions {
            metadata: headers.metadata(),
            timeout: Some(self.timeout.unwrap_or(TIMEOUT)),
            ..client::CallOptions::default()
        }
    }

    pub(crate) fn client(&self, url: &str) -> Result<client::Builder, Failure> {
        let builder = self.several.apply(Client::builder(url));
        let mut builder = builder.timeout(self.timeout.unwrap_or(TIMEOUT)).kcp(self.kcp.config()?);
        if let Some(tls) = self.trust.client() {
            builder = builder.tls(tls);
        }
        Ok(match &self.auth {
            Some(token) => builder.credential(token.clone()),
            None => builder,
        })
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
    terminal::block_on(call(&client, &options))??;
    Ok(ExitCode::SUCCESS)
}

async fn call(client: &Client, options: &Options) -> Result<(), Failure> {
    let translator = translator(client, options).await?;
    if !translator.shape().is_unary() {
        return stream::call(client, options, &translator).await;
    }
    let request = translator.request(&argument(options.argument.as_deref())?)?;
    let response =
        client.call_raw(translator.target(&options.target), request, options.beside_message()?).await;
    let response = response.map_err(|error| Failure::of_call(error.status(), &options.url))?;
    if options.verbose {
        tell_beside(&response);
    }
    if !options.oneway {
        terminal::print(&translator.reply(&response.message)?)?;
    }
    Ok(())
}

/// How the method's messages travel: as a `.proto` says, as this program knows, or as the server says.
async fn translator(client: &Client, options: &Options) -> Result<Translator, Failure> {
    let target = options.target.as_str();
    let translator = Translator::new(client, target, &options.message)?;
    let asks = client.protocol() == Protocol::Grpc && translator.format() != Format::Raw;
    if !asks || translator.knows_the_method() {
        return Ok(translator);
    }
    match reflected(client, options).await {
        Ok(Some(set)) => {
            let types = SchemaSource::new(&set, "the server's own description")?.types(target)?;
            Ok(Translator::described(client, target, &options.message, types))
        }
        // The method may do without a description: what it thinks of the message, it will say.
        Ok(None) => Ok(translator),
        Err(error) if error.code() == Code::Unimplemented => Ok(translator),
        Err(error) => Err(Failure::of_call(error.status(), &options.url)),
    }
}

/// What the server says of the method's service, as a `FileDescriptorSet`.
async fn reflected(client: &Client, options: &Options) -> Result<Option<Vec<u8>>, Error> {
    let Some((service, _)) = options.target.rsplit_once('/') else { return Ok(None) };
    let mut reflection = Reflection::new(client, options.beside.asking(&options.headers));
    if !reflection.find(service).await? {
        return Ok(None);
    }
    reflection.complete().await?;
    reflection.set().map(Some)
}

/// The message that the command line gives or leads to.
pub(crate) fn argument(argument: Option<&str>) -> Result<Vec<u8>, Failure> {
    Input::of(argument)?.whole()
}

fn file(path: &Path) -> Result<Vec<u8>, Failure> {
    fs::read(path).map_err(|error| Failure::system(format!("read {}", path.display()), &error))
}

impl Options {
    fn client(&self) -> Result<Client, Failure> {
        let builder = self.beside.client(&self.url)?;
        let builder = if self.verbose { builder.on_push(|push| tell_push(&push)) } else { builder };
        Ok(builder.build()?)
    }

    fn beside_message(&self) -> Result<client::CallOptions, Failure> {
        let attachment = match &self.attachment {
            Some(path) => file(path)?.into(),
            None => Bytes::new(),
        };
        Ok(client::CallOptions {
            metadata: self.headers.metadata(),
            attachment,
            compression: self.compress.map(Compression::from),
            oneway: self.oneway,
            ..client::CallOptions::default()
        })
    }
}

fn tell_beside(response: &Response<Body>) {
    tell(&response.metadata);
    let attachment = &response.attachment;
    if !attachment.is_empty() {
        terminal::tell(format_args!("< attachment of {} bytes:\n{}", attachment.len(), readable(attachment)));
    }
}

fn tell(metadata: &Metadata) {
    for (key, value) in metadata.iter() {
        terminal::tell(format_args!("< {key}: {}", readable(value)));
    }
}

fn tell_push(push: &Push) {
    terminal::tell(format_args!("< pushed {}/{}: {}", push.service, push.method, readable(&push.body)));
    for (key, value) in push.metadata.iter() {
        terminal::tell(format_args!("<   {key}: {}", readable(value)));
    }
}

fn header(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.is_empty() => Ok((key.to_owned(), value.to_owned())),
        _ => Err("want KEY=VALUE".to_owned()),
    }
}

/// How long a call may take that says nothing of it.
const TIMEOUT: Duration = Duration::from_secs(10);

const EXAMPLES: &str = r#"Examples:
  polyrpc call rpcx://127.0.0.1:8002 Arith/Mul '{"A":7,"B":8}'
  polyrpc call baidu-std://127.0.0.1:8002 example.EchoService/Echo '{"message":"hi"}' --compress gzip
  polyrpc call http+json-rpc://127.0.0.1:8002 add '[1,2]'
  polyrpc call rest-rpc+v0.20://127.0.0.1:9000 add '[1,2]'
  polyrpc call rest-rpc://127.0.0.1:9004 get_person '[[1,"tom",20]]' --types 'struct<int,string,int>'
  polyrpc call net-rpc+http://127.0.0.1:1234 Arith/Multiply '{"A":7,"B":8}'
  polyrpc call grpc://127.0.0.1:50051 pkg.Service/Sum '{"n":1} {"n":2}'
  polyrpc call grpcs://echo.example:443 pkg.Service/Sum '{"n":1}' --cacert ca.pem
  polyrpc call rpcx+etcd://127.0.0.1:2379/rpcx_test/Arith Arith/Mul '{"A":7,"B":8}'
  polyrpc call rpcx://127.0.0.1:8972 pkg.Service/Method @request.json --proto service.proto -v"#;
