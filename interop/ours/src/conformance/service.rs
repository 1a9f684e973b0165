use buffa_types::google::protobuf::Any;
use polyrpc::{Context, Result, Status, Streaming};

use crate::answer::{failure, pause, unary};
use crate::payload::{any, append, request_info};
use crate::proto::conformance_payload::RequestInfo;
use crate::proto::{
    BidiStreamRequest, BidiStreamResponse, ClientStreamRequest, ClientStreamResponse, ConformancePayload,
    ConformanceService, IdempotentUnaryRequest, IdempotentUnaryResponse, ServerStreamRequest,
    ServerStreamResponse, StreamResponseDefinition, UnaryRequest, UnaryResponse, UnimplementedRequest,
    UnimplementedResponse,
};

pub(crate) struct Conformance;

impl ConformanceService for Conformance {
    async fn unary(&self, cx: &mut Context, request: UnaryRequest) -> Result<UnaryResponse> {
        let requests = vec![any("UnaryRequest", &request)];
        let payload = unary(cx, request.response_definition.as_option(), requests).await?;
        Ok(UnaryResponse { payload: payload.into(), ..Default::default() })
    }

    async fn unimplemented(&self, _: &mut Context, _: UnimplementedRequest) -> Result<UnimplementedResponse> {
        Err(Status::unimplemented("as its name says").into())
    }

    async fn idempotent_unary(
        &self,
        cx: &mut Context,
        request: IdempotentUnaryRequest,
    ) -> Result<IdempotentUnaryResponse> {
        let requests = vec![any("IdempotentUnaryRequest", &request)];
        let payload = unary(cx, request.response_definition.as_option(), requests).await?;
        Ok(IdempotentUnaryResponse { payload: payload.into(), ..Default::default() })
    }

    async fn client_stream(
        &self,
        cx: &mut Context,
        mut requests: Streaming<ClientStreamRequest>,
    ) -> Result<ClientStreamResponse> {
        let (mut wanted, mut all) = (None, Vec::new());
        while let Some(request) = requests.message().await? {
            all.push(any("ClientStreamRequest", &request));
            wanted = wanted.or_else(|| request.response_definition.as_option().cloned());
        }
        let payload = unary(cx, wanted.as_ref(), all).await?;
        Ok(ClientStreamResponse { payload: payload.into(), ..Default::default() })
    }

    async fn server_stream(
        &self,
        cx: &mut Context,
        request: ServerStreamRequest,
    ) -> Result<Streaming<ServerStreamResponse>> {
        let info = request_info(cx, vec![any("ServerStreamRequest", &request)]);
        let wanted = request.response_definition.as_option().cloned().unwrap_or_default();
        beside(cx, &wanted);
        Ok(Streaming::produce(|sender| async move {
            let mut script = Script { wanted, sent: 0 };
            let mut info = Some(info);
            while let Some(payload) = script.next(&mut info).await {
                sender.send(ServerStreamResponse { payload: payload.into(), ..Default::default() }).await?;
            }
            Ok(script.end(info)?)
        }))
    }

    async fn bidi_stream(
        &self,
        cx: &mut Context,
        mut requests: Streaming<BidiStreamRequest>,
    ) -> Result<Streaming<BidiStreamResponse>> {
        // What travels before the answer is in the first request.
        let first = requests.message().await?;
        let info = request_info(cx, Vec::new());
        let full_duplex = first.as_ref().is_some_and(|first| first.full_duplex);
        let wanted = first.as_ref().and_then(|first| first.response_definition.as_option().cloned());
        let wanted = wanted.unwrap_or_default();
        beside(cx, &wanted);
        Ok(Streaming::produce(move |sender| async move {
            let mut script = Script { wanted, sent: 0 };
            let mut reported = Reported { info: Some(info), requests: Vec::new() };
            let mut next = first;
            while let Some(request) = next {
                reported.requests.push(any("BidiStreamRequest", &request));
                if full_duplex {
                    let mut info = reported.take();
                    match script.next(&mut info).await {
                        Some(payload) => {
                            sender
                                .send(BidiStreamResponse { payload: payload.into(), ..Default::default() })
                                .await?;
                        }
                        // More requests than answers end the call.
                        None => return Ok(script.end(info)?),
                    }
                }
                next = requests.message().await?;
            }
            let mut info = reported.take();
            while let Some(payload) = script.next(&mut info).await {
                sender.send(BidiStreamResponse { payload: payload.into(), ..Default::default() }).await?;
            }
            Ok(script.end(info)?)
        }))
    }
}

fn beside(cx: &mut Context, wanted: &StreamResponseDefinition) {
    append(&wanted.response_headers, &mut cx.reply_options().metadata);
    append(&wanted.response_trailers, &mut cx.reply_options().trailers);
}

/// The answers of a stream, one after the other.
struct Script {
    wanted: StreamResponseDefinition,
    sent: usize,
}

impl Script {
    /// The next answer, which tells what there is to tell of the request.
    async fn next(&mut self, info: &mut Option<RequestInfo>) -> Option<ConformancePayload> {
        let data = self.wanted.response_data.get(self.sent)?.clone();
        self.sent += 1;
        pause(self.wanted.response_delay_ms).await;
        let request_info = info.take().map(Into::into).unwrap_or_default();
        Some(ConformancePayload { data, request_info, ..Default::default() })
    }

    fn end(&self, info: Option<RequestInfo>) -> Result<(), Status> {
        let Some(error) = self.wanted.error.as_option() else { return Ok(()) };
        let info = info.filter(|_| self.sent == 0);
        Err(failure(error, info.map(|info| any("ConformancePayload.RequestInfo", &info))))
    }
}

/// What was not told yet of the requests.
struct Reported {
    /// What travelled beside them, which is told once.
    info: Option<RequestInfo>,
    requests: Vec<Any>,
}

impl Reported {
    fn take(&mut self) -> Option<RequestInfo> {
        let requests = std::mem::take(&mut self.requests);
        match self.info.take() {
            None if requests.is_empty() => None,
            info => Some(RequestInfo { requests, ..info.unwrap_or_default() }),
        }
    }
}
