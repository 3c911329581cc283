// SPDX-License-Identifier: MIT OR Apache-2.0

use msa_main_branch::knobs::{self, DTYPE, Dtype, MAX_N, NQ_TILE, NTILE};
use msa_main_branch::{AttentionDims, MainBranchConfig};
use std::process::Command;

const CHILD: &str = "MSA_MAIN_BRANCH_TEST_PRINTS_CONFIG";
const CONFIG: MainBranchConfig = MainBranchConfig { hq: 64, hkv: 4, dh: 128, bk: 96, topk: 16, max_n: None };

#[test]
fn texts_and_values() {
    assert_eq!(MAX_N.parse(" 4096 ").unwrap(), 4096);
    assert_eq!(NTILE.parse("128").unwrap(), 128);
    assert_eq!(NQ_TILE.parse("1").unwrap(), 1);
    for (text, dtype) in [("fp32", Dtype::F32), ("fp16", Dtype::F16), ("bf16", Dtype::Bf16)] {
        assert_eq!(DTYPE.parse(text).unwrap(), dtype);
        assert_eq!(dtype.to_string(), text);
    }
    let message = |knob: &knobs::Knob<usize>, text| knob.parse(text).unwrap_err().to_string();
    for knob in [&MAX_N, &NTILE, &NQ_TILE] {
        for text in ["0", "-1", "many", "1.5"] {
            let expected = format!("environment variable {} is `{text}`, expected a positive whole number", knob.name);
            assert_eq!(message(knob, text), expected);
        }
    }
    assert_eq!(
        DTYPE.parse("fp8").unwrap_err().to_string(),
        "environment variable MSA_DTYPE is `fp8`, expected fp32, fp16 or bf16"
    );
}

#[test]
fn the_listing_is_complete() {
    let all = knobs::all();
    assert_eq!(all.each_ref().map(|knob| knob.name), ["MSA_MAX_N", "MSA_NTILE", "MSA_NQ_TILE", "MSA_DTYPE"]);
    assert_eq!(all.each_ref().map(|knob| &knob.default[..]), ["2048", "512", "128", "fp32"]);
    assert!(all.iter().all(|knob| !knob.doc.is_empty() && !knob.expected.is_empty()));
    assert_eq!(format!("{NTILE:?}"), "Knob(MSA_NTILE, default 512)");
}

#[test]
fn sizes_of_a_configuration() {
    let message = |config: MainBranchConfig| config.build().unwrap_err().to_string();
    assert_eq!(message(MainBranchConfig { hq: 0, ..CONFIG }), "`hq` is 0, expected at least 1");
    assert_eq!(message(MainBranchConfig { hkv: 0, ..CONFIG }), "`hkv` is 0, expected at least 1");
    assert_eq!(message(MainBranchConfig { dh: 0, ..CONFIG }), "`dh` is 0, expected at least 1");
    assert_eq!(message(MainBranchConfig { bk: 0, ..CONFIG }), "`bk` is 0, expected at least 1");
    assert_eq!(message(MainBranchConfig { topk: 0, ..CONFIG }), "`topk` is 0, expected at least 1");
    assert_eq!(
        message(MainBranchConfig { hkv: 5, ..CONFIG }),
        "`dims.heads` is 64, expected a multiple of 5, the KV heads"
    );
    for max_n in [0, 100] {
        assert_eq!(
            message(MainBranchConfig { max_n: Some(max_n), ..CONFIG }),
            format!("`max_n` is {max_n}, expected a positive multiple of 96, the tokens of a block")
        );
    }
    let main_branch = MainBranchConfig { max_n: Some(960), ..CONFIG }.build().unwrap();
    assert_eq!(main_branch.dims(), AttentionDims { heads: 64, kv_heads: 4, head_dim: 128, block: 96 });
    assert_eq!((main_branch.topk(), main_branch.max_n()), (16, 960));
}

/// Each environment in a process of its own: variables are shared by all threads of one.
#[test]
fn the_environment_is_read_when_the_operator_is_built() {
    if std::env::var_os(CHILD).is_some() {
        let configs = [CONFIG, MainBranchConfig { max_n: Some(192), bk: 64, topk: 2, ..CONFIG }];
        let built = configs.map(|config| match config.build() {
            Ok(built) => {
                format!("{} {} {:?} {}", built.max_n(), built.ntile(), built.nq_tile(), built.dtype())
            }
            Err(error) => error.to_string(),
        });
        println!("config: {}", built.join("; "));
        #[cfg(feature = "npu")]
        println!("tiles: {:?}", msa_main_branch::npu::Tiles::from_env().map(|tiles| (tiles.keys, tiles.queries)));
        return;
    }
    let ntile_128 = "environment variable MSA_NTILE is `128`, expected a divisor of";
    for (variables, expected) in [
        // 2048 is no multiple of 96; 512 is no divisor of 2 * 64.
        (&[][..], "2112 512 None fp32; 192 128 None fp32".to_owned()),
        (&[("MSA_MAX_N", "960"), ("MSA_NQ_TILE", "7")], "960 512 Some(7) fp32; 192 128 Some(7) fp32".to_owned()),
        (&[("MSA_NTILE", "128"), ("MSA_DTYPE", "bf16")], "2112 128 None bf16; 192 128 None bf16".to_owned()),
        (&[("MSA_NTILE", "64"), ("MSA_DTYPE", "")], "2112 64 None fp32; 192 64 None fp32".to_owned()),
        (
            &[("MSA_NTILE", "256"), ("MSA_DTYPE", "fp16")],
            format!(
                "2112 256 None fp16; {} 128, topk times the tokens of a block",
                ntile_128.replace("`128`", "`256`")
            ),
        ),
        (
            &[("MSA_MAX_N", "1000")],
            "environment variable MSA_MAX_N is `1000`, expected a positive multiple of 96, the tokens of a block; \
             192 128 None fp32"
                .to_owned(),
        ),
        (&[("MSA_MAX_N", "none")], {
            let message = "environment variable MSA_MAX_N is `none`, expected a positive whole number";
            format!("{message}; {message}")
        }),
    ] {
        let mut child = Command::new(std::env::current_exe().unwrap());
        child.args(["--exact", "knobs::the_environment_is_read_when_the_operator_is_built", "--nocapture"]);
        child.env(CHILD, "1");
        for knob in knobs::all() {
            child.env_remove(knob.name);
        }
        child.envs(variables.iter().copied());
        let output = child.output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        let line = text.lines().find_map(|line| line.split_once("config: ")).map(|(_, line)| line);
        assert_eq!(line, Some(&expected[..]), "{variables:?}: {text}");
        #[cfg(feature = "npu")]
        {
            let of = |name| variables.iter().find(|(variable, _)| *variable == name).map(|(_, value)| *value);
            let number = |name| of(name).map(|value| value.parse::<usize>().unwrap());
            let tiles = text.lines().find_map(|line| line.strip_prefix("tiles: "));
            let expected = format!("Ok(({:?}, {:?}))", number("MSA_NTILE"), number("MSA_NQ_TILE"));
            assert_eq!(tiles, Some(&expected[..]), "{variables:?}: {text}");
        }
    }
}
