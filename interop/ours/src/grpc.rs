//! The cases of `doc/interop-test-descriptions.md` of grpc/grpc, and two for many calls on a connection.

use std::time::Duration;

use polyrpc::client::{CallOptions, Request};
use polyrpc::codec::Body;
use polyrpc::{Client, Code, Compression, Error, Format, Metadata, Streaming};
use polyrpc_interop::testing::{
    BoolValue, EchoStatus, Empty, Payload, ResponseParameters, SimpleRequest, SimpleResponse,
    StreamingInputCallRequest, StreamingOutputCallRequest, StreamingOutputCallResponse, TestServiceClient,
};

use crate::{Outcome, ensure, reported};

/// Sizes of requests and answers that the description names.
const REQUESTS: [usize; 4] = [27182, 8, 1828, 45904];
const RESPONSES: [i32; 4] = [31415, 9, 2653, 58979];
const LARGE_REQUEST: usize = 271_828;
const LARGE_RESPONSE: i32 = 314_159;

pub(crate) async fn cases(url: &str) -> Vec<(&'static str, Outcome)> {
    let client = match Client::new(url) {
        Ok(client) => client,
        Err(error) => return vec![("the_url", Err(reported(error)))],
    };
    let test = TestServiceClient::new(client.clone());
    vec![
        ("empty_unary", empty_unary(&test).await),
        ("large_unary", large_unary(&test).await),
        ("client_compressed_unary", client_compressed_unary(&test).await),
        ("client_streaming", client_streaming(&test).await),
        ("server_streaming", server_streaming(&test).await),
        ("ping_pong", ping_pong(&test).await),
        ("empty_stream", empty_stream(&test).await),
        ("half_duplex", half_duplex(&test).await),
        ("custom_metadata_unary", custom_metadata_unary(&test).await),
        ("custom_metadata_stream", custom_metadata_stream(&test).await),
        ("status_code_and_message_unary", status_unary(&test, "test status message").await),
        ("status_code_and_message_stream", status_stream(&test).await),
        ("special_status_message", status_unary(&test, SPECIAL).await),
        ("unimplemented_method", unimplemented(&client, "grpc.testing.TestService/UnimplementedCall").await),
        (
            "unimplemented_service",
            unimplemented(&client, "grpc.testing.UnimplementedService/UnimplementedCall").await,
        ),
        ("cancel_after_begin", cancel_after_begin(&client, &test).await),
        ("cancel_after_first_response", cancel_after_first_response(&test).await),
        ("timeout_on_sleeping_server", timeout_on_sleeping_server(&test).await),
        ("1000_calls_on_one_connection", many_calls(&test).await),
        ("100_streams_on_one_connection", many_streams(&test).await),
    ]
}

async fn empty_unary(test: &TestServiceClient) -> Outcome {
    test.empty_call(Empty::default()).await.map_err(reported)?;
    Ok(())
}

async fn large_unary(test: &TestServiceClient) -> Outcome {
    answered(test.unary_call(large()).await, LARGE_RESPONSE)
}

/// Servers that do not look whether the request was compressed accept it, and none may stumble over it.
async fn client_compressed_unary(test: &TestServiceClient) -> Outcome {
    let expecting = SimpleRequest { expect_compressed: BoolValue { value: true, ..d() }.into(), ..large() };
    let request = Request::new(expecting).with_compression(Compression::Gzip);
    answered(test.unary_call_with(request).await.map(|response| response.message), LARGE_RESPONSE)
}

async fn client_streaming(test: &TestServiceClient) -> Outcome {
    let requests = REQUESTS.map(|size| StreamingInputCallRequest { payload: payload(size).into(), ..d() });
    let reply = test.streaming_input_call(Streaming::from_iter(requests)).await.map_err(reported)?;
    let (sum, want) = (reply.aggregated_payload_size, 74922);
    ensure(sum == want, || format!("the sum is {sum}, expected {want}"))
}

async fn server_streaming(test: &TestServiceClient) -> Outcome {
    let response_parameters = RESPONSES.iter().map(|size| wanted(*size)).collect();
    let request = StreamingOutputCallRequest { response_parameters, ..d() };
    let answers = test.streaming_output_call(request).await.map_err(reported)?;
    sizes(answers, &RESPONSES).await
}

