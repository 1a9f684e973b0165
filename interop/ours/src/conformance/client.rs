use std::error::Error;
use std::io;
use std::sync::Arc;

use buffa::Message;
use tokio::sync::{Semaphore, mpsc};

use crate::case;
use crate::length_prefixed;
use crate::proto::client_compat_response::Result as Reported;
use crate::proto::{ClientCompatRequest, ClientCompatResponse, ClientErrorResult};

/// Calls at once.
const PARALLEL: usize = 16;

/// Makes the calls that the suite asks for on standard input, until it ends.
pub(crate) async fn run() -> Result<(), Box<dyn Error>> {
    let (tell, mut reported) = mpsc::unbounded_channel::<ClientCompatResponse>();
    let mut asked = requests();
    let calls = tokio::spawn(async move {
        let permits = Arc::new(Semaphore::new(PARALLEL));
        while let Some(asked) = asked.recv().await {
            let Ok(permit) = permits.clone().acquire_owned().await else { return };
            let tell = tell.clone();
            tokio::spawn(async move {
                // The suite does not wait for more, if it has ended.
                let _ = tell.send(response(asked).await);
                drop(permit);
            });
        }
    });
    while let Some(response) = reported.recv().await {
        length_prefixed::write(&mut io::stdout().lock(), &response.encode_to_vec())?;
    }
    Ok(calls.await?)
}

/// What comes on standard input, read by a thread of its own.
fn requests() -> mpsc::Receiver<ClientCompatRequest> {
    let (sender, receiver) = mpsc::channel(PARALLEL);
    std::thread::spawn(move || {
        let mut input = io::stdin().lock();
        while let Ok(Some(bytes)) = length_prefixed::read(&mut input) {
            let asked = ClientCompatRequest::decode_from_slice(&bytes).expect("a request of the suite");
            if sender.blocking_send(asked).is_err() {
                return;
            }
        }
    });
    receiver
}

async fn response(asked: ClientCompatRequest) -> ClientCompatResponse {
    let result = match case::run(&asked).await {
        Ok(outcome) => Reported::Response(Box::new(outcome)),
        Err(error) => {
            Reported::Error(Box::new(ClientErrorResult { message: error.to_string(), ..Default::default() }))
        }
    };
    ClientCompatResponse { test_name: asked.test_name, result: Some(result), ..Default::default() }
}
