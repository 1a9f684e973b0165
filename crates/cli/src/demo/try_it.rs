use polyrpc::Address;

use crate::admin;
use crate::terminal::Painter;
use crate::url::Url;

/// Calls to paste into another terminal or program.
pub(super) fn text(address: &Address, pages: &Address, paint: Painter) -> String {
    let mut text =
        format!("\n{}\n", paint.bold(format_args!("Still serving on {address}. Ctrl-C stops it. Try:")));
    let mut add = |title: &str, lines: &str| {
        text.push_str(&format!("\n{}\n{lines}\n", paint.cyan(format_args!("# {title}"))));
    };
    add("what the server does, for a browser or curl", &admin::url(pages));
    if let Address::Tcp(address) = address {
        add("HTTP and JSON", &http(address));
        add("rpcx's HTTP gateway", &gateway(address));
        add("JSON-RPC 2.0", &json_rpc(address));
        add("gRPC, with grpcurl", &grpcurl(address));
        add("Go, with github.com/smallnest/rpcx/client", &go(address));
    }
    add("this program", &ours(address));
    text
}

fn http(address: &str) -> String {
    format!(
        r#"curl http://{address}/helloworld.Greeter/SayHello -H 'Content-Type: application/json' -d '{{"name":"you"}}'"#
    )
}

fn gateway(address: &str) -> String {
    format!(
        r#"curl http://{address}/ -H 'X-RPCX-ServicePath: Arith' -H 'X-RPCX-ServiceMethod: Mul' \
     -H 'X-RPCX-SerializeType: 1' -d '{{"A":7,"B":8}}'"#
    )
}

fn json_rpc(address: &str) -> String {
    format!(
        r#"curl http://{address}/ -H 'X-JSONRPC-2.0: true' \
     -d '{{"jsonrpc":"2.0","method":"Arith.Mul","params":{{"A":7,"B":8}},"id":1}}'"#
    )
}

fn grpcurl(address: &str) -> String {
    format!(r#"grpcurl -plaintext -d '{{"name":"you"}}' {address} helloworld.Greeter/SayHello"#)
}

fn go(address: &str) -> String {
    format!(
        r#"discovery, _ := client.NewPeer2PeerDiscovery("tcp@{address}", "")
arith := client.NewXClient("Arith", client.Failtry, client.RandomSelect, discovery, client.DefaultOption)
var reply struct{{ C int }}
err := arith.Call(context.Background(), "Mul", &struct{{ A, B int }}{{7, 8}}, &reply)"#
    )
}

fn ours(address: &Address) -> String {
    let url = |scheme| Url::from_server(scheme, address).quote();
    let call = |scheme, rest| format!("polyrpc call {} {rest}", url(scheme));
    let bench = format!("polyrpc bench {} example.EchoService/Echo --size 1024", url("baidu-std"));
    [
        format!("polyrpc list {}", url("grpc")),
        call("baidu-std", r#"example.EchoService/Echo '{"message":"hi"}'"#),
        call("rpcx", r#"Arith/Mul '{"A":7,"B":8}'"#),
        call("http", r#"Arith/Div '{"A":7,"B":0}'"#),
        call("http?dialect=json-rpc", "add '[1,2]'"),
        call("net-rpc", r#"Arith/Mul '{"A":7,"B":8}'"#),
        bench,
    ]
    .join("\n")
}
