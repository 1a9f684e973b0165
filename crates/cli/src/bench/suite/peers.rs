//! Programs that are measured: where they are, how they are built and started.

use std::collections::{BTreeMap, BTreeSet};
use std::env;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use polyrpc_bench_report::model;
use serde::Deserialize;

use super::contract::Contract;
use super::ready::{Ready, Stop};
use super::shipped;
use crate::failure::Failure;
use crate::terminal;

/// A peer in TOML. `{port}`, `{polyrpc}`, `{heavy}`, `{load}` and so on are replaced in its commands.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct PeerDefinition {
    /// What it is, with its version.
    description: String,
    /// Its directory, relative to bench/peers, or absolute.
    dir: Option<PathBuf>,
    /// Builds it; it is run once.
    build: Option<String>,
    /// Starts its server.
    pub(super) start: Option<String>,
    /// When the server is ready.
    pub(super) ready: Ready,
    /// How the server is stopped.
    pub(super) stop: Stop,
    /// URL of the server.
    pub(super) url: Option<String>,
    /// Starts its own client.
    pub(super) client: Option<String>,
    /// What it can do; anything if it is empty.
    contracts: Vec<Contract>,
    /// What to do if it is not there.
    hint: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PeerFile {
    peer: BTreeMap<String, PeerDefinition>,
}

/// A peer that can be started.
#[derive(Debug, Clone)]
pub(super) struct Peer {
    pub(super) definition: PeerDefinition,
    pub(super) dir: PathBuf,
}

/// All peers, found and built when they are first used.
pub(super) struct Peers {
    definitions: BTreeMap<String, PeerDefinition>,
    given: BTreeMap<String, PathBuf>,
    /// Peers whose directory describes them.
    described: BTreeSet<String>,
    builds: bool,
    found: BTreeMap<String, Result<Peer, String>>,
    /// Outcomes of build commands, since several peers share one.
    built: BTreeMap<(PathBuf, String), Result<(), String>>,
}

impl Peers {
    pub(super) fn new(given: &[(String, PathBuf)], builds: bool) -> Result<Self, Failure> {
        let mut definitions =
            parse(shipped::PEERS).map_err(|error| Failure::new(format!("peers: {error}")))?;
        let mut described = BTreeSet::new();
        for (name, directory) in given {
            let path = directory.join("peer.toml");
            if path.exists() {
                let text = super::super::stored::read_text(&path)?;
                let mut own =
                    parse(&text).map_err(|error| Failure::new(format!("{}: {error}", path.display())))?;
                let definition = own
                    .remove(name)
                    .ok_or_else(|| Failure::new(format!("{} has no [peer.{name}]", path.display())))?;
                definitions.insert(name.clone(), definition);
                described.insert(name.clone());
            } else if !definitions.contains_key(name) {
                return Err(Failure::new(format!("there is no peer {name}"))
                    .with_hint(format!("write {} with a table [peer.{name}]", path.display())));
            }
        }
        Ok(Self {
            definitions,
            given: given.iter().cloned().collect(),
            described,
            builds,
            found: BTreeMap::new(),
            built: BTreeMap::new(),
        })
    }

    /// Adds the peers of a suite's file. What the user's directory says comes before.
    pub(super) fn define(&mut self, own: &BTreeMap<String, PeerDefinition>) {
        for (name, definition) in own.iter().filter(|(name, _)| !self.described.contains(*name)) {
            self.definitions.insert(name.clone(), definition.clone());
            self.found.remove(name);
        }
    }

    /// A peer, or why there is none.
    pub(super) fn find(&mut self, name: &str, contract: Contract) -> Result<Peer, String> {
        if !self.found.contains_key(name) {
            let found = self.look_for(name);
            self.found.insert(name.to_owned(), found);
        }
        let peer = self.found[name].clone()?;
        let contracts = &peer.definition.contracts;
        match contracts.is_empty() || contracts.contains(&contract) {
            true => Ok(peer),
            false => Err(format!("it has no {contract}")),
        }
    }

