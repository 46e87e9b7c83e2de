//! The chart: a bar for each ratio, from tokio's 1 to the left where less is taken, on a logarithmic axis.

use std::fmt::Write;

use super::allocator::Allocator;
use super::environment::Environment;
use super::goals;
use super::outcome::{Outcome, PACELINE};
use super::table::ratio;

const WIDTH: f64 = 960.0;
/// Where the bars may be: right of the names, with room for a value beyond the longest bars.
const LEFT: f64 = 250.0;
const RIGHT: f64 = 890.0;
/// Above the rows: title, environment, legend, the axis' numbers.
const TOP: f64 = 108.0;
const BAR: f64 = 11.0;
const BETWEEN_ROWS: f64 = 9.0;

/// Legible on white and on black.
const STYLE: &str = "
text { font: 12px system-ui, 'DejaVu Sans', sans-serif; fill: #333 }
.title { font-size: 16px; font-weight: 600 }
.note, .value, .axis { font-size: 10.5px; fill: #666 }
.system { fill: #5b7c99 }
.mimalloc { fill: #b9975b }
.grid { stroke: #ddd } .one { stroke: #333; stroke-width: 1.5 }
.goal { stroke: #333; stroke-width: 2 }
@media (prefers-color-scheme: dark) {
  .paper { fill: #161616 }
  text { fill: #ddd } .note, .value, .axis { fill: #aaa }
  .grid { stroke: #3a3a3a } .one, .goal { stroke: #ddd }
}
@media (prefers-color-scheme: light) { .paper { fill: #fff } }
";

/// A bar.
struct Bar {
    allocator: Allocator,
    ratio: f64,
    goal: f64,
}

/// A workload's bars.
struct Row {
    title: String,
    bars: Vec<Bar>,
}

/// Ratios as places.
struct Axis {
    low: f64,
    high: f64,
}

impl Axis {
    /// On which all have a place, and 1 has.
    fn over(rows: &[Row]) -> Self {
        let all = || rows.iter().flat_map(|row| &row.bars).flat_map(|bar| [bar.ratio, bar.goal]);
        Axis { low: all().fold(0.5, f64::min), high: all().fold(2.0, f64::max) }
    }

    fn place(&self, ratio: f64) -> f64 {
        let part = (ratio / self.low).ln() / (self.high / self.low).ln();
        LEFT + part * (RIGHT - LEFT)
    }

    /// What the grid's lines stand for: with less than four powers of ten, also their doubles and fives.
    fn ticks(&self) -> Vec<f64> {
        let powers = self.low.log10().floor() as i32..=self.high.log10().ceil() as i32;
        let parts: &[f64] = if powers.clone().count() > 4 { &[1.0] } else { &[1.0, 2.0, 5.0] };
        let all = powers.flat_map(|power| parts.iter().map(move |part| part * 10f64.powi(power)));
        all.filter(|tick| (self.low..=self.high).contains(tick)).collect()
    }
}

/// In the order of the outcomes; what has no ratio is left out.
fn rows(outcomes: &[Outcome]) -> Vec<Row> {
    let mut rows: Vec<Row> = Vec::new();
    for outcome in outcomes {
        let (title, ratio) = (outcome.title(), outcome.judged().median);
        if !(ratio.is_finite() && ratio > 0.0) {
            continue;
        }
        let goal = goals::of(&outcome.workload)[0].most(outcome.allocator);
        let bar = Bar { allocator: outcome.allocator, ratio, goal };
        match rows.last_mut() {
            Some(row) if row.title == title => row.bars.push(bar),
            _ => rows.push(Row { title, bars: vec![bar] }),
        }
    }
    rows
}

pub fn chart(outcomes: &[Outcome], environment: &Environment) -> String {
    let rows = rows(outcomes);
    let axis = Axis::over(&rows);
    let bars: usize = rows.iter().map(|row| row.bars.len()).sum();
    let bottom = TOP + bars as f64 * BAR + rows.len() as f64 * BETWEEN_ROWS;
    let height = bottom + 24.0;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" \
         width=\"{WIDTH}\" height=\"{height}\"><style>{STYLE}</style>\n\
         <rect class=\"paper\" width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n"
    );
    let subject = outcomes.first().map_or(PACELINE, Outcome::subject);
    draw_head(&mut svg, subject, environment, &allocators_of(&rows));
    draw_grid(&mut svg, &axis, bottom);
    let mut y = TOP + BETWEEN_ROWS / 2.0;
    for row in &rows {
        draw_row(&mut svg, &axis, row, y);
        y += row.bars.len() as f64 * BAR + BETWEEN_ROWS;
    }
    svg + "</svg>\n"
}

/// With what means something in XML replaced.
fn text(svg: &mut String, class: &str, anchor: &str, at: (f64, f64), text: &str) {
    let text = text.replace('&', "&amp;").replace('<', "&lt;");
    let (x, y) = at;
    let attributes =
        format!("class=\"{class}\" text-anchor=\"{anchor}\" x=\"{x:.1}\" y=\"{y:.1}\"");
    writeln!(svg, "<text {attributes}>{text}</text>").unwrap();
}

fn line(svg: &mut String, class: &str, x: f64, top: f64, bottom: f64) {
    let attributes = format!("x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{top:.1}\" y2=\"{bottom:.1}\"");
    writeln!(svg, "<line class=\"{class}\" {attributes}/>").unwrap();
}

fn draw_bar(svg: &mut String, allocator: Allocator, x: f64, y: f64, width: f64) {
    let (class, height) = (allocator.name(), BAR - 1.0);
    let attributes = format!("x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height}\"");
    writeln!(svg, "<rect class=\"{class}\" {attributes}/>").unwrap();
}

/// Those that have bars.
fn allocators_of(rows: &[Row]) -> Vec<Allocator> {
    let has = |allocator: &Allocator| {
        rows.iter().flat_map(|row| &row.bars).any(|bar| bar.allocator == *allocator)
    };
    Allocator::ALL.into_iter().filter(has).collect()
}

fn draw_head(svg: &mut String, subject: &str, from: &Environment, allocators: &[Allocator]) {
    let title = format!("{subject}: time per operation relative to tokio's, less is better");
    text(svg, "title", "start", (16.0, 26.0), &title);
    text(svg, "note", "start", (16.0, 45.0), &from.line());
    let mut x = 16.0;
    for allocator in allocators {
        draw_bar(svg, *allocator, x, 57.0, 16.0);
        let name = format!("{} allocator", allocator.name());
        text(svg, "note", "start", (x + 22.0, 66.0), &name);
        x += 130.0;
    }
    line(svg, "goal", x + 4.0, 56.0, 68.0);
    text(svg, "note", "start", (x + 14.0, 66.0), "goal");
}

fn draw_grid(svg: &mut String, axis: &Axis, bottom: f64) {
    for tick in axis.ticks() {
        let x = axis.place(tick);
        let class = if (tick - 1.0).abs() < 1e-9 { "one" } else { "grid" };
        line(svg, class, x, TOP, bottom);
        let name = format!("{}", (tick * 1e6).round() / 1e6);
        let name = if class == "one" { "1 = tokio" } else { &name };
        text(svg, "axis", "middle", (x, TOP - 6.0), name);
        text(svg, "axis", "middle", (x, bottom + 14.0), name);
    }
}

fn draw_row(svg: &mut String, axis: &Axis, row: &Row, y: f64) {
    let middle = y + row.bars.len() as f64 * BAR / 2.0;
    text(svg, "name", "end", (LEFT - 56.0, middle + 4.0), &row.title);
    let one = axis.place(1.0);
    for (index, bar) in row.bars.iter().enumerate() {
        let (y, end) = (y + index as f64 * BAR, axis.place(bar.ratio));
        draw_bar(svg, bar.allocator, end.min(one), y, (end - one).abs().max(1.0));
        let goal = axis.place(bar.goal);
        if (goal - one).abs() > 0.5 {
            line(svg, "goal", goal, y - 1.0, y + BAR);
        }
        // Beyond the bar, and beyond the goal's mark where that would cross the value.
        let beyond = |x: f64, way: f64| {
            let crosses = (0.0..46.0).contains(&((goal - x) * way));
            (if crosses { goal } else { x }) + way * 5.0
        };
        let at_left = bar.ratio <= 1.0;
        let x = beyond(end, if at_left { -1.0 } else { 1.0 });
        let anchor = if at_left { "end" } else { "start" };
        text(svg, "value", anchor, (x, y + BAR - 2.0), &ratio(bar.ratio));
    }
}

/// Every ratio has its bar, at its place.
pub fn check() {
    let outcome =
        |name: &str, time: f64| Outcome::made_up(name, &[(PACELINE, &[time]), ("tokio", &[100.0])]);
    let outcomes = [outcome("pair", 400.0), outcome("yield_1", 10.0), outcome("a<b", f64::NAN)];
    let rows = rows(&outcomes);
    assert_eq!(rows.len(), 2);
    let axis = Axis::over(&rows);
    assert!((axis.place(0.1) - LEFT).abs() < 1e-6 && (axis.place(4.0) - RIGHT).abs() < 1e-6);
    assert!(axis.ticks().contains(&1.0));
    let svg = chart(&outcomes, &Environment::here());
    assert_eq!(svg.matches("class=\"value\"").count(), 2);
    assert!(svg.ends_with("</svg>\n"));
}
