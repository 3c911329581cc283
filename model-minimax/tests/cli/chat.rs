// SPDX-License-Identifier: MIT OR Apache-2.0

//! A conversation with the program.

use std::io::{Read, Write};
use std::process::{Child, Command, Stdio};

use crate::scratch::Scratch;

fn start(dir: &Scratch, arguments: &[&str]) -> Child {
    Command::new(env!("CARGO_BIN_EXE_model-minimax"))
        .args(arguments)
        .env_clear()
        .current_dir(dir.path())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

#[test]
fn chat_has_commands_and_a_history() {
    let dir = Scratch::new();
    let model = super::golden("m3-tiny-bf16");
    let arguments = ["chat", "--model-path", model.to_str().unwrap(), "--max-new-tokens", "5", "--dtype", "f32"];
    let mut child = start(&dir, &arguments);
    let lines = "Hello\n/bogus\nAnd \\\nthen?\n/reset\nHello\n/system Be brief.\n/thinking hard\n\nHello\n/help\n/exit\nnot read\n";
    child.stdin.take().unwrap().write_all(lines.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    let [stdout, stderr] = [output.stdout, output.stderr].map(|text| String::from_utf8(text).unwrap());
    assert!(output.status.success(), "{stderr}");
    let figures: Vec<_> =
        stderr.lines().filter(|line| line.starts_with('[') && line.contains("prompt tokens")).collect();
    let cached: Vec<usize> = (figures.iter())
        .map(|line| line.split(", ").nth(1).unwrap().split(' ').next().unwrap().parse().unwrap())
        .collect();
    assert_eq!(figures.len(), 4, "{stderr}");
    // The first has nothing, the second and the third have what they share with it; the last has another beginning.
    assert!(cached[0] == 0 && cached[1] > 10 && cached[2] > 10 && cached[3] < cached[2], "{figures:?}");
    let tokens = |line: &str| line.split(' ').next().unwrap().to_owned();
    assert!(tokens(figures[0]) == tokens(figures[2]) && tokens(figures[0]) != tokens(figures[1]), "{figures:?}");
    for word in
        ["unknown command /bogus", "is forgotten", "the system message is set", "unknown thinking mode \"hard\""]
    {
        assert!(stderr.contains(word), "{word:?} is not in {stderr}");
    }
    assert_eq!(stdout.lines().count(), 4, "{stdout:?}");
}

#[cfg(unix)]
#[test]
fn an_interrupt_stops_the_answer_and_not_the_conversation() {
    let dir = Scratch::new();
    let mut child = start(&dir, &["synth", "--output-dir", "m"]);
    assert!(child.wait().unwrap().success());
    // It would go on for 100,000 tokens.
    let mut child = start(&dir, &["chat", "--model-path", "m", "--max-new-tokens", "100000", "--threads", "1"]);
    let mut input = child.stdin.take().unwrap();
    input.write_all(b"Hello\n").unwrap();
    // M2.7 begins with a thought, which a random model does not end: it goes to stderr. Wait for some of it.
    let mut stderr = child.stderr.take().unwrap();
    let mut seen = Vec::new();
    let mut byte = [0];
    let begun = |seen: &[u8]| {
        let text = String::from_utf8_lossy(seen).into_owned();
        text.split_once(" in ").and_then(|(_, rest)| rest.split_once('\n')).is_some_and(|(_, answer)| answer.len() > 40)
    };
    while !begun(&seen) {
        assert_eq!(stderr.read(&mut byte).unwrap(), 1, "{}", String::from_utf8_lossy(&seen));
        seen.push(byte[0]);
    }
    assert!(Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap().success());
    input.write_all(b"/exit\n").unwrap();
    stderr.read_to_end(&mut seen).unwrap();
    let text = String::from_utf8_lossy(&seen);
    assert_eq!(child.wait().unwrap().code(), Some(0), "{text}");
    assert!(text.contains(", stopped]"), "{text}");
}
