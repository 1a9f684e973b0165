//! Client and server of tarpc, over TCP with bincode.

use futures::StreamExt;
use prost::Message;
use tarpc::server::{BaseChannel, Channel};
use tarpc::tokio_serde::formats::Bincode;
use tarpc::{client, context, serde_transport};

use crate::Failure;
use crate::grpc::{expect, is_said};
use crate::load::{Call, Load, run};
use crate::pb::BenchmarkMessage;

#[tarpc::service]
trait Hello {
    async fn say(message: BenchmarkMessage) -> BenchmarkMessage;
}

#[derive(Clone)]
struct Server;

impl Hello for Server {
    async fn say(self, _: context::Context, mut message: BenchmarkMessage) -> BenchmarkMessage {
        message.field1 = "OK".into();
        message.field2 = 100;
        message
    }
}

pub(crate) async fn serve(listen: &str) -> Result<(), Failure> {
    let mut incoming = serde_transport::tcp::listen(listen, Bincode::default).await?;
    println!("listening {}", incoming.local_addr());
    while let Some(transport) = incoming.next().await {
        // A connection that could not be accepted is the client's.
        let Ok(transport) = transport else { continue };
        let channel = BaseChannel::with_defaults(transport);
        tokio::spawn(channel.execute(Server.serve()).for_each(|response| async {
            tokio::spawn(response);
        }));
    }
    Ok(())
}

#[derive(Clone)]
struct Say(HelloClient, BenchmarkMessage);

impl Call for Say {
    async fn call(&mut self) -> Result<(), Failure> {
        let reply = self.0.say(context::current(), self.1.clone()).await?;
        expect(is_said(&reply, &self.1))
    }
}

pub(crate) async fn call(load: Load) -> Result<(), Failure> {
    if load.contract != "say581" {
        return Err(format!("the client of tarpc has no contract {}", load.contract).into());
    }
    let request = BenchmarkMessage::decode(load.message.as_slice())?;
    let mut connections = Vec::with_capacity(load.connections);
    for _ in 0..load.connections {
        let transport = serde_transport::tcp::connect(load.address.as_str(), Bincode::default).await?;
        let mut connection =
            Say(HelloClient::new(client::Config::default(), transport).spawn(), request.clone());
        connection.call().await?;
        connections.push(connection);
    }
    run(&load, connections).await
}
