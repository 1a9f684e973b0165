//! The commands of the guide "Measuring a service", each run for a moment.

use std::env;
use std::fs;
use std::path::Path;
use std::process::Command;

use crate::running::{Ran, Server, TempDir};

/// Commands of the blocks for a shell, without those that need other machines, tools or minutes.
fn commands(guide: &str) -> Vec<String> {
    let blocks = guide.split("```sh\n").skip(1).filter_map(|rest| rest.split_once("```"));
    let blocks = blocks.map(|(block, _)| block).filter(|block| {
        ["bench.internal", "bench suite", "bench anchors"].iter().all(|other| !block.contains(other))
    });
    let mut commands = Vec::new();
    for block in blocks {
        let mut command = String::new();
        let mut is_document = false;
        for line in block.lines() {
            command += line;
            command.push('\n');
            is_document = line.ends_with("<<'END'") || is_document && line != "END";
            let is_whole = !is_document && !line.ends_with('\\');
            if is_whole {
                commands.push(std::mem::take(&mut command));
            }
        }
        assert_eq!(command, "", "a command has no end");
    }
    commands.retain(|command| !command.trim().is_empty() && !command.starts_with('#'));
    commands
}

/// The same for a moment, against another server.
fn shortened(command: &str, address: &str) -> String {
    let mut words: Vec<_> = command.split(' ').map(str::to_owned).collect();
    for at in 1..words.len() {
        if words[at - 1] == "--duration" {
            let end = if words[at].ends_with('\n') { "\n" } else { "" };
            words[at] = format!("200ms{end}");
        }
    }
    let command = words.join(" ").replace("127.0.0.1:8002", address);
    let command =
        command.replace("0:100,3s:1k,5s:1k", "0:100,300ms:1k,500ms:1k").replace("--rounds 10", "--rounds 6");
    match command.starts_with("polyrpc bench ")
        && !command.contains("--warmup")
        && !command.contains(" report ")
    {
        true => command.replacen("polyrpc bench ", "polyrpc bench --warmup 50ms ", 1),
        false => command,
    }
}

fn run(command: &str, directory: &Path) -> Ran {
    let programs = Path::new(env!("CARGO_BIN_EXE_polyrpc")).parent().unwrap();
    let path = format!("{}:{}", programs.display(), env::var("PATH").unwrap_or_default());
    let output = Command::new("sh").args(["-c", command]).current_dir(directory).env("PATH", path).output();
    output.unwrap().into()
}

#[test]
fn commands_of_the_guide_measure() {
    let guide = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/guides/measuring-a-service.md");
    // A package has no guide.
    let Ok(guide) = fs::read_to_string(guide) else { return };
    let server = Server::serve([]);
    let directory = TempDir::new();
    let commands = commands(&guide);
    let benches = commands.iter().filter(|command| command.starts_with("polyrpc bench "));
    assert!(benches.count() >= 14, "{commands:?}");
    for command in commands {
        let short = shortened(&command, server.address());
        let ran = run(&short, directory.path());
        // A busy machine may make a generator late, a limit missed, or B worse than A: each is said.
        let is_judged =
            ["--require", "--limits", "--slo", "bench ab"].iter().any(|option| short.contains(option));
        let is_measured = ran.code == 0 || ran.code == 3 || is_judged && ran.code == 1;
        assert!(is_measured && !ran.stderr.contains("error: "), "{short}\n{ran:?}");
    }
}
