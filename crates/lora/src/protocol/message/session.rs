use super::{Fields, INPUTS, PROJECTIONS, PROTECTS, Protect, ProtocolError, code, word};
use crate::{Input, Projection};

/// Groups in a welcome: five inputs of a hundred layers fit.
const GROUPS_MAX: u16 = 1024;
/// Above any norm of a vector of 16-bit integers.
const NORM_LIMIT_MAX: u64 = 1 << 62;
/// Projections that read one input.
const SITES_MAX: u8 = 8;
/// Widest vector.
const WIDTH_MAX: u32 = 1 << 16;
/// Most rows of one group's stacked matrix, which under `protect = BA` are its outputs.
const ROWS_MAX: u32 = 1 << 18;

/// What a session is, from the host.
#[derive(Clone, PartialEq)]
pub struct Welcome {
    /// The version of the session.
    pub version: u16,
    /// Random, new with each process of the host: masks of another epoch are worthless.
    pub epoch: [u8; 16],
    /// To be shown in [`super::Attach`].
    pub token: [u8; 32],
    /// The host's evidence, devices or both are simulated.
    pub simulated: bool,
    /// The key holder's attestation was accepted: answers are not budgeted.
    pub trusted: bool,
    /// The budget allows as many exact answers as determine the adapter.
    pub can_be_learned: bool,
    /// What stays at the host.
    pub protect: Protect,
    /// Bits of a plaintext: masked values are modulo 2^k.
    pub plaintext_bits: u8,
    /// Standard deviation of the noise that the host adds to each answer, relative to the
    /// answer's root mean square; 0 is none.
    pub noise_sigma: f64,
    /// The inputs that the adapter reads.
    pub groups: Vec<GroupInfo>,
}

/// One input of one layer, and the projections that read it.
#[derive(Clone, Debug, PartialEq)]
pub struct GroupInfo {
    /// Layer, from 0.
    pub layer: u32,
    /// Which of its vectors.
    pub input: Input,
    /// Elements of the vector.
    pub width: u32,
    /// Rows of the stacked matrix: the sum over its sites.
    pub rows: u32,
    /// The greatest Euclidean norm of an integer vector for which no row can wrap.
    pub norm_limit: u64,
    /// Answers that the client may have; `None` is no budget.
    pub budget: Option<u64>,
    /// Those left of it.
    pub budget_left: Option<u64>,
    /// In the order of the rows.
    pub sites: Vec<SiteInfo>,
}

/// A projection of a group.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SiteInfo {
    /// Which one.
    pub projection: Projection,
    /// Elements of what it gives.
    pub output: u32,
    /// Its rows of the stacked matrix: its rank, or its outputs under `protect = BA`.
    pub rows: u32,
    /// How the key holder gets from the rows to the delta.
    pub outer: OuterForm,
}

/// What the key holder does with integers that it decrypted.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum OuterForm {
    /// Multiplies each by this number.
    Scale(f64),
    /// Multiplies with the matrix that comes in an [`Outer`] frame.
    Matrix,
}

impl Welcome {
    /// Appends the message.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.version.to_le_bytes());
        out.extend_from_slice(&self.epoch);
        out.extend_from_slice(&self.token);
        let flags = [self.simulated, self.trusted, self.can_be_learned];
        out.push(flags.iter().rev().fold(0, |byte, flag| byte << 1 | u8::from(*flag)));
        out.push(code(&PROTECTS, &self.protect, 1));
        out.push(self.plaintext_bits);
        out.extend_from_slice(&self.noise_sigma.to_le_bytes());
        out.extend_from_slice(&(self.groups.len() as u16).to_le_bytes());
        for group in &self.groups {
            group.encode(out);
        }
    }

    /// Reads the message.
    ///
    /// # Errors
    /// Where a field is not as it must be.
    pub fn decode(payload: &[u8]) -> Result<Self, ProtocolError> {
        let mut fields = Fields::new("welcome", payload);
        let version = fields.u16("version")?;
        if version != crate::protocol::VERSION {
            return Err(fields.wrong("version", "the one that was asked for"));
        }
        let (epoch, token) = (fields.array("epoch")?, fields.array("token")?);
        let flags = fields.u8("flags")?;
        if flags > 0b111 {
            return Err(fields.wrong("flags", "three bits"));
        }
        let protect = word(&mut fields, "protect", &PROTECTS, 1)?;
        let plaintext_bits = fields.u8("plaintext bits")?;
        if !(1..=62).contains(&plaintext_bits) {
            return Err(fields.wrong("plaintext bits", "1 to 62"));
        }
        let noise_sigma = fields.magnitude("noise sigma")?;
        let count = fields.u16("groups")?;
        if count > GROUPS_MAX {
            return Err(fields.wrong("groups", "at most 1024"));
        }
        let groups =
            (0..count).map(|_| GroupInfo::decode(&mut fields)).collect::<Result<_, _>>()?;
        fields.end()?;
        let [simulated, trusted, can_be_learned] = [1, 2, 4].map(|bit| flags & bit != 0);
        Ok(Self {
            version,
            epoch,
            token,
            simulated,
            trusted,
            can_be_learned,
            protect,
            plaintext_bits,
            noise_sigma,
            groups,
        })
    }
}

impl std::fmt::Debug for Welcome {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Welcome")
            .field("epoch", &self.epoch)
            .field("groups", &self.groups)
            .finish_non_exhaustive()
    }
}

