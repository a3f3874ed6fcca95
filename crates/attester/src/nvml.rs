//! Evidence of an NVIDIA GPU through NVML's confidential-computing calls, loaded at run time.
//!
//! Calls and layouts are those of NVML 12 (`nvml.h`, and the package nvidia-ml-py). The mode and
//! readiness that the library reports only decide whether the GPU is asked: they are not evidence,
//! for they are not signed.

#![allow(unsafe_code, reason = "NVML is a C library; each block has its proof next to it")]

use std::{
    ffi::{c_int, c_uint, c_void},
    mem::ManuallyDrop,
    path::{Path, PathBuf},
    ptr,
    time::Duration,
};

use confide_evidence::{
    Attest, AttestError, ReportData,
    gpu::{CHAIN_BYTES_MAX, GPU_EVIDENCE_BYTES_MAX, GpuEvidence, GpuReport, NONCE_BYTES},
};
use libloading::{Library, Symbol};

use crate::{device_thread, error::AttesterError};

/// The name under which the driver installs the library.
pub const NVML_LIBRARY: &str = "libnvidia-ml.so.1";

/// The deadline of a GPU's report. The GPU signs in about a second.
pub const NVML_DEADLINE: Duration = Duration::from_secs(30);

const SUCCESS: c_int = 0;
const CERTIFICATE_CHAIN_BYTES: usize = 0x1000;
const ATTESTATION_CHAIN_BYTES: usize = 0x1400;
const REPORT_BYTES: usize = 0x2000;
const CEC_REPORT_BYTES: usize = 0x1000;

type Device = *mut c_void;

/// The layout of `nvmlConfComputeSystemState_t`.
#[repr(C)]
#[derive(Default)]
struct SystemState {
    environment: c_uint,
    cc_feature: c_uint,
    dev_tools_mode: c_uint,
}

/// The layout of `nvmlConfComputeGpuCertificate_t`.
#[repr(C)]
struct Certificate {
    chain_bytes: c_uint,
    attestation_chain_bytes: c_uint,
    chain: [u8; CERTIFICATE_CHAIN_BYTES],
    attestation_chain: [u8; ATTESTATION_CHAIN_BYTES],
}

/// The layout of `nvmlConfComputeGpuAttestationReport_t`.
#[repr(C)]
struct Report {
    has_cec_report: c_uint,
    report_bytes: c_uint,
    cec_report_bytes: c_uint,
    nonce: [u8; NONCE_BYTES],
    report: [u8; REPORT_BYTES],
    cec_report: [u8; CEC_REPORT_BYTES],
}

/// Obtains evidence of one GPU of this machine.
#[derive(Clone, Debug)]
pub struct Nvml {
    library: PathBuf,
    index: u32,
}

/// The state of the machine's GPUs as the library reports it. It is not signed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NvmlState {
    /// Whether confidential computing is on.
    pub confidential_computing: bool,
    /// Whether the mode for developers' tools is on.
    pub dev_tools: bool,
    /// Whether the GPUs accept work.
    pub ready: bool,
    /// The number of GPUs.
    pub gpus: u32,
}

impl Nvml {
    /// The GPU with this index (from 0), through the library at `library`, which is
    /// [`NVML_LIBRARY`] on a machine with the driver. Nothing is loaded yet.
    pub fn new(library: impl AsRef<Path>, index: u32) -> Self {
        Self { library: library.as_ref().into(), index }
    }

    /// Asks the library for the state of this machine's GPUs.
    ///
    /// # Errors
    /// [`AttesterError::Nvml`] if a call fails.
    pub fn state(&self) -> Result<NvmlState, AttesterError> {
        let library = self.library.clone();
        device_thread::GPU
            .run_on_device(NVML_DEADLINE, move |_| NvmlSession::open(&library)?.state())
    }

