# Rows of `run` about servers whose services share only their names with those of `polyrpc serve`: the command must describe them
# from the server or from files, and must not use its own descriptions.
# shellcheck shell=bash disable=SC2154
# (`run` sets the variables used here.)

shared_names() {
    if [[ -x interop/grpc/bin/peer ]]; then
        start names-grpc listening interop/grpc/bin/peer names interop/proto/names.txtpb
        grpc_names "grpc-go" "$(address names-grpc listening)"
    fi
    if build_grpcio; then
        start names-grpcio listening interop/grpcio/.venv/bin/python interop/grpcio/names.py interop/proto/names.txtpb
        grpc_names "grpcio" "$(address names-grpcio listening)"
    fi
    if [[ -x interop/go/bin/rpcx-server ]]; then
        start names-rpcx listening-http interop/go/bin/rpcx-server --names
        rpcx_names "$(address names-rpcx listening)"
    fi
    if [[ -x interop/net_rpc/bin/server ]]; then
        start names-net-rpc listening-http interop/net_rpc/bin/server --names
        net_rpc_names "net-rpc://$(address names-net-rpc listening)"
        net_rpc_names "net-rpc://$(address names-net-rpc listening-json)?codec=json"
    fi
    if [[ -d interop/java/target/classes ]]; then
        start names-java listening interop/java/run BaiduServer --names
        baidu_names "$(address names-java listening)"
    fi
}

# Installs the versions of grpcio/requirements.txt in a virtual environment.
build_grpcio() {
    if missing python3 "grpcio"; then
        return 1
    fi
    group "installing grpcio"
    if [[ -x interop/grpcio/.venv/bin/python ]] &&
        interop/grpcio/.venv/bin/python -c 'import grpc_reflection' 2>/dev/null; then
        return 0
    fi
    if ! { python3 -m venv interop/grpcio/.venv &&
        interop/grpcio/.venv/bin/pip install --quiet --disable-pip-version-check -r interop/grpcio/requirements.txt; } \
        >"$work/grpcio.log" 2>&1; then
        absent "grpcio" "pip cannot install it: $(tail -n 1 "$work/grpcio.log")"
        return 1
    fi
}

# By reflection, which describes the messages.
grpc_names() {
    local server=grpc://$2 echo=example.EchoService/Echo
    group "names shared with ours → $1"
    prints list 'Shout (example.EchoRequest) returns (example.EchoResponse)' "$polyrpc" list "$server"
    lacks list_without_ours helloworld.Greeter "$polyrpc" list "$server"
    prints describe 'int32 copies = 2;' "$polyrpc" list "$server" example.EchoRequest
    answers call '{"texts":["hi","hi"]}' "$server" "$echo" '{"text":"hi","copies":2}'
    answers another_method '{"texts":["HI"]}' "$server" example.EchoService/Shout '{"text":"hi","copies":1}'
    answers short_name '{"texts":["hi"]}' "$server" EchoService.Echo '{"text":"hi","copies":1}'
    fails field_of_ours 'example.EchoRequest has no field' "$server" "$echo" '{"message":"hi"}'
    fails method_of_ours 'unimplemented' "$server" helloworld.Greeter/SayHello '{"name":"you"}'
    # Without a description the message is sent as JSON, which the server cannot decode.
    fails no_description '--proto FILE' "$server" "$echo" '{"text":"hi"}' --no-reflection
    prints bench '(20 calls)' "$polyrpc" bench "$server" "$echo" '{"text":"hi","copies":2}' -n 20 -c 1 --warmup 0s
}

rpcx_names() {
    local server=rpcx://$1 order='{"Price":3,"Count":4,"Label":"tea"}'
    group "names shared with ours → Go rpcx"
    prints list 'Refund (Order) returns (Bill)' "$polyrpc" list "$server"
    lacks list_without_ours ArithArgs "$polyrpc" list "$server"
    prints describe 'Label string' "$polyrpc" list "$server" Arith/Mul
    answers msgpack '{"Total":12,"Label":"TEA"}' "$server" Arith/Mul "$order" --format msgpack
    answers json '{"Total":12,"Label":"TEA"}' "$server" Arith/Mul "$order" --format json
    fails protobuf 'nothing describes the method' "$server" Arith/Mul "$order" --format protobuf
    fails method_of_ours "can't find method Add" "$server" Arith/Add "$order"
}

net_rpc_names() {
    local server=$1 order='{"Price":3,"Count":4,"Label":"tea"}' codec=gob
    if [[ $server == *\?codec=* ]]; then
        codec=${server##*=}
    fi
    group "names shared with ours → Go net/rpc, $codec"
    answers call '{"Total":12,"Label":"TEA"}' "$server" Arith/Mul "$order"
    fails method_of_ours "can't find method Arith.Add" "$server" Arith/Add "$order"
    prints list 'cannot list services' "$polyrpc" list "$server"
}

baidu_names() {
    local server=baidu-std://$1 echo=example.EchoService/Echo proto=(--proto interop/proto/names.proto)
    group "names shared with ours → Java brpc"
    answers call '{"texts":["hi","hi"]}' "$server" "$echo" '{"text":"hi","copies":2}' "${proto[@]}"
    fails field_of_ours 'example.EchoRequest has no field' "$server" "$echo" '{"message":"hi"}' "${proto[@]}"
    fails no_description 'nothing describes the method' "$server" "$echo" '{"message":"hi"}' --format protobuf
    prints list 'cannot list services' "$polyrpc" list "$server"
}

# lacks NAME TEXT COMMAND…: the command succeeds, and its output does not contain the text.
lacks() {
    local name=$1 text=$2 printed
    shift 2
    if ! printed=$("$@" 2>&1); then
        record FAIL "$name" "it failed: $(tr '\n' ' ' <<<"$printed")"
    elif [[ $printed == *"$text"* ]]; then
        record FAIL "$name" "'$text' in: $(tr '\n' ' ' <<<"$printed")"
    else
        record ok "$name"
    fi
}
