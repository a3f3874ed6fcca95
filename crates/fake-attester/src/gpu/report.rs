//! The simulated report: SPDM 1.1 GET_MEASUREMENTS and MEASUREMENTS, as a Hopper makes them.

use super::{
    certificates::Chains,
    keys::GpuKey,
    measurement::simulated_digest,
    options::{GpuFault, GpuOptions},
};

/// The number of measurements in one report, as on a Hopper.
pub(super) const MEASUREMENTS: u8 = 64;

/// Signs a report over `nonce`.
pub(super) fn sign_report(options: &GpuOptions, chains: &Chains, nonce: &[u8; 32]) -> Vec<u8> {
    let mut nonce = *nonce;
    if options.fault == Some(GpuFault::Nonce) {
        nonce[0] ^= 1;
    }
    let mut out = vec![0x11, 0xe0, 1, 0xff];
    out.extend(nonce);
    out.push(0);
    let record = measurement_record(options);
    out.extend([0x11, 0x60, 0, 0, MEASUREMENTS]);
    out.extend(&(record.len() as u32).to_le_bytes()[..3]);
    out.extend(record);
    out.extend(&simulated_digest(&hex::encode(nonce))[..32]);
    let opaque = opaque_data(options);
    out.extend((opaque.len() as u16).to_le_bytes());
    out.extend(opaque);
    let stranger = GpuKey::from_options(options, "stranger");
    let signer = match options.fault {
        Some(GpuFault::ReportSignature) => &stranger,
        _ => &chains.device[0].key,
    };
    let signature = signer.sign_raw(&out);
    out.extend(signature);
    out
}

/// The value at `index` (from 1) of a GPU in order; every fourth is zero, as many are on a Hopper.
pub(super) fn measurement_value(index: u8) -> [u8; 48] {
    match index % 4 {
        0 => [0; 48],
        _ => simulated_digest(&format!("measurement {index}")),
    }
}

fn measurement_record(options: &GpuOptions) -> Vec<u8> {
    let mut record = Vec::new();
    for index in 1..=MEASUREMENTS {
        let mut value = measurement_value(index);
        if index == 10 && options.fault == Some(GpuFault::Measurement) {
            value[0] ^= 1;
        }
        record.extend([index, 1, 51, 0, 1, 48, 0]);
        record.extend(value);
    }
    record
}

fn opaque_data(options: &GpuOptions) -> Vec<u8> {
    let mut out = Vec::new();
    let mut field = |number: u16, content: &[u8]| {
        out.extend(number.to_le_bytes());
        out.extend((content.len() as u16).to_le_bytes());
        out.extend(content);
    };
    field(6, &options.vbios);
    field(14, &[0xb1, 3, 0, 0]);
    field(15, b"SIMULATED\0");
    field(17, b"SIM\0");
    field(18, b"0000\0");
    field(3, format!("{}\0", options.driver).as_bytes());
    field(11, &[0x55]);
    let label = match options.fault {
        Some(GpuFault::FirmwareId) => "other firmware",
        _ => "firmware",
    };
    field(20, &simulated_digest(label));
    field(21, &[0x55]);
    if let Some(flag) = options.feature_flag {
        field(34, &[1, 0, 0, 0]);
        field(35, b"SIMULATED\0");
        field(36, &[flag, 0, 0, 0]);
    }
    out
}
