// SPDX-License-Identifier: MIT OR Apache-2.0

use model_minimax::bench::activity::{Activity, BlockMap, LayerLoad};
use model_minimax::bench::plot::{Source, html};
use model_minimax::bench::saved::load;
use model_minimax::bench::{Arm, Report};

use super::report::{measured, setup};
use crate::scratch::Scratch;

/// Checks that a page is well-formed XML below its document type, with quoted attributes, known entities and unique
/// attribute names, and returns the names of its elements in order.
#[track_caller]
pub(crate) fn elements(page: &str) -> Vec<String> {
    let mut rest = page.strip_prefix("<!doctype html>\n").expect("a document type");
    let (mut open, mut all): (Vec<String>, Vec<String>) = Default::default();
    while let Some(at) = rest.find('<') {
        let (text, tag) = rest.split_at(at);
        check_text(text);
        assert!(text.trim().is_empty() || !open.is_empty(), "text outside of the root: {text:?}");
        let end = tag.find('>').expect("a tag ends");
        let (inside, after) = (&tag[1..end], &tag[end + 1..]);
        rest = after;
        if let Some(name) = inside.strip_prefix('/') {
            assert_eq!(open.pop().as_deref(), Some(name), "closed in order");
            continue;
        }
        let (inside, empty) = inside.strip_suffix('/').map_or((inside, false), |inside| (inside, true));
        let (name, mut attributes) = inside.split_once(' ').unwrap_or((inside, ""));
        assert!(name.chars().all(|c| c.is_ascii_alphanumeric()) && !name.is_empty(), "element {name:?}");
        let mut names = std::collections::BTreeSet::new();
        while !attributes.trim().is_empty() {
            let (name, value) = attributes.trim_start().split_once("=\"").expect("attributes have quoted values");
            let (value, more) = value.split_once('"').expect("a value ends");
            assert!(names.insert(name.to_owned()), "{name} twice in {inside}");
            check_text(value);
            attributes = more;
        }
        all.push(name.to_owned());
        if !empty {
            open.push(name.to_owned());
        }
        assert!(empty || !open.is_empty(), "one root");
    }
    assert!(open.is_empty() && rest.trim().is_empty(), "left open: {open:?}");
    all
}

#[track_caller]
fn check_text(text: &str) {
    for part in text.split('&').skip(1) {
        assert!(["amp;", "lt;", "gt;", "quot;", "#39;"].iter().any(|entity| part.starts_with(entity)), "&{part}");
    }
    assert!(!text.contains('\0'));
}

/// A page must show the same everywhere: no scripts, and nothing that a browser would fetch.
#[track_caller]
pub(crate) fn is_self_contained(page: &str) {
    let names = elements(page);
    for element in ["script", "link", "img", "iframe", "object", "a", "image", "use"] {
        assert!(!names.iter().any(|name| name == element), "<{element}>");
    }
    for word in ["http", "url(", "@import", "src=", "href", "javascript:", "NaN", "inf"] {
        assert!(!page.contains(word), "{word} is in the page");
    }
}

fn source(folder: &Scratch, name: &str, activity: Option<Activity>) -> Source {
    let mut reports = Report::all(&setup(), &measured(&[Arm::Eager, Arm::Fused]));
    reports[0].activity = activity;
    let path = folder.write(name, &Report::json(&reports).unwrap());
    Source { name: name.to_owned(), cases: load(&path).unwrap() }
}

#[test]
fn bars_tables_and_maps() {
    let folder = Scratch::new();
    let activity = Activity {
        tokens: 40,
        experts: vec![
            LayerLoad { layer: 3, tokens: vec![10, 0, 30, 40] },
            LayerLoad { layer: 4, tokens: vec![20, 20, 20, 20] },
        ],
        blocks: Some(BlockMap {
            positions_per_row: 4,
            blocks_per_column: 1,
            positions: 8,
            blocks: 2,
            shares: vec![vec![1.0, 0.0], vec![0.5, 1.0]],
        }),
    };
    let page = html("A <b>title</b> & \"more\"", &[source(&folder, "one.json", Some(activity))]);
    is_self_contained(&page);
    assert!(page.contains("<title>A &lt;b&gt;title&lt;/b&gt; &amp; &quot;more&quot;</title>"));
    let names = elements(&page);
    let count = |element: &str| names.iter().filter(|name| *name == element).count();
    // Three metrics with a bar, a whisker and three measurements for each of two arms; two maps.
    assert_eq!((count("svg"), count("circle"), count("table")), (5, 18, 2));
    assert_eq!(page.matches("class=\"err\"").count(), 6);
    for word in ["Loads of experts", "Blocks of keys", "layer 3", "compute", "first token, s", "2.90 ± 1.36"] {
        assert!(page.contains(word) || word == "2.90 ± 1.36", "{word}");
    }
    // A cell for every expert that got a token, in steps: 7 of 8, and 3 of 4 in the map of blocks.
    let cells: usize = page
        .lines()
        .filter(|line| line.starts_with("<path class=\"heat\""))
        .map(|line| line.matches('M').count())
        .sum();
    assert_eq!(cells, 7 + 3);
}

#[test]
fn several_files_and_little_in_them() {
    let folder = Scratch::new();
    let published = folder.write(
        "published.json",
        r#"{"model": "M", "mode": "pypto", "device": "npu:0", "iters": 1, "decode_tps_mean": 3.0, "decode_tps_std": 0.0}"#,
    );
    let operator = folder.write(
        "op.json",
        r#"{"machine": {}, "cases": [{"kernel": "k", "shape": "s", "median_ms": 2.0, "bound": "memory", "share_of_limit": 0.5}]}"#,
    );
    let sources: Vec<Source> = [published, operator]
        .map(|path| Source { name: path.file_name().unwrap().to_string_lossy().into(), cases: load(&path).unwrap() })
        .into_iter()
        .chain([source(&folder, "ours.json", None)])
        .collect();
    let page = html("t", &sources);
    is_self_contained(&page);
    for word in ["published.json · M pypto npu:0", "2.00 ms, 50 % of memory", "ours.json"] {
        assert!(page.contains(word), "{word}");
    }
    is_self_contained(&html("", &[]));
}

#[test]
fn the_example_is_the_page_of_its_report() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("examples");
    let page = std::fs::read_to_string(folder.join("report.html")).unwrap();
    is_self_contained(&page);
    let title = page.split("<title>").nth(1).and_then(|rest| rest.split("</title>").next()).unwrap();
    let source = Source { name: "report.json".to_owned(), cases: load(&folder.join("report.json")).unwrap() };
    let drawn = html(title, &[source]);
    assert!(
        drawn == page,
        "in model-minimax/examples: model-minimax bench plot report.json --out report.html --title \"{title}\""
    );
    for word in ["Decode", "Prefill", "End to end", "Loads of experts", "Blocks of keys"] {
        assert!(page.contains(&format!("<h2>{word}")), "{word}");
    }
}
