// SPDX-License-Identifier: MIT OR Apache-2.0

//! The program as a user meets it: what it prints, where, and its exit code.

#[cfg(feature = "text")]
mod chat;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use op_testkit::safetensors::Dtype;

use crate::model::parity::copy;
use crate::model::verify::{copy_folder, plant};
use crate::scratch::Scratch;

const MODELS: [&str; 4] = ["m27-tiny-bf16", "m27-tiny-fp8", "m3-tiny-bf16", "m3-tiny-mxfp8"];

/// What a run of the program left behind.
struct Outcome {
    code: Option<i32>,
    stdout: String,
    stderr: String,
}

impl Outcome {
    /// Checks the exit code and that stderr has all of `words`; stdout must be empty.
    #[track_caller]
    fn fails(&self, code: i32, words: &[&str]) {
        assert_eq!(self.code, Some(code), "{}", self.stderr);
        assert_eq!(self.stdout, "");
        for word in words {
            assert!(self.stderr.contains(word), "{word:?} is not in: {}", self.stderr);
        }
    }
}

/// Runs the program in an environment without any of its variables, in a folder of its own.
fn program(dir: &Path, arguments: &[&str], variables: &[(&str, &str)]) -> Outcome {
    let output = Command::new(env!("CARGO_BIN_EXE_model-minimax"))
        .args(arguments)
        .env_clear()
        .envs(variables.iter().copied())
        .current_dir(dir)
        .stdin(Stdio::null())
        .output()
        .unwrap();
    Outcome {
        code: output.status.code(),
        stdout: String::from_utf8(output.stdout).unwrap(),
        stderr: String::from_utf8(output.stderr).unwrap(),
    }
}

fn run(arguments: &[&str]) -> Outcome {
    program(Scratch::new().path(), arguments, &[])
}

fn golden(model: &str) -> PathBuf {
    op_testkit::golden::dir().join("models").join(model)
}

#[test]
fn usage_errors_have_code_2() {
    let cases: [(&[&str], &str); 18] = [
        (&[], "Usage"),
        (&["sing"], "unrecognized subcommand 'sing'"),
        (&["ask", "--no-such-flag"], "--no-such-flag"),
        (&["ask", "--variant", "m4"], "unknown variant \"m4\""),
        (&["ask", "--max-new-tokens", "0"], "--max-new-tokens"),
        (&["ask", "--prompt-ids", "1,x"], "--prompt-ids"),
        (&["ask", "--prompt", "a", "--prompt-ids", "1"], "cannot be used with"),
        (&["ask", "--eager", "--fused"], "cannot be used with"),
        (&["ask", "--device", "tpu"], "unknown device \"tpu\""),
        (&["ask", "--synthetic", "huge"], "synthetic spec \"huge\""),
        (
            &["bench", "--arms", "eager,npugraph"],
            "unknown arm \"npugraph\" (available: eager, fused, vecgraph, fusedgraph",
        ),
        (&["bench", "--iters", "0"], "--iters"),
        (&["ask", "--attention", "sparse"], "expected msa or dense"),
        (&["bench", "--indexer", "per-head"], "expected per-kv-head or shared"),
        (&["parity", "--prefill-chunk", "0"], "--prefill-chunk"),
        (&["parity", "--variant", "m4"], "unknown variant \"m4\""),
        (&["ask", "--thinking", "hard"], "unknown thinking mode \"hard\""),
        (&["ask", "--thinking", "enabled", "--raw"], "cannot be used with"),
    ];
    for (arguments, word) in cases {
        run(arguments).fails(2, &[word]);
    }
}

#[test]
fn variables_set_the_defaults_of_flags_and_are_checked_like_them() {
    let dir = Scratch::new();
    let cases = [
        ("VARIANT", "m5", 2, "unknown variant \"m5\""),
        ("LAYERS", "none", 2, "--max-layers"),
        ("ARMS", "pypto,pypto+graph", 2, "unknown arm \"pypto+graph\""),
        ("WINDOW", "0", 2, "--graph-window"),
        ("ITERS", "-1", 2, "--iters"),
        ("NEW_TOKENS", "0", 2, "--max-new-tokens"),
        ("WARMUP", "x", 2, "--warmup"),
        ("ATTENTION", "all", 2, "--attention"),
        ("INDEXER", "all", 2, "--indexer"),
        ("PREFILL_CHUNK", "0", 2, "--prefill-chunk"),
        ("DEVICE", "card", 2, "unknown device \"card\""),
        ("MODEL_PATH", "nowhere", 1, "nowhere"),
        ("REPORT_DIR", "no/such/folder", 1, "no/such/folder/bench_latest_eager.json cannot be written"),
        ("PYPTO_SWIGLU_ALPHA", "-1", 1, "PYPTO_SWIGLU_ALPHA should be number > 0, found \"-1\""),
    ];
    for (name, value, code, word) in cases {
        program(dir.path(), &["bench"], &[(name, value)]).fails(code, &[word]);
    }
    // Set to nothing, a variable means the default; what fails then is the path.
    let empty = [
        "VARIANT",
        "DEVICE",
        "LAYERS",
        "ATTENTION",
        "INDEXER",
        "PREFILL_CHUNK",
        "ARMS",
        "ITERS",
        "NEW_TOKENS",
        "WARMUP",
        "WINDOW",
        "PROMPT",
        "REPORT_DIR",
    ]
    .map(|name| (name, ""));
    // A benchmark that does not start leaves no report, and an older one alone.
    dir.write("bench_latest_fused.json", "old");
    program(dir.path(), &["bench", "--model-path", "nowhere"], &empty).fails(1, &["no checkpoint folder at nowhere"]);
    let left: Vec<_> = std::fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left, ["bench_latest_fused.json"]);
}

#[test]
fn a_path_that_does_not_exist_says_what_is_there_and_what_helps() {
    let dir = Scratch::new();
    dir.write("something-else", "");
    let outcome = program(dir.path(), &["ask", "--model-path", "some/model"], &[]);
    outcome.fails(1, &["no checkpoint folder at some/model", "something-else", "--synthetic"]);
}

#[test]
fn ask_without_a_checkpoint_says_how_to_give_one() {
    run(&["ask"]).fails(1, &["neither --model-path nor MODEL_PATH", "--synthetic tiny"]);
    // An empty variable is no path.
    program(Scratch::new().path(), &["ask"], &[("MODEL_PATH", "")]).fails(1, &["neither --model-path nor MODEL_PATH"]);
}

