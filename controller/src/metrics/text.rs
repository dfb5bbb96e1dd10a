//! Prometheus' text format, version 0.0.4 (prometheus.io/docs/instrumenting/exposition_formats). The crate that
//! Prometheus recommends writes only OpenMetrics, which promtool(1) and textfile collectors do not accept. The older
//! format is short enough for a module.

use std::fmt::Write as _;

use super::counts::Histogram;

/// Content type of the metrics page.
pub(super) const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

#[derive(Debug, Clone, Copy)]
pub(super) enum Type {
    Counter,
    Gauge,
    Histogram,
}

/// A page of metrics in Prometheus' text format, while the page is being written.
#[derive(Debug, Default)]
pub(super) struct Text(String);

pub(super) type Labels<'a> = &'a [(&'a str, &'a str)];

impl Text {
    /// Begins a metric; the returned value writes its samples.
    pub(super) fn metric(&mut self, name: &'static str, of: Type, help: &str) -> Metric<'_> {
        let word = match of {
            Type::Counter => "counter",
            Type::Gauge => "gauge",
            Type::Histogram => "histogram",
        };
        // Writing to a String never fails.
        let _ = write!(self.0, "# HELP {name} {help}\n# TYPE {name} {word}\n");
        Metric { text: &mut self.0, name }
    }

    pub(super) fn finish(self) -> String {
        self.0
    }
}

#[derive(Debug)]
pub(super) struct Metric<'a> {
    text: &'a mut String,
    name: &'static str,
}

impl Metric<'_> {
    pub(super) fn sample(&mut self, labels: Labels<'_>, value: u64) -> &mut Self {
        self.line("", labels, value);
        self
    }

    pub(super) fn seconds(&mut self, labels: Labels<'_>, value: f64) -> &mut Self {
        self.line("", labels, value);
        self
    }

    pub(super) fn histogram(&mut self, labels: Labels<'_>, of: &Histogram) {
        let mut so_far = 0;
        let bounds = of.bounds.iter().map(f64::to_string).chain(["+Inf".to_owned()]);
        for (bound, count) in bounds.zip(&of.counts) {
            so_far += count;
            self.line("_bucket", &[labels, &[("le", &bound)]].concat(), so_far);
        }
        self.line("_sum", labels, of.sum);
        self.line("_count", labels, so_far);
    }

    fn line(&mut self, suffix: &str, labels: Labels<'_>, value: impl std::fmt::Display) {
        let _ = write!(self.text, "{}{suffix}", self.name);
        for (at, (name, text)) in labels.iter().enumerate() {
            let _ = write!(self.text, "{}{name}=\"{}\"", if at == 0 { '{' } else { ',' }, escaped(text));
        }
        let _ = writeln!(self.text, "{} {value}", if labels.is_empty() { "" } else { "}" });
    }
}

fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}
