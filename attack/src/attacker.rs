//! The attacker's process: one attack with the lowest priority, then one line that says what came of it.

use std::io::{self, BufRead, BufReader, Write};
use std::process::{Child, ChildStdout, Command, Stdio};

use clap::Args;

use crate::attacks::{Attack, Outcome, Siege};
use crate::profile::Profile;
use crate::victim::Target;

/// What the attacker is told.
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

/// Attacks, tells the outcome, and keeps what is open until standard input ends.
#[tokio::main(flavor = "current_thread")]
pub(crate) async fn attack(options: &Options) -> io::Result<()> {
    // The server and the well-behaved clients come first: what is measured is the work that the attack makes the server
    // do, not the attacker's own.
    rustix::process::nice(19)?;
    let attack = Attack::named(&options.name).ok_or_else(|| io::Error::other("no attack has this name"))?;
    let target: Target = serde_json::from_str(&options.target)?;
    let siege = Siege::new(options.profile, target, attack.end);
    let mut outcome = (attack.run)(siege.clone()).await.unwrap_or_else(|error| Outcome {
        failures: vec![format!("the attack broke off: {error}")],
        ..Outcome::default()
    });
    outcome.sent += siege.sent();
    println!("{}", serde_json::to_string(&outcome)?);
    io::stdout().flush()?;
    // What the siege keeps stays open until the parent has looked.
    let _ = io::stdin().lines().next();
    drop(siege);
    Ok(())
}

/// The process of an attacker, as its parent sees it. Dropping it ends the process and closes its connections.
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
        let stdout = self.stdout.take().ok_or_else(|| io::Error::other("the outcome is told once"))?;
        let line = tokio::task::spawn_blocking(move || {
            let mut line = String::new();
            BufReader::new(stdout).read_line(&mut line).map(|_| line)
        });
        let line = line.await.map_err(io::Error::other)??;
        serde_json::from_str(&line).map_err(|_| io::Error::other("the attacker did not tell its outcome"))
    }
}

impl Drop for Attacker {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
