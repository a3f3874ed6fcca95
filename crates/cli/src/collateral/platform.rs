//! The arguments that name a platform: by its evidence, or by its identifiers.

use std::path::PathBuf;

use confide_collateral::{
    AmdKey, AmdSigner, PckIssuer, Platform, Product, TcbEvaluation, parse_product,
};
use confide_evidence::quote::{QUOTE_LENGTH_MAX, Tee};

use crate::{error::CliError, files::read_file};

/// The arguments that name a platform.
#[derive(clap::Args)]
pub(crate) struct PlatformArgs {
    /// A quote or SNP report of the platform
    #[arg(value_name = "EVIDENCE", conflicts_with_all = ["fmspc", "chip_id"])]
    evidence: Option<PathBuf>,
    /// Intel: the platform's family, 12 hexadecimal digits
    #[arg(long, value_name = "HEX", conflicts_with = "chip_id")]
    fmspc: Option<String>,
    /// Intel: the CA of the PCK certificate, platform or processor
    #[arg(long, value_name = "CA", default_value = "platform")]
    ca: String,
    /// Intel: sgx or tdx
    #[arg(long, value_name = "TEE", default_value = "tdx")]
    tee: String,
    /// AMD: milan, genoa or turin; also needed for reports before version 3, which do not name the product
    #[arg(long, value_name = "NAME")]
    product: Option<String>,
    /// AMD: the chip's identifier in hexadecimal
    #[arg(long, value_name = "HEX", requires = "product", requires = "tcb")]
    chip_id: Option<String>,
    /// AMD: the reported TCB, 16 hexadecimal digits as in the report
    #[arg(long, value_name = "HEX")]
    tcb: Option<String>,
    /// Intel: which TCB recovery: standard, early, or its number
    #[arg(long, value_name = "SET", default_value = "standard")]
    update: String,
}

impl PlatformArgs {
    /// The platform that is named.
    pub(crate) fn platform(&self) -> Result<Platform, CliError> {
        let product = self.product.as_deref().map(parse_product).transpose();
        let product = product.map_err(CliError::new)?;
        match (&self.evidence, &self.fmspc, &self.chip_id) {
            (Some(path), ..) => {
                let evidence = read_file(path, QUOTE_LENGTH_MAX as u64)?;
                Platform::from_evidence(&evidence, product).map_err(CliError::in_file(path))
            }
            (_, Some(fmspc), _) => Ok(Platform::Dcap {
                fmspc: parse_hex("--fmspc", fmspc)?,
                ca: self.ca.parse::<PckIssuer>().map_err(CliError::new)?,
                tee: parse_tee(&self.tee)?,
            }),
            (.., Some(chip)) => self.amd_chip_platform(product, chip),
            _ => Err(CliError::new("no platform is given").with_hint(
                "give a quote or report, or --fmspc, or --product with --chip-id and --tcb",
            )),
        }
    }

    /// The TCB evaluation data that is named.
    pub(crate) fn tcb_evaluation(&self) -> Result<TcbEvaluation, CliError> {
        self.update.parse().map_err(CliError::new)
    }

    fn amd_chip_platform(
        &self,
        product: Option<Product>,
        chip: &str,
    ) -> Result<Platform, CliError> {
        let product = product.ok_or_else(|| CliError::new("--chip-id needs --product"))?;
        let length = product.chip_id_length();
        let id = hex::decode(chip).ok().filter(|id| id.len() == length).ok_or_else(|| {
            let digits = 2 * length;
            CliError::new(format!("--chip-id of {product}: wanted {digits} hexadecimal digits"))
        })?;
        let tcb = parse_hex("--tcb", self.tcb.as_deref().unwrap_or_default())?;
        Ok(Platform::Snp(AmdKey { product, signer: AmdSigner::Vcek(id), tcb }))
    }
}

fn parse_tee(name: &str) -> Result<Tee, CliError> {
    match name {
        "sgx" => Ok(Tee::Sgx),
        "tdx" => Ok(Tee::Tdx),
        other => Err(CliError::new(format!("--tee: wanted sgx or tdx, got {other}"))),
    }
}

fn parse_hex<const N: usize>(name: &str, text: &str) -> Result<[u8; N], CliError> {
    let mut bytes = [0; N];
    hex::decode_to_slice(text, &mut bytes)
        .map_err(|_| CliError::new(format!("{name}: wanted {} hexadecimal digits", 2 * N)))?;
    Ok(bytes)
}
