//! A gateway under attack, in front of a server that is not attacked directly.

use std::io;
use std::path::Path;
use std::time::Duration;

use clap::Args;
use polyrpc_gateway::{Config, Gateway};

use crate::profile::{BUDGET, Profile};
use crate::service::TOKEN;
use crate::target_server::{Certificate, Target, address_text};

/// Arguments of the gateway.
#[derive(Debug, Args)]
pub(crate) struct Options {
    #[arg(long, value_enum)]
    profile: Profile,
    /// The address of the server.
    #[arg(long, value_name = "ADDRESS")]
    before: String,
}

/// Runs a gateway with the limits of the profile until the process must end.
#[tokio::main]
pub(crate) async fn serve(options: &Options) -> io::Result<()> {
    let certificate = Certificate::issue().map_err(io::Error::other)?;
    let folder = std::env::temp_dir().join(format!("polyrpc-attack-gateway-{}", std::process::id()));
    std::fs::create_dir_all(&folder)?;
    std::fs::write(folder.join("token"), TOKEN)?;
    std::fs::write(folder.join("cert.pem"), &certificate.certificate)?;
    std::fs::write(folder.join("key.pem"), &certificate.key)?;
    let text = configuration(options.profile, &options.before, &folder);
    let config = Config::parse(&text).map_err(|problems| io::Error::other(problems.to_string()))?;
    let gateway = Gateway::start(config).await.map_err(|problems| io::Error::other(problems.to_string()))?;
    let addresses: Vec<_> = gateway.addresses().into_iter().map(address_text).collect();
    let [open, guarded, unix, tls, kcp, quic] = <[String; 6]>::try_from(addresses)
        .map_err(|_| io::Error::other("the gateway listens at six addresses"))?;
    let admin = gateway.admin_address().map(address_text).unwrap_or_default();
    let certificate = certificate.certificate;
    let (unix, entries) = (unix.into(), MAX_METADATA_ENTRIES);
    let target = Target { open, guarded, unix, tls, kcp, quic, admin, certificate, entries };
    if target.announce_and_wait().await? {
        gateway.shutdown().await;
    }
    let _ = std::fs::remove_dir_all(folder);
    // As the server does.
    std::process::exit(0);
}

/// Number of metadata entries that a call of rpcx may have, minus those that the gateway and its client add.
const MAX_METADATA_ENTRIES: usize = 230;

/// Callers of every protocol reach an upstream in a format to which theirs can be translated without a schema; streams,
/// gRPC, and the attackers' functions of net/rpc and rest_rpc are forwarded without decoding.
fn configuration(profile: Profile, server: &str, folder: &Path) -> String {
    let limits = profile.limits();
    let time = |time: Duration| format!("\"{}ms\"", time.as_millis());
    let folder = folder.display();
    format!(
        r##"
drain = "10s"
[admin]
listen = "127.0.0.1:0"

[limits]
memory = "{memory}MiB"
first_byte_timeout = {first_byte}
header_timeout = {header}
message_timeout = {message}
write_timeout = {write}

[[listen]]
address = "127.0.0.1:0"
[[listen]]
address = "127.0.0.1:0"
tokens = ["file:{folder}/token"]
[[listen]]
address = "unix:{folder}/socket"
[[listen]]
address = "127.0.0.1:0"
tls = {{ cert = "{folder}/cert.pem", key = "{folder}/key.pem" }}
[[listen]]
address = "kcp://127.0.0.1:0"
[[listen]]
address = "quic://127.0.0.1:0"
tls = {{ cert = "{folder}/cert.pem", key = "{folder}/key.pem" }}

[[upstream]]
name = "plain"
url = "rpcx://{server}"
format = "msgpack"
[[upstream]]
name = "conversations"
url = "grpc://{server}"
format = "json"
[[upstream]]
name = "rpcx"
url = "rpcx://{server}"
[[upstream]]
name = "grpc"
url = "grpc://{server}"
[[upstream]]
name = "net_rpc"
url = "net-rpc://{server}?codec=json"
[[upstream]]
name = "rest_rpc"
url = "rest-rpc://{server}?version=0.20"

[[route]]
match = {{ service = "Plain", method = "Talk" }}
to = "conversations"
[[route]]
match = {{ service = "Plain" }}
to = "plain"
[[route]]
match = {{ service = "Bare", method = "Pour" }}
to = "grpc"
[[route]]
match = {{ service = "Bare", method = "Talk" }}
to = "grpc"
[[route]]
match = {{ service = "Bare" }}
to = "rpcx"
[[route]]
match = {{ service = "grpc.*" }}
to = "grpc"
[[route]]
match = {{ method = "blob" }}
to = "net_rpc"
[[route]]
match = {{ method = "#*" }}
to = "rest_rpc"
"##,
        memory = BUDGET >> 20,
        first_byte = time(limits.first_byte_timeout),
        header = time(limits.header_timeout),
        message = time(limits.message_timeout),
        write = time(limits.write_timeout),
    )
}
