// SPDX-License-Identifier: MIT OR Apache-2.0

//! Reports as one HTML page that needs nothing else: bars with deviations, a table, loads of experts, choices of blocks.

use std::fmt::{self, Write as _};

use super::activity::{Activity, BlockMap};
use super::saved::{Case, Metric};
use super::{Share, stats::Stats};

/// The cases of one file.
#[derive(Debug, Clone)]
pub struct Source {
    /// How the page names the file.
    pub name: String,
    /// What it holds.
    pub cases: Vec<Case>,
}

/// Steps of a heat map's colour.
const STEPS: usize = 16;
const LABEL: f64 = 250.0;
const BAR: f64 = 520.0;
const ROW: f64 = 26.0;

/// The page: well-formed XML below its document type, without scripts and without references to anything outside of it.
#[must_use]
pub fn html(title: &str, sources: &[Source]) -> String {
    let mut page = Page(String::new());
    // Writing into a String cannot fail.
    let written = page.write(title, sources);
    debug_assert!(written.is_ok(), "{written:?}");
    page.0
}

/// The five characters that markup gives a meaning.
fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            c if c.is_control() => out.push(' '),
            c => out.push(c),
        }
    }
    out
}

/// A number with three digits or more.
fn digits(value: f64) -> String {
    match value.abs() {
        v if v >= 100.0 || v == 0.0 => format!("{value:.0}"),
        v if v >= 10.0 => format!("{value:.1}"),
        v if v >= 1.0 => format!("{value:.2}"),
        _ => format!("{value:.4}"),
    }
}

