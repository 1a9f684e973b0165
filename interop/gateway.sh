# Rows of `run` about a gateway between real peers: every caller of the table calls every server of the table through `polyrpc gateway`,
# which translates by proto/names.proto. Each pair gets a result, and the text of a failure.
# shellcheck shell=bash disable=SC2154
# (`run` sets the variables used here.)

through_gateways() {
    local server caller pairs=0
    gateway_servers
    gateway_callers
    for server in "${!gateway_urls[@]}"; do
        start_gateway "$server" "${gateway_urls[$server]}"
        group "real callers → gateway → $server"
        for caller in "${!gateway_calls[@]}"; do
            through_gateway "$caller" "$(address "gateway-$server" "listening gateway")"
            pairs=$((pairs + 1))
        done
    done
    group "gateway between real peers"
    if ((pairs >= 25)); then
        record ok "25 ordered pairs: $pairs"
    elif ((${#gateway_absent[@]} > 0)); then
        record skip "25 ordered pairs: $pairs" "not built: ${gateway_absent[*]}"
    else
        record FAIL "25 ordered pairs: $pairs"
    fi
}

# through_gateway CALLER ADDRESS: the rows of a caller, of which there must be two.
through_gateway() {
    local words state rest count=0
    read -ra words <<<"${gateway_calls[$1]//ADDR/$2}"
    while read -r state rest; do
        if [[ $state == ok ]]; then
            record ok "$1, $rest"
        else
            record FAIL "$1, ${rest%%: *}" "${rest#*: }"
        fi
        count=$((count + 1))
    done < <("${words[@]}" 2>"$work/stderr")
    if ((count != 2)); then
        record FAIL "$1" "$count rows: $(tail -n 3 "$work/stderr" | tr '\n' ' ')"
    fi
}

declare -A gateway_urls=() gateway_calls=()
gateway_absent=()

# The servers that were built, by their names: URLs for upstreams.
gateway_servers() {
    if [[ -x interop/go/bin/echo ]]; then
        start echo listening\  interop/go/bin/echo serve
        gateway_urls[rpcx]=rpcx://$(address echo listening)
        gateway_urls[net-rpc]=net-rpc://$(address echo listening-net-rpc)
        gateway_urls[json-rpc]="net-rpc://$(address echo listening-json-rpc)?codec=json"
    else
        gateway_absent+=(rpcx net/rpc)
    fi
    if [[ -x interop/grpc/bin/peer ]]; then
        start echo-grpc listening interop/grpc/bin/peer names interop/proto/names.txtpb
        gateway_urls[grpc-go]=grpc://$(address echo-grpc listening)
    else
        gateway_absent+=(grpc-go)
    fi
    if [[ -x interop/grpcio/.venv/bin/python ]]; then
        start echo-grpcio listening interop/grpcio/.venv/bin/python interop/grpcio/names.py interop/proto/names.txtpb
        gateway_urls[grpcio]=grpc://$(address echo-grpcio listening)
    else
        gateway_absent+=(grpcio)
    fi
    if [[ -d interop/java/target/classes ]]; then
        start echo-java listening interop/java/run BaiduServer --names
        gateway_urls[brpc-java]=baidu-std://$(address echo-java listening)
    else
        gateway_absent+=(brpc-java)
    fi
}

# The callers that were built, by their names: commands in which ADDR stands for the gateway.
gateway_callers() {
    local each
    if [[ -x interop/go/bin/echo ]]; then
        for each in rpcx-msgpack rpcx-json net-rpc json-rpc; do
            gateway_calls[$each]="interop/go/bin/echo $each ADDR"
        done
    fi
    if [[ -x interop/grpc/bin/peer ]]; then
        gateway_calls[grpc-go]="interop/grpc/bin/peer echo ADDR interop/proto/names.txtpb"
    fi
    if [[ -x interop/grpcio/.venv/bin/python ]]; then
        gateway_calls[grpcio]="interop/grpcio/.venv/bin/python interop/grpcio/names.py interop/proto/names.txtpb ADDR"
    fi
    if [[ -d interop/java/target/classes ]]; then
        gateway_calls[brpc-java]="interop/java/run BaiduClient --names ADDR"
    fi
    if missing curl "curl → gateway"; then
        gateway_absent+=(curl)
    else
        gateway_calls[curl]="curl_echo ADDR"
        gateway_calls["curl (Connect)"]="curl_echo ADDR Connect-Protocol-Version: 1"
    fi
}

start_gateway() {
    local config=$work/gateway-$1.toml settings=""
    case $1 in
        # Its messages are plain Go types: the caller's protobuf must be translated.
        rpcx) settings='format = "msgpack"' ;;
        # It has no metadata, but brpc-java sends a log id with each call.
        net-rpc | json-rpc) settings='metadata = "drop"' ;;
    esac
    cat >"$config" <<TOML
[[listen]]
address = "127.0.0.1:0"

[[upstream]]
name = "server"
url = "$2"
$settings

[[route]]
to = "server"

[schema]
proto = ["interop/proto/names.proto"]
TOML
    start "gateway-$1" ready "$polyrpc" gateway "$config"
}

# curl_echo ADDR [FIELD…]: calls with JSON, and the field of HTTP if there is one.
curl_echo() {
    local url=http://$1/example.EchoService/Echo field="${*:2}" got failed=0
    local json=(-sS --max-time 60 -H "content-type: application/json" -H "${field:-accept: application/json}")
    got=$(curl "${json[@]}" -d '{"text":"héllo","copies":2}' "$url" 2>&1)
    if same_json "$got" '{"texts":["héllo","héllo"]}'; then
        echo "ok   echo"
    else
        echo "FAIL echo: got $got"
        failed=1
    fi
    got=$(curl "${json[@]}" -w '%{http_code}' -d '{"text":"fail","copies":1}' "$url" 2>&1)
    if [[ $got == *"failed as asked"* && $got != *200 ]]; then
        echo "ok   failure"
    else
        echo "FAIL failure: got $got"
        failed=1
    fi
    return "$failed"
}
