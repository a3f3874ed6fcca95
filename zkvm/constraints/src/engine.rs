//! The back end's engine with our prover of constraints in it.

use openvm_cpu_backend::{CpuBackend, CpuDevice, CpuProverError};
use openvm_stark_backend::{
    FiatShamirTranscript, StarkEngine, SystemParams,
    keygen::types::MultiStarkProvingKey,
    proof::{BatchConstraintProof, GkrProof, Proof, StackingProof, WhirProof},
    prover::{
        ColMajorMatrix, Coordinator, DeviceDataTransporter, DeviceMultiStarkProvingKey,
        MultiRapProver, OpeningProver, Prover as _, ProverBackend, ProverDevice, ProvingContext,
        TraceCommitter, stacked_pcs::StackedPcsData,
    },
};
use openvm_stark_sdk::config::baby_bear_poseidon2::{
    BabyBearPoseidon2Config as SC, BabyBearPoseidon2CpuEngine as BackendEngine, Digest, EF, F,
};
use p3_matrix::dense::RowMajorMatrix;

use crate::constraint_proof::prove_constraints;

type Backend = CpuBackend<SC>;
type Data = <Backend as ProverBackend>::PcsData;
type Transcript = <BackendEngine as StarkEngine>::TS;

/// Proves as the back end's engine does, to the bit, faster.
pub struct Engine {
    theirs: BackendEngine,
    device: Device,
}

impl StarkEngine for Engine {
    type SC = SC;
    type PB = Backend;
    type PD = Device;
    type TS = Transcript;

    fn new(params: SystemParams) -> Self {
        Self::from(BackendEngine::new(params))
    }

    fn config(&self) -> &SC {
        self.theirs.config()
    }

    fn device(&self) -> &Device {
        &self.device
    }

    fn initial_transcript(&self) -> Transcript {
        self.theirs.initial_transcript()
    }

    fn prover_from_transcript(
        &self,
        transcript: Transcript,
    ) -> Coordinator<SC, Backend, Device, Transcript> {
        Coordinator::new(Backend::new(), self.device.clone(), transcript)
    }
}

impl From<BackendEngine> for Engine {
    fn from(theirs: BackendEngine) -> Self {
        let device = Device(theirs.device().clone());
        Self { theirs, device }
    }
}

/// Proves with an engine of the back end that is there already, where a machine is bound to it.
///
/// # Errors
///
/// As that engine's.
pub fn prove(
    engine: &BackendEngine,
    key: &DeviceMultiStarkProvingKey<Backend>,
    traces: ProvingContext<Backend>,
) -> Result<Proof<SC>, CpuProverError> {
    let device = Device(engine.device().clone());
    Coordinator::new(Backend::new(), device, engine.initial_transcript()).prove(key, traces)
}

/// The back end's device with another prover of constraints.
#[derive(Clone)]
pub struct Device(CpuDevice<SC>);

impl TraceCommitter<Backend> for Device {
    type Error = CpuProverError;

    fn commit(&self, traces: &[&RowMajorMatrix<F>]) -> Result<(Digest, Data), CpuProverError> {
        self.0.commit(traces)
    }
}

impl<TS: FiatShamirTranscript<SC>> OpeningProver<Backend, TS> for Device {
    type OpeningProof = (StackingProof<SC>, WhirProof<SC>);
    type OpeningPoints = Vec<EF>;
    type Error = CpuProverError;

    fn prove_openings(
        &self,
        transcript: &mut TS,
        key: &DeviceMultiStarkProvingKey<Backend>,
        traces: ProvingContext<Backend>,
        data: Data,
        point: Vec<EF>,
    ) -> Result<Self::OpeningProof, CpuProverError> {
        self.0.prove_openings(transcript, key, traces, data, point)
    }
}

impl<TS: FiatShamirTranscript<SC>> MultiRapProver<Backend, TS> for Device {
    type PartialProof = (GkrProof<SC>, BatchConstraintProof<SC>);
    type Artifacts = Vec<EF>;
    type Error = CpuProverError;

    fn prove_rap_constraints(
        &self,
        transcript: &mut TS,
        key: &DeviceMultiStarkProvingKey<Backend>,
        traces: &ProvingContext<Backend>,
        _: &Data,
    ) -> Result<(Self::PartialProof, Vec<EF>), CpuProverError> {
        let (lookups, constraints, point) = prove_constraints(transcript, key, traces)?;
        Ok(((lookups, constraints), point))
    }
}

impl<TS: FiatShamirTranscript<SC>> ProverDevice<Backend, TS> for Device {
    type Error = CpuProverError;
    type DeviceCtx = ();

    fn device_ctx(&self) -> &() {
        &()
    }
}

impl DeviceDataTransporter<SC, Backend> for Device {
    fn transport_pk_to_device(
        &self,
        key: &MultiStarkProvingKey<SC>,
    ) -> DeviceMultiStarkProvingKey<Backend> {
        self.0.transport_pk_to_device(key)
    }

    fn transport_matrix_to_device(&self, matrix: &ColMajorMatrix<F>) -> RowMajorMatrix<F> {
        self.0.transport_matrix_to_device(matrix)
    }

    fn transport_pcs_data_to_device(&self, data: &StackedPcsData<F, Digest>) -> Data {
        self.0.transport_pcs_data_to_device(data)
    }

    fn transport_matrix_from_device_to_host(
        &self,
        matrix: &RowMajorMatrix<F>,
    ) -> ColMajorMatrix<F> {
        self.0.transport_matrix_from_device_to_host(matrix)
    }
}