#[test]
fn devices_that_the_model_cannot_use_are_refused() {
    let dir = Scratch::new();
    // Whatever this machine has: there is no library of that name.
    let no_library = ("ASCEND_RT_LIB", "absent/libascendcl.so");
    for (device, variables, name) in [
        ("npu:1", [no_library, ("TILE_FWK_DEVICE_ID", "")], "npu:1"),
        ("npu", [no_library, ("TILE_FWK_DEVICE_ID", "")], "npu:0"),
        ("npu", [no_library, ("TILE_FWK_DEVICE_ID", "3")], "npu:3"),
        ("2", [no_library, ("TILE_FWK_DEVICE_ID", "3")], "npu:2"),
    ] {
        let outcome = program(dir.path(), &["ask", "--device", device], &variables);
        let reasons: [&str; 2] = match cfg!(feature = "npu") {
            true => ["absent/libascendcl.so", "cargo xtask doctor"],
            false => ["lacks the feature `npu`", "cargo run -p model-minimax --features npu -- ask --device npu:"],
        };
        outcome.fails(1, &[&format!("device {name} "), reasons[0], reasons[1]]);
    }
    // Left in the environment, the variable alone does not move a run off the CPU.
    let outcome = program(dir.path(), &["ask"], &[("TILE_FWK_DEVICE_ID", "3")]);
    outcome.fails(1, &["neither --model-path nor MODEL_PATH"]);
}

#[cfg(not(feature = "sim"))]
#[test]
fn an_emulated_device_is_a_feature() {
    for command in ["ask", "bench"] {
        run(&[command, "--device", "sim:910b3"]).fails(
            1,
            &[
                "device sim:910b3 is not in this build",
                "cargo run -p model-minimax --features sim -- ask --device sim:910b3",
            ],
        );
    }
}

#[cfg(feature = "sim")]
#[test]
fn an_emulated_device_answers_with_the_golden_ids() {
    let model = "m3-tiny-mxfp8";
    let path = golden(model);
    let prompt = join(&expected_ids(model, "mini.input_ids"));
    let ask = |more: &[&str]| {
        let common = ["ask", "--model-path", path.to_str().unwrap(), "--prompt-ids", &prompt, "--print-ids"];
        run(&[&common, ["--ignore-eos", "--max-new-tokens", "16"].as_slice(), more].concat())
    };
    for (more, lines) in [
        (["--device", "sim:910b3", "--streaming"], ["2 buckets of 4 experts", "streamed from the host"]),
        (["--device", "sim:Ascend950PR_9599", "--no-streaming"], ["experts of 2 layers (mxfp8)\n", "index keys"]),
    ] {
        let outcome = ask(&more);
        assert_eq!(outcome.code, Some(0), "{}", outcome.stderr);
        assert_eq!(outcome.stdout.trim_end(), join(&expected_ids(model, "mini.greedy_ids")), "{more:?}");
        for line in lines {
            assert!(outcome.stderr.contains(line), "{line:?} is not in: {}", outcome.stderr);
        }
    }
    ask(&["--device", "sim:910b9"]).fails(1, &["no chip is called \"910b9\"", "Ascend910B3", "Ascend950PR_9599"]);
    ask(&["--device", "sim:910b3", "--dtype", "f32"]).fails(1, &["BF16 activations only", "found F32"]);
}

#[test]
fn the_variant_must_be_that_of_the_checkpoint() {
    let path = golden("m27-tiny-bf16");
    let path = path.to_str().unwrap();
    run(&["ask", "--model-path", path, "--variant", "m3"]).fails(1, &["--variant m3", "MiniMax-M2.7", "config.json"]);
    let path = golden("m3-tiny-bf16");
    let path = path.to_str().unwrap();
    run(&["bench", "--model-path", path, "--variant", "m27", "--report-file", "r.json"])
        .fails(1, &["--variant m27", "MiniMax-M3", "config.json"]);
}

#[test]
fn prompts_are_checked_before_anything_is_loaded() {
    let path = golden("m27-tiny-bf16");
    let path = path.to_str().unwrap();
    let ask = |more: &[&str]| run(&[&["ask", "--model-path", path, "--print-ids"], more].concat());
    ask(&["--prompt", ""]).fails(1, &["the prompt is empty"]);
    ask(&["--prompt-file", "-"]).fails(1, &["the prompt is empty"]);
    ask(&["--prompt-file", "no-such-file"]).fails(1, &["the prompt cannot be read from no-such-file: "]);
    ask(&["--prompt-ids", "1,576"]).fails(1, &["prompt token 576 at position 1", "576 tokens"]);
    ask(&["--max-new-tokens", "2048", "--prompt-ids", "5"])
        .fails(1, &["1 prompt tokens and 2048 new tokens", "2048 positions"]);
    ask(&["--max-layers", "3"]).fails(1, &["max layers", "found 3"]);
    ask(&["--temperature", "-1"]).fails(1, &["temperature should be"]);
    ask(&["--top-p", "0"]).fails(1, &["top-p should be"]);
}

#[test]
fn a_report_that_cannot_be_written_stops_the_benchmark_before_it_starts() {
    let dir = Scratch::new();
    let path = golden("m27-tiny-bf16");
    let path = path.to_str().unwrap();
    let outcome = program(dir.path(), &["bench", "--model-path", path, "--report-file", "absent/report.json"], &[]);
    outcome.fails(1, &["report absent/report.json cannot be written"]);
    assert!(!outcome.stderr.contains("E2E"), "{}", outcome.stderr);
    let outcome = program(dir.path(), &["bench", "--model-path", path, "--report-dir", "absent"], &[]);
    outcome.fails(1, &["bench_latest_eager.json cannot be written"]);
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
}

#[test]
fn synth_writes_a_folder_that_answers_and_says_how_much_memory_that_took() {
    let dir = Scratch::new();
    let synth = |more: &[&str]| program(dir.path(), &[&["synth", "--output-dir", "m"], more].concat(), &[]);
    // 200 MB: more than what the run may take, as nearly all of it is streamed.
    let large = [
        "--variant",
        "m3",
        "--scale",
        "slice",
        "--layers",
        "1",
        "--vocab",
        "576",
        "--format",
        "bf16",
        "--hidden",
        "3072",
    ];
    let outcome = synth(&large);
    assert_eq!(outcome.code, Some(0), "{}", outcome.stderr);
    let number = |after: &str| -> u64 {
        let text = outcome.stderr.split(after).nth(1).unwrap_or_else(|| panic!("{}", outcome.stderr));
        text.trim_start_matches(' ').split(|c: char| !c.is_ascii_digit()).next().unwrap().parse().unwrap()
    };
    let (bytes, peak) = (number("tensors,"), number("peak memory"));
    assert!(bytes > 180 << 20 && peak < 64, "{}", outcome.stderr);
    synth(&large).fails(1, &["m is in the way", "--force"]);

    let outcome = synth(&["--force", "--variant", "m3", "--seed", "5", "--shard-size", "1MiB"]);
    assert_eq!(outcome.code, Some(0), "{}", outcome.stderr);
    assert!(outcome.stderr.starts_with("m, MiniMax-M3 (m3-tiny,seed=5): "), "{}", outcome.stderr);
    #[cfg(feature = "text")]
    {
        let ask = ["ask", "--model-path", "m", "--prompt", "Hello", "--max-new-tokens", "3"];
        let outcome = program(dir.path(), &ask, &[]);
        assert!(outcome.code == Some(0) && !outcome.stdout.trim().is_empty(), "{}", outcome.stderr);
    }
    synth(&["--layers", "0", "--force"]).fails(1, &["layers should be between 1 and 1024, found 0"]);
    synth(&["--shard-size", "1.5GB"]).fails(2, &["expected a size such as 64MiB"]);
}