    /// Evidence over `nonce` in the container of [`GpuEvidence`]; the report was found to hold the
    /// nonce.
    ///
    /// # Errors
    /// If a call of NVML fails, confidential computing is off or not ready, or a report does not hold
    /// the nonce.
    pub fn evidence(&self, nonce: &[u8; NONCE_BYTES]) -> Result<Vec<u8>, AttesterError> {
        let (library, index, nonce) = (self.library.clone(), self.index, *nonce);
        let (report, chain) = device_thread::GPU.run_on_device(NVML_DEADLINE, move |_| {
            let session = NvmlSession::open(&library)?;
            let state = session.state()?;
            if !state.confidential_computing || !state.ready {
                return Err(AttesterError::GpuMode {
                    confidential_computing: state.confidential_computing,
                    ready: state.ready,
                });
            }
            let device = session.device(index)?;
            Ok((session.report(device, &nonce)?, session.chain(device)?))
        })?;
        let parsed = GpuReport::parse(&report)?;
        if *parsed.nonce != nonce {
            let (wanted, got) = (hex::encode(nonce), hex::encode(parsed.nonce));
            return Err(AttesterError::GpuNonce { wanted, got });
        }
        let (rims, ocsp) = (Vec::new(), Vec::new());
        let bytes = GpuEvidence { report: &report, chain: &chain, rims, ocsp }.encode();
        // Evidence that is too long is an error here, and not first at the verifier.
        match GpuEvidence::decode(&bytes) {
            Ok(_) => Ok(bytes),
            Err(_) => Err(AttesterError::Length {
                subject: "GPU evidence",
                wanted: GPU_EVIDENCE_BYTES_MAX,
                got: bytes.len(),
            }),
        }
    }
}

/// The attester of a CPU and of a GPU next to it.
pub struct AttesterWithGpu<A> {
    attester: A,
    gpu: Nvml,
}

impl<A> AttesterWithGpu<A> {
    /// Answers [`Attest::gpu_evidence`] by `gpu` and everything else by `attester`.
    pub fn new(attester: A, gpu: Nvml) -> Self {
        Self { attester, gpu }
    }
}

impl<A: Attest> Attest for AttesterWithGpu<A> {
    fn attest(&self, report_data: &ReportData) -> Result<Vec<u8>, AttestError> {
        self.attester.attest(report_data)
    }

    fn collateral(&self) -> Option<Vec<u8>> {
        self.attester.collateral()
    }

    fn gpu_evidence(&self, nonce: &[u8; 32]) -> Result<Option<Vec<u8>>, AttestError> {
        self.gpu.evidence(nonce).map(Some).map_err(|error| error.into_attest_error("NVML"))
    }

    fn is_simulated(&self) -> bool {
        self.attester.is_simulated()
    }
}

/// The library, initialised; when dropped, it is shut down and then unloaded.
struct NvmlSession {
    library: Library,
}

impl NvmlSession {
    fn open(path: &Path) -> Result<Self, AttesterError> {
        let failed = |source| AttesterError::Library { path: path.into(), source };
        // SAFETY: loading runs the library's initialisers. The path is the driver's own library or
        // one that the caller chose to trust with this process; nothing from a peer reaches it.
        let library = unsafe { Library::new(path) }.map_err(failed)?;
        // A session whose start failed must not shut down what another user of the library holds;
        // the library stays loaded then, which costs nothing but its place.
        let session = ManuallyDrop::new(Self { library });
        session.call0("nvmlInit_v2")?;
        Ok(ManuallyDrop::into_inner(session))
    }

    fn state(&self) -> Result<NvmlState, AttesterError> {
        let (mut state, mut ready, mut gpus) = (SystemState::default(), 0, 0);
        self.call1("nvmlSystemGetConfComputeState", &mut state)?;
        self.call1::<c_uint>("nvmlSystemGetConfComputeGpusReadyState", &mut ready)?;
        self.call1::<c_uint>("nvmlDeviceGetCount_v2", &mut gpus)?;
        Ok(NvmlState {
            confidential_computing: state.cc_feature == 1,
            dev_tools: state.dev_tools_mode == 1,
            ready: ready == 1,
            gpus,
        })
    }

    fn device(&self, index: u32) -> Result<Device, AttesterError> {
        let name = "nvmlDeviceGetHandleByIndex_v2";
        let mut device: Device = ptr::null_mut();
        // SAFETY: `nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned int, nvmlDevice_t *)` is the
        // documented type; the library is initialised (`open`), `device` is valid for one write.
        let status = unsafe {
            let call: Symbol<'_, unsafe extern "C" fn(c_uint, *mut Device) -> c_int> =
                self.symbol(name)?;
            call(index, &raw mut device)
        };
        check_status(name, status)?;
        Ok(device)
    }

