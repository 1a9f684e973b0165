//! The attacker's process: runs one attack with the lowest priority, then prints one line with the outcome.

use std::io::{self, BufRead, BufReader, Write};
use std::process::{Child, ChildStdout, Command, Stdio};

use clap::Args;

use crate::attacks::{Attack, AttackContext, Outcome};
use crate::profile::Profile;
use crate::target_server::Target;

/// Arguments of the attacker.
#[derive(Debug, Args)]
pub(crate) struct Options {
    #[arg(long)]
    name: String,
    #[arg(long, value_enum)]
    profile: Profile,
    /// Where the server listens, as JSON.
    #[arg(long)]
    target: String,
}

/// Attacks, prints the outcome, and keeps connections open until standard input closes.
#[tokio::main(flavor = "current_thread")]
pub(crate) async fn attack(options: &Options) -> io::Result<()> {
    // The server and the well-behaved clients have priority: the measurement covers the work that the attack causes the
    // server, not the attacker's own.
    rustix::process::nice(19)?;
    let attack = Attack::find(&options.name).ok_or_else(|| io::Error::other("no attack has this name"))?;
    let target: Target = serde_json::from_str(&options.target)?;
    let context = AttackContext::new(options.profile, target, attack.end);
    let mut outcome = (attack.run)(context.clone()).await.unwrap_or_else(|error| Outcome {
        failures: vec![format!("the attack broke off: {error}")],
        ..Outcome::default()
    });
    outcome.sent += context.sent();
    println!("{}", serde_json::to_string(&outcome)?);
    io::stdout().flush()?;
    // Connections of the attack stay open until the parent has checked the server.
    let _ = io::stdin().lines().next();
    drop(context);
    Ok(())
}

/// Handle of an attacker's process. Dropping it kills the process and closes its connections.
#[derive(Debug)]
pub(crate) struct Attacker {
    child: Child,
    stdout: Option<ChildStdout>,
}

impl Attacker {
    pub(crate) fn start(attack: &Attack, profile: Profile, target: &Target) -> io::Result<Self> {
        let mut child = Command::new(std::env::current_exe()?)
            .args(["attacker", "--name", attack.name, "--profile", profile.pick("full", "short")])
            .args(["--target", &serde_json::to_string(target)?])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let stdout = child.stdout.take();
        Ok(Self { child, stdout })
    }

    /// Waits for the outcome.
    pub(crate) async fn outcome(&mut self) -> io::Result<Outcome> {
        let stdout = self.stdout.take().ok_or_else(|| io::Error::other("the outcome is sent once"))?;
        let line = tokio::task::spawn_blocking(move || {
            let mut line = String::new();
            BufReader::new(stdout).read_line(&mut line).map(|_| line)
        });
        let line = line.await.map_err(io::Error::other)??;
        serde_json::from_str(&line).map_err(|_| io::Error::other("the attacker did not report its outcome"))
    }
}

impl Drop for Attacker {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
