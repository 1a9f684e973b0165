//! This command as another process.

use std::env;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};

use crate::failure::Failure;

/// This command as another process.
pub(in crate::bench) trait Process: Sized {
    fn start_command(arguments: &[&str]) -> Result<Self, Failure>;
    fn signal(&self, signal: Signal) -> Result<(), Failure>;
}

impl Process for Child {
    fn start_command(arguments: &[&str]) -> Result<Self, Failure> {
        let program = env::current_exe().map_err(|error| Failure::system("find this program", &error))?;
        let mut command = Command::new(program);
        let command =
            command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        command.spawn().map_err(|error| Failure::system("start this program again", &error))
    }

    fn signal(&self, signal: Signal) -> Result<(), Failure> {
        let id = i32::try_from(self.id()).ok().and_then(Pid::from_raw);
        let id = id.ok_or_else(|| Failure::new("a process has no id"))?;
        kill_process(id, signal).map_err(|error| Failure::system("send a signal", &error.into()))
    }
}

/// A server in another process; killed when dropped.
pub(in crate::bench) struct Server {
    child: Child,
    address: String,
}

impl Server {
    pub(in crate::bench) fn start() -> Result<Self, Failure> {
        let mut child = Child::start_command(&["serve", "--listen", "127.0.0.1:0"])?;
        let lines = child.stdout.take().into_iter().flat_map(|stdout| BufReader::new(stdout).lines());
        let mut address = None;
        for line in lines.map_while(Result::ok) {
            if let Some(listening) = line.strip_prefix("listening main ") {
                address = Some(listening.to_owned());
            }
            if line.starts_with("ready") {
                break;
            }
        }
        match address {
            Some(address) => Ok(Self { child, address }),
            None => {
                // It has ended already, or does not listen.
                let _ = child.kill();
                let _ = child.wait();
                Err(Failure::new("the server of the self-test did not start"))
            }
        }
    }

    /// Host and port.
    pub(in crate::bench) fn address(&self) -> &str {
        &self.address
    }

    pub(in crate::bench) fn url(&self) -> String {
        format!("rpcx://{}", self.address)
    }

    pub(in crate::bench) fn signal(&self, signal: Signal) -> Result<(), Failure> {
        self.child.signal(signal)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Nothing can be done about a process that cannot be killed.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
