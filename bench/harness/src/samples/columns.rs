//! The samples of a slice in columns, as `record.json` holds them.

use std::collections::{BTreeMap, VecDeque};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{Sample, SamplePlace, Slice};
use crate::protocol::SAMPLES_PER_RUN_MAX;

/// A slice with its samples.
#[derive(Clone, Debug, PartialEq, Deserialize, JsonSchema, Serialize)]
pub(crate) struct SliceColumns {
    #[serde(flatten)]
    slice: Slice,
    #[serde(default, skip_serializing_if = "SampleColumns::is_empty")]
    columns: SampleColumns,
}

/// One array for each field of a sample, in the order of the samples. An absent array holds
/// nothing; null stands where one sample lacks what others have.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, JsonSchema, Serialize)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Columns")]
struct SampleColumns {
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    metrics: BTreeMap<String, Vec<Option<f64>>>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    answer: Vec<Option<Value>>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    round_trips: Vec<Option<f64>>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    cpu_s: Vec<Option<f64>>,
    /// The seconds from the run's line to the instant at which the request was scheduled.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    at_s: Vec<Option<f64>>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    simulated: Vec<bool>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    error: Vec<Option<String>>,
}

/// Puts the samples of each slice into columns.
pub(crate) fn pack_columns(samples: &[Sample], slices: &[Slice]) -> Vec<SliceColumns> {
    let packed = |(slice, mine): (&Slice, Vec<&Sample>)| {
        let slice = Slice { samples: mine.len() as u32, ..slice.clone() };
        SliceColumns { slice, columns: SampleColumns::new(&mine) }
    };
    slices.iter().zip(samples_by_slice(samples, slices)).map(packed).collect()
}

/// Returns the samples of each slice. Samples of a slice that is not there are of a block that did
/// not end; the journal never returns them.
pub(crate) fn samples_by_slice<'a>(
    samples: &'a [Sample],
    slices: &[Slice],
) -> Vec<Vec<&'a Sample>> {
    let mut waiting: BTreeMap<&SamplePlace, VecDeque<&Sample>> = BTreeMap::new();
    for sample in samples {
        waiting.entry(&sample.place).or_default().push_back(sample);
    }
    let mut of = |slice: &Slice| {
        let Some(queue) = waiting.get_mut(&slice.place) else { return Vec::new() };
        let count = queue.len().min(slice.samples as usize);
        queue.drain(..count).collect()
    };
    slices.iter().map(&mut of).collect()
}

/// Unpacks [`pack_columns`]; the error says which column of which slice does not fit.
pub(crate) fn unpack_columns(
    packed: Vec<SliceColumns>,
) -> Result<(Vec<Sample>, Vec<Slice>), String> {
    let (mut samples, mut slices) = (Vec::new(), Vec::new());
    for (index, SliceColumns { slice, columns }) in packed.into_iter().enumerate() {
        let unpacked = columns.to_samples(&slice);
        samples.extend(unpacked.map_err(|message| format!("slice {index}: {message}"))?);
        slices.push(slice);
    }
    Ok((samples, slices))
}

impl SampleColumns {
    fn new(samples: &[&Sample]) -> Self {
        let mut metrics: BTreeMap<String, Vec<Option<f64>>> = BTreeMap::new();
        for (index, sample) in samples.iter().enumerate() {
            for (name, value) in &sample.metrics {
                let nothing = || vec![None; samples.len()];
                metrics.entry(name.clone()).or_insert_with(nothing)[index] = Some(*value);
            }
        }
        let simulated: Vec<bool> = samples.iter().map(|sample| sample.simulated).collect();
        Self {
            metrics,
            answer: pack_column(samples, |sample| sample.answer.clone()),
            round_trips: pack_column(samples, |sample| sample.round_trips),
            cpu_s: pack_column(samples, |sample| sample.cpu_s),
            at_s: pack_column(samples, |sample| sample.at_s),
            simulated: if simulated.contains(&true) { simulated } else { Vec::new() },
            error: pack_column(samples, |sample| sample.error.clone()),
        }
    }

    fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    fn to_samples(&self, slice: &Slice) -> Result<Vec<Sample>, String> {
        let count = slice.samples as usize;
        if count > SAMPLES_PER_RUN_MAX + 1 {
            return Err(format!("wanted at most {SAMPLES_PER_RUN_MAX} samples, got {count}"));
        }
        let mut lengths: Vec<(&str, usize)> =
            self.metrics.iter().map(|(name, values)| (name.as_str(), values.len())).collect();
        lengths.extend([
            ("answer", self.answer.len()),
            ("round_trips", self.round_trips.len()),
            ("cpu_s", self.cpu_s.len()),
            ("at_s", self.at_s.len()),
            ("simulated", self.simulated.len()),
            ("error", self.error.len()),
        ]);
        match lengths.iter().find(|(_, length)| *length != 0 && *length != count) {
            Some((name, got)) => Err(format!("column {name}: wanted {count} values, got {got}")),
            None => Ok((0..count).map(|index| self.sample_at(slice, index)).collect()),
        }
    }

    fn sample_at(&self, slice: &Slice, index: usize) -> Sample {
        let value = |(name, values): (&String, &Vec<Option<f64>>)| {
            Some((name.clone(), (*values.get(index)?)?))
        };
        Sample {
            place: slice.place.clone(),
            index: index as u32,
            metrics: self.metrics.iter().filter_map(value).collect(),
            answer: self.answer.get(index).cloned().flatten(),
            round_trips: self.round_trips.get(index).copied().flatten(),
            cpu_s: self.cpu_s.get(index).copied().flatten(),
            at_s: self.at_s.get(index).copied().flatten(),
            simulated: self.simulated.get(index).copied().unwrap_or(false),
            error: self.error.get(index).cloned().flatten(),
            warmup: slice.warmup,
        }
    }
}

fn pack_column<T>(samples: &[&Sample], of: impl Fn(&Sample) -> Option<T>) -> Vec<Option<T>> {
    let values: Vec<Option<T>> = samples.iter().map(|sample| of(sample)).collect();
    if values.iter().all(Option::is_none) { Vec::new() } else { values }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slice(arm: &str, samples: u32) -> Slice {
        let place = SamplePlace { arm: arm.into(), ..SamplePlace::default() };
        Slice { place, samples, ..Slice::default() }
    }

    fn sample(arm: &str, index: u32) -> Sample {
        Sample {
            place: slice(arm, 0).place,
            index,
            metrics: BTreeMap::from([("a_ms".into(), 0.1 + f64::from(index) / 3.0)]),
            ..Sample::default()
        }
    }

    #[test]
    fn samples_go_into_columns_and_come_back_to_the_last_bit() {
        let mut samples = vec![sample("x", 0), sample("x", 1), sample("y", 0), sample("x", 0)];
        samples[1].metrics.insert("b_us".into(), f64::MIN_POSITIVE);
        samples[1].answer = Some(serde_json::json!({ "tokens": 3 }));
        samples[2].error = Some("late".into());
        samples[2].simulated = true;
        samples[3].at_s = Some(4e-8);
        // The third slice is the first place again: a run that was resumed.
        let slices = [slice("x", 2), slice("y", 1), slice("x", 1)];
        let text = serde_json::to_string(&pack_columns(&samples, &slices)).unwrap();
        let packed = serde_json::from_str(&text).unwrap();
        let (samples_back, slices_back) = unpack_columns(packed).unwrap();
        assert_eq!(samples_back, samples);
        assert_eq!(slices_back, slices);
    }

    #[test]
    fn a_column_of_another_length_and_a_count_beyond_the_limit_are_refused() {
        let mut packed = pack_columns(&[sample("x", 0)], &[slice("x", 1)]);
        packed[0].slice.samples = 2;
        assert!(unpack_columns(packed.clone()).is_err());
        packed[0].columns = SampleColumns::default();
        packed[0].slice.samples = u32::MAX;
        assert!(unpack_columns(packed).is_err());
    }
}
