//! Configuration of the proxies: one thread, HTTP/2 in clear text on both sides, no logs, connections that stay open.

use std::io;
use std::net::SocketAddr;
use std::path::Path;

use polyrpc_transform::SchemaSource;

use crate::grpc::file;

/// Of the called service.
const PROTO: &str = "crates/cli/proto/example.proto";

/// Ours.
pub(super) fn polyrpc(upstream: SocketAddr, schema: bool) -> String {
    let schema = match schema {
        true => format!("[schema]\nproto = [\"{}\"]\n", file(PROTO).display()),
        false => String::new(),
    };
    format!(
        "threads = 1\n{schema}[[listen]]\naddress = \"127.0.0.1:0\"\n[[upstream]]\nname = \"echo\"\n\
         url = \"grpc://{upstream}\"\n[[route]]\nto = \"echo\"\n"
    )
}

pub(super) fn nghttpx(address: SocketAddr, upstream: SocketAddr) -> Vec<String> {
    let (host, port) = (address.ip(), address.port());
    vec![
        "--conf=/dev/null".to_owned(),
        format!("--frontend={host},{port};no-tls"),
        format!("--backend={},{};;proto=h2", upstream.ip(), upstream.port()),
        "--workers=1".to_owned(),
        "--single-process".to_owned(),
        // There is no access log unless it has a file.
        "--errorlog-file=/dev/null".to_owned(),
        "--frontend-http2-max-concurrent-streams=1000".to_owned(),
        "--worker-frontend-connections=0".to_owned(),
        "--rlimit-nofile=25000".to_owned(),
    ]
}

pub(super) fn haproxy(address: SocketAddr, upstream: SocketAddr) -> String {
    format!(
        "global\n  nbthread 1\n  maxconn 9000\ndefaults\n  mode http\n  timeout connect 5s\n  timeout client 1h\n  \
         timeout server 1h\n  http-reuse always\nfrontend in\n  bind {address} proto h2\n  default_backend out\n\
         backend out\n  server echo {upstream} proto h2\n"
    )
}

pub(super) fn nginx(address: SocketAddr, upstream: SocketAddr, folder: &Path) -> String {
    let folder = folder.display();
    format!(
        "daemon off;\nmaster_process off;\nworker_processes 1;\nworker_rlimit_nofile 25000;\npid {folder}/pid;\n\
         error_log /dev/null crit;\nevents {{ worker_connections 20000; }}\nhttp {{\n  access_log off;\n  \
         client_body_temp_path {folder}/body;\n  proxy_temp_path {folder}/proxy;\n  fastcgi_temp_path {folder}/fastcgi;\n  \
         uwsgi_temp_path {folder}/uwsgi;\n  scgi_temp_path {folder}/scgi;\n  upstream echo {{\n    server {upstream};\n    \
         keepalive 128;\n    keepalive_requests 1000000000;\n    keepalive_time 24h;\n  }}\n  server {{\n    \
         listen {address} http2;\n    keepalive_requests 1000000000;\n    keepalive_time 24h;\n    keepalive_timeout 1h;\n    \
         location / {{ grpc_pass grpc://echo; }}\n  }}\n}}\n"
    )
}

/// `descriptors`: a descriptor set, by which JSON is transcoded.
pub(super) fn envoy(address: SocketAddr, upstream: SocketAddr, descriptors: Option<&Path>) -> String {
    let (codec, filter) = match descriptors {
        None => ("HTTP2", String::new()),
        Some(set) => (
            "HTTP1",
            format!(
                r#"
          - name: transcoder
            typed_config:
              "@type": type.googleapis.com/envoy.extensions.filters.http.grpc_json_transcoder.v3.GrpcJsonTranscoder
              proto_descriptor: "{}"
              services: [example.EchoService]
              auto_mapping: true"#,
                set.display()
            ),
        ),
    };
    format!(
        r#"static_resources:
  listeners:
  - name: in
    address: {{ socket_address: {{ address: {}, port_value: {} }} }}
    filter_chains:
    - filters:
      - name: http
        typed_config:
          "@type": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
          stat_prefix: in
          codec_type: {codec}
          stream_idle_timeout: 0s
          http2_protocol_options: {{ max_concurrent_streams: 1000 }}
          route_config:
            virtual_hosts:
            - name: all
              domains: ["*"]
              routes:
              - match: {{ prefix: "/" }}
                route: {{ cluster: echo, timeout: 0s }}
          http_filters:{filter}
          - name: router
            typed_config:
              "@type": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router
  clusters:
  - name: echo
    type: STATIC
    typed_extension_protocol_options:
      envoy.extensions.upstreams.http.v3.HttpProtocolOptions:
        "@type": type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions
        explicit_http_config: {{ http2_protocol_options: {{}} }}
    load_assignment:
      cluster_name: echo
      endpoints:
      - lb_endpoints:
        - endpoint: {{ address: {{ socket_address: {{ address: {}, port_value: {} }} }} }}
"#,
        address.ip(),
        address.port(),
        upstream.ip(),
        upstream.port()
    )
}

/// A serialized `FileDescriptorSet` of the called service.
pub(super) fn descriptors() -> io::Result<Vec<u8>> {
    let source = SchemaSource::read_proto(&[file(PROTO)], &[])
        .map_err(|error| io::Error::other(error.text().to_owned()))?;
    Ok(source.encoded().to_vec())
}
