//! One thread per connection: read, reply, read. Two system calls per call.

use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::thread;

use super::echo::Echo;

pub(super) fn run(listener: &TcpListener, reply_len: usize) -> io::Result<()> {
    loop {
        let (stream, _) = listener.accept()?;
        stream.set_nodelay(true)?;
        thread::spawn(move || {
            if let Err(error) = serve_connection(stream, Echo::new(reply_len)) {
                eprintln!("the floor's server closed a connection: {error}");
            }
        });
    }
}

fn serve_connection(mut stream: TcpStream, mut echo: Echo) -> io::Result<()> {
    loop {
        let read = stream.read(echo.free_space())?;
        if read == 0 {
            return Ok(());
        }
        echo.answer(read)?;
        if !echo.replies().is_empty() {
            stream.write_all(echo.replies())?;
            echo.consume(echo.replies().len());
        }
    }
}
