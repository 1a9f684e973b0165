use polyrpc::{Result, Streaming};

use super::message::{Command, Report};

/// One load of a worker.
#[polyrpc::service]
pub(super) trait LoadWorker {
    /// Makes a part of a load: `Prepare`, `Ready`, `Ping` and `Pong`, `Start`, each `Second`, `Done`. It ends early with the
    /// stream of commands.
    async fn load(&self, commands: Streaming<Command>) -> Result<Streaming<Report>>;
}
