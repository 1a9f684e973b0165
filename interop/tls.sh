# Rows of `run` for TLS: the real peers over it, in both directions, with and without client certificates.
# shellcheck shell=bash disable=SC2154
# (`run` sets the variables used here.)

# A certificate authority, and its certificates for our server and for a client.
make_certificates() {
    local name
    if missing openssl "TLS"; then
        return 1
    fi
    pem=$work/pem
    mkdir -p "$pem"
    {
        openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj "/CN=interop" \
            -keyout "$pem/ca.key" -out "$pem/ca.pem" -addext keyUsage=critical,keyCertSign,cRLSign
        for name in server client; do
            openssl req -new -newkey rsa:2048 -nodes -subj "/CN=$name" -keyout "$pem/$name.key" -out "$pem/$name.csr"
            openssl x509 -req -in "$pem/$name.csr" -CA "$pem/ca.pem" -CAkey "$pem/ca.key" -CAcreateserial -days 2 \
                -extfile <(printf 'subjectAltName=DNS:localhost,IP:127.0.0.1\n') -out "$pem/$name.pem"
        done
    } >"$work/openssl.log" 2>&1 || {
        record FAIL "certificates" "$(tail -n 1 "$work/openssl.log")"
        return 1
    }
}

within_tls() {
    group "certificates for TLS"
    if ! make_certificates; then
        return 0
    fi
    local ca=(--cacert "$pem/ca.pem") shown=(--cert "$pem/client.pem" --key "$pem/client.key")
    local proof=(--tls-cert "$pem/server.pem" --tls-key "$pem/server.key")
    start ours-tls ready "$fixtures" --listen 127.0.0.1:0 --auth-listen 127.0.0.1:0 \
        --rpcx-auth-listen 127.0.0.1:0 "${proof[@]}"
    start ours-mtls ready "$fixtures" --listen 127.0.0.1:0 "${proof[@]}" --tls-required \
        --tls-client-ca "$pem/ca.pem"
    local ours mutual rpcx_auth
    ours=$(address ours-tls "listening main")
    rpcx_auth=$(address ours-tls "listening rpcx-auth")
    mutual=$(address ours-mtls "listening main")

    curl_within_tls
    rpcx_within_tls
    grpc_within_tls
}

curl_within_tls() {
    if missing curl "curl within TLS → ours"; then
        return 0
    fi
    group "curl within TLS → ours"
    local post=(curl --silent --show-error --max-time 20 "${ca[@]}" -H 'Content-Type: application/json' -d '{"message":"hi"}'
        -w ' by HTTP/%{http_version}')
    local url=https://localhost:${ours##*:}/example.EchoService/Echo
    prints http_1_1 '{"message":"hi"} by HTTP/1.1' "${post[@]}" --http1.1 "$url"
    prints http_2_by_alpn '{"message":"hi"} by HTTP/2' "${post[@]}" --http2 "$url"
    prints no_alpn '{"message":"hi"} by HTTP/1.1' "${post[@]}" --no-alpn "$url"
    prints tls_1_2 '{"message":"hi"} by HTTP/2' "${post[@]}" --tls-max 1.2 "$url"
    prints clear_text '{"message":"hi"} by HTTP/1.1' "${post[@]}" "http://$ours/example.EchoService/Echo"
    prints wrong_name 'no alternative certificate subject name' "${post[@]}" --connect-to "a.example:443:$ours" \
        https://a.example/
    prints other_authority 'certificate' curl --silent --show-error "$url"
    url=https://localhost:${mutual##*:}/example.EchoService/Echo
    prints client_certificate '{"message":"hi"} by HTTP/2' "${post[@]}" "${shown[@]}" "$url"
    prints no_client_certificate 'certificate required' "${post[@]}" "$url"
    prints no_clear_text 'This port expects TLS' "${post[@]}" "http://$mutual/example.EchoService/Echo"
}

