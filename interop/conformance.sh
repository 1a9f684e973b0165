# Rows of `run` for connectrpc/conformance, the conformance suite for gRPC, gRPC-Web and Connect:
# one row per configuration in conformance/, for our server and for our client.
# shellcheck shell=bash disable=SC2154
# (`run` sets the variables used here.)

conformance_version=v1.0.6
conformance=interop/conformance/bin/connectconformance

connect_conformance() {
    if ! build_conformance; then
        return 0
    fi
    group "Connect's conformance suite $conformance_version → our server"
    conforms server grpc 374
    conforms server grpc-web 343
    conforms server full 5058
    conforms server connect 808
    conforms server connect-full 3964
    group "our client → Connect's conformance suite $conformance_version"
    conforms client grpc 409
    conforms client grpc-web 750
    conforms client full 6764
    conforms client connect 878
    conforms client connect-full 4272
}

build_conformance() {
    if missing go "Connect's conformance suite"; then
        return 1
    fi
    if [[ $("$conformance" --version 2>/dev/null) == *" $conformance_version" ]]; then
        return 0
    fi
    builds "conformance suite" interop env "GOBIN=$PWD/interop/conformance/bin" \
        go install "connectrpc.com/conformance/cmd/connectconformance@$conformance_version"
}

# conforms SIDE CONFIGURATION CASES: runs the suite. Passes if all cases passed and their number is CASES.
conforms() {
    local side=$1 config=$2 want=$3 log=$work/conformance.log passed total line
    timeout 600 "$conformance" --mode "$side" --conf "interop/conformance/$config.yaml" \
        -- "$conformance_cases" "$side" >"$log" 2>&1 </dev/null || true
    passed=$(sed -nE 's/^([0-9]+) passed, .*/\1/p' "$log")
    total=$(sed -nE 's/^Total cases: ([0-9]+)$/\1/p' "$log")
    if [[ $passed == "$want" && $total == "$want" ]]; then
        record ok "$config" "$passed of $total"
        return
    fi
    record FAIL "$config" "${passed:-none} of ${total:-none} passed, want $want of $want; $(tail -n 1 "$log")"
    while read -r line; do
        printf '        %s\n' "$line"
    done < <(grep '^FAILED' "$log")
}
