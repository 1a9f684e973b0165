//! One thread, one epoll: all complete requests of a read are answered by one write. Three system calls per
//! call with one in flight, and per batch with more.

use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::OwnedFd;

use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use slab::Slab;

use super::echo::Echo;

/// The listener and its connections.
#[derive(Debug)]
pub(super) struct Server {
    epoll: OwnedFd,
    listener: TcpListener,
    connections: Slab<Connection>,
    reply_len: usize,
}

const LISTENER: u64 = u64::MAX;
const EVENTS: usize = 256;

impl Server {
    pub(super) fn new(listener: TcpListener, reply_len: usize) -> io::Result<Self> {
        listener.set_nonblocking(true)?;
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        epoll::add(&epoll, &listener, EventData::new_u64(LISTENER), EventFlags::IN)?;
        Ok(Self { epoll, listener, connections: Slab::new(), reply_len })
    }

    pub(super) fn run(&mut self) -> io::Result<()> {
        let mut events = Vec::with_capacity(EVENTS);
        loop {
            match epoll::wait(&self.epoll, rustix::buffer::spare_capacity(&mut events), None) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
            for event in events.drain(..) {
                match event.data.u64() {
                    LISTENER => self.accept()?,
                    token => self.serve(token),
                }
            }
        }
    }

    fn accept(&mut self) -> io::Result<()> {
        loop {
            let stream = match self.listener.accept() {
                Ok((stream, _)) => stream,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error),
            };
            stream.set_nodelay(true)?;
            stream.set_nonblocking(true)?;
            let slot = self.connections.vacant_entry();
            let token = EventData::new_u64(slot.key() as u64);
            epoll::add(&self.epoll, &stream, token, EventFlags::IN)?;
            slot.insert(Connection { stream, echo: Echo::new(self.reply_len), waits_to_write: false });
        }
    }

    fn serve(&mut self, token: u64) {
        let key = token as usize;
        let connection = &mut self.connections[key];
        let turn = connection.turn().and_then(|turn| {
            if turn != Turn::Over {
                connection.wait_for(turn, token, &self.epoll)?;
            }
            Ok(turn)
        });
        if let Err(error) = &turn {
            eprintln!("the floor's server closed a connection: {error}");
        }
        if !matches!(turn, Ok(Turn::Read | Turn::Write)) {
            self.connections.remove(key);
        }
    }
}

#[derive(Debug)]
struct Connection {
    stream: TcpStream,
    echo: Echo,
    waits_to_write: bool,
}

/// What a connection waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Turn {
    /// Requests.
    Read,
    /// Buffer space for the replies, before it continues to read.
    Write,
    /// Nothing: the peer has closed it.
    Over,
}

impl Connection {
    fn turn(&mut self) -> io::Result<Turn> {
        if self.echo.replies().is_empty() {
            match self.stream.read(self.echo.free_space()) {
                Ok(0) => return Ok(Turn::Over),
                Ok(read) => self.echo.answer(read)?,
                Err(error) if is_would_block(&error) => {}
                Err(error) => return Err(error),
            }
        }
        while !self.echo.replies().is_empty() {
            match self.stream.write(self.echo.replies()) {
                Ok(written) => self.echo.consume(written),
                Err(error) if is_would_block(&error) => return Ok(Turn::Write),
                Err(error) => return Err(error),
            }
        }
        Ok(Turn::Read)
    }

    fn wait_for(&mut self, turn: Turn, token: u64, epoll: &OwnedFd) -> io::Result<()> {
        let wait_to_write = turn == Turn::Write;
        if self.waits_to_write != wait_to_write {
            self.waits_to_write = wait_to_write;
            let interest = if wait_to_write { EventFlags::OUT } else { EventFlags::IN };
            epoll::modify(epoll, &self.stream, EventData::new_u64(token), interest)?;
        }
        Ok(())
    }
}

/// Neither an error nor progress: level-triggered epoll will report again.
fn is_would_block(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
}