    fn report(&self, device: Device, nonce: &[u8; 32]) -> Result<Vec<u8>, AttesterError> {
        let mut report = Box::new(Report {
            has_cec_report: 0,
            report_bytes: 0,
            cec_report_bytes: 0,
            nonce: *nonce,
            report: [0; REPORT_BYTES],
            cec_report: [0; CEC_REPORT_BYTES],
        });
        self.call2("nvmlDeviceGetConfComputeGpuAttestationReport", device, &mut *report)?;
        written_part("GPU report", &report.report, report.report_bytes)
    }

    fn chain(&self, device: Device) -> Result<Vec<u8>, AttesterError> {
        const { assert!(ATTESTATION_CHAIN_BYTES <= CHAIN_BYTES_MAX) };
        let mut certificate = Box::new(Certificate {
            chain_bytes: 0,
            attestation_chain_bytes: 0,
            chain: [0; CERTIFICATE_CHAIN_BYTES],
            attestation_chain: [0; ATTESTATION_CHAIN_BYTES],
        });
        self.call2("nvmlDeviceGetConfComputeGpuCertificate", device, &mut *certificate)?;
        let bytes = certificate.attestation_chain_bytes;
        written_part("GPU certificate chain", &certificate.attestation_chain, bytes)
    }

    fn call0(&self, name: &'static str) -> Result<(), AttesterError> {
        // SAFETY: only called with `nvmlInit_v2` and `nvmlShutdown`, both `nvmlReturn_t (void)`.
        let status = unsafe {
            let call: Symbol<'_, unsafe extern "C" fn() -> c_int> = self.symbol(name)?;
            call()
        };
        check_status(name, status)
    }

    fn call1<T>(&self, name: &'static str, out: &mut T) -> Result<(), AttesterError> {
        // SAFETY: each caller names a function `nvmlReturn_t (T *)` with the `T` that `nvml.h` has
        // for it (`unsigned int`, or a `#[repr(C)]` copy above); the library is initialised and
        // `out` is valid for reads and writes of one `T` during the call.
        let status = unsafe {
            let call: Symbol<'_, unsafe extern "C" fn(*mut T) -> c_int> = self.symbol(name)?;
            call(ptr::from_mut(out))
        };
        check_status(name, status)
    }

    fn call2<T>(
        &self,
        name: &'static str,
        device: Device,
        out: &mut T,
    ) -> Result<(), AttesterError> {
        // SAFETY: as `call1`, for `nvmlReturn_t (nvmlDevice_t, T *)`; `device` is the handle that
        // this very session gave, and handles live until the library is shut down.
        let status = unsafe {
            let call: Symbol<'_, unsafe extern "C" fn(Device, *mut T) -> c_int> =
                self.symbol(name)?;
            call(device, ptr::from_mut(out))
        };
        check_status(name, status)
    }

    /// # Safety
    ///
    /// `T` has to be the type of the function with this name.
    unsafe fn symbol<T>(&self, name: &'static str) -> Result<Symbol<'_, T>, AttesterError> {
        // SAFETY: the caller's duty, above.
        let symbol = unsafe { self.library.get(name.as_bytes()) };
        symbol.map_err(|source| AttesterError::Library { path: name.into(), source })
    }
}

impl Drop for NvmlSession {
    fn drop(&mut self) {
        // A failure could not be handled, and nothing is left that needs the library.
        let _ = self.call0("nvmlShutdown");
    }
}

/// The part of a buffer of fixed length into which the library wrote.
fn written_part(
    subject: &'static str,
    buffer: &[u8],
    bytes: c_uint,
) -> Result<Vec<u8>, AttesterError> {
    let got = bytes as usize;
    match buffer.get(..got) {
        Some(written) if got > 0 => Ok(written.to_vec()),
        _ => Err(AttesterError::Length { subject, wanted: buffer.len(), got }),
    }
}

fn check_status(call: &'static str, status: c_int) -> Result<(), AttesterError> {
    match status {
        SUCCESS => Ok(()),
        status => Err(AttesterError::Nvml { call, status }),
    }
}