#[test]
fn verify_finds_a_planted_weight_and_replay_shows_it_again() {
    let dir = Scratch::new();
    let good = golden("m27-tiny-bf16");
    let bad = dir.path().join("bad copy");
    copy_folder(&good, &bad);
    plant(&bad, "model.layers.1.self_attn.v_proj.weight", 7, 0x40);
    let good = good.to_str().unwrap();
    let verify = |more: &[&str]| {
        let common = ["verify", "--model-path", good, "--prompt-ids", "5,6,7,8", "--dtype", "f32"];
        program(dir.path(), &[&common, more].concat(), &[])
    };
    let outcome = verify(&["--other", "--model-path \"bad copy\""]);
    assert_eq!(outcome.code, Some(1), "{}", outcome.stderr);
    for word in [
        "4 tokens, tolerance 0\n",
        "layer 0 feed-forward   ffn_out",
        "first difference: layer 1 attention, attn_out [4, 128]: ",
        "distance in units in the last place (F32)",
        "model.layers.1.self_attn.v_proj.weight: 1 of ",
    ] {
        assert!(outcome.stdout.contains(word), "{word:?} is not in {}", outcome.stdout);
    }
    assert!(outcome.stderr.contains("the two sides differ at layer 1 attention"), "{}", outcome.stderr);

    let bundle = "verify-bundle.safetensors";
    let replay = |more: &[&str]| program(dir.path(), &[&["replay", bundle], more].concat(), &[]);
    let outcome = replay(&[]);
    assert_eq!(outcome.code, Some(1), "{}", outcome.stderr);
    assert!(outcome.stdout.contains("side b: as recorded, bit for bit\nattn_out [4, 128]: "), "{}", outcome.stdout);
    let outcome = replay(&["--other-model-path", good]);
    assert_eq!(outcome.code, Some(0), "{}", outcome.stderr);
    assert!(outcome.stdout.contains("side b: not as recorded\nno difference"), "{}", outcome.stdout);

    // Two levels of one checkpoint agree within a tolerance, not exactly.
    let outcome = verify(&["--other", "--level scalar --threads 3 --load mmap"]);
    assert!(outcome.code == Some(0) && outcome.stdout.contains("no difference in 13 tensors"), "{}", outcome.stdout);
    verify(&["--other", "--model-path nowhere"]).fails(1, &["side b: no checkpoint folder at nowhere"]);
    verify(&["--other", "--level mmx"]).fails(1, &["--other", "mmx"]);
    verify(&["--tolerance", "-1"]).fails(2, &["expected a number of at least 0"]);
    program(dir.path(), &["replay", "absent.safetensors"], &[]).fails(1, &["absent.safetensors: cannot be read"]);
}

#[test]
fn errors_have_codes_with_a_page() {
    for (arguments, code) in [
        (&["ask"][..], "E0001"),
        (&["ask", "--model-path", "nowhere"], "E0201"),
        (&["parity"], "E0701"),
        (&["replay", "nowhere"], "E0705"),
        (&["bench", "--model-path", "."], "E0203"),
        (&["--explain", "E9999"], "E0007"),
    ] {
        let outcome = run(arguments);
        outcome.fails(1, &[&format!("\nhelp: model-minimax --explain {code}\n")]);
        let page = run(&["--explain", code]);
        assert!(page.code == Some(0) && page.stdout.starts_with(&format!("{code}: ")), "{}", page.stdout);
    }
    let list = run(&["--explain", "list"]).stdout;
    assert!(list.lines().count() > 50 && list.contains("E0201  there is no such checkpoint folder"), "{list}");
    run(&["--explain", "E0201", "ask"]).fails(2, &["cannot be used with"]);
}

#[test]
fn the_configuration_file_sets_defaults() {
    let dir = Scratch::new();
    dir.write("my.toml", "model-path = \"from-file\"\n[bench]\niters = 0\n");
    let with = |variables: &[(&str, &str)], arguments: &[&str]| program(dir.path(), arguments, variables);
    let named = [("MODEL_MINIMAX_CONFIG", "my.toml")];
    with(&named, &["ask"]).fails(1, &["no checkpoint folder at from-file"]);
    with(&named, &["ask", "--model-path", "from-flag"]).fails(1, &["no checkpoint folder at from-flag"]);
    let both = [named[0], ("MODEL_PATH", "from-variable")];
    with(&both, &["ask"]).fails(1, &["no checkpoint folder at from-variable"]);
    // A default is checked like an option.
    with(&named, &["bench"]).fails(2, &["--iters"]);
    with(&[("MODEL_MINIMAX_CONFIG", "absent.toml")], &["ask"]).fails(1, &["absent.toml: ", "--explain E0003"]);
    // The file of the user's folder may be absent.
    let folder = dir.path().to_str().unwrap();
    with(&[("XDG_CONFIG_HOME", folder)], &["ask"]).fails(1, &["neither --model-path nor MODEL_PATH"]);
    std::fs::create_dir(dir.path().join("model-minimax")).unwrap();
    dir.write("model-minimax/config.toml", "colour = 1");
    with(&[("XDG_CONFIG_HOME", folder)], &["ask"]).fails(1, &["no command has the option `colour`"]);
    let none = [("XDG_CONFIG_HOME", folder), ("MODEL_MINIMAX_CONFIG", "")];
    with(&none, &["ask"]).fails(1, &["neither --model-path nor MODEL_PATH"]);
}