async fn ping_pong(test: &TestServiceClient) -> Outcome {
    let (sender, requests) = Streaming::channel(1);
    let mut pairs = REQUESTS.into_iter().zip(RESPONSES);
    let (first, want) = pairs.next().ok_or("no sizes")?;
    sender.send(ping(first, want)).await.map_err(reported)?;
    let mut answers = test.full_duplex_call(requests).await.map_err(reported)?;
    sized(answers.message().await, want)?;
    for (size, want) in pairs {
        sender.send(ping(size, want)).await.map_err(reported)?;
        sized(answers.message().await, want)?;
    }
    drop(sender);
    sizes(answers, &[]).await
}

async fn empty_stream(test: &TestServiceClient) -> Outcome {
    sizes(test.full_duplex_call(Streaming::empty()).await.map_err(reported)?, &[]).await
}

async fn half_duplex(test: &TestServiceClient) -> Outcome {
    let requests: Vec<_> = REQUESTS.into_iter().zip(RESPONSES).map(|(size, want)| ping(size, want)).collect();
    sizes(test.half_duplex_call(Streaming::from_iter(requests)).await.map_err(reported)?, &RESPONSES).await
}

const INITIAL: (&str, &str) = ("x-grpc-test-echo-initial", "test_initial_metadata_value");
const TRAILING: (&str, &[u8]) = ("x-grpc-test-echo-trailing-bin", b"\x0a\x0b\x0a\x0b\x0a\x0b");

async fn custom_metadata_unary(test: &TestServiceClient) -> Outcome {
    let message = SimpleRequest { response_size: 1, payload: payload(1).into(), ..d() };
    let response = test.unary_call_with(with_metadata(message)).await.map_err(reported)?;
    came_back(&response.metadata, &response.trailers)
}

async fn custom_metadata_stream(test: &TestServiceClient) -> Outcome {
    let requests = Streaming::once(ping(1, 1));
    let response = test.full_duplex_call_with(with_metadata(requests)).await.map_err(reported)?;
    let mut answers = response.message;
    sized(answers.message().await, 1)?;
    ensure(answers.message().await.map_err(reported)?.is_none(), || "more than one answer".to_owned())?;
    came_back(&response.metadata, &answers.trailers())
}

fn with_metadata<T>(message: T) -> Request<T> {
    Request::new(message).with_metadata(INITIAL.0, INITIAL.1).with_metadata(TRAILING.0, TRAILING.1.to_vec())
}

fn came_back(metadata: &Metadata, trailers: &Metadata) -> Outcome {
    ensure(metadata.get(INITIAL.0) == Some(INITIAL.1), || format!("before the answer: {metadata:?}"))?;
    let behind = trailers.bytes(TRAILING.0).map(|value| &value[..]);
    ensure(behind == Some(TRAILING.1), || format!("behind the answer: {trailers:?}"))
}

const SPECIAL: &str = "\t\ntest with whitespace\r\nand Unicode BMP ☺ and non-BMP 😈\t\n";

async fn status_unary(test: &TestServiceClient, message: &str) -> Outcome {
    let request = SimpleRequest { response_status: unknown(message).into(), ..d() };
    failed(test.unary_call(request).await, Code::Unknown, Some(message))
}

async fn status_stream(test: &TestServiceClient) -> Outcome {
    let message = "test status message";
    let request = StreamingOutputCallRequest { response_status: unknown(message).into(), ..d() };
    let end = match test.full_duplex_call(Streaming::once(request)).await {
        Ok(mut answers) => answers.message().await,
        Err(error) => Err(error),
    };
    failed(end, Code::Unknown, Some(message))
}

async fn unimplemented(client: &Client, target: &str) -> Outcome {
    let reply = client.call_raw(target, Body::new(Format::Protobuf, &b""[..]), CallOptions::default()).await;
    failed(reply, Code::Unimplemented, None)
}

/// Who drops a call cancels it; the connection goes on.
async fn cancel_after_begin(client: &Client, test: &TestServiceClient) -> Outcome {
    let options =
        CallOptions { metadata: Metadata::from_iter([("key1", "value1")]), ..CallOptions::default() };
    let call = client.open_raw("grpc.testing.TestService/StreamingInputCall", options, Format::Protobuf);
    drop(call.await.map_err(reported)?);
    empty_unary(test).await
}

