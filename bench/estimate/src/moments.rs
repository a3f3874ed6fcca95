//! Means, sums of squares, and the standard deviation that they give.

/// Computes the arithmetic mean; `None` for an empty slice.
pub fn mean(values: &[f64]) -> Option<f64> {
    (!values.is_empty()).then(|| mean_of_nonempty(values))
}

/// Computes the arithmetic mean of values that are not empty.
pub(crate) fn mean_of_nonempty(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

/// Sums the squared distances of the values from their mean.
pub(crate) fn sum_of_squared_deviations(values: &[f64]) -> f64 {
    let centre = mean_of_nonempty(values);
    values.iter().map(|value| (value - centre).powi(2)).sum()
}

/// Computes the standard deviation with n - 1 in the denominator; NaN for fewer than two values.
pub(crate) fn standard_deviation(values: &[f64]) -> f64 {
    (sum_of_squared_deviations(values) / (values.len() as f64 - 1.0)).sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_has_no_mean_and_one_value_no_deviation() {
        assert_eq!(mean(&[]), None);
        assert_eq!(mean(&[1.0, 2.0]), Some(1.5));
        assert!(standard_deviation(&[1.0]).is_nan());
        assert!((standard_deviation(&[1.0, 3.0]) - 2f64.sqrt()).abs() < 1e-15);
    }
}
