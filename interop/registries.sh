# Rows of `run` about registries: servers of Go rpcx that ours find in etcd, Redis and ZooKeeper, and ours that theirs find.
# shellcheck shell=bash disable=SC2154
# (`run` sets what is used here.)

# How long a server may be known that is no more: the longest of the times to live, and what the registry takes to notice.
registry_patience=20

through_registries() {
    if ! build_registry_peers; then
        return 0
    fi
    local registry
    for registry in etcd redis zookeeper; do
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
            -o bin/peer-zookeeper ./peer
}

go_found_by_ours() {
    local url=$1://$registry_at/rpcx_test/Arith args='{"A":7,"B":8}' go peer
    peer=$(registry_peer "$1")
    group "$1: our client → Go rpcx server"
    start "go-$1" listening "$peer" serve "$1" "$registry_at"
    go=$(address "go-$1" listening)
    "$polyrpc" discover "$url" --watch --json >"$work/$1.found" 2>"$work/$1.warnings" {hold}>&- &
    children+=($!)
    seen found 0 "$work/$1.found" "\"tcp@$go\""
    seen metadata 0 "$work/$1.found" '"group":\["test"\].*"weight":5'
    answers called '{"C":56}' "rpcx+$url" Arith/Mul "$args" --format msgpack
    answers called_by_group '{"C":56}' "rpcx+$url" Arith/Mul "$args" --format msgpack --group test
    fails no_such_group 'no server' "rpcx+$url" Arith/Mul "$args" --format msgpack --group other --timeout 2s

    local lines
    lines=$(wc -l <"$work/$1.found")
    # What is not bash's own any more it does not tell the end of.
    disown "${pids[go-$1]}"
    kill -KILL "${pids[go-$1]}"
    seen gone_after_kill "$lines" "$work/$1.found" '^\[\]$'
}

# seen NAME LINES FILE PATTERN: behind so many lines of a file there soon is one like this.
seen() {
    if grep -q -m 1 -e "$4" < <(timeout "$registry_patience" tail -n "+$(($2 + 1))" -f "$3"); then
        record ok "$1"
    else
        record FAIL "$1" "nothing like $4 behind: $(tail -n 1 "$3")"
    fi
}

ours_found_by_go() {
    local peer
    peer=$(registry_peer "$1")
    start "ours-$1" ready "$polyrpc" serve --vectors --listen 127.0.0.1:0 --register "$1://$registry_at/rpcx_test" \
        --attributes 'weight=5&group=test'
    disown "${pids[ours-$1]}"
    collect "$1: Go rpcx client → ours" "$peer" find "$1" "$registry_at" --kill "${pids[ours-$1]}"
}

registry_peer() {
    if [[ $1 == zookeeper ]]; then
        echo interop/registries/bin/peer-zookeeper
    else
        echo interop/registries/bin/peer
    fi
}

# ---------------------------------------------------------------------------- the registries themselves

# start_registry NAME: starts it with nothing in it, at the address `registry_at`; fails if it is not installed.
start_registry() {
    local port
    port=$(free_port)
    registry_at=127.0.0.1:$port
    mkdir -p "$work/$1.data"
    case $1 in
        etcd) start_etcd "$port" ;;
        redis) start_redis "$port" ;;
        zookeeper) start_zookeeper "$port" ;;
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

# in_background COMMAND…: runs a server until the script ends.
in_background() {
    "$@" >"$work/$1.log" 2>&1 </dev/null {hold}>&- &
    children+=($!)
}

# serves NAME PORT QUESTION ANSWER: waits until it answers so.
serves() {
    local said until=$((SECONDS + 60))
    while ((SECONDS < until)); do
        said=$({ exec {line}<>"/dev/tcp/127.0.0.1/$2" && printf "$3" >&"$line" && timeout 1 cat <&"$line"; } 2>/dev/null) ||
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

free_port() {
    python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'
}
