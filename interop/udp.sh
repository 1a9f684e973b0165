# Rows of `run` for KCP and QUIC: Go rpcx over them, in both directions.
# shellcheck shell=bash disable=SC2154
# (`run` sets the variables used here.)

over_udp() {
    if [[ ! -x interop/go/bin/rpcx-client || ! -f $work/pem/server.pem ]]; then
        return 0
    fi
    local key kcp ca=(--cacert "$work/pem/ca.pem") args='{"A":7,"B":8}' long
    key=$(python3 -c 'import hashlib; print(hashlib.pbkdf2_hmac("sha1", b"rpcx-key", b"rpcx-salt", 4096, 32).hex())')
    kcp=(--kcp-cipher aes --kcp-key "$key")
    long=\"$(printf 'abcdefgh%.0s' {1..10000})\"
    start ours-udp ready "$fixtures" --listen kcp://127.0.0.1:0 --listen quic://127.0.0.1:0 \
        --tls-cert "$work/pem/server.pem" --tls-key "$work/pem/server.key" "${kcp[@]}"
    start go-udp listening-http interop/go/bin/rpcx-server --udp --cert "$work/pem/server.pem" \
        --key "$work/pem/server.key"

    local client=(interop/go/bin/rpcx-client) cases=(protobuf json msgpack raw rich_json gzip metadata oneway
        heartbeat error div_by_zero unknown_service unknown_method push function caller_gives_up
        overtaking concurrent_100)
    # Without `server_timeout`, which writes its frames to a separate TCP socket.
    collect "Go rpcx client over KCP, AES and parity → ours" "${client[@]}" --network kcp \
        "$(udp_address kcp)" "${cases[@]}"
    collect "Go rpcx client over QUIC → ours" "${client[@]}" --network quic --ca "$work/pem/ca.pem" \
        "$(udp_address quic)" "${cases[@]}" raw_1mib

    local server
    server="rpcx://$(address go-udp listening-kcp)?transport=kcp"
    group "our client over KCP, AES and parity → Go rpcx server"
    answers json '{"C":56}' "$server" Arith/Mul "$args" --format json "${kcp[@]}"
    answers long "$long" "$server" Echo/Str "$long" --format json "${kcp[@]}"
    fails other_key 'deadline' "$server" Arith/Mul "$args" --format json --kcp-cipher aes --kcp-key "${key:32}" \
        --timeout 1s
    server="rpcx://$(address go-udp listening-quic)?transport=quic"
    group "our client over QUIC → Go rpcx server"
    answers json '{"C":56}' "$server" Arith/Mul "$args" --format json "${ca[@]}"
    answers long "$long" "$server" Echo/Str "$long" --format json "${ca[@]}"
    fails other_authority 'cannot connect' "$server" Arith/Mul "$args" --cacert "$(own_authority)"
}

# udp_address TRANSPORT: prints the address of our server for this transport.
udp_address() {
    sed -n "s#^listening main $1://##p" "$work/ours-udp.out"
}