#[test]
fn completions_and_manual_pages_know_the_commands() {
    let dir = Scratch::new();
    for shell in ["bash", "zsh", "fish", "powershell", "elvish"] {
        let outcome = run(&["completions", shell]);
        let knows = ["synth", "list-knobs", "shard-size"].iter().all(|word| outcome.stdout.contains(word));
        assert!(outcome.code == Some(0) && knows, "{shell}: {}", outcome.stderr);
    }
    run(&["completions", "csh"]).fails(2, &["invalid value 'csh'"]);
    let page = run(&["man", "synth"]);
    assert!(
        page.code == Some(0) && page.stdout.contains(".TH") && page.stdout.contains("shard\\-size"),
        "{}",
        page.stdout
    );
    run(&["man", "sing"]).fails(1, &["there is no command \"sing\""]);
    let outcome = program(dir.path(), &["man", "--output-dir", "man"], &[]);
    assert_eq!(outcome.code, Some(0), "{}", outcome.stderr);
    for page in ["model-minimax.1", "model-minimax-ask.1", "model-minimax-verify.1"] {
        assert!(dir.path().join("man").join(page).is_file(), "{page}");
    }
}

#[test]
fn list_knobs_shows_values_defaults_and_meanings() {
    let dir = Scratch::new();
    let outcome = program(dir.path(), &["list-knobs"], &[("RAYON_NUM_THREADS", "3"), ("LAYERS", "")]);
    assert_eq!((outcome.code, outcome.stderr.as_str()), (Some(0), ""));
    for line in [
        "RAYON_NUM_THREADS = 3\n    threads of the CPU kernels; default: physical cores; type: whole number >= 1\n    overridden by --threads\n",
        "LAYERS = (unset)\n",
        "CPU_TILES_LEVEL = (unset)\n",
        "type: scalar | avx2 | avx512 | avx512bf16\n",
        "PYPTO_SWIGLU_LIMIT = (unset)\n",
    ] {
        assert!(outcome.stdout.contains(line), "{line:?} is not in: {}", outcome.stdout);
    }
    // A wrong value is shown in the list, and is an error.
    let outcome = program(dir.path(), &["list-knobs"], &[("PYPTO_SWIGLU_LIMIT", "x")]);
    assert_eq!(outcome.code, Some(1));
    assert!(outcome.stdout.contains("PYPTO_SWIGLU_LIMIT = x (not valid)"), "{}", outcome.stdout);
    assert!(outcome.stderr.contains("PYPTO_SWIGLU_LIMIT should be number > 0"), "{}", outcome.stderr);
}

#[test]
fn the_listed_levels_are_those_of_the_kernels() {
    let levels = cpu_tiles::Isa::ALL.map(cpu_tiles::Isa::name).join(" | ");
    assert!(run(&["list-knobs"]).stdout.contains(&format!("type: {levels}\n")));
}

#[test]
fn help_and_version_go_to_stdout() {
    for arguments in
        [["--help"].as_slice(), &["ask", "--help"], &["bench", "--help"], &["parity", "--help"], &["--version"]]
    {
        let outcome = run(arguments);
        assert_eq!((outcome.code, outcome.stderr.as_str()), (Some(0), ""), "{arguments:?}");
        assert!(!outcome.stdout.is_empty());
    }
}

#[test]
fn parity_prints_the_figures_of_all_golden_models() {
    let dir = op_testkit::golden::dir();
    let dir = dir.to_str().unwrap();
    let scalar = [("GOLDEN_DIR", dir), ("CPU_TILES_LEVEL", "scalar"), ("RAYON_NUM_THREADS", "1")];
    let outcomes = [
        (program(Scratch::new().path(), &["parity"], &scalar), "level scalar"),
        (run(&["parity", "--golden", dir, "--threads", "1", "--load", "mmap", "--eager"]), "level "),
    ];
    for (outcome, level) in outcomes {
        assert_eq!((outcome.code, outcome.stderr.as_str()), (Some(0), ""), "{}", outcome.stdout);
        let lines: Vec<&str> = outcome.stdout.lines().collect();
        assert!(lines[0].contains(level), "{}", outcome.stdout);
        for model in MODELS {
            assert!(lines.iter().any(|line| line.starts_with(model) && line.contains(" ok ")), "{}", outcome.stdout);
        }
        assert_eq!(lines.last(), Some(&"all passed"));
    }
}

#[test]
fn parity_of_one_variant_sees_how_its_attention_is_run() {
    let golden = golden("m3-tiny-bf16");
    let common = ["parity", "--golden", golden.to_str().unwrap(), "--threads", "1"];
    let parity = |more: &[&str]| run(&[&common, more].concat());
    let chunks = parity(&["--variant", "m3", "--prefill-chunk", "300"]);
    assert_eq!(chunks.code, Some(0), "{}", chunks.stdout);
    let none = parity(&["--variant", "m27"]);
    assert_eq!(none.code, Some(1));
    assert!(
        none.stdout.contains("not compared: m3-tiny-bf16 (it is MiniMax-M3, asked for was MiniMax-M2.7)\n"),
        "{}",
        none.stdout
    );
    for other in [["--attention", "dense"], ["--indexer", "shared"]] {
        let outcome = parity(&other);
        assert_eq!(outcome.code, Some(1), "{}", outcome.stdout);
        assert!(outcome.stdout.contains("FAIL long.logits\n"), "{}", outcome.stdout);
    }
}

#[test]
fn parity_with_a_wrong_result_is_a_failure_after_the_table() {
    let scratch = Scratch::new();
    copy(&scratch, |expected| _ = expected.add("mini.greedy_ids", Dtype::I64, &[16], &[0_i64; 16][..]));
    let dir = scratch.path().to_str().unwrap();
    let outcome = run(&["parity", "--golden", dir]);
    assert_eq!(outcome.code, Some(1));
    assert!(outcome.stdout.contains("FAIL mini.greedy_ids\n"), "{}", outcome.stdout);
    assert!(outcome.stdout.ends_with("\nFAILED\n"), "{}", outcome.stdout);
    assert_eq!(
        outcome.stderr,
        format!(
            "error: the models are not in parity with the golden data in {dir}\nhelp: model-minimax --explain E0703\n"
        )
    );
}

#[test]
fn parity_without_golden_data_says_what_is_wrong() {
    let absent = run(&["parity", "--golden", "no/such/folder"]);
    absent.fails(1, &["error: cannot list no/such/folder: "]);
    // The system's message is part of ours and its cause, too.
    assert_eq!(absent.stderr.matches("os error").count(), 1, "{}", absent.stderr);
    let empty = Scratch::new();
    let dir = empty.path().to_str().unwrap();
    run(&["parity", "--golden", dir]).fails(1, &[&format!("no golden models at {dir}")]);
    let none = ["neither --golden nor GOLDEN_DIR", "--golden ops/testkit/golden"];
    run(&["parity"]).fails(1, &none);
    program(empty.path(), &["parity"], &[("GOLDEN_DIR", "")]).fails(1, &none);
}

/// One I64 tensor of a model's expected results, as ids.
fn expected_ids(model: &str, tensor: &str) -> Vec<u32> {
    let file = op_testkit::golden::open(format!("models/{model}/expected.safetensors")).unwrap();
    file.tensor(tensor).unwrap().i64().unwrap().into_iter().map(|id| id.try_into().unwrap()).collect()
}

