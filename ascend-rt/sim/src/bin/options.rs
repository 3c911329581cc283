// SPDX-License-Identifier: MIT OR Apache-2.0

//! The command line.

use std::path::PathBuf;

use ascend_build::Cores;
use ascend_sim::{Args, Chip, Mode, Settings};

pub(crate) const HELP: &str = "\
Compiles an AscendC kernel for the twin, runs it on made-up data, and reports.

usage: ascend-sim KERNEL.cpp --soc SOC [options] [--arg ARG]...

  KERNEL.cpp      the source, or an image (.so) that was compiled from one
  --soc SOC       the chip: 910b1 to 910b4, a2, a3, 950pr, 950dt, or the name of another bin
  --entry NAME    the kernel, where the source has more than one
  --vector, --cube, --mix
                  the cores that it runs on, where the source does not say so
  --blocks N      how many blocks (1)
  --arg ARG       an argument, in the order of the parameters:
                    in:TYPE:COUNT      a buffer that is read: numbers from a generator
                    out:TYPE:COUNT     a buffer that is written: zeros before
                    inout:TYPE:COUNT   a buffer that is read and written
                    ws:BYTES           a workspace
                    file:PATH          a buffer with the bytes of a file
                    null               no buffer
                    TYPE:VALUE         a value, as u32:5 or f32:0.5
                  TYPE is f32, f16, bf16, i8, u8, i16, u16, i32, u32, i64 or u64
  --data-seed N   where the generator begins (1)
  --mode MODE     fast (the default), chaos:SEED or dry; else what ASCEND_SIM says
  --seeds N       afterwards run it in the orders of the seeds 0 to N-1
  --trace PATH    write the timeline for Chrome's trace viewer and Perfetto; else where ASCEND_SIM_TRACE says
  --html PATH     write the timeline as a page
  --verbose       print every instruction
  -I DIR          one more folder of headers
  -D NAME[=VALUE] a macro
  --help          print this text

example
  ascend-sim add.cpp --soc 910b3 --blocks 8 --arg in:f16:16384 --arg in:f16:16384 --arg out:f16:16384 --seeds 20
";

/// What a buffer holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Type {
    F32,
    F16,
    Bf16,
    I8,
    U8,
    I16,
    U16,
    I32,
    U32,
    I64,
    U64,
}

impl Type {
    pub(crate) const ALL: [(&str, Self); 11] = [
        ("f32", Self::F32),
        ("f16", Self::F16),
        ("bf16", Self::Bf16),
        ("i8", Self::I8),
        ("u8", Self::U8),
        ("i16", Self::I16),
        ("u16", Self::U16),
        ("i32", Self::I32),
        ("u32", Self::U32),
        ("i64", Self::I64),
        ("u64", Self::U64),
    ];

    pub(crate) fn bytes(self) -> usize {
        match self {
            Self::I8 | Self::U8 => 1,
            Self::F16 | Self::Bf16 | Self::I16 | Self::U16 => 2,
            Self::F32 | Self::I32 | Self::U32 => 4,
            Self::I64 | Self::U64 => 8,
        }
    }

    fn of(word: &str) -> Result<Self, String> {
        Self::ALL
            .into_iter()
            .find(|(name, _)| *name == word)
            .map(|(_, it)| it)
            .ok_or_else(|| format!("unknown type `{word}`; there are: {}", Self::ALL.map(|(name, _)| name).join(", ")))
    }
}

/// A parameter by value: its bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Value(Vec<u8>);

impl Value {
    fn of(kind: Type, text: &str) -> Result<Self, String> {
        fn bytes<T: core::str::FromStr, const N: usize>(text: &str, to: fn(T) -> [u8; N]) -> Option<Vec<u8>> {
            text.parse().ok().map(|value| to(value).to_vec())
        }
        let found = match kind {
            Type::F32 => bytes(text, f32::to_le_bytes),
            Type::I8 => bytes(text, i8::to_le_bytes),
            Type::U8 => bytes(text, u8::to_le_bytes),
            Type::I16 => bytes(text, i16::to_le_bytes),
            Type::U16 => bytes(text, u16::to_le_bytes),
            Type::I32 => bytes(text, i32::to_le_bytes),
            Type::U32 => bytes(text, u32::to_le_bytes),
            Type::I64 => bytes(text, i64::to_le_bytes),
            Type::U64 => bytes(text, u64::to_le_bytes),
            Type::F16 | Type::Bf16 => return Err("values of f16 and bf16 are given by their bits, as u16".to_owned()),
        };
        found.map(Self).ok_or_else(|| format!("`{text}` is no value of {kind:?}"))
    }

    pub(crate) fn append_to<'a>(&self, args: Args<'a>) -> Args<'a> {
        let word = |count: usize| {
            let mut all = [0; 8];
            all[..count].copy_from_slice(&self.0);
            u64::from_le_bytes(all)
        };
        match self.0.len() {
            1 => args.value(word(1) as u8),
            2 => args.value(word(2) as u16),
            4 => args.value(word(4) as u32),
            _ => args.value(word(8)),
        }
    }
}