async fn cancel_after_first_response(test: &TestServiceClient) -> Outcome {
    let (sender, requests) = Streaming::channel(1);
    sender.send(ping(27182, 31415)).await.map_err(reported)?;
    let mut answers = test.full_duplex_call(requests).await.map_err(reported)?;
    sized(answers.message().await, 31415)?;
    drop(answers);
    // Its stub is gone, so nobody takes what is sent.
    sender.closed().await;
    empty_unary(test).await
}

async fn timeout_on_sleeping_server(test: &TestServiceClient) -> Outcome {
    let (sender, requests) = Streaming::channel(1);
    let request = StreamingOutputCallRequest { payload: payload(27182).into(), ..d() };
    sender.send(request).await.map_err(reported)?;
    let request = Request::new(requests).with_timeout(Duration::from_millis(1));
    let end = match test.full_duplex_call_with(request).await {
        Ok(mut response) => response.message.message().await,
        Err(error) => Err(error),
    };
    failed(end, Code::DeadlineExceeded, None)
}

async fn many_calls(test: &TestServiceClient) -> Outcome {
    let calls: Vec<_> = (0..1000)
        .map(|size| {
            let test = test.clone();
            let request = SimpleRequest { response_size: size, ..d() };
            tokio::spawn(async move { answered(test.unary_call(request).await, size) })
        })
        .collect();
    for call in calls {
        call.await.map_err(|error| error.to_string())??;
    }
    Ok(())
}

async fn many_streams(test: &TestServiceClient) -> Outcome {
    let streams: Vec<_> = (0..100)
        .map(|_| {
            let test = test.clone();
            tokio::spawn(async move { ping_pong(&test).await })
        })
        .collect();
    for stream in streams {
        stream.await.map_err(|error| error.to_string())??;
    }
    Ok(())
}

// ------------------------------------------------------------------------------------------ messages

/// What is not said of a message.
fn d<T: Default>() -> T {
    T::default()
}

fn payload(size: usize) -> Payload {
    Payload { body: vec![0; size], ..d() }
}

fn large() -> SimpleRequest {
    SimpleRequest { response_size: LARGE_RESPONSE, payload: payload(LARGE_REQUEST).into(), ..d() }
}

fn wanted(size: i32) -> ResponseParameters {
    ResponseParameters { size, ..d() }
}

fn ping(size: usize, want: i32) -> StreamingOutputCallRequest {
    let response_parameters = vec![wanted(want)];
    StreamingOutputCallRequest { response_parameters, payload: payload(size).into(), ..d() }
}

fn unknown(message: &str) -> EchoStatus {
    EchoStatus { code: Code::Unknown as i32, message: message.to_owned(), ..d() }
}

fn answered(reply: Result<SimpleResponse, Error>, want: i32) -> Outcome {
    let size = reply.map_err(reported)?.payload.body.len();
    ensure(size == want as usize, || format!("an answer of {size} bytes, expected {want}"))
}

fn sized(answer: Result<Option<StreamingOutputCallResponse>, Error>, want: i32) -> Outcome {
    let answer = answer.map_err(reported)?.ok_or("the answers ended early")?;
    let size = answer.payload.body.len();
    ensure(size == want as usize, || format!("an answer of {size} bytes, expected {want}"))
}

/// These answers and no more.
async fn sizes(mut answers: Streaming<StreamingOutputCallResponse>, wanted: &[i32]) -> Outcome {
    for want in wanted {
        sized(answers.message().await, *want)?;
    }
    ensure(answers.message().await.map_err(reported)?.is_none(), || "an answer too many".to_owned())
}

fn failed<T>(result: Result<T, Error>, code: Code, message: Option<&str>) -> Outcome {
    match result {
        Ok(_) => Err(format!("succeeded, expected {code}")),
        Err(error) => {
            ensure(error.code() == code && message.is_none_or(|message| error.message() == message), || {
                format!("{error}, expected {code} {message:?}")
            })
        }
    }
}