fn join(ids: &[u32]) -> String {
    ids.iter().map(u32::to_string).collect::<Vec<_>>().join(",")
}

#[test]
fn ids_in_and_ids_out_are_the_golden_ones_in_both_arms() {
    for model in MODELS {
        let path = golden(model);
        let prompt = join(&expected_ids(model, "mini.input_ids"));
        for arm in ["--eager", "--fused", "--use_pypto", "--graph"] {
            let outcome = run(&[
                "ask",
                "--model-path",
                path.to_str().unwrap(),
                "--variant",
                &model[..model.find('-').unwrap()],
                "--dtype",
                "f32",
                "--prompt-ids",
                &prompt,
                "--print-ids",
                "--ignore-eos",
                "--max-new-tokens",
                "16",
                "--threads",
                "1",
                arm,
            ]);
            assert_eq!(outcome.code, Some(0), "{}", outcome.stderr);
            assert_eq!(outcome.stdout, join(&expected_ids(model, "mini.greedy_ids")) + "\n", "{model} {arm}");
        }
    }
}

#[test]
fn long_prompts_are_answered_with_the_blocks_that_the_model_chooses() {
    let model = "m3-tiny-bf16";
    let path = golden(model);
    let prompt = join(&expected_ids(model, "long.input_ids"));
    let ask = |more: &[&str], variables: &[(&str, &str)]| {
        let path = path.to_str().unwrap();
        let common = ["ask", "--model-path", path, "--dtype", "f32", "--prompt-ids", &prompt, "--print-ids"];
        let rest = ["--ignore-eos", "--max-new-tokens", "24", "--threads", "1"];
        let outcome = program(Scratch::new().path(), &[&common, &rest[..], more].concat(), variables);
        assert_eq!(outcome.code, Some(0), "{}", outcome.stderr);
        outcome.stdout
    };
    let expected = join(&expected_ids(model, "long.greedy_ids")) + "\n";
    assert_eq!(ask(&[], &[]), expected);
    assert_eq!(ask(&["--prefill-chunk", "64"], &[("ATTENTION", "msa"), ("INDEXER", "")]), expected);
    let others = [
        ask(&["--attention", "dense"], &[("PREFILL_CHUNK", "500")]),
        ask(&[], &[("ATTENTION", "dense")]),
        ask(&["--indexer", "shared"], &[]),
    ];
    assert!(others.iter().all(|other| *other != expected), "{others:?}");
    assert_eq!(others[0], others[1]);
}

#[test]
fn the_knobs_of_the_activation_are_in_force() {
    let path = golden("m3-tiny-bf16");
    let ask = |variables: &[(&str, &str)]| {
        let path = path.to_str().unwrap();
        let arguments = ["ask", "--model-path", path, "--prompt-ids", "5,6,7", "--print-ids", "--ignore-eos"];
        program(Scratch::new().path(), &arguments, variables)
    };
    let usual = ask(&[]).stdout;
    assert_eq!(ask(&[("PYPTO_SWIGLU_ALPHA", "1.702"), ("PYPTO_SWIGLU_LIMIT", "7")]).stdout, usual);
    assert_ne!(ask(&[("PYPTO_SWIGLU_LIMIT", "0.01")]).stdout, usual);
    ask(&[("PYPTO_SWIGLU_ALPHA", "x")]).fails(1, &["PYPTO_SWIGLU_ALPHA"]);
}

#[test]
fn a_seed_decides_the_answer() {
    let path = golden("m27-tiny-bf16");
    let ask = |seed: &str| {
        let outcome = run(&[
            "ask",
            "--model-path",
            path.to_str().unwrap(),
            "--prompt-ids",
            "5,6,7",
            "--print-ids",
            "--ignore-eos",
            "--temperature",
            "2",
            "--max-new-tokens",
            "24",
            "--seed",
            seed,
        ]);
        assert_eq!(outcome.code, Some(0), "{}", outcome.stderr);
        outcome.stdout
    };
    assert_eq!(ask("1"), ask("1"));
    assert_ne!(ask("1"), ask("2"));
}

#[cfg(feature = "text")]
#[test]
fn the_answer_is_the_text_of_the_ids_and_alone_on_stdout() {
    let dir = golden("m27-tiny-bf16");
    let path = dir.to_str().unwrap();
    let tokenizer = model_minimax::text::TextTokenizer::from_dir(&dir).unwrap();
    let folder = Scratch::new();
    folder.write("prompt.txt", "Count the loaves.");
    let common = ["ask", "--model-path", path, "--dtype", "f32", "--max-new-tokens", "12", "--ignore-eos"];
    let ask = |more: &[&str]| {
        let outcome = program(folder.path(), &[&common, more].concat(), &[]);
        assert_eq!(outcome.code, Some(0), "{}", outcome.stderr);
        assert!(outcome.stderr.contains("12 new tokens"), "{}", outcome.stderr);
        outcome.stdout
    };
    // One prompt in three forms: through the template, rendered by hand, and as ids.
    let rendered = "]~!b[]~b]system\nBe brief.[e~[\n]~b]user\nCount the loaves.[e~[\n]~b]ai\n<think>\n";
    let ids = join(&tokenizer.encode(rendered).unwrap());
    let by_ids = ask(&["--prompt-ids", &ids, "--print-ids"]);
    let answer: Vec<u32> = by_ids.trim_end().split(',').map(|id| id.parse().unwrap()).collect();
    assert_eq!(answer.len(), 12);
    let text = tokenizer.decode(&answer, true) + "\n";
    assert_eq!(ask(&["--prompt-ids", &ids]), text);
    assert_eq!(ask(&["--prompt-file", "prompt.txt", "--system", "Be brief."]), text);
    assert_eq!(ask(&["--raw", "--prompt", rendered]), text);
}

#[cfg(feature = "text")]
#[test]
fn the_thinking_mode_is_that_of_the_template() {
    use model_minimax::text::{Chat, ChatTemplate, TextTokenizer, ThinkingMode};
    let dir = golden("m3-tiny-bf16");
    let path = dir.to_str().unwrap();
    let template = ChatTemplate::from_dir(&dir, std::time::SystemTime::now).unwrap();
    let tokenizer = TextTokenizer::from_dir(&dir).unwrap();
    let ask = |more: &[&str]| {
        let common = ["ask", "--model-path", path, "--dtype", "f32", "--print-ids", "--max-new-tokens", "8"];
        let outcome = run(&[&common, more].concat());
        assert_eq!(outcome.code, Some(0), "{}", outcome.stderr);
        outcome.stdout
    };
    let mut answers = Vec::new();
    for mode in [ThinkingMode::Enabled, ThinkingMode::Disabled, ThinkingMode::Adaptive] {
        let chat = Chat::single(None, "Count the loaves.").with_thinking(mode);
        let prompt = tokenizer.encode(&template.render(&chat).unwrap()).unwrap();
        let answer = ask(&["--prompt", "Count the loaves.", "--thinking", mode.name()]);
        assert_eq!(answer, ask(&["--prompt-ids", &join(&prompt)]), "{mode}");
        answers.push(answer);
    }
    // Without a mode it is the template's default.
    assert_eq!(ask(&["--prompt", "Count the loaves."]), answers[2]);
    let path = golden("m27-tiny-bf16");
    run(&["ask", "--model-path", path.to_str().unwrap(), "--thinking", "disabled"])
        .fails(1, &["the chat template knows no thinking modes", "disabled"]);
}