/// One argument of the kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Arg {
    In(Type, usize),
    Out(Type, usize),
    InOut(Type, usize),
    Workspace(usize),
    File(PathBuf),
    Null,
    Value(Value),
}

impl Arg {
    fn of(word: &str) -> Result<Self, String> {
        let wrong = |why: String| format!("--arg {word}: {why}");
        let count =
            |text: &str| text.parse::<usize>().map_err(|_| wrong(format!("expected a whole number, found `{text}`")));
        let sized = |kind: Type, text: &str| {
            let count = count(text)?;
            count
                .checked_mul(kind.bytes())
                .filter(|bytes| *bytes <= isize::MAX as usize / 2)
                .map_or_else(|| Err(wrong("too many elements".to_owned())), |_| Ok(count))
        };
        let kind = |text: &str| Type::of(text).map_err(wrong);
        let parts: Vec<&str> = word.splitn(3, ':').collect();
        match parts.as_slice() {
            ["null"] => Ok(Self::Null),
            ["file", ..] if word.len() > 5 => Ok(Self::File(word[5..].into())),
            ["ws", bytes] => Ok(Self::Workspace(sized(Type::U8, bytes)?)),
            ["in", of, n] => Ok(Self::In(kind(of)?, sized(kind(of)?, n)?)),
            ["out", of, n] => Ok(Self::Out(kind(of)?, sized(kind(of)?, n)?)),
            ["inout", of, n] => Ok(Self::InOut(kind(of)?, sized(kind(of)?, n)?)),
            [of, value] => Ok(Self::Value(Value::of(kind(of)?, value).map_err(wrong)?)),
            _ => Err(wrong("expected in:TYPE:COUNT, out:.., inout:.., ws:BYTES, file:PATH, null, TYPE:VALUE".into())),
        }
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Options {
    pub(crate) kernel: PathBuf,
    pub(crate) chip: Chip,
    pub(crate) entry: Option<String>,
    pub(crate) cores: Option<Cores>,
    pub(crate) blocks: u32,
    pub(crate) args: Vec<Arg>,
    pub(crate) data_seed: u64,
    pub(crate) mode: Mode,
    pub(crate) seeds: u64,
    pub(crate) trace: Option<PathBuf>,
    pub(crate) html: Option<PathBuf>,
    pub(crate) verbose: bool,
    pub(crate) includes: Vec<PathBuf>,
    pub(crate) defines: Vec<String>,
}

/// The options, or none if help is wanted.
pub(crate) fn parse(words: impl IntoIterator<Item = String>) -> Result<Option<Options>, String> {
    let settings = Settings::from_env().map_err(|error| error.to_string())?;
    parse_with(words, &settings)
}

fn parse_with(words: impl IntoIterator<Item = String>, settings: &Settings) -> Result<Option<Options>, String> {
    let mut words = words.into_iter();
    let (mut kernel, mut chip) = (None, None);
    let is_page = |path: &&PathBuf| path.extension().is_some_and(|extension| extension == "html");
    let mut options = Options {
        kernel: PathBuf::new(),
        chip: Chip::preset("910b2").map_err(|error| error.to_string())?,
        entry: None,
        cores: None,
        blocks: 1,
        args: Vec::new(),
        data_seed: 1,
        mode: settings.mode,
        seeds: 0,
        trace: settings.trace.as_ref().filter(|path| !is_page(path)).cloned(),
        html: settings.trace.as_ref().filter(is_page).cloned(),
        verbose: settings.verbose,
        includes: Vec::new(),
        defines: Vec::new(),
    };
    while let Some(word) = words.next() {
        let (name, mut inline) = match word.split_once('=') {
            Some((name, value)) if name.starts_with("--") => (name.to_owned(), Some(value.to_owned())),
            _ if word.len() > 2 && (word.starts_with("-I") || word.starts_with("-D")) => {
                (word[..2].to_owned(), Some(word[2..].to_owned()))
            }
            _ => (word, None),
        };
        let mut value = || inline.take().or_else(|| words.next()).ok_or_else(|| format!("`{name}` needs a value"));
        fn number<T: core::str::FromStr>(name: &str, text: &str) -> Result<T, String> {
            text.parse().map_err(|_| format!("{name} {text}: expected a whole number"))
        }
        match name.as_str() {
            "--help" | "-h" => return Ok(None),
            "--soc" => chip = Some(Chip::preset(&value()?).map_err(|error| format!("--soc: {error}"))?),
            "--entry" => options.entry = Some(value()?),
            "--vector" => options.cores = Some(Cores::Vector),
            "--cube" => options.cores = Some(Cores::Cube),
            "--mix" => options.cores = Some(Cores::Mix),
            "--blocks" => options.blocks = number("--blocks", &value()?)?,
            "--arg" => options.args.push(Arg::of(&value()?)?),
            "--data-seed" => options.data_seed = number("--data-seed", &value()?)?,
            "--mode" => {
                let word = value()?;
                options.mode = word.parse().map_err(|error| format!("--mode {word}: {error}"))?;
            }
            "--seeds" => options.seeds = number("--seeds", &value()?)?,
            "--trace" => options.trace = Some(value()?.into()),
            "--html" => options.html = Some(value()?.into()),
            "--verbose" => options.verbose = true,
            "-I" => options.includes.push(value()?.into()),
            "-D" => options.defines.push(value()?),
            _ if name.starts_with('-') => return Err(format!("unknown option `{name}`")),
            _ if kernel.is_none() => kernel = Some(PathBuf::from(&name)),
            _ => return Err(format!("unexpected argument `{name}`")),
        }
        if let Some(value) = inline {
            return Err(format!("`{name}` takes no value, found `{value}`"));
        }
    }
    options.kernel = kernel.ok_or("expected the source of a kernel")?;
    options.chip = chip.ok_or("`--soc` says which chip the kernel runs on")?;
    if options.blocks == 0 {
        return Err("--blocks 0: expected at least 1".to_owned());
    }
    Ok(Some(options))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str) -> Result<Option<Options>, String> {
        parse_with(line.split_whitespace().map(str::to_owned), &Settings::default())
    }

    #[test]
    fn every_option() {
        let options = parsed(
            "k.cpp --soc=910b3 --entry k --mix --blocks 8 --arg in:f32:16 --arg out:bf16:4 --arg inout:i8:3 \
             --arg ws:64 --arg file:a:b --arg null --arg u32:5 --arg f32:-0.5 --data-seed 9 --mode chaos:3 --seeds 20 \
             --trace t.json --html t.html --verbose -I inc -Iinc2 -D N=1",
        )
        .unwrap()
        .unwrap();
        assert_eq!((options.chip.name.as_str(), options.blocks), ("Ascend910B3", 8));
        assert_eq!((options.entry.as_deref(), options.cores), (Some("k"), Some(Cores::Mix)));
        assert_eq!(
            options.args,
            [
                Arg::In(Type::F32, 16),
                Arg::Out(Type::Bf16, 4),
                Arg::InOut(Type::I8, 3),
                Arg::Workspace(64),
                Arg::File("a:b".into()),
                Arg::Null,
                Arg::Value(Value(vec![5, 0, 0, 0])),
                Arg::Value(Value((-0.5f32).to_le_bytes().to_vec())),
            ]
        );
        assert_eq!((options.data_seed, options.mode, options.seeds), (9, Mode::Chaos(3), 20));
        assert_eq!((options.trace, options.html), (Some("t.json".into()), Some("t.html".into())));
        assert!(options.verbose);
        assert_eq!(options.includes, [PathBuf::from("inc"), PathBuf::from("inc2")]);
        assert_eq!(options.defines, ["N=1"]);
    }

    #[test]
    fn the_environment_is_the_default() {
        let line = || ["k.cpp", "--soc", "a2"].map(str::to_owned);
        let settings = Settings { mode: Mode::Dry, trace: Some("t.html".into()), verbose: true };
        let options = parse_with(line(), &settings).unwrap().unwrap();
        assert_eq!((options.mode, options.verbose), (Mode::Dry, true));
        assert_eq!((options.html, options.trace), (Some("t.html".into()), None));
    }

    #[test]
    fn wrong_lines_say_what_is_wrong() {
        for (line, part) in [
            ("", "the source of a kernel"),
            ("k.cpp", "`--soc`"),
            ("k.cpp --soc 910", "no chip is called"),
            ("k.cpp --soc a2 l.cpp", "unexpected argument `l.cpp`"),
            ("k.cpp --soc a2 --blocks", "needs a value"),
            ("k.cpp --soc a2 --blocks 0", "at least 1"),
            ("k.cpp --soc a2 --blocks -1", "expected a whole number"),
            ("k.cpp --soc a2 --blocks 99999999999", "expected a whole number"),
            ("k.cpp --soc a2 --mode chaos", "expected fast, dry, or chaos:SEED"),
            ("k.cpp --soc a2 --verbose=1", "takes no value"),
            ("k.cpp --soc a2 --arg in:f33:1", "unknown type `f33`"),
            ("k.cpp --soc a2 --arg in:f32:x", "expected a whole number"),
            ("k.cpp --soc a2 --arg in:f32:9223372036854775807", "too many elements"),
            ("k.cpp --soc a2 --arg u8:256", "no value of U8"),
            ("k.cpp --soc a2 --arg f16:1", "by their bits"),
            ("k.cpp --soc a2 --arg file:", "unknown type `file`"),
            ("k.cpp --soc a2 --arg x", "expected in:TYPE:COUNT"),
            ("k.cpp --soc a2 --levle", "unknown option `--levle`"),
        ] {
            let message = parsed(line).expect_err(line);
            assert!(message.contains(part), "{line:?}: {message}");
        }
    }

    #[test]
    fn help_wins() {
        for line in ["--help", "k.cpp -h", "k.cpp --soc a2 --help --bogus"] {
            assert!(parsed(line).unwrap().is_none(), "{line}");
        }
        for (name, _) in Type::ALL {
            assert!(HELP.contains(name), "{name} is not in the help text");
        }
    }
}
