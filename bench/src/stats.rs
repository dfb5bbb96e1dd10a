//! Samples and their statistics. Times are milliseconds.

use serde_json::{Value, json};

/// Measured values, in the order of measurement.
#[derive(Debug, Clone, Default)]
pub struct Samples(Vec<f64>);

impl Samples {
    pub fn push(&mut self, value: f64) {
        self.0.push(value);
    }

    pub fn extend(&mut self, other: &Self) {
        self.0.extend(&other.0);
    }

    pub fn count(&self) -> usize {
        self.0.len()
    }

    /// Returns the value that a share `q` (0 to 1) of the samples does not exceed (nearest rank); 0 without samples.
    pub fn quantile(&self, q: f64) -> f64 {
        let mut sorted = self.0.clone();
        sorted.sort_by(f64::total_cmp);
        let rank = (q * sorted.len() as f64).ceil() as usize;
        sorted.get(rank.saturating_sub(1)).copied().unwrap_or(0.0)
    }

    pub fn median(&self) -> f64 {
        self.quantile(0.5)
    }

    /// Returns the median of these samples divided by the median of `other`.
    pub fn over(&self, other: &Self) -> f64 {
        self.median() / other.median()
    }

    /// Cuts both lists of samples into about ten consecutive parts, and divides the median of each part of `self` by
    /// that of the same part of `other`. Returns the lowest and the highest of these ratios.
    pub fn over_in_parts(&self, other: &Self) -> (f64, f64) {
        let size = (self.count().min(other.count()) / 10).max(1);
        let parts = self.0.chunks(size).zip(other.0.chunks(size)).filter(|(a, _)| a.len() == size);
        let ratios: Vec<f64> = parts.map(|(a, b)| Self(a.to_vec()).over(&Self(b.to_vec()))).collect();
        (ratios.iter().copied().fold(f64::INFINITY, f64::min), ratios.iter().copied().fold(0.0, f64::max))
    }

    /// Formats the ratio of these samples' median to that of `base`, with the ratio's range over ten parts of the run
    /// ([`Self::over_in_parts`]). `name` says what `base` is. Adds the noise: the ratio of `again`, a repetition of
    /// `base`, to `base`.
    pub fn beside(&self, base: &Self, again: &Self, name: &str) -> String {
        let (low, high) = self.over_in_parts(base);
        let [ratio, low, high, noise] = [self.over(base), low, high, again.over(base)].map(figure);
        format!("{ratio} x {name} ({low} to {high} by tenths of the run; A/A {noise})")
    }

    pub fn json(&self) -> Value {
        let thousandths = |value: f64| (value * 1000.0).round() / 1000.0;
        json!({
            "n": self.count(), "p50": thousandths(self.median()), "p90": thousandths(self.quantile(0.9)),
            "p99": thousandths(self.quantile(0.99)), "min": thousandths(self.quantile(0.0)),
            "max": thousandths(self.quantile(1.0)),
            "raw": self.0.iter().map(|value| thousandths(*value)).collect::<Vec<_>>(),
        })
    }

    /// Returns the cells of a row: number of samples, p50, p90 and p99.
    pub fn cells(&self) -> [String; 4] {
        [self.count().to_string(), figure(self.median()), figure(self.quantile(0.9)), figure(self.quantile(0.99))]
    }
}

/// Formats a number with about three digits: `123`, `12.3`, `1.23`.
pub fn figure(value: f64) -> String {
    match value.abs() {
        size if size >= 100.0 => format!("{value:.0}"),
        size if size >= 10.0 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn samples(values: impl IntoIterator<Item = u32>) -> Samples {
        Samples(values.into_iter().map(f64::from).collect())
    }

    #[test]
    fn quantiles_are_samples_by_nearest_rank() {
        let hundred = samples((1..=100).rev());
        for (q, expected) in [(0.0, 1.0), (0.5, 50.0), (0.9, 90.0), (0.99, 99.0), (1.0, 100.0)] {
            assert_eq!(hundred.quantile(q), expected, "{q}");
        }
        assert_eq!(samples([7]).median(), 7.0);
        assert_eq!(Samples::default().median(), 0.0);
    }

    #[test]
    fn ratios_are_of_medians_and_show_their_spread() {
        let (fast, slow) = (samples([10; 100]), samples((0..100).map(|n| if n < 50 { 15 } else { 25 })));
        assert_eq!(slow.over(&fast), 1.5);
        assert_eq!(slow.over_in_parts(&fast), (1.5, 2.5));
    }
}
