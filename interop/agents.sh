# Rows of `run` about what programs read: tools of the Model Context Protocol, OpenAPI, JSON Schema. The readers are the protocol's own
# client, a validator, a generator of clients, and an implementation of JSON Schema, all from PyPI.
# shellcheck shell=bash disable=SC2154
# (`run` sets the variables used here.)

for_agents() {
    if ! build_agents; then
        return 0
    fi
    local python=interop/agents/.venv/bin/python
    start agents ready "$polyrpc" serve --listen 127.0.0.1:0 --mcp '*' --openapi '*'
    local server
    server=$(address agents "listening main")
    collect "MCP client → ours" "$python" interop/agents/tools.py "http://$server/mcp" ours

    "$polyrpc" describe "grpc://$server" --openapi >"$work/openapi.json"
    collect "OpenAPI of ours, for generated clients" "$python" interop/agents/generated.py "http://$server" \
        "$work/openapi.json"
    collect "JSON Schema of random messages" "$python" interop/agents/schemas.py "$messages"
    through_a_gateway "$python"
}

# The servers speak rpcx and baidu_std only.
through_a_gateway() {
    local python=$1 config=$work/agents.toml rpcx java
    if [[ ! -x interop/go/bin/rpcx-server || ! -d interop/java/target/classes ]]; then
        absent "MCP client → gateway" "Go rpcx or Java brpc was not built"
        return 0
    fi
    start agents-rpcx listening-http interop/go/bin/rpcx-server
    start agents-java listening interop/java/run BaiduServer
    rpcx=$(address agents-rpcx listening)
    java=$(address agents-java listening)
    cat >"$config" <<TOML
[[listen]]
address = "127.0.0.1:0"

[[upstream]]
name = "rpcx"
url = "rpcx://$rpcx"
format = "msgpack"

[[upstream]]
name = "brpc"
url = "baidu-std://$java"

[[route]]
match = { service = "Arith" }
to = "rpcx"

[[route]]
match = { service = "example.EchoService" }
to = "brpc"

[schema]
proto = ["interop/agents/arith.proto", "interop/proto/echo.proto"]
include = ["interop/agents", "interop/proto"]

[mcp]
tools = ["Arith", "example.*"]

[openapi]
methods = ["*"]
TOML
    start agents-gateway ready "$polyrpc" gateway "$config"
    local gateway
    gateway=$(address agents-gateway "listening gateway")
    collect "MCP client → gateway → Go rpcx, Java brpc" "$python" interop/agents/tools.py "http://$gateway/mcp" gateway
    collect "OpenAPI of the gateway" "$python" interop/agents/generated.py "http://$gateway" "http://$gateway/openapi.json"
}

# Installs the versions of agents/requirements.txt in a virtual environment.
build_agents() {
    if missing python3 "programs for agents"; then
        return 1
    fi
    if ! python3 -c 'import sys; sys.exit(sys.version_info < (3, 11))'; then
        absent "programs for agents" "they need Python 3.11"
        return 1
    fi
    group "installing programs for agents"
    if [[ -x interop/agents/.venv/bin/python ]] &&
        interop/agents/.venv/bin/python -c 'import mcp, jsonschema, openapi_spec_validator, openapi_python_client' \
            2>/dev/null; then
        return 0
    fi
    if ! { python3 -m venv interop/agents/.venv &&
        interop/agents/.venv/bin/pip install --quiet --disable-pip-version-check -r interop/agents/requirements.txt; } \
        >"$work/agents.log" 2>&1; then
        absent "programs for agents" "pip cannot install them: $(tail -n 1 "$work/agents.log")"
        return 1
    fi
}
