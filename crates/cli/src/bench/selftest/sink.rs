//! A server that only receives, and gets the arrival time of each frame from the kernel.

use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::thread::{self, JoinHandle};
use std::time::{Duration, SystemTime};

use nix::cmsg_space;
use nix::sys::socket::{ControlMessageOwned, MsgFlags, recvmsg, setsockopt, sockopt::ReceiveTimestampns};
use nix::sys::time::TimeSpec;

use crate::failure::Failure;

/// A sink for one connection of rpcx.
pub(super) struct Sink {
    address: SocketAddr,
    arrivals: JoinHandle<io::Result<Vec<SystemTime>>>,
}

impl Sink {
    pub(super) fn start() -> Result<Self, Failure> {
        let failed = |error: io::Error| Failure::system("listen for frames", &error);
        let listener = TcpListener::bind("127.0.0.1:0").map_err(failed)?;
        // A connection inherits it, so that even its first frame has a time.
        setsockopt(&listener, ReceiveTimestampns, &true).map_err(|error| failed(error.into()))?;
        let address = listener.local_addr().map_err(failed)?;
        let arrivals = thread::spawn(move || receive(&listener.accept()?.0));
        Ok(Self { address, arrivals })
    }

    pub(super) fn url(&self) -> String {
        format!("rpcx://{}", self.address)
    }

    /// When each frame arrived, once the connection is closed.
    pub(super) fn finish(self) -> Result<Vec<SystemTime>, Failure> {
        let arrivals = self.arrivals.join().map_err(|_| Failure::new("the sink panicked"))?;
        arrivals.map_err(|error| Failure::system("receive frames", &error))
    }
}

/// Receives frames until the end of the connection, one per read: the time of a larger read is that of its last byte.
fn receive(stream: &TcpStream) -> io::Result<Vec<SystemTime>> {
    let mut arrivals = Vec::new();
    let mut head = [0; HEAD];
    let mut body = [0; MAX_PAYLOAD];
    while read(stream, &mut head)?.is_some() {
        let length = u32::from_be_bytes([head[12], head[13], head[14], head[15]]) as usize;
        let body =
            body.get_mut(..length).ok_or_else(|| io::Error::other("a frame is longer than expected"))?;
        let arrived = read(stream, body)?.ok_or(io::ErrorKind::UnexpectedEof)?;
        if head[2] & HEARTBEAT == 0 {
            arrivals.push(arrived);
        }
    }
    Ok(arrivals)
}

/// Fills the buffer. Returns when its last byte arrived; `None` at the end of the stream.
fn read(stream: &TcpStream, mut buffer: &mut [u8]) -> io::Result<Option<SystemTime>> {
    let mut arrived = None;
    while !buffer.is_empty() {
        let mut space = cmsg_space!(TimeSpec);
        let mut parts = [io::IoSliceMut::new(buffer)];
        let received =
            recvmsg::<()>(stream.as_raw_fd(), &mut parts, Some(&mut space[..]), MsgFlags::empty())?;
        let time = received.cmsgs()?.find_map(|message| match message {
            ControlMessageOwned::ScmTimestampns(time) => Some(time),
            _ => None,
        });
        let count = received.bytes;
        if count == 0 {
            return Ok(None);
        }
        let time = time.ok_or_else(|| io::Error::other("the kernel tells no receive times"))?;
        let nanos = u32::try_from(time.tv_nsec()).unwrap_or_default();
        arrived = Some(SystemTime::UNIX_EPOCH + Duration::new(time.tv_sec().unsigned_abs(), nanos));
        buffer = &mut buffer[count..];
    }
    Ok(arrived)
}

/// The header of a frame of rpcx, up to the length of the rest.
const HEAD: usize = 16;
/// Bit of its third byte.
const HEARTBEAT: u8 = 0x40;
const MAX_PAYLOAD: usize = 4096;