rpcx_within_tls() {
    if [[ ! -x interop/go/bin/rpcx-client ]]; then
        return 0
    fi
    local client=(interop/go/bin/rpcx-client --ca "$pem/ca.pem")
    collect "Go rpcx client within TLS → ours" "${client[@]}" --auth-addr "$rpcx_auth" "$ours"
    collect "Go rpcx client with a certificate → ours" "${client[@]}" "${shown[@]}" "$mutual" \
        protobuf json raw_1mib concurrent_100 http_connect

    start go-tls listening-http interop/go/bin/rpcx-server --cert "$pem/server.pem" --key "$pem/server.key"
    start go-mtls listening-http interop/go/bin/rpcx-server --cert "$pem/server.pem" --key "$pem/server.key" \
        --ca "$pem/ca.pem"
    local server args='{"A":7,"B":8}' long
    long=\"$(printf 'abcdefgh%.0s' {1..10000})\"
    server=rpcx+tls://$(address go-tls listening)
    group "our client within TLS → Go rpcx server"
    answers json '{"C":56}' "$server" Arith/Mul "$args" --format json "${ca[@]}"
    answers long "$long" "$server" Echo/Str "$long" --format json "${ca[@]}"
    answers insecure '{"C":56}' "$server" Arith/Mul "$args" --format json --insecure
    answers servername '{"C":56}' "$server" Arith/Mul "$args" --format json "${ca[@]}" --servername localhost
    fails wrong_name 'not for a.example' "$server" Arith/Mul "$args" "${ca[@]}" --servername a.example
    fails other_authority 'not trusted' "$server" Arith/Mul "$args" --cacert "$(own_authority)"
    server=rpcx+tls://$(address go-mtls listening)
    answers client_certificate '{"C":56}' "$server" Arith/Mul "$args" --format json "${ca[@]}" "${shown[@]}"
    fails no_client_certificate 'client certificate' "$server" Arith/Mul "$args" "${ca[@]}"
}

grpc_within_tls() {
    if [[ ! -x interop/grpc/bin/client ]]; then
        return 0
    fi
    local case
    group "grpc-go's interop client within TLS → ours"
    for case in empty_unary large_unary client_streaming server_streaming ping_pong empty_stream \
        timeout_on_sleeping_server cancel_after_begin cancel_after_first_response status_code_and_message \
        special_status_message custom_metadata unimplemented_method unimplemented_service pick_first_unary; do
        grpc_case "$case" -use_tls -use_test_ca -ca_file "$pem/ca.pem" -server_host_override localhost
    done
    collect "grpc-go's client with a certificate → ours" interop/grpc/bin/peer --ca "$pem/ca.pem" "${shown[@]}" \
        call "$mutual"

    group "grpcurl within TLS → ours"
    local grpcurl=(interop/grpc/bin/grpcurl "${ca[@]}")
    prints echo '"message": "hi"' "${grpcurl[@]}" -d '{"message":"hi"}' "localhost:${ours##*:}" \
        example.EchoService/Echo
    prints client_certificate '"message": "hi"' "${grpcurl[@]}" "${shown[@]}" -d '{"message":"hi"}' \
        "localhost:${mutual##*:}" example.EchoService/Echo
    prints no_client_certificate 'Failed to dial' "${grpcurl[@]}" -max-time 5 "localhost:${mutual##*:}" list

    local server service=grpc.testing.TestService peer=(interop/grpc/bin/peer --cert "$pem/server.pem" --key "$pem/server.key")
    start grpc-tls listening "${peer[@]}" serve
    start grpc-mtls listening "${peer[@]}" --ca "$pem/ca.pem" serve
    server=grpcs://$(address grpc-tls listening)
    group "our client within TLS → grpc-go's interop server"
    prints list 'rpc UnaryCall' "$polyrpc" list "$server" $service "${ca[@]}"
    answers unary '{"payload":{"body":"AAAA"}}' "$server" $service/UnaryCall '{"responseSize":3}' "${ca[@]}"
    answers bidi_streaming '{"payload":{"body":"AAA="}}' "$server" $service/FullDuplexCall \
        '{"responseParameters":[{"size":2}]}' "${ca[@]}"
    server=grpcs://$(address grpc-mtls listening)
    answers client_certificate '{"payload":{"body":"AAAA"}}' "$server" $service/UnaryCall '{"responseSize":3}' \
        "${ca[@]}" "${shown[@]}"
    fails no_client_certificate 'client certificate' "$server" $service/UnaryCall '{}' "${ca[@]}"
}

# A certificate authority that has issued nothing.
own_authority() {
    openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj "/CN=other" \
        -keyout /dev/null -out "$pem/other.pem" 2>/dev/null
    echo "$pem/other.pem"
}