const STYLE: &str = "
:root { --surface: #fcfcfb; --ink: #1c1c1a; --quiet: #6b6a66; --line: #dddbd5; --bar: #2f6fb0; --bar2: #b4552d; --bar3: #4b8a3f;
  --bar4: #7d5ba6; --heat: #1d5fa8; }
@media (prefers-color-scheme: dark) { :root { --surface: #191918; --ink: #ecebe7; --quiet: #a3a29c; --line: #3a3936;
  --bar: #6ca7e0; --bar2: #e08a5f; --bar3: #86c27a; --bar4: #b79be0; --heat: #7db4ee; } }
body { margin: 0 auto; max-width: 62rem; padding: 2rem 1.5rem; background: var(--surface); color: var(--ink);
  font: 15px/1.5 system-ui, sans-serif; }
h1 { font-size: 1.5rem; margin: 0 0 .25rem; } h2 { font-size: 1.1rem; margin: 2.2rem 0 .5rem; }
p { margin: .25rem 0 .75rem; color: var(--quiet); }
figure { margin: 0 0 1rem; overflow-x: auto; } svg { display: block; max-width: 100%; height: auto; }
svg text { fill: var(--ink); font: 12px system-ui, sans-serif; } svg .q { fill: var(--quiet); }
svg .axis { stroke: var(--line); } svg .err { stroke: var(--ink); stroke-width: 1.5; fill: none; }
svg .dot { fill: var(--surface); stroke: var(--ink); stroke-width: .8; }
svg .heat { fill: var(--heat); } svg .frame { fill: none; stroke: var(--line); }
.b0 { fill: var(--bar); } .b1 { fill: var(--bar2); } .b2 { fill: var(--bar3); } .b3 { fill: var(--bar4); }
.scroll { overflow-x: auto; } table { border-collapse: collapse; font-variant-numeric: tabular-nums; font-size: .85rem; }
th, td { padding: .3rem .7rem; border-bottom: 1px solid var(--line); text-align: right; white-space: nowrap; }
th:first-child, td:first-child { text-align: left; } th { font-weight: 600; color: var(--quiet); }
";

struct Page(String);

impl Page {
    fn write(&mut self, title: &str, sources: &[Source]) -> fmt::Result {
        let title = escape(title);
        write!(
            self.0,
            "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\"/>\n\
             <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>\n<title>{title}</title>\n\
             <style>{STYLE}</style>\n</head>\n<body>\n<h1>{title}</h1>\n"
        )?;
        for source in sources {
            writeln!(self.0, "<p>{}: {}</p>", escape(&source.name), escape(&machine(source)))?;
        }
        // Files side by side: each case of each file is a row, and files have colours.
        let rows: Vec<(usize, String, &Case)> = sources
            .iter()
            .enumerate()
            .flat_map(|(file, source)| source.cases.iter().map(move |case| (file, label(sources, source, case), case)))
            .collect();
        for (name, heading) in
            [("decode", "Decode"), ("prefill", "Prefill"), ("e2e", "End to end"), ("speed", "Operators")]
        {
            let bars: Vec<(usize, &str, &Metric)> = rows
                .iter()
                .filter_map(|(file, label, case)| {
                    let metric = case.metrics.iter().find(|metric| metric.name == name)?;
                    Some((*file, label.as_str(), metric))
                })
                .collect();
            if let Some((_, _, first)) = bars.first() {
                write!(self.0, "<h2>{heading}, {}</h2>\n<figure>\n", escape(first.unit))?;
                // Operators differ by orders of magnitude: each bar is then as long as its share of the machine's limit.
                if name == "speed" {
                    self.shares(&rows)?
                } else {
                    self.bars(&bars)?
                }
                self.0.push_str("</figure>\n");
            }
        }
        self.table(&rows)?;
        self.roofline(&rows)?;
        for (_, label, case) in &rows {
            if let Some(activity) = &case.activity {
                self.activity(label, activity)?;
            }
        }
        self.0.push_str("</body>\n</html>\n");
        Ok(())
    }

    /// Mean rates, one bar a row, with one sample standard deviation to each side and the measurements themselves.
    fn bars(&mut self, bars: &[(usize, &str, &Metric)]) -> fmt::Result {
        let reach = |metric: &Metric| metric.rates.iter().copied().fold(metric.mean + metric.std, f64::max);
        let longest = bars.iter().map(|(_, _, metric)| reach(metric)).fold(0.0, f64::max).max(1e-12);
        let x = |value: f64| LABEL + value.clamp(0.0, longest) / longest * BAR;
        let height = bars.len() as f64 * ROW + 8.0;
        self.open_svg(
            LABEL + BAR + 120.0,
            height,
            "Bars: means; whiskers: one standard deviation; dots: measurements",
        )?;
        for (row, (file, label, metric)) in bars.iter().enumerate() {
            let top = row as f64 * ROW + 4.0;
            let middle = top + ROW / 2.0;
            let (end, low, high) = (x(metric.mean), x(metric.mean - metric.std), x(metric.mean + metric.std));
            self.row_label(label, middle)?;
            writeln!(
                self.0,
                "<rect class=\"b{}\" x=\"{LABEL:.1}\" y=\"{:.1}\" width=\"{:.1}\" height=\"{:.1}\"/>",
                file % 4,
                top + 4.0,
                end - LABEL,
                ROW - 8.0
            )?;
            if metric.n > 1 {
                writeln!(
                    self.0,
                    "<path class=\"err\" d=\"M{low:.1} {middle:.1}H{high:.1}M{low:.1} {:.1}v8M{high:.1} {:.1}v8\"/>",
                    middle - 4.0,
                    middle - 4.0
                )?;
            }
            for rate in &metric.rates {
                writeln!(self.0, "<circle class=\"dot\" cx=\"{:.1}\" cy=\"{middle:.1}\" r=\"2.2\"/>", x(*rate))?;
            }
            let after = metric.rates.iter().fold(high, |far, rate| far.max(x(*rate))) + 8.0;
            let value = format!("{} ± {}", digits(metric.mean), digits(metric.std));
            writeln!(self.0, "<text x=\"{after:.1}\" y=\"{:.1}\">{}</text>", middle + 4.0, escape(&value))?;
        }
        self.close_svg();
        Ok(())
    }

    /// Operators by their share of the machine's limit.
    fn shares(&mut self, rows: &[(usize, String, &Case)]) -> fmt::Result {
        let bars: Vec<_> = rows.iter().filter(|(_, _, case)| case.metrics.iter().any(|m| m.name == "speed")).collect();
        let of = |case: &Case| case.share_of_limit.as_ref().map_or(0.0, |(share, _)| *share);
        let longest = bars.iter().map(|(_, _, case)| of(case)).fold(1.0, f64::max);
        let limit = LABEL + BAR / longest;
        let height = bars.len() as f64 * ROW + 24.0;
        self.open_svg(LABEL + BAR + 160.0, height, "Bars: share of the limit of the machine; line: the limit")?;
        writeln!(self.0, "<path class=\"axis\" d=\"M{limit:.1} 0V{:.1}\"/>", height - 18.0)?;
        writeln!(
            self.0,
            "<text class=\"q\" x=\"{limit:.1}\" y=\"{:.1}\" text-anchor=\"end\">limit</text>",
            height - 5.0
        )?;
        for (row, (file, label, case)) in bars.iter().enumerate() {
            let top = row as f64 * ROW + 2.0;
            self.row_label(label, top + ROW / 2.0)?;
            let width = of(case) / longest * BAR;
            writeln!(
                self.0,
                "<rect class=\"b{}\" x=\"{LABEL:.1}\" y=\"{:.1}\" width=\"{width:.1}\" height=\"{:.1}\"/>",
                file % 4,
                top + 4.0,
                ROW - 8.0
            )?;
            let ms = case.metrics.iter().find(|m| m.name == "speed").map_or(0.0, |metric| 1e3 / metric.median());
            let share = case
                .share_of_limit
                .as_ref()
                .map_or(String::new(), |(share, bound)| format!(", {:.0} % of {bound}", share * 100.0));
            writeln!(
                self.0,
                "<text x=\"{:.1}\" y=\"{:.1}\">{}</text>",
                LABEL + width + 8.0,
                top + ROW / 2.0 + 4.0,
                escape(&format!("{} ms{share}", digits(ms)))
            )?;
        }
        self.close_svg();
        Ok(())
    }

    fn table(&mut self, rows: &[(usize, String, &Case)]) -> fmt::Result {
        self.0.push_str(
            "<h2>Measurements</h2>\n<div class=\"scroll\"><table>\n<tr><th>case</th><th>metric</th><th>n</th><th>mean</th>\
             <th>deviation</th><th>median</th><th>p5</th><th>p95</th></tr>\n",
        );
        for (_, label, case) in rows {
            for metric in &case.metrics {
                let percentiles = (!metric.rates.is_empty()).then(|| Stats::of(&metric.rates));
                let cell = |value: Option<f64>| value.map_or("-".to_owned(), digits);
                let Metric { name, unit, mean, std, n, .. } = metric;
                let [p50, p5, p95] =
                    [|s: Stats| s.p50, |s: Stats| s.p5, |s: Stats| s.p95].map(|of| cell(percentiles.map(of)));
                writeln!(
                    self.0,
                    "<tr><td>{}</td><td>{name}, {unit}</td><td>{n}</td><td>{}</td><td>{}</td><td>{p50}</td><td>{p5}</td>\
                     <td>{p95}</td></tr>",
                    escape(label),
                    digits(*mean),
                    digits(*std)
                )?;
            }
            if let Some(stats) = &case.first_token_s {
                writeln!(
                    self.0,
                    "<tr><td>{}</td><td>first token, s</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td>\
                     <td>{}</td></tr>",
                    escape(label),
                    stats.n,
                    digits(stats.mean),
                    digits(stats.std),
                    digits(stats.p50),
                    digits(stats.p5),
                    digits(stats.p95)
                )?;
            }
        }
        self.0.push_str("</table></div>\n");
        Ok(())
    }

    fn roofline(&mut self, rows: &[(usize, String, &Case)]) -> fmt::Result {
        if rows.iter().all(|(_, _, case)| case.roofline.is_none()) {
            return Ok(());
        }
        self.0.push_str(
            "<h2>Beside the limits of the machine</h2>\n<div class=\"scroll\"><table>\n<tr><th>case</th><th>phase</th>\
             <th>MB</th><th>GFLOP</th><th>of read bandwidth</th><th>of multiply-add peak</th><th>bound</th></tr>\n",
        );
        for (_, label, case) in rows {
            let Some(roofline) = &case.roofline else { continue };
            for (phase, share) in [("prompt", &roofline.prefill), ("token", &roofline.decode)] {
                let Some(Share { bytes, flop, of_read, of_peak, bound, .. }) = share else { continue };
                writeln!(
                    self.0,
                    "<tr><td>{}</td><td>{phase}</td><td>{}</td><td>{}</td><td>{:.0} %</td><td>{:.0} %</td><td>{}</td></tr>",
                    escape(label),
                    digits(*bytes as f64 / 1e6),
                    digits(*flop as f64 / 1e9),
                    of_read * 100.0,
                    of_peak * 100.0,
                    bound.name()
                )?;
            }
        }
        self.0.push_str("</table></div>\n");
        Ok(())
    }

    fn activity(&mut self, label: &str, activity: &Activity) -> fmt::Result {
        let label = escape(label);
        if !activity.experts.is_empty() {
            write!(
                self.0,
                "<h2>Loads of experts</h2>\n<p>{label}: {} tokens; one row a layer, one column an expert, darker the more \
                 tokens it got</p>\n<figure>\n",
                activity.tokens
            )?;
            let loads = activity.experts.iter().map(|load| load.tokens.iter().map(|&n| n as f64).collect());
            let names: Vec<String> = activity.experts.iter().map(|load| format!("layer {}", load.layer)).collect();
            self.heat(&loads.collect::<Vec<Vec<f64>>>(), &names, "expert", "tokens")?;
            self.0.push_str("</figure>\n");
        }
        if let Some(BlockMap { positions_per_row, blocks_per_column, positions, blocks, shares }) = &activity.blocks {
            write!(
                self.0,
                "<h2>Blocks of keys that are attended to</h2>\n<p>{label}: {positions} positions, {positions_per_row} a row; \
                 {blocks} blocks of keys, {blocks_per_column} a column; all layers and KV heads together, darker the more of \
                 them chose the block</p>\n<figure>\n"
            )?;
            let names: Vec<String> = (0..shares.len()).map(|row| format!("from {}", row * positions_per_row)).collect();
            self.heat(shares, &names, "block", "share")?;
            self.0.push_str("</figure>\n");
        }
        Ok(())
    }

    /// A matrix in steps of one colour: cells of one step are one path.
    fn heat(&mut self, rows: &[Vec<f64>], names: &[String], column: &str, what: &str) -> fmt::Result {
        let columns = rows.iter().map(Vec::len).max().unwrap_or(0).max(1);
        let most = rows.iter().flatten().copied().fold(0.0, f64::max);
        let left = 70.0;
        let width = (760.0 / columns as f64).clamp(2.0, 36.0);
        let height = (420.0 / rows.len().max(1) as f64).clamp(3.0, 18.0);
        let (right, bottom) = (left + columns as f64 * width, rows.len() as f64 * height);
        self.open_svg(right.max(420.0) + 10.0, bottom + 44.0, "Heat map")?;
        let mut steps = vec![String::new(); STEPS + 1];
        for (r, row) in rows.iter().enumerate() {
            for (c, &value) in row.iter().enumerate().filter(|(_, value)| **value > 0.0) {
                let step = ((value / most * STEPS as f64).ceil() as usize).min(STEPS);
                let (x, y) = (left + c as f64 * width, r as f64 * height);
                write!(steps[step], "M{x:.1} {y:.1}h{width:.1}v{height:.1}h-{width:.1}z")?;
            }
        }
        for (step, path) in steps.iter().enumerate().filter(|(_, path)| !path.is_empty()) {
            let opacity = step as f64 / STEPS as f64;
            writeln!(self.0, "<path class=\"heat\" fill-opacity=\"{opacity:.3}\" d=\"{path}\"/>")?;
        }
        writeln!(
            self.0,
            "<rect class=\"frame\" x=\"{left:.1}\" y=\"0\" width=\"{:.1}\" height=\"{bottom:.1}\"/>",
            right - left
        )?;
        // As many row names as there is room for.
        let every = ((14.0 / height).ceil() as usize).max(1);
        for (row, name) in names.iter().enumerate().step_by(every) {
            let y = (row as f64 * height + height / 2.0 + 4.0).max(10.0);
            writeln!(
                self.0,
                "<text class=\"q\" x=\"{:.1}\" y=\"{y:.1}\" text-anchor=\"end\">{}</text>",
                left - 6.0,
                escape(name)
            )?;
        }
        writeln!(self.0, "<text class=\"q\" x=\"{left:.1}\" y=\"{:.1}\">{column} 0</text>", bottom + 16.0)?;
        writeln!(
            self.0,
            "<text class=\"q\" x=\"{right:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
            bottom + 16.0,
            columns - 1
        )?;
        // The scale.
        for step in 1..=STEPS {
            writeln!(
                self.0,
                "<rect class=\"heat\" fill-opacity=\"{:.3}\" x=\"{:.1}\" y=\"{:.1}\" width=\"8\" height=\"10\"/>",
                step as f64 / STEPS as f64,
                left + 90.0 + step as f64 * 8.0,
                bottom + 26.0
            )?;
        }
        writeln!(self.0, "<text class=\"q\" x=\"{left:.1}\" y=\"{:.1}\">{what}: 0</text>", bottom + 36.0)?;
        writeln!(
            self.0,
            "<text class=\"q\" x=\"{:.1}\" y=\"{:.1}\">{}</text>",
            left + 106.0 + STEPS as f64 * 8.0,
            bottom + 36.0,
            digits(most)
        )?;
        self.close_svg();
        Ok(())
    }

    fn row_label(&mut self, label: &str, middle: f64) -> fmt::Result {
        const SHOWN: usize = 38;
        let short: String = match label.chars().count() > SHOWN {
            true => label.chars().take(SHOWN - 1).chain(['…']).collect(),
            false => label.to_owned(),
        };
        let (x, y) = (LABEL - 8.0, middle + 4.0);
        let (label, short) = (escape(label), escape(&short));
        writeln!(self.0, "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"end\"><title>{label}</title>{short}</text>")
    }

    fn open_svg(&mut self, width: f64, height: f64, title: &str) -> fmt::Result {
        let title = escape(title);
        writeln!(
            self.0,
            "<svg viewBox=\"0 0 {width:.0} {height:.0}\" width=\"{width:.0}\" role=\"img\" aria-label=\"{title}\">\
             <title>{title}</title>"
        )
    }

    fn close_svg(&mut self) {
        self.0.push_str("</svg>\n");
    }
}

/// What the first case of a file says about its machine and settings.
fn machine(source: &Source) -> String {
    let first = source.cases.first().map(|case| case.settings.as_slice()).unwrap_or_default();
    let words: Vec<String> = first.iter().map(|(name, value)| format!("{} {value}", name.replace('_', " "))).collect();
    words.join(", ")
}

/// The name of a row: that of the file too, if there are several.
fn label(sources: &[Source], source: &Source, case: &Case) -> String {
    if sources.len() > 1 { format!("{} · {}", source.name, case.name) } else { case.name.clone() }
}