impl GroupInfo {
    fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.layer.to_le_bytes());
        out.push(code(&INPUTS, &self.input, 0));
        out.extend_from_slice(&self.width.to_le_bytes());
        out.extend_from_slice(&self.rows.to_le_bytes());
        out.extend_from_slice(&self.norm_limit.to_le_bytes());
        out.extend_from_slice(&self.budget.unwrap_or(u64::MAX).to_le_bytes());
        out.extend_from_slice(&self.budget_left.unwrap_or(u64::MAX).to_le_bytes());
        out.push(self.sites.len() as u8);
        for site in &self.sites {
            out.push(code(&PROJECTIONS, &site.projection, 0));
            out.extend_from_slice(&site.output.to_le_bytes());
            out.extend_from_slice(&site.rows.to_le_bytes());
            match site.outer {
                OuterForm::Scale(scale) => {
                    out.push(0);
                    out.extend_from_slice(&scale.to_le_bytes());
                }
                OuterForm::Matrix => out.push(1),
            }
        }
    }

    fn decode(fields: &mut Fields<'_>) -> Result<Self, ProtocolError> {
        let layer = fields.u32("layer")?;
        let input = word(fields, "input", &INPUTS, 0)?;
        let width = between(fields, "width", "1 to 65536", 1..=WIDTH_MAX)?;
        let rows = between(fields, "rows", "1 to 262144", 1..=ROWS_MAX)?;
        let norm_limit = fields.u64("norm limit")?;
        if !(1..=NORM_LIMIT_MAX).contains(&norm_limit) {
            return Err(fields.wrong("norm limit", "1 to 2^62"));
        }
        let some = |value| (value != u64::MAX).then_some(value);
        let budget = some(fields.u64("budget")?);
        let budget_left = some(fields.u64("budget left")?);
        let count = fields.u8("sites")?;
        if !(1..=SITES_MAX).contains(&count) {
            return Err(fields.wrong("sites", "1 to 8"));
        }
        let sites: Vec<SiteInfo> =
            (0..count).map(|_| SiteInfo::decode(fields)).collect::<Result<_, _>>()?;
        if sites.iter().map(|site| u64::from(site.rows)).sum::<u64>() != u64::from(rows) {
            return Err(fields.wrong("rows", "the sum over its sites"));
        }
        if sites.iter().any(|site| site.projection.input() != input) {
            return Err(fields.wrong("projection", "one that reads the input"));
        }
        Ok(Self { layer, input, width, rows, norm_limit, budget, budget_left, sites })
    }
}

impl SiteInfo {
    fn decode(fields: &mut Fields<'_>) -> Result<Self, ProtocolError> {
        let projection = word(fields, "projection", &PROJECTIONS, 0)?;
        let output = between(fields, "output", "1 to 262144", 1..=ROWS_MAX)?;
        let rows = between(fields, "rows", "1 to 262144", 1..=ROWS_MAX)?;
        let outer = match fields.u8("outer")? {
            0 if rows == output => OuterForm::Scale(fields.magnitude("scale")?),
            1 => OuterForm::Matrix,
            _ => return Err(fields.wrong("outer", "0 with as many rows as outputs, or 1")),
        };
        Ok(Self { projection, output, rows, outer })
    }
}

/// The matrix that takes a site's rows to its delta, row scales and alpha in it.
#[derive(Clone, PartialEq)]
pub struct Outer {
    /// Which group of the welcome.
    pub group: u16,
    /// Which of its sites.
    pub site: u8,
    /// Rows: the site's outputs.
    pub output: u32,
    /// Columns: the site's rows.
    pub rank: u32,
    /// `output · rank` values, one row after the other.
    pub values: Vec<f32>,
}

impl Outer {
    /// Appends the message.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.group.to_le_bytes());
        out.push(self.site);
        out.extend_from_slice(&self.output.to_le_bytes());
        out.extend_from_slice(&self.rank.to_le_bytes());
        out.reserve(self.values.len() * 4);
        for value in &self.values {
            out.extend_from_slice(&value.to_le_bytes());
        }
    }

    /// Reads the message.
    ///
    /// # Errors
    /// Where a field is not as it must be, or a value is not finite.
    pub fn decode(payload: &[u8]) -> Result<Self, ProtocolError> {
        let mut fields = Fields::new("outer", payload);
        let (group, site) = (fields.u16("group")?, fields.u8("site")?);
        let output = between(&mut fields, "output", "1 to 262144", 1..=ROWS_MAX)?;
        let rank = between(&mut fields, "rank", "1 to 262144", 1..=ROWS_MAX)?;
        let bytes = fields.rest();
        if bytes.len() as u64 != u64::from(output) * u64::from(rank) * 4 {
            return Err(fields.wrong("values", "output times rank values of four bytes"));
        }
        let values: Vec<f32> = bytes
            .chunks_exact(4)
            .map(|chunk| f32::from_le_bytes([chunk[0], chunk[1], chunk[2], chunk[3]]))
            .collect();
        if !values.iter().all(|value| value.is_finite()) {
            return Err(fields.wrong("values", "finite ones"));
        }
        Ok(Self { group, site, output, rank, values })
    }
}

fn between(
    fields: &mut Fields<'_>,
    field: &'static str,
    wanted: &'static str,
    range: std::ops::RangeInclusive<u32>,
) -> Result<u32, ProtocolError> {
    let value = fields.u32(field)?;
    if range.contains(&value) { Ok(value) } else { Err(fields.wrong(field, wanted)) }
}
