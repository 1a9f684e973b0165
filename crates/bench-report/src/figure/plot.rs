//! Lines over two axes.

use super::axis::Axis;
use super::legend::{FILLS, Legend, STROKES, Sample};
use super::svg::{Anchor, Canvas, Svg, WIDTH};
use super::text::width;

/// A plot of lines.
#[derive(Debug)]
pub(super) struct Plot<'p> {
    pub(super) title: &'p str,
    /// What is shown, for those who do not see it.
    pub(super) summary: String,
    /// What the axes show, above and below the plot.
    pub(super) y_name: &'p str,
    pub(super) x_name: &'p str,
    pub(super) x: Axis,
    pub(super) y: Axis,
    pub(super) lines: Vec<Line>,
    /// Positions on the x axis that are marked at the bottom, with a name in the legend.
    pub(super) marks: Option<(String, Vec<f64>)>,
    /// A limit: a horizontal line, with a name in the legend.
    pub(super) limit: Option<(String, f64)>,
}

/// A line. At most four differ in how they are drawn.
#[derive(Debug, Default)]
pub(super) struct Line {
    pub(super) name: String,
    pub(super) points: Vec<(f64, f64)>,
    /// Whether each point has a dot.
    pub(super) has_dots: bool,
    /// Low and high end of an interval at some positions.
    pub(super) band: Vec<(f64, f64, f64)>,
    /// Whether the line is a staircase, where each value holds up to the next point.
    pub(super) is_stepped: bool,
}

/// The rectangle between the axes.
#[derive(Debug, Clone, Copy)]
struct Area {
    left: f64,
    right: f64,
    top: f64,
    bottom: f64,
}

impl Plot<'_> {
    pub(super) fn draw(&self) -> Svg {
        let y_ticks = self.y.ticks(Y_TICKS);
        let label_width = y_ticks.iter().map(|(_, label)| width(label)).fold(0.0, f64::max);
        let legend = Legend::new(self.legend_names(), 4.0);
        let area = Area {
            left: label_width + 8.0,
            right: WIDTH - 14.0,
            top: legend.height() + 27.0,
            bottom: legend.height() + 27.0 + HEIGHT,
        };
        let mut canvas = Canvas::new(self.title, &self.summary, area.bottom + 36.0);
        legend.draw(&mut canvas, 2.0);
        canvas.text(4.0, area.top - 10.0, Anchor::Start, self.y_name);
        canvas.text(area.right, area.bottom + 31.0, Anchor::End, self.x_name);
        self.draw_y_axis(&mut canvas, area, &y_ticks);
        self.draw_x_axis(&mut canvas, area);
        if let Some((_, limit)) = &self.limit {
            let y = area.y(self.y.position(*limit));
            canvas.line("limit", (area.left, y), (area.right, y));
        }
        for (number, line) in self.lines.iter().enumerate() {
            self.draw_line(&mut canvas, area, line, number % STROKES.len());
        }
        for at in self.marks.iter().flat_map(|(_, positions)| positions) {
            let x = area.x(self.x.position(*at));
            canvas.line("bad", (x, area.bottom), (x, area.bottom - 7.0));
        }
        canvas.finish()
    }

    fn legend_names(&self) -> Vec<(String, Sample)> {
        let mut names: Vec<_> = self
            .lines
            .iter()
            .enumerate()
            .map(|(number, line)| (line.name.clone(), Sample::Line(STROKES[number % STROKES.len()])))
            .collect();
        names.extend(self.limit.iter().map(|(name, _)| (name.clone(), Sample::Line("limit"))));
        let marks = self.marks.iter().filter(|(_, positions)| !positions.is_empty());
        names.extend(marks.map(|(name, _)| (name.clone(), Sample::Box("fbad"))));
        // The only line needs no name where the axis has it.
        if names.len() == 1 && names[0].0 == self.y_name {
            names.clear();
        }
        names
    }

    fn draw_y_axis(&self, canvas: &mut Canvas, area: Area, ticks: &[(f64, String)]) {
        for (value, label) in ticks {
            let y = area.y(self.y.position(*value));
            canvas.line("grid", (area.left, y), (area.right, y));
            canvas.text(area.left - 5.0, y + 4.0, Anchor::End, label);
        }
    }

    fn draw_x_axis(&self, canvas: &mut Canvas, area: Area) {
        canvas.line("axis", (area.left, area.bottom), (area.right, area.bottom));
        let mut occupied = f64::NEG_INFINITY;
        for (value, label) in self.x.ticks(X_TICKS) {
            let x = area.x(self.x.position(value));
            canvas.line("axis", (x, area.bottom), (x, area.bottom + 4.0));
            let half = width(&label) / 2.0;
            let middle = x.min(WIDTH - half);
            if middle - half > occupied {
                canvas.text(middle, area.bottom + 16.0, Anchor::Middle, &label);
                occupied = middle + half + 6.0;
            }
        }
    }

    fn draw_line(&self, canvas: &mut Canvas, area: Area, line: &Line, style: usize) {
        let at = |x: f64, y: f64| (area.x(self.x.position(x)), area.y(self.y.position(y)));
        let upper = line.band.iter().map(|(x, _, high)| at(*x, *high));
        let lower = line.band.iter().rev().map(|(x, low, _)| at(*x, *low));
        canvas.area(FILLS[style], &upper.chain(lower).collect::<Vec<_>>());
        let mut points = Vec::with_capacity(line.points.len());
        for (x, y) in &line.points {
            let point = at(*x, *y);
            match points.last() {
                Some((_, before)) if line.is_stepped => points.push((point.0, *before)),
                _ => {}
            }
            points.push(point);
        }
        canvas.polyline(STROKES[style], &points);
        if line.has_dots || line.points.len() == 1 {
            for (x, y) in &line.points {
                let tooltip = format!("{}: {}, {}", line.name, self.x.full_label(*x), self.y.full_label(*y));
                canvas.dot(FILLS[style], at(*x, *y), 2.6, &tooltip);
            }
        }
    }
}

impl Area {
    fn x(self, position: f64) -> f64 {
        self.left + position * (self.right - self.left)
    }

    fn y(self, position: f64) -> f64 {
        self.bottom - position * (self.bottom - self.top)
    }
}

const HEIGHT: f64 = 160.0;
const Y_TICKS: usize = 6;
const X_TICKS: usize = 6;
