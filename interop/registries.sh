# Rows of `run` for registries: our clients find Go rpcx servers in etcd, Redis, ZooKeeper, Consul and Nacos, and
# Go clients find ours.
# shellcheck shell=bash disable=SC2154
# (`run` sets the variables used here.)

# How long a dead server may remain listed: the longest TTL, the registry's delay, and that of a busy machine.
# A Consul session lasts at least 10 s, and expires up to that much later. r-nacos takes up to 40 s.
declare -A registry_patience=([etcd]=60 [redis]=60 [zookeeper]=60 [consul]=60 [nacos]=120)

through_registries() {
    if ! build_registry_peers; then
        return 0
    fi
    # Leftovers of the Nacos SDK are removed with the rest.
    local registry registry_at registry_base
    local -x TMPDIR=$work
    for registry in etcd redis zookeeper consul nacos; do
        if start_registry "$registry"; then
            go_found_by_ours "$registry"
            ours_found_by_go "$registry"
        fi
    done
}

build_registry_peers() {
    if missing go "registries"; then
        return 1
    fi
    builds "peers with registries" interop/registries go build -o bin/ ./peer &&
        builds "peer with ZooKeeper" interop/registries go build -modfile=zookeeper.mod -tags zookeeper \
            -o bin/peer-zookeeper ./peer &&
        builds "peer with Nacos" interop/registries go build -modfile=nacos.mod -tags nacos -o bin/peer-nacos ./peer
}

go_found_by_ours() {
    local url=$1://$registry_at$registry_base/Arith args='{"A":7,"B":8}' go peer
    peer=$(registry_peer "$1")
    group "$1: our client → Go rpcx server"
    start "go-$1" listening "$peer" serve "$1" "$registry_at"
    go=$(address "go-$1" listening)
    # A waiting reader may be faster than the command.
    : >"$work/$1.found"
    "$polyrpc" discover "$url" --watch --json >"$work/$1.found" 2>"$work/$1.warnings" {hold}>&- &
    children+=($!)
    seen found "$1" 0 "\"tcp@$go\""
    seen metadata "$1" 0 '"group":\["test"\].*"weight":5'
    answers called '{"C":56}' "rpcx+$url" Arith/Mul "$args" --format msgpack
    answers called_by_group '{"C":56}' "rpcx+$url" Arith/Mul "$args" --format msgpack --group test
    fails no_such_group 'no server' "rpcx+$url" Arith/Mul "$args" --format msgpack --group other --timeout 2s

    local lines
    lines=$(wc -l <"$work/$1.found")
    # bash does not report the end of a disowned process.
    disown "${pids[go-$1]}"
    kill -KILL "${pids[go-$1]}"
    seen gone_after_kill "$1" "$lines" '^\[\]$'
}

# seen NAME REGISTRY LINES PATTERN: waits for a discovered line like this after the first LINES.
seen() {
    local found=$work/$2.found
    if grep -q -m 1 -e "$4" < <(timeout "${registry_patience[$2]}" tail -n "+$(($3 + 1))" -f "$found"); then
        record ok "$1"
    else
        record FAIL "$1" "nothing like $4 behind: $(tail -n 1 "$found")"
    fi
}

ours_found_by_go() {
    local peer
    peer=$(registry_peer "$1")
    start "ours-$1" ready "$fixtures" --listen 127.0.0.1:0 --register "$1://$registry_at$registry_base" \
        --attributes 'weight=5&group=test'
    disown "${pids[ours-$1]}"
    collect "$1: Go rpcx client → ours" "$peer" find "$1" "$registry_at" --kill "${pids[ours-$1]}"
}

registry_peer() {
    case $1 in
        zookeeper | nacos) echo "interop/registries/bin/peer-$1" ;;
        *) echo interop/registries/bin/peer ;;
    esac
}

# ---------------------------------------------------------------------------- registries

# start_registry NAME: starts it empty, at the address `registry_at`, for services below `registry_base`;
# fails if it is not installed.
start_registry() {
    local port
    port=$(free_port)
    registry_base=/rpcx_test
    if [[ $1 == nacos ]]; then
        port=$(free_port 1000)
        # It has no paths.
        registry_base=
    fi
    registry_at=127.0.0.1:$port
    mkdir -p "$work/$1.data"
    case $1 in
        etcd) start_etcd "$port" ;;
        redis) start_redis "$port" ;;
        zookeeper) start_zookeeper "$port" ;;
        consul) start_consul "$port" ;;
        nacos) start_nacos "$port" ;;
    esac
}