    fn look_for(&mut self, name: &str) -> Result<Peer, String> {
        let definition = self.definitions.get(name).cloned().ok_or("nothing describes it")?;
        let dir = match self.given.get(name) {
            Some(dir) => dir.clone(),
            None => find_directory(name, &definition)?,
        };
        if let Some(build) = definition.build.clone().filter(|_| self.builds) {
            let key = (dir.clone(), build.clone());
            if !self.built.contains_key(&key) {
                terminal::print_error(format_args!("building {name}: {build}"));
                let outcome = run_build(&dir, &build);
                self.built.insert(key.clone(), outcome);
            }
            self.built[&key].clone()?;
        }
        let peer = Peer { definition, dir };
        peer.check_programs()?;
        Ok(peer)
    }

    /// The peers of pairs, for the report.
    pub(super) fn report(&self, names: &[String]) -> Vec<model::Peer> {
        let report = |name: &String| {
            let definition = self.definitions.get(name).cloned().unwrap_or_default();
            let found = self.found.get(name);
            let missing = found.and_then(|found| found.as_ref().err().cloned());
            let commands = [&definition.build, &definition.start, &definition.client];
            model::Peer {
                name: name.clone(),
                description: definition.description.replace("{version}", env!("CARGO_PKG_VERSION")),
                missing: missing.or_else(|| found.is_none().then(|| "not used".to_owned())),
                commands: commands.into_iter().flatten().cloned().collect(),
            }
        };
        names.iter().map(report).collect()
    }
}

impl Peer {
    /// A program that is not there is missing, not failed.
    fn check_programs(&self) -> Result<(), String> {
        for command in [&self.definition.start, &self.definition.client].into_iter().flatten() {
            let program = command.split_whitespace().next().unwrap_or_default();
            if program.contains('/') && !program.starts_with('{') && !self.dir.join(program).exists() {
                let hint = self.definition.hint.as_deref().unwrap_or("build it");
                return Err(format!("{program} is not in its directory: {hint}"));
            }
        }
        Ok(())
    }
}

fn parse(text: &str) -> Result<BTreeMap<String, PeerDefinition>, String> {
    let file: PeerFile = toml::from_str(text).map_err(|error| error.to_string().trim().to_owned())?;
    Ok(file.peer)
}

/// Where a peer is that no option gives.
fn find_directory(name: &str, definition: &PeerDefinition) -> Result<PathBuf, String> {
    let Some(dir) = &definition.dir else {
        // This program is its own peer, and needs no directory.
        let is_own = definition.start.as_deref().or(definition.client.as_deref());
        return match is_own.is_some_and(|command| command.starts_with("{polyrpc}")) {
            true => Ok(env::current_dir().unwrap_or_default()),
            false => {
                Err(definition.hint.clone().unwrap_or_else(|| format!("give it by --peer-dir {name}=DIR")))
            }
        };
    };
    if dir.is_absolute() {
        return if dir.is_dir() {
            Ok(dir.clone())
        } else {
            Err(format!("{} is not a directory", dir.display()))
        };
    }
    let sources = find_sources().ok_or_else(|| {
        format!(
            "its sources are in bench/peers of PolyRPC's repository: `git clone {REPOSITORY}` and run this there, or \
             give them by --peer-dir {name}=DIR"
        )
    })?;
    Ok(sources.join(dir))
}

/// bench/peers of the repository, upwards from the current directory or from this program.
fn find_sources() -> Option<PathBuf> {
    let paths = [env::current_dir().ok(), env::current_exe().ok()];
    paths.into_iter().flatten().find_map(|path| {
        path.ancestors().map(|above| above.join("bench/peers")).find(|dir| dir.join("build").is_file())
    })
}

fn run_build(dir: &Path, build: &str) -> Result<(), String> {
    let mut words = build.split_whitespace();
    let program = words.next().ok_or("its build command is empty")?;
    // `Command` looks for a relative program in this process's directory.
    let program = if program.contains('/') { dir.join(program) } else { program.into() };
    let command = Command::new(program).args(words).current_dir(dir).stdin(Stdio::null()).output();
    let output = command.map_err(|error| format!("`{build}` cannot be run: {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    let text = String::from_utf8_lossy(&output.stderr);
    let last: Vec<_> = text.lines().rev().filter(|line| !line.trim().is_empty()).take(3).collect();
    let last: Vec<_> = last.into_iter().rev().collect();
    Err(format!("`{build}` failed: {}", last.join("; ")))
}

const REPOSITORY: &str = env!("CARGO_PKG_REPOSITORY");
