use std::io;

use bytes::Bytes;
use polyrpc::client::CallOptions;
use polyrpc::codec::Body;
use polyrpc::{Client, Format};

use super::SharedLatencyRecorder;

/// Number of callers that [`call_echo`] runs at the same time.
pub(crate) const CALLERS: usize = 64;
/// Length of their messages in bytes.
pub(crate) const PAYLOAD: usize = 32;

/// Calls a method that echoes raw bytes until the window closes, by [`CALLERS`] tasks on one client.
///
/// # Errors
///
/// If a call fails. A wrong reply is counted as an error of `latencies` instead.
pub(crate) async fn call_echo(client: &Client, latencies: &SharedLatencyRecorder) -> io::Result<()> {
    let callers: Vec<_> =
        (0..CALLERS).map(|_| tokio::spawn(call(client.clone(), latencies.clone()))).collect();
    for caller in callers {
        caller.await.map_err(io::Error::other)?.map_err(to_io_error)?;
    }
    Ok(())
}

async fn call(client: Client, latencies: SharedLatencyRecorder) -> polyrpc::Result<()> {
    let payload = Bytes::from_static(&[b'A'; PAYLOAD]);
    let body = Body::new(Format::Raw, payload.clone());
    let mut began = latencies.started();
    while latencies.is_open_at(began) {
        let reply = client.call_raw("Echo/Raw", body.clone(), CallOptions::default()).await?;
        began = latencies.record_call(began, reply.message.bytes == payload);
    }
    Ok(())
}

/// Returns the error of a call or a client as one of a measurement.
pub(crate) fn to_io_error(error: impl Into<polyrpc::Error>) -> io::Error {
    io::Error::other(error.into().into_status())
}
