//! Published figures in a suite: tables that rows of the suite answer, and rates of other systems,
//! which are quoted and never measured here.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::suite::bench::{Bench, Params};

/// `[[answer]]`: a published table, and what of this suite answers each of its rows.
#[derive(Clone, Debug, PartialEq, Deserialize, JsonSchema, Serialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct QuotedTable {
    pub(crate) title: String,
    /// The place of publication, and what it was measured on.
    pub(crate) source: String,
    /// Who is protected from whom in what was published.
    pub(crate) protects: String,
    /// A note that a reader needs before comparing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) note: Option<String>,
    #[serde(rename = "row")]
    pub(crate) rows: Vec<QuotedRow>,
}

/// `[[answer.row]]`: one row of a published table, and what answers it.
#[derive(Clone, Debug, PartialEq, Deserialize, JsonSchema, Serialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct QuotedRow {
    /// Their name of the row; in a table of ours that has one row more, our own.
    pub(crate) what: String,
    /// Their figure, as published.
    pub(crate) theirs: String,
    /// Our figures of this run, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) ours: Vec<FigureKey>,
    /// The reason why there is no figure of ours.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) absent: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) note: Option<String>,
}

/// A figure of this run: the mean over all valid samples of an arm.
#[derive(Clone, Debug, PartialEq, Deserialize, JsonSchema, Serialize)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Ours")]
pub(crate) struct FigureKey {
    pub(crate) bench: String,
    pub(crate) arm: String,
    pub(crate) metric: String,
    #[serde(default, skip_serializing_if = "Params::is_empty")]
    pub(crate) params: Params,
}

/// `[[quoted]]`: a rate that somebody else published, or one of ours next to them.
#[derive(Clone, Debug, PartialEq, Deserialize, JsonSchema, Serialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct QuotedRate {
    pub(crate) system: String,
    pub(crate) model: String,
    pub(crate) hardware: String,
    /// The data that is encrypted.
    pub(crate) encrypted: String,
    /// Who is protected from whom; absent for ours, whose arm says it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) protects: Option<String>,
    /// The rate as published. A row has this or `ours`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) rate: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) ours: Option<FigureKey>,
    /// The rate of this system in the table of the answered report, where it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) seed_says: Option<String>,
    pub(crate) source: String,
}

impl QuotedTable {
    /// Checks that the benches have every figure that the table names; the error says what is
    /// wrong.
    pub(crate) fn check(&self, benches: &[Bench]) -> Result<(), String> {
        if self.rows.is_empty() {
            return Err("wanted at least one row".into());
        }
        for row in &self.rows {
            if row.ours.is_empty() == row.absent.is_none() {
                return Err(format!("row {}: wanted either ours or absent", row.what));
            }
            row.ours.iter().try_for_each(|ours| ours.check(benches))?;
        }
        Ok(())
    }
}

impl QuotedRate {
    /// Checks that the row is quoted or ours, and that the benches have ours; the error says what
    /// is wrong.
    pub(crate) fn check(&self, benches: &[Bench]) -> Result<(), String> {
        if self.rate.is_some() == self.ours.is_some() {
            return Err(format!("{}: wanted either rate or ours", self.system));
        }
        if self.rate.is_some() == self.protects.is_none() {
            return Err(format!("{}: a rate and protects belong together", self.system));
        }
        self.ours.iter().try_for_each(|ours| ours.check(benches))
    }
}

impl FigureKey {
    /// Checks that the benches have the figure; the error says what is missing.
    fn check(&self, benches: &[Bench]) -> Result<(), String> {
        find_bench(benches, &self.bench, &self.arm, &self.params).map(|_| ())
    }
}

/// Finds the bench of this name, which must have the arm, and the params in its grid or among its constants.
///
/// # Errors
/// What is missing, in words.
pub(crate) fn find_bench<'a>(
    benches: &'a [Bench],
    name: &str,
    arm: &str,
    params: &Params,
) -> Result<&'a Bench, String> {
    let Some(bench) = benches.iter().find(|bench| bench.name == name) else {
        return Err(format!("no bench named {name}"));
    };
    if !bench.arms.iter().any(|known| known == arm) {
        return Err(format!("bench {name} has no arm {arm}"));
    }
    let is_known =
        |param: &&String| bench.grid.contains_key(*param) || bench.params.contains_key(*param);
    match params.keys().find(|param| !is_known(param)) {
        Some(param) => Err(format!("bench {name} has no param {param}")),
        None => Ok(bench),
    }
}

/// True where a case (`c=200 n=5000`) has all of these params, or the bench's constants have them. An array allows each
/// of its values. A value may contain spaces.
pub(crate) fn case_has_params(constants: &Params, case: &str, params: &Params) -> bool {
    params.iter().all(|(name, wanted)| find_allowed_value(constants, case, name, wanted).is_some())
}

/// Finds which of the allowed values a param has.
pub(crate) fn find_allowed_value<'a>(
    constants: &Params,
    case: &str,
    name: &str,
    wanted: &'a Value,
) -> Option<&'a Value> {
    let allowed = wanted.as_array().map_or(std::slice::from_ref(wanted), Vec::as_slice);
    allowed.iter().find(|value| {
        let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        constants.get(name) == Some(*value)
            || format!(" {case} ").contains(&format!(" {name}={text} "))
    })
}
