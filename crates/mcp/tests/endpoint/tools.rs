//! Listing and calling tools.

use serde_json::json;

use crate::{everything, serve};

#[tokio::test(flavor = "multi_thread")]
async fn tools_are_listed_page_by_page() {
    let running = serve(everything().page(3)).await;
    let (mut names, mut cursor) = (Vec::new(), json!(null));
    loop {
        let params = if cursor.is_null() { json!({}) } else { json!({ "cursor": cursor }) };
        let page = running.request("tools/list", params).result();
        let tools = page["tools"].as_array().unwrap();
        assert!(tools.len() <= 3);
        names.extend(tools.iter().map(|tool| tool["name"].as_str().unwrap().to_owned()));
        cursor = page["nextCursor"].clone();
        if cursor.is_null() {
            break;
        }
    }
    // A method that takes a stream is no tool.
    assert_eq!(names, ["Streams_Count", "add", "echo", "fail", "long", "nothing", "secret", "wait"]);
    assert_eq!(running.request("tools/list", json!({ "cursor": "no tool" })).code(), -32602);
    assert_eq!(running.request("tools/list", json!({ "cursor": 7 })).code(), -32602);
}

#[tokio::test(flavor = "multi_thread")]
async fn tool_is_called_as_a_call_of_the_server() {
    let running = serve(everything()).await;
    let result = running.call("add", json!({ "arg1": 40, "arg2": 2 })).result();
    assert_eq!(
        result,
        json!({
            "content": [{ "type": "text", "text": "42" }],
            "structuredContent": { "result": 42 },
            "isError": false,
        })
    );
    let result = running.call("echo", json!({ "arg1": { "text": "hi", "count": null } })).result();
    assert_eq!(result["structuredContent"], json!({ "text": "hi", "count": null }));
    assert_eq!(running.call("nothing", json!({})).result()["isError"], false);
    // Requests for the endpoint are no calls; the calls of tools are, by their names.
    let counted = running.metrics.text();
    assert!(counted.contains("add") && !counted.contains("mcp"), "{counted}");
}

#[tokio::test(flavor = "multi_thread")]
async fn failed_call_is_a_result_that_a_model_can_read() {
    let running = serve(everything()).await;
    let result = running.call("fail", json!({ "arg1": "x" })).result();
    assert_eq!(result["isError"], true);
    let text = result["content"][0]["text"].as_str().unwrap();
    assert!(text.contains("there is no such thing") && text.contains("77"), "{text}");
    assert!(result["structuredContent"].is_null());
    // The server judges the types of arguments.
    let result = running.call("add", json!({ "arg1": "x", "arg2": 1 })).result();
    assert_eq!(result["isError"], true, "{result}");
}

#[tokio::test(flavor = "multi_thread")]
async fn wrong_call_is_an_error_of_the_protocol() {
    let running = serve(everything()).await;
    for params in [
        json!({}),
        json!({ "name": "no_such_tool" }),
        json!({ "name": "Streams_Sum" }),
        json!({ "name": "add", "arguments": { "arg1": 1 } }),
        json!({ "name": "add", "arguments": { "arg1": 1, "arg2": 2, "arg3": 3 } }),
        json!({ "name": "add", "arguments": [1, 2] }),
        json!({ "name": 7 }),
    ] {
        assert_eq!(running.request("tools/call", params.clone()).code(), -32602, "{params}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn streamed_messages_are_a_list() {
    let running = serve(everything().max_messages(3)).await;
    let result = running.call("Streams_Count", json!({ "count": 2 })).result();
    assert_eq!(
        result["structuredContent"],
        json!({ "messages": [{ "n": 0 }, { "n": 1 }], "truncated": false })
    );
    let result = running.call("Streams_Count", json!({ "count": 1_000_000 })).result();
    assert_eq!(result["structuredContent"]["messages"].as_array().unwrap().len(), 3);
    assert_eq!(result["structuredContent"]["truncated"], true);
}

#[tokio::test(flavor = "multi_thread")]
async fn metadata_of_the_request_is_that_of_the_call() {
    let running = serve(everything()).await;
    let message =
        json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": { "name": "secret" } });
    let trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    let fields = [("MCP-Protocol-Version", "2025-06-18"), ("X-Tenant", "t1"), ("traceparent", trace)];
    let result = running.post(&fields, &message).result();
    let values = result["structuredContent"]["result"].as_array().unwrap();
    assert_eq!((&values[0], &values[2], &values[3]), (&json!("t1"), &json!("127.0.0.1"), &json!("")));
    assert!(values[1].as_str().unwrap().contains("0af7651916cd43dd8448eb211c80319c"), "{values:?}");
}
