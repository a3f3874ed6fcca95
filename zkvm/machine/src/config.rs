//! Which instructions a machine has, and the parameters of its proofs.

use openvm_algebra_circuit::{AlgebraCpuProverExt, ModularExtension, ModularExtensionExecutor};
use openvm_algebra_transpiler::ModularTranspilerExtension;
use openvm_bigint_circuit::{Int256, Int256CpuProverExt, Int256Executor};
use openvm_bigint_transpiler::Int256TranspilerExtension;
use openvm_circuit::{
    arch::{
        AirInventory, ChipInventoryError, InitFileGenerator, MatrixRecordArena, MemoryConfig,
        SystemConfig, VmBuilder, VmChipComplex, VmProverExtension, instructions::DEFERRAL_AS,
    },
    derive::VmConfig,
    system::{SystemChipInventory, SystemCpuBuilder, SystemExecutor},
};
use openvm_cpu_backend::{CpuBackend, CpuDevice};
use openvm_ecc_circuit::{
    EccCpuProverExt, P256_CONFIG, WeierstrassExtension, WeierstrassExtensionExecutor,
};
use openvm_ecc_transpiler::EccTranspilerExtension;
use openvm_rv32im_circuit::{
    Rv32I, Rv32IExecutor, Rv32ImCpuProverExt, Rv32Io, Rv32IoExecutor, Rv32M, Rv32MExecutor,
};
use openvm_rv32im_transpiler::{
    Rv32ITranspilerExtension, Rv32IoTranspilerExtension, Rv32MTranspilerExtension,
};
use openvm_sha2_circuit::{Sha2, Sha2CpuProverExt, Sha2Executor};
use openvm_sha2_transpiler::Sha2TranspilerExtension;
use openvm_stark_backend::{EngineDeviceCtx, StarkEngine, SystemParams};
use openvm_stark_sdk::config::app_params_with_100_bits_security;
use openvm_transpiler::transpiler::Transpiler;
use serde::{Deserialize, Serialize};

use crate::backend::{F, PUBLIC_VALUES_BYTES, SC};

/// The instructions and parameters of a machine. All machines have rv32im and input; each extension
/// adds tables to every segment, so a program gets those that it uses and no other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Blueprint {
    /// Name of the machine, and of its file of keys.
    pub name: &'static str,
    /// Logarithm of the height that traces are stacked to. Lower is faster and needs less memory,
    /// higher makes a smaller proof. At least 19: the table of rv32m's carries has 2^19 rows; 21
    /// with `int256`, whose table has 2^21.
    pub log_height: usize,
    /// SHA-256 and SHA-512 as instructions.
    pub sha2: bool,
    /// 256-bit integers.
    pub int256: bool,
    /// P-256: its two fields (coordinates first, then scalars) and its curve.
    pub p256: bool,
}

impl Blueprint {
    /// Parameters of the proof of one segment: 100 proven bits, by the makers of the back end.
    pub fn proof_parameters(&self) -> SystemParams {
        app_params_with_100_bits_security(self.log_height)
    }

    pub(crate) fn machine_config(&self) -> MachineConfig {
        let mut memory = MemoryConfig::default();
        // No program defers a computation to another circuit.
        memory.addr_spaces[DEFERRAL_AS as usize].num_cells = 0;
        let bigint = self.int256.then(Int256::default);
        let mut rv32m = Rv32M::default();
        if let Some(bigint) = &bigint {
            // One table serves both where both ask for the same sizes.
            rv32m.range_tuple_checker_sizes = bigint.range_tuple_checker_sizes;
        }
        let fields = vec![P256_CONFIG.modulus.clone(), P256_CONFIG.scalar.clone()];
        MachineConfig {
            system: SystemConfig::default_from_memory(memory)
                .with_public_values(PUBLIC_VALUES_BYTES),
            rv32i: Rv32I,
            io: Rv32Io,
            sha2: self.sha2.then_some(Sha2),
            rv32m,
            bigint,
            modular: self.p256.then(|| ModularExtension::new(fields)),
            ecc: self.p256.then(|| WeierstrassExtension::new(vec![P256_CONFIG.clone()])),
        }
    }