#[test]
fn bench_ends_with_the_table_and_one_report_per_arm() {
    let dir = Scratch::new();
    dir.write("bench_latest_eager.json", "old");
    let path = golden("m27-tiny-fp8");
    let variables = [
        ("MODEL_PATH", path.to_str().unwrap()),
        ("VARIANT", "m27"),
        ("LAYERS", "1"),
        ("NEW_TOKENS", "3"),
        ("WARMUP", "0"),
        ("ITERS", "2"),
        ("RAYON_NUM_THREADS", "1"),
        ("ARMS", "pypto"),
    ];
    let ids = ["bench", "--prompt-ids", "5,6,7,8"];
    let outcome = program(dir.path(), &ids, &variables);
    assert_eq!(outcome.code, Some(0), "{}", outcome.stderr);
    let lines: Vec<&str> = outcome.stdout.lines().collect();
    assert!(lines[0].ends_with("e2e (tok/s)  TTFT (s)") && lines[2].contains("(skipped)"), "{}", outcome.stdout);
    assert!(lines.iter().any(|line| line.starts_with("fused        token ")), "{}", outcome.stdout);

    let read = |name: &str| -> serde_json::Value {
        serde_json::from_str(&std::fs::read_to_string(dir.path().join(name)).unwrap()).unwrap()
    };
    let fused = read("bench_latest_fused.json");
    for (field, value) in [
        ("mode", serde_json::json!("fused")),
        ("layers", 1.into()),
        ("moe_patched", 1.into()),
        ("warmup", 0.into()),
        ("iters", 2.into()),
        ("prompt_len", 4.into()),
        ("max_new_tokens", 3.into()),
        ("synthetic", false.into()),
    ] {
        assert_eq!(fused[field], value, "{field}");
    }
    assert_eq!(fused["gen_tokens"].as_array().map(Vec::len), Some(2));
    assert_eq!((&fused["knobs"]["LAYERS"], &fused["machine"]["threads"]), (&"1".into(), &1.into()));
    assert!(fused["decode_bytes_per_step"].as_u64() > Some(0) && fused["read_gb_per_s"].as_f64() > Some(0.0));
    // The older report of the arm that did not run is gone, and no temporary file is left.
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);

    // Flags win over variables; one file for both arms is a list.
    let flags = ["--arms", "eager,fused", "--max-layers", "2", "--report-file", "both.json"];
    let outcome = program(dir.path(), &[ids.as_slice(), &flags].concat(), &variables);
    assert_eq!(outcome.code, Some(0), "{}", outcome.stderr);
    let both = read("both.json");
    assert_eq!((&both[0]["mode"], &both[1]["mode"], &both[0]["layers"]), (&"eager".into(), &"fused".into(), &2.into()));
    assert!(outcome.stdout.lines().any(|line| line.starts_with("fused / eager: ")), "{}", outcome.stdout);
    // Each arm had a process of its own; the ratio was worked out afterwards, and one of them was listened to.
    for report in both.as_array().unwrap() {
        assert_eq!((&report["own_process"], &report["order"]), (&true.into(), &"sequential".into()));
        assert!(report["fused_over_eager"]["decode"].as_f64() > Some(0.0), "{report}");
    }
    assert_eq!(both[0]["activity"]["experts"].as_array().map(Vec::len), Some(2));
    assert!(both[1]["activity"].is_null());
}

#[test]
fn bench_without_a_checkpoint_makes_a_synthetic_one_and_says_so() {
    let dir = Scratch::new();
    let cache = dir.path().join("cache");
    let arguments = ["bench", "--synthetic", "tiny", "--report-file", "r.json", "--iters", "1", "--prompt-ids", "5"];
    let outcome = program(dir.path(), &arguments, &[("XDG_CACHE_HOME", cache.to_str().unwrap())]);
    assert_eq!(outcome.code, Some(0), "{}", outcome.stderr);
    let json: serde_json::Value =
        serde_json::from_str(&std::fs::read_to_string(dir.path().join("r.json")).unwrap()).unwrap();
    assert_eq!((&json[0]["synthetic"], &json[0]["synthetic_spec"]), (&true.into(), &"tiny".into()));
    assert_eq!(json[0]["layers"], 2);
}

#[test]
fn bench_of_the_other_variant_counts_its_layers_and_takes_its_flags() {
    let dir = Scratch::new();
    let path = golden("m3-tiny-mxfp8");
    let common = ["bench", "--model-path", path.to_str().unwrap(), "--variant", "m3", "--report-file", "r.json"];
    let rest = ["--iters", "1", "--warmup", "0", "--max-new-tokens", "4", "--threads", "1", "--prompt-ids"];
    let ids = join(&(0..500).collect::<Vec<u32>>());
    let bench = |more: &[&str]| {
        let outcome = program(dir.path(), &[&common, &rest[..], &[ids.as_str()], more].concat(), &[]);
        assert_eq!(outcome.code, Some(0), "{}", outcome.stderr);
        let json = std::fs::read_to_string(dir.path().join("r.json")).unwrap();
        serde_json::from_str::<serde_json::Value>(&json).unwrap()
    };
    let reports = bench(&[]);
    let arms = [("eager", 0), ("fused", 2), ("graph", 0), ("pypto+graph", 2)];
    assert_eq!(reports.as_array().map(Vec::len), Some(arms.len()));
    for (report, (arm, patched)) in reports.as_array().unwrap().iter().zip(arms) {
        assert_eq!((&report["mode"], &report["moe_patched"]), (&arm.into(), &patched.into()));
        assert_eq!((&report["model"], &report["layers"]), (&"MiniMax-M3".into(), &5.into()));
        assert_eq!((&report["attention"], &report["indexer"]), (&"msa".into(), &"per-kv-head".into()));
        assert!(report["decode_bytes_per_step"].as_u64() > Some(0));
    }
    let dense = bench(&["--attention", "dense", "--prefill-chunk", "100", "--arms", "fused"]);
    assert_eq!((&dense["attention"], &dense["indexer"]), (&"dense".into(), &serde_json::Value::Null));
    // Dense attention reads more of the cache, by far more than the index heads that it lacks.
    assert!(dense["decode_bytes_per_step"].as_u64() != reports[1]["decode_bytes_per_step"].as_u64());
}

