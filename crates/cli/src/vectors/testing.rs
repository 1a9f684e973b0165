//! gRPC's interop test service, as specified in `doc/interop-test-descriptions.md` of grpc/grpc. Single messages of a
//! stream cannot be compressed separately, so such requests are ignored.

use std::collections::HashMap;
use std::time::Duration;

use buffa::Message;
use polyrpc::{Code, Compression, Context, Result, Status, Streaming};

use crate::proto::grpc::testing::{
    EchoStatus, Empty, Payload, SimpleRequest, SimpleResponse, StreamingInputCallRequest,
    StreamingInputCallResponse, StreamingOutputCallRequest, StreamingOutputCallResponse, TestOrcaReport,
    TestService,
};
use crate::proto::xds::data::orca::v3::OrcaLoadReport;

pub(super) struct Tested;

impl TestService for Tested {
    async fn empty_call(&self, _: &mut Context, _: Empty) -> Result<Empty> {
        Ok(Empty::default())
    }

    async fn unary_call(&self, cx: &mut Context, request: SimpleRequest) -> Result<SimpleResponse> {
        echo_metadata(cx);
        asked_to_fail(request.response_status.as_option())?;
        if request.expect_compressed.value && cx.compression() == Compression::None {
            return Err(Status::invalid_argument("the request should have been compressed"))?;
        }
        if request.response_compressed.value {
            cx.reply().compression = Compression::Gzip;
        }
        if let Some(load) = request.orca_per_query_report.as_option() {
            cx.reply().trailers.insert("endpoint-load-metrics-bin", report(load).encode_to_vec());
        }
        let server_id = if request.fill_server_id { "polyrpc" } else { "" };
        Ok(SimpleResponse {
            payload: zeros(request.response_size)?.into(),
            server_id: server_id.to_owned(),
            ..SimpleResponse::default()
        })
    }

    async fn cacheable_unary_call(&self, cx: &mut Context, request: SimpleRequest) -> Result<SimpleResponse> {
        cx.reply().metadata.insert("cache-control", "max-age=60, public");
        self.unary_call(cx, request).await
    }

    async fn streaming_output_call(
        &self,
        cx: &mut Context,
        request: StreamingOutputCallRequest,
    ) -> Result<Streaming<StreamingOutputCallResponse>> {
        echo_metadata(cx);
        let once = Streaming::once(request);
        Ok(answers(once))
    }

    async fn streaming_input_call(
        &self,
        cx: &mut Context,
        mut requests: Streaming<StreamingInputCallRequest>,
    ) -> Result<StreamingInputCallResponse> {
        echo_metadata(cx);
        let mut sum = 0;
        while let Some(request) = requests.message().await? {
            sum += request.payload.body.len();
        }
        let sum = i32::try_from(sum).map_err(|_| Status::out_of_range("more than 2 GiB of payload"))?;
        Ok(StreamingInputCallResponse {
            aggregated_payload_size: sum,
            ..StreamingInputCallResponse::default()
        })
    }

    async fn full_duplex_call(
        &self,
        cx: &mut Context,
        requests: Streaming<StreamingOutputCallRequest>,
    ) -> Result<Streaming<StreamingOutputCallResponse>> {
        echo_metadata(cx);
        Ok(answers(requests))
    }

    async fn half_duplex_call(
        &self,
        cx: &mut Context,
        mut requests: Streaming<StreamingOutputCallRequest>,
    ) -> Result<Streaming<StreamingOutputCallResponse>> {
        echo_metadata(cx);
        let mut kept = Vec::new();
        while let Some(request) = requests.message().await? {
            if kept.len() == KEPT {
                return Err(Status::resource_exhausted(format!("more than {KEPT} requests")))?;
            }
            kept.push(request);
        }
        Ok(answers(Streaming::from_iter(kept)))
    }
}

/// How many requests wait for the last of them.
const KEPT: usize = 1024;

/// What each request asks for, as soon as it comes.
fn answers(mut requests: Streaming<StreamingOutputCallRequest>) -> Streaming<StreamingOutputCallResponse> {
    Streaming::produce(|sender| async move {
        while let Some(request) = requests.message().await? {
            asked_to_fail(request.response_status.as_option())?;
            for wanted in &request.response_parameters {
                if let Ok(micros @ 1..) = u64::try_from(wanted.interval_us) {
                    tokio::time::sleep(Duration::from_micros(micros)).await;
                }
                let payload = zeros(wanted.size)?.into();
                sender.send(StreamingOutputCallResponse { payload, ..Default::default() }).await?;
            }
        }
        Ok(())
    })
}

fn echo_metadata(cx: &mut Context) {
    const INITIAL: &str = "x-grpc-test-echo-initial";
    const TRAILING: &str = "x-grpc-test-echo-trailing-bin";
    if let Some(value) = cx.metadata().bytes(INITIAL).cloned() {
        cx.reply().metadata.insert(INITIAL, value);
    }
    if let Some(value) = cx.metadata().bytes(TRAILING).cloned() {
        cx.reply().trailers.insert(TRAILING, value);
    }
}

fn asked_to_fail(wish: Option<&EchoStatus>) -> Result<(), Status> {
    match wish {
        None | Some(EchoStatus { code: 0, .. }) => Ok(()),
        Some(EchoStatus { code, message, .. }) => {
            let code = Code::ALL.into_iter().find(|known| *known as i32 == *code);
            Err(Status::new(code.unwrap_or(Code::Unknown), message.clone()))
        }
    }
}

fn zeros(size: i32) -> Result<Payload, Status> {
    /// An answer should fit where a peer's default limit is 4 MiB, and some more where it is not.
    const MOST: usize = 64 << 20;
    match usize::try_from(size) {
        Ok(size) if size <= MOST => Ok(Payload { body: vec![0; size], ..Payload::default() }),
        _ => Err(Status::invalid_argument(format!("a payload of {size} bytes"))),
    }
}

fn report(load: &TestOrcaReport) -> OrcaLoadReport {
    OrcaLoadReport {
        cpu_utilization: load.cpu_utilization,
        mem_utilization: load.memory_utilization,
        request_cost: HashMap::clone(&load.request_cost),
        utilization: HashMap::clone(&load.utilization),
        ..OrcaLoadReport::default()
    }
}