start_etcd() {
    if missing etcd "etcd"; then
        return 1
    fi
    local client=http://127.0.0.1:$1 peer
    peer=http://127.0.0.1:$(free_port)
    in_background etcd --name one --data-dir "$work/etcd.data" --log-level error \
        --listen-client-urls "$client" --advertise-client-urls "$client" \
        --listen-peer-urls "$peer" --initial-advertise-peer-urls "$peer" --initial-cluster "one=$peer"
    serves etcd "$1" 'GET /health HTTP/1.0\r\n\r\n' '"health":"true"'
}

start_redis() {
    if missing redis-server "Redis"; then
        return 1
    fi
    in_background redis-server --port "$1" --bind 127.0.0.1 --save '' --appendonly no --dir "$work/redis.data"
    serves Redis "$1" 'PING\r\n' PONG
}

start_zookeeper() {
    local jar=/usr/share/java/zookeeper.jar
    if missing java "ZooKeeper"; then
        return 1
    elif [[ ! -f $jar ]]; then
        absent "ZooKeeper" "$jar is not installed"
        return 1
    fi
    printf '%s\n' tickTime=500 "dataDir=$work/zookeeper.data" "clientPort=$1" clientPortAddress=127.0.0.1 \
        admin.enableServer=false 4lw.commands.whitelist=srvr >"$work/zoo.cfg"
    in_background java -Xmx128m -cp "/etc/zookeeper/conf:$jar" \
        org.apache.zookeeper.server.quorum.QuorumPeerMain "$work/zoo.cfg"
    serves ZooKeeper "$1" srvr Mode:
}

# It keeps everything in memory.
start_consul() {
    if missing consul "Consul"; then
        return 1
    fi
    in_background consul agent -dev -disable-host-node-id -log-level error -bind 127.0.0.1 -client 127.0.0.1 \
        -http-port "$1" -grpc-port -1 -grpc-tls-port -1 -dns-port -1 \
        -server-port "$(free_port)" -serf-lan-port "$(free_port)" -serf-wan-port "$(free_port)"
    # Sessions need a registered node.
    serves Consul "$1" 'GET /v1/catalog/nodes HTTP/1.0\r\n\r\n' '"Node":'
}

# Uses r-nacos, a reimplementation of Nacos. SDKs expect gRPC a thousand ports above HTTP.
start_nacos() {
    if missing rnacos "Nacos"; then
        return 1
    fi
    in_background env RNACOS_SDK_HOST=127.0.0.1 RNACOS_CONSOLE_HOST=127.0.0.1 RNACOS_HTTP_PORT="$1" \
        RNACOS_GRPC_PORT="$(($1 + 1000))" RNACOS_HTTP_CONSOLE_PORT="$(free_port)" \
        RNACOS_DATA_DIR="$work/nacos.data" rnacos
    serves Nacos "$1" 'GET /nacos/v1/ns/instance/list?serviceName=Probe HTTP/1.0\r\n\r\n' '"hosts"'
}

# in_background COMMAND…: runs a server until the script ends.
in_background() {
    "$@" >"$work/$1.log" 2>&1 </dev/null {hold}>&- &
    children+=($!)
}

# serves NAME PORT QUESTION ANSWER: waits until it sends this answer.
serves() {
    local said until=$((SECONDS + 60))
    while ((SECONDS < until)); do
        said=$({ exec {line}<>"/dev/tcp/127.0.0.1/$2" && printf '%b' "$3" >&"$line" && timeout 1 cat <&"$line"; } 2>/dev/null) ||
            true
        if [[ $said == *"$4"* ]]; then
            return 0
        fi
        sleep 0.1
    done
    group "$1"
    record FAIL "the registry starts" "it does not answer within a minute"
    return 1
}

# free_port [APART]: an unused port, also unused at APART above it. It is none of those that the system gives to connections and
# to whoever asks for any port: another program would get it before the server listens.
free_port() {
    python3 -c '
import random, socket, sys
try:
    with open("/proc/sys/net/ipv4/ip_local_port_range") as ephemeral:
        end = int(ephemeral.read().split()[0])
except OSError:
    end = 32768
apart = int(sys.argv[1]) if len(sys.argv) > 1 else 0
while True:
    port = random.randrange(10000, max(end, 20000) - apart)
    with socket.socket() as one, socket.socket() as other:
        try:
            one.bind(("127.0.0.1", port))
            if apart:
                other.bind(("127.0.0.1", port + apart))
        except OSError:
            continue
    print(port)
    break
' "$@"
}