#[test]
fn bench_with_static_routing_replays_windows() {
    for (model, variant, layers, patched) in [("m27-tiny-fp8", "m27", 2, 2), ("m3-tiny-mxfp8", "m3", 5, 2)] {
        let dir = Scratch::new();
        let path = golden(model);
        let common = ["bench", "--model-path", path.to_str().unwrap(), "--variant", variant, "--static-routing"];
        let bench = |more: &[&str]| {
            program(dir.path(), &[&common, &["--threads", "1", "--iters", "2", "--warmup", "1"], more].concat(), &[])
        };
        let outcome = bench(&["--max-new-tokens", "3", "--graph-window", "9"]);
        assert_eq!(outcome.code, Some(0), "{}", outcome.stderr);
        let lines: Vec<&str> = outcome.stdout.lines().collect();
        assert!(lines[2].starts_with("vecgraph ") && lines[3].starts_with("fusedgraph "), "{}", outcome.stdout);
        assert!(
            lines[4].starts_with("fusedgraph / vecgraph: ") && lines[4].ends_with("static routing"),
            "{}",
            lines[4]
        );
        for (file, mode, patched) in
            [("bench_latest_vecgraph.json", "graph", 0), ("bench_latest_fusedgraph.json", "pypto+graph", patched)]
        {
            let text = std::fs::read_to_string(dir.path().join(file)).unwrap();
            // The published fields, in their order.
            let fields: Vec<&str> = text
                .lines()
                .filter_map(|line| line.strip_prefix("  \"")?.split_once('"'))
                .map(|(name, _)| name)
                .collect();
            let published = [
                "model",
                "mode",
                "device",
                "layers",
                "moe_patched",
                "graph_window",
                "max_new_tokens",
                "warmup",
                "iters",
                "decode_tps_mean",
                "decode_tps_std",
                "time_s",
                "peak_mem_mb",
            ];
            assert_eq!(fields[..published.len()], published);
            let report: serde_json::Value = serde_json::from_str(&text).unwrap();
            for (field, value) in [
                ("mode", serde_json::json!(mode)),
                ("layers", layers.into()),
                ("moe_patched", patched.into()),
                ("graph_window", 9.into()),
                ("max_new_tokens", 3.into()),
                ("warmup", 1.into()),
                ("iters", 2.into()),
                ("routing", "static".into()),
            ] {
                assert_eq!(report[field], value, "{field}");
            }
            assert!(report["decode_tps_mean"].as_f64() > Some(0.0));
            assert_eq!(report["time_s"].as_array().map(Vec::len), Some(2));
        }
        let named = ["--arms", "fusedgraph,eager"];
        bench(&named).fails(1, &["--static-routing is for the graph arms", "found arm eager"]);
        bench(&["--graph-window", "9000000"]).fails(1, &["--graph-window is 9000000", "positions of the model"]);
    }
}

#[test]
fn bench_of_a_variant_without_a_checkpoint_makes_a_slice_of_it() {
    let dir = Scratch::new();
    let nowhere = dir.write("file", "");
    let cache = nowhere.join("cache");
    for (variant, slice) in [("m27", " slice\n"), ("m3", " m3-slice\n"), ("", " slice\n")] {
        let variables = [("XDG_CACHE_HOME", cache.to_str().unwrap()), ("VARIANT", variant)];
        program(dir.path(), &["bench", "--report-file", "r.json"], &variables)
            .fails(1, &[&format!("using the synthetic one{slice}"), "file/cache"]);
    }
}

#[test]
fn arms_take_turns_in_their_processes_or_share_one() {
    let dir = Scratch::new();
    let path = golden("m27-tiny-bf16");
    let common = ["bench", "--model-path", path.to_str().unwrap(), "--arms", "eager,fused", "--prompt-ids", "5,6,7"];
    let rest = ["--iters", "3", "--warmup", "0", "--max-new-tokens", "2", "--threads", "1", "--report-file", "r.json"];
    let bench = |more: &[&str]| {
        let outcome = program(dir.path(), &[&common, &rest[..], more].concat(), &[]);
        assert_eq!(outcome.code, Some(0), "{}", outcome.stderr);
        let json = std::fs::read_to_string(dir.path().join("r.json")).unwrap();
        (outcome.stderr, serde_json::from_str::<serde_json::Value>(&json).unwrap())
    };
    /// The arms of the iterations in the order in which they ended.
    fn turns(stderr: &str) -> Vec<&str> {
        let iterations = stderr.lines().filter(|line| line.contains(" iteration "));
        iterations.filter_map(|line| line.split_whitespace().next()).collect()
    }
    let (stderr, reports) = bench(&["--order", "interleaved"]);
    assert_eq!(turns(&stderr), ["eager", "fused"].repeat(3), "{stderr}");
    assert_eq!(stderr.matches("loaded (").count(), 2, "{stderr}");
    assert_eq!((&reports[1]["own_process"], &reports[1]["order"]), (&true.into(), &"interleaved".into()));
    let (stderr, reports) = bench(&["--in-process", "--order", "sequential"]);
    assert_eq!(turns(&stderr), ["eager", "eager", "eager", "fused", "fused", "fused"], "{stderr}");
    assert_eq!(stderr.matches("loaded (").count(), 1, "{stderr}");
    assert_eq!((&reports[0]["own_process"], &reports[0]["order"]), (&false.into(), &"sequential".into()));
    assert_eq!(reports[0]["samples"].as_array().map(Vec::len), Some(3));
    // The same seed is the same order of rounds.
    let order = |seed: &str| {
        let (stderr, _) = bench(&["--order", "random", "--order-seed", seed]);
        stderr.lines().filter(|line| line.starts_with("round ")).map(str::to_owned).collect::<Vec<_>>()
    };
    let rounds = order("5");
    assert_eq!(rounds.len(), 3);
    assert_eq!(order("5"), rounds);
    // The process of an arm that nobody started measures for nobody.
    let alone = program(dir.path(), &[&common, &rest[..], &["--only-arm", "fused"]].concat(), &[]);
    assert_eq!(alone.code, Some(1), "{}", alone.stderr);
    assert!(alone.stderr.contains("the process that started this one is gone"), "{}", alone.stderr);
}