    pub(crate) fn transpiler(&self) -> Transpiler<F> {
        let mut transpiler = Transpiler::default()
            .with_extension(Rv32ITranspilerExtension)
            .with_extension(Rv32IoTranspilerExtension)
            .with_extension(Rv32MTranspilerExtension);
        if self.sha2 {
            transpiler = transpiler.with_extension(Sha2TranspilerExtension);
        }
        if self.int256 {
            transpiler = transpiler.with_extension(Int256TranspilerExtension);
        }
        if self.p256 {
            transpiler = transpiler
                .with_extension(ModularTranspilerExtension)
                .with_extension(EccTranspilerExtension);
        }
        transpiler
    }
}

/// Returns the instructions of a machine as the back end wants them.
#[derive(Clone, Debug, VmConfig, Serialize, Deserialize)]
pub(crate) struct MachineConfig {
    #[config(executor = "SystemExecutor<F>")]
    system: SystemConfig,
    #[extension(executor = "Rv32IExecutor")]
    rv32i: Rv32I,
    #[extension(executor = "Rv32IoExecutor")]
    io: Rv32Io,
    #[extension(executor = "Sha2Executor")]
    sha2: Option<Sha2>,
    #[extension(executor = "Rv32MExecutor")]
    rv32m: Rv32M,
    #[extension(executor = "Int256Executor")]
    bigint: Option<Int256>,
    #[extension(executor = "ModularExtensionExecutor")]
    modular: Option<ModularExtension>,
    #[extension(executor = "WeierstrassExtensionExecutor")]
    ecc: Option<WeierstrassExtension>,
}

impl InitFileGenerator for MachineConfig {}

/// Makes the tables of a [`MachineConfig`] on the processor.
#[derive(Clone, Copy, Default)]
pub(crate) struct MachineBuilder;

type Complex<E> =
    VmChipComplex<SC, MatrixRecordArena<F>, <E as StarkEngine>::PB, SystemChipInventory<SC>>;

impl<E> VmBuilder<E> for MachineBuilder
where
    E: StarkEngine<SC = SC, PB = CpuBackend<SC>, PD = CpuDevice<SC>>,
{
    type VmConfig = MachineConfig;
    type SystemChipInventory = SystemChipInventory<SC>;
    type RecordArena = MatrixRecordArena<F>;

    fn create_chip_complex(
        &self,
        config: &MachineConfig,
        circuit: AirInventory<SC>,
        device: &EngineDeviceCtx<E>,
    ) -> Result<Complex<E>, ChipInventoryError> {
        let mut complex = VmBuilder::<E>::create_chip_complex(
            &SystemCpuBuilder,
            &config.system,
            circuit,
            device,
        )?;
        let tables = &mut complex.inventory;
        // The order is that of the fields of `MachineConfig`: tables are numbered by it.
        VmProverExtension::<E, _, _>::extend_prover(&Rv32ImCpuProverExt, &config.rv32i, tables)?;
        VmProverExtension::<E, _, _>::extend_prover(&Rv32ImCpuProverExt, &config.io, tables)?;
        if let Some(sha2) = &config.sha2 {
            VmProverExtension::<E, _, _>::extend_prover(&Sha2CpuProverExt, sha2, tables)?;
        }
        VmProverExtension::<E, _, _>::extend_prover(&Rv32ImCpuProverExt, &config.rv32m, tables)?;
        if let Some(bigint) = &config.bigint {
            VmProverExtension::<E, _, _>::extend_prover(&Int256CpuProverExt, bigint, tables)?;
        }
        if let Some(modular) = &config.modular {
            VmProverExtension::<E, _, _>::extend_prover(&AlgebraCpuProverExt, modular, tables)?;
        }
        if let Some(ecc) = &config.ecc {
            VmProverExtension::<E, _, _>::extend_prover(&EccCpuProverExt, ecc, tables)?;
        }
        Ok(complex)
    }
}
