//! The client of tonic.

use prost::Message;
use tonic::transport::{Channel, Endpoint};

use crate::Failure;
use crate::example::EchoRequest;
use crate::example::echo_service_client::EchoServiceClient;
use crate::helloworld::HelloRequest;
use crate::helloworld::greeter_client::GreeterClient;
use crate::load::{Call, Load, run};
use crate::pb::BenchmarkMessage;
use crate::pb::hello_client::HelloClient;

#[derive(Clone)]
struct Echo(EchoServiceClient<Channel>, EchoRequest);

#[derive(Clone)]
struct Hello(GreeterClient<Channel>, HelloRequest);

#[derive(Clone)]
struct Say(HelloClient<Channel>, BenchmarkMessage);

pub(crate) async fn call(load: Load) -> Result<(), Failure> {
    let message = load.message.as_slice();
    match load.contract.as_str() {
        "echo" => {
            let request = EchoRequest::decode(message)?;
            open(&load, |channel| Echo(EchoServiceClient::new(channel), request.clone())).await
        }
        "hello" => {
            let request = HelloRequest::decode(message)?;
            open(&load, |channel| Hello(GreeterClient::new(channel), request.clone())).await
        }
        "say581" => {
            let request = BenchmarkMessage::decode(message)?;
            open(&load, |channel| Say(HelloClient::new(channel), request.clone())).await
        }
        other => Err(format!("the client of tonic has no contract {other}").into()),
    }
}

async fn open<C: Call>(load: &Load, client: impl Fn(Channel) -> C) -> Result<(), Failure> {
    let endpoint = Endpoint::from_shared(format!("http://{}", load.address))?;
    let mut connections = Vec::with_capacity(load.connections);
    for _ in 0..load.connections {
        let mut connection = client(endpoint.connect().await?);
        connection.call().await?;
        connections.push(connection);
    }
    run(load, connections).await
}

impl Call for Echo {
    async fn call(&mut self) -> Result<(), Failure> {
        let reply = self.0.echo(self.1.clone()).await?.into_inner();
        expect(reply.message == self.1.message)
    }
}

impl Call for Hello {
    async fn call(&mut self) -> Result<(), Failure> {
        let reply = self.0.say_hello(self.1.clone()).await?.into_inner();
        expect(reply.message.strip_prefix("Hello ") == Some(self.1.name.as_str()))
    }
}

impl Call for Say {
    async fn call(&mut self) -> Result<(), Failure> {
        let reply = self.0.say(self.1.clone()).await?.into_inner();
        expect(is_said(&reply, &self.1))
    }
}

/// Whether the reply has the fields that the service sets, and the longest field of the request.
pub(crate) fn is_said(reply: &BenchmarkMessage, request: &BenchmarkMessage) -> bool {
    reply.field1 == "OK" && reply.field2 == 100 && reply.field129 == request.field129
}

pub(crate) fn expect(is_right: bool) -> Result<(), Failure> {
    if is_right { Ok(()) } else { Err("the reply is not what was asked for".into()) }
}