#[test]
fn an_arm_that_fails_in_its_process_fails_the_benchmark() {
    let dir = Scratch::new();
    for name in ["config.json", "model.safetensors"] {
        std::fs::copy(golden("m27-tiny-bf16").join(name), dir.path().join(name)).unwrap();
    }
    // Weights of another size are found when they are loaded, which is what the processes of the arms do.
    let config = std::fs::read_to_string(dir.path().join("config.json")).unwrap();
    dir.write("config.json", &config.replace("\"intermediate_size\": 64", "\"intermediate_size\": 96"));
    let arguments = ["bench", "--model-path", ".", "--prompt-ids", "5", "--report-file", "r.json"];
    let words = ["the checkpoint cannot be used", "the process of arm eager ended before its report"];
    program(dir.path(), &arguments, &[("ARMS", "eager,fused")]).fails(1, &words);
    assert!(!dir.path().join("r.json").exists());
}

#[test]
fn reports_are_compared_and_drawn() {
    let dir = Scratch::new();
    let report = |ms: [f64; 3]| {
        let rounds = ms.map(|ms| vec![ms]);
        serde_json::json!({ "machine": { "cpu": "c" }, "cases": [{ "kernel": "k", "shape": "s", "samples_ms": rounds }] })
    };
    for (name, ms) in [("before.json", [1.0, 1.01, 0.99]), ("after.json", [2.0, 2.01, 1.99]), ("text.json", [0.0; 3])] {
        dir.write(name, &if ms[0] > 0.0 { report(ms).to_string() } else { "no report".to_owned() });
    }
    let compare = |more: &[&str]| program(dir.path(), &[&["bench", "compare"], more].concat(), &[]);
    let slower = compare(&["before.json", "after.json"]);
    assert_eq!(slower.code, Some(1), "{}", slower.stderr);
    assert!(slower.stdout.contains("1 slower, 0 faster") && slower.stderr.contains("slower by more than 5 %"));
    let faster = compare(&["after.json", "before.json", "--json"]);
    assert_eq!(faster.code, Some(0), "{}", faster.stderr);
    let json: serde_json::Value = serde_json::from_str(&faster.stdout).unwrap();
    assert_eq!((&json["rows"][0]["verdict"], &json["rows"][0]["case"]), (&"faster".into(), &"k s".into()));
    // Slower than a threshold of 60 %: no.
    assert_eq!(compare(&["before.json", "after.json", "--threshold", "60"]).code, Some(0));
    for arguments in [
        ["before.json", "absent.json"].as_slice(),
        &["text.json", "after.json"],
        &["before.json", "after.json", "--threshold", "-1"],
        &["before.json", "after.json", "--metrics", "decode"],
        &["before.json"],
    ] {
        assert_eq!(compare(arguments).code, Some(2), "{arguments:?}");
    }
    let plot = program(dir.path(), &["bench", "plot", "before.json", "after.json", "--out", "page.html"], &[]);
    assert_eq!(plot.code, Some(0), "{}", plot.stderr);
    let page = std::fs::read_to_string(dir.path().join("page.html")).unwrap();
    crate::bench::plot::is_self_contained(&page);
    program(dir.path(), &["bench", "plot", "text.json"], &[]).fails(1, &["text.json is not JSON"]);
}

#[test]
fn inspect_and_plan_answer_in_text_and_json() {
    let path = golden("m3-tiny-mxfp8");
    let path = path.to_str().unwrap();
    let inspect = run(&["inspect", path]);
    assert_eq!(inspect.code, Some(0), "{}", inspect.stderr);
    assert!(inspect.stdout.contains("87 scales have the type U8") && inspect.stdout.ends_with("usable\n"));
    let by_variable = program(Scratch::new().path(), &["inspect", "--json"], &[("MODEL_PATH", path), ("LAYERS", "")]);
    let json: serde_json::Value = serde_json::from_str(&by_variable.stdout).unwrap();
    assert_eq!((&json["usable"], &json["model"]["name"]), (&true.into(), &"MiniMax-M3".into()));
    run(&["inspect"]).fails(1, &["MODEL_PATH"]);
    run(&["inspect", "nowhere"]).fails(1, &["no checkpoint folder at nowhere"]);
    let dir = Scratch::new();
    std::fs::copy(golden("m27-tiny-bf16").join("model.safetensors"), dir.path().join("model.safetensors")).unwrap();
    let broken = program(dir.path(), &["inspect", "."], &[]);
    assert_eq!(broken.code, Some(1));
    assert!(broken.stdout.contains("not understood") && broken.stderr.contains("cannot be used"), "{}", broken.stderr);

    let plan = |more: &[&str]| run(&[&["plan", "--host-bandwidth", "20", "--host-memory", "16"], more].concat());
    let text = plan(&["--synthetic", "m3-slice", "--context", "100000"]).stdout;
    assert!(text.contains("100000 tokens") && text.contains("tok/s at 20.0 GB/s"), "{text}");
    for device in ["910b3", "sim:910b3", "Ascend910B3"] {
        let outcome = plan(&[path, "--device", device, "--no-streaming", "--json"]);
        assert_eq!(outcome.code, Some(0), "{}", outcome.stderr);
        let json: serde_json::Value = serde_json::from_str(&outcome.stdout).unwrap();
        assert_eq!((&json["device"], &json["fits"]), (&"910b3".into(), &true.into()));
    }
    plan(&[path, "--device", "tpu"]).fails(2, &["unknown card \"tpu\"", "950pr"]);
    plan(&[path, "--context", "0"]).fails(2, &["--context"]);
    // A configuration alone is enough.
    let dir = Scratch::new();
    std::fs::copy(golden("m27-tiny-bf16").join("config.json"), dir.path().join("config.json")).unwrap();
    assert_eq!(program(dir.path(), &["plan", ".", "--host-bandwidth", "1"], &[]).code, Some(0));
}

#[test]
fn the_benches_of_the_operators_are_called_from_their_sources() {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR"));
    let outcome = program(dir, &["bench", "ops", "--dry-run", "--op", "msa-indexer,grouped-gemm", "--quick"], &[]);
    assert_eq!(outcome.code, Some(0), "{}", outcome.stderr);
    let lines: Vec<&str> = outcome.stdout.lines().collect();
    assert_eq!(lines.len(), 2, "{}", outcome.stdout);
    for (line, words) in lines.iter().zip([["grouped-gemm", "moe"], ["msa-indexer", "indexer"]]) {
        let said = words.iter().chain(&["--quick", "--json"]).all(|word| line.contains(&format!("\"{word}\"")));
        assert!(said, "{line}");
        assert!(dir.join("../ops").join(words[0]).join("benches").join(format!("{}.rs", words[1])).is_file());
    }
    let nowhere = program(&std::env::temp_dir(), &["bench", "ops", "--dry-run"], &[]);
    nowhere.fails(2, &["no folder above"]);
    run(&["bench", "ops", "--op", "gemm"]).fails(2, &["grouped-gemm"]);
}
