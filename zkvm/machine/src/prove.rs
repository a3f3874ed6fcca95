//! A machine that runs and proves one program.

use std::sync::Arc;

use openvm_circuit::{
    arch::{
        Streams, VirtualMachine, VmInstance, execution_mode::Segment,
        hasher::poseidon2::vm_poseidon2_hasher, instructions::exe::VmExe,
    },
    system::{
        memory::merkle::public_values::extract_public_values,
        program::trace::compute_exe_commit_from_mem_config,
    },
};
use openvm_stark_backend::{
    StarkEngine, keygen::types::MultiStarkVerifyingKey, p3_field::PrimeCharacteristicRing,
    proof::Proof, prover::DeviceDataTransporter,
};

use crate::{
    app_key::{generate_app_key, machine_digest},
    backend::{Engine, F, PUBLIC_VALUES_BYTES, SC},
    config::MachineBuilder,
    error::Fault,
    program::{Program, ProgramCommitment, digest_to_bytes},
    progress::ProofStep,
    size::{
        LIMIT_MAX, LIMIT_MIN, SegmentSize, TableShapes, first_segment_limit,
        least_memory_to_report, next_segment_limit, run_seconds,
    },
    wire::{ProofBody, PublicValues},
};

/// Cuts that are tried after the first one that fits.
const REFINEMENTS: u32 = 5;

/// A machine with a program in it.
pub struct Machine {
    vm: VirtualMachine<Engine, MachineBuilder>,
    exe: Arc<VmExe<F>>,
    key: MultiStarkVerifyingKey<SC>,
    tables: TableShapes,
}

/// A run, cut into segments.
pub struct SegmentPlan {
    /// Instructions that the program took, as the executor counts them.
    pub cycles: u64,
    /// The public values that it revealed.
    pub public_values: [u8; PUBLIC_VALUES_BYTES],
    /// Weight of each segment.
    pub loads: Vec<SegmentSize>,
    /// Peak of resident memory while it is proved, by the model, in bytes.
    pub peak_bytes: u64,
    segments: Vec<Segment>,
}

impl Machine {
    /// Builds the machine of a program: keys of its tables.
    ///
    /// # Errors
    ///
    /// [`Fault::Backend`].
    pub fn new(program: &Program) -> Result<Self, Fault> {
        let blueprint = program.blueprint;
        let key = generate_app_key(blueprint)?;
        let engine: Engine = Engine::new(blueprint.proof_parameters());
        let on_device = engine.device().transport_pk_to_device(&key);
        let tables = TableShapes {
            log_height: blueprint.log_height,
            widths: key.per_air.iter().map(|t| t.vk.params.width.total_width() as u64).collect(),
            interactions: key
                .per_air
                .iter()
                .map(|t| t.vk.symbolic_constraints.interactions.len() as u64)
                .collect(),
        };
        let vm = VirtualMachine::new(engine, MachineBuilder, blueprint.machine_config(), on_device)
            .map_err(|e| Fault::Backend(e.to_string()))?;
        Ok(Self { vm, exe: program.exe.clone(), key: key.get_vk(), tables })
    }

    /// Runs the program once. Its cut is for nothing but counting.
    ///
    /// # Errors
    ///
    /// [`Fault::Exit`] and [`Fault::Stopped`] if the program refuses its input.
    pub fn run(&self, input: &[u8]) -> Result<SegmentPlan, Fault> {
        self.plan_within(input, LIMIT_MAX)
    }

    /// Cuts a run into as few segments as `memory` bytes allow, and of such cuts takes the fastest:
    /// lowers the back end's limit until the segments fit, then a few steps more, since segments of
    /// one size are proved faster than a long one and a short one. Each step runs the program.
    ///
    /// The same program, input and memory give the same cut on every machine.
    ///
    /// # Errors
    ///
    /// As [`Machine::run`], and [`Fault::Memory`] if no cut is small enough.
    pub fn plan_segments(&self, input: &[u8], memory: u64) -> Result<SegmentPlan, Fault> {
        let mut best: Option<SegmentPlan> = None;
        let mut least = u64::MAX;
        let mut refined = 0;
        let mut limit = first_segment_limit(memory);
        while limit > LIMIT_MIN && refined < REFINEMENTS {
            let plan = self.plan_within(input, limit)?;
            let needed = plan.peak_bytes;
            least = least.min(needed);
            if best.as_ref().is_some_and(|best| plan.segments.len() > best.segments.len()) {
                break;
            }
            if needed > memory && plan.loads.iter().all(SegmentSize::is_smallest) {
                break;
            }
            let faster = |best: &SegmentPlan| run_seconds(&plan.loads) < run_seconds(&best.loads);
            if needed <= memory && best.as_ref().is_none_or(faster) {
                best = Some(plan);
            }
            if best.as_ref().is_some_and(|best| best.segments.len() == 1) {
                break;
            }
            refined += u32::from(best.is_some());
            limit = next_segment_limit(limit, memory, needed);
        }
        best.ok_or_else(|| Fault::Memory { needed: least_memory_to_report(least), given: memory })
    }

    /// Makes a plan within the back end's own limit, whose bytes are those of a graphics card.
    fn plan_within(&self, input: &[u8], limit: usize) -> Result<SegmentPlan, Fault> {
        let meter = self.vm.build_metered_ctx(&self.exe).with_max_memory(limit);
        let runner =
            self.vm.metered_interpreter(&self.exe).map_err(|e| Fault::Load(e.to_string()))?;
        let (segments, state) = runner.execute_metered(input_streams(input), meter)?;
        let revealed = extract_public_values(PUBLIC_VALUES_BYTES, &state.memory.memory);
        let mut public_values = [0; PUBLIC_VALUES_BYTES];
        public_values.copy_from_slice(&revealed);
        let loads: Vec<SegmentSize> =
            segments.iter().map(|s| self.tables.segment_size(s)).collect();
        Ok(SegmentPlan {
            cycles: segments.iter().map(|segment| segment.num_insns).sum(),
            public_values,
            peak_bytes: self.tables.peak_bytes(&loads),
            loads,
            segments,
        })
    }

    /// Commits to the program, after which it can be proved.
    ///
    /// # Errors
    ///
    /// [`Fault::Backend`].
    pub fn into_prover(self) -> Result<Prover, Fault> {
        let Self { vm, exe, key, tables: _ } = self;
        let table = vm.commit_program_on_device(&exe.program);
        let instance =
            VmInstance::new(vm, exe, table).map_err(|e| Fault::Backend(e.to_string()))?;
        Ok(Prover { instance, key })
    }
}

/// A machine that proves.
pub struct Prover {
    instance: VmInstance<Engine, MachineBuilder>,
    key: MultiStarkVerifyingKey<SC>,
}

/// Proofs of all segments of a run.
#[derive(Clone)]
pub struct AppProof {
    pub(crate) body: ProofBody,
    pub(crate) key: MultiStarkVerifyingKey<SC>,
}

impl AppProof {
    /// Encodes the proof's body.
    ///
    /// # Errors
    ///
    /// [`Fault::Backend`] if a length does not fit.
    pub fn encode(&self) -> Result<Vec<u8>, Fault> {
        self.body.encode().map_err(|e| Fault::Backend(e.to_string()))
    }
}

impl Prover {
    /// Returns the commitments by which a checker knows the program.
    pub fn program_commitment(&self) -> ProgramCommitment {
        let instructions = *self.instance.program_commitment();
        let executable = compute_exe_commit_from_mem_config(
            &instructions,
            self.instance.exe(),
            &self.system_config().memory_config,
        );
        ProgramCommitment {
            instructions: digest_to_bytes(&instructions),
            executable: digest_to_bytes(&executable),
        }
    }

    /// Proves a run, segment after segment; the memory of each is given back before the next.
    ///
    /// # Errors
    ///
    /// [`Fault::Backend`], and what [`Machine::plan_segments`] would have said of the input.
    pub fn prove(
        mut self,
        plan: SegmentPlan,
        input: &[u8],
        step: &mut dyn FnMut(ProofStep),
    ) -> Result<AppProof, Fault> {
        let executable = self.program_commitment().executable;
        self.instance.reset_state(input_streams(input));
        let of = plan.segments.len() as u32;
        let mut proofs = Vec::with_capacity(plan.segments.len());
        for (done, segment) in (0..).zip(&plan.segments) {
            step(ProofStep::Segment { done, of });
            proofs.push(self.prove_segment(segment)?);
        }
        step(ProofStep::Segment { done: of, of });
        let public_values = self.prove_public_values()?;
        let machine = machine_digest(&self.key);
        let body = ProofBody { aggregated: false, machine, executable, proofs, public_values };
        Ok(AppProof { body, key: self.key })
    }

    /// Runs one segment, fills its tables, proves them.
    fn prove_segment(&mut self, segment: &Segment) -> Result<Proof<SC>, Fault> {
        let backend = |error: &dyn std::fmt::Display| Fault::Backend(error.to_string());
        let state = self.instance.state_mut().take();
        let state = state.ok_or_else(|| backend(&"no state to go on from"))?;
        let vm = &mut self.instance.vm;
        vm.transport_init_memory_to_device(&state.memory);
        let ran = vm.execute_preflight(
            &mut self.instance.interpreter,
            state,
            Some(segment.num_insns),
            &segment.trace_heights,
        )?;
        let tables = vm
            .generate_proving_ctx(ran.system_records, ran.record_arenas)
            .map_err(|e| backend(&e))?;
        let proof = confide_zkvm_constraints::prove(&vm.engine, vm.pk(), tables)
            .map_err(|e| backend(&e))?;
        *self.instance.state_mut() = Some(ran.to_state);
        Ok(proof)
    }

    fn prove_public_values(&self) -> Result<PublicValues, Fault> {
        let missing = || Fault::Backend("no memory after the run".into());
        let state = self.instance.state().as_ref().ok_or_else(missing)?;
        let top = self.instance.vm.memory_top_tree().ok_or_else(missing)?;
        Ok(PublicValues::compute(
            self.system_config().memory_config.memory_dimensions(),
            PUBLIC_VALUES_BYTES,
            &vm_poseidon2_hasher(),
            &state.memory.memory,
            top,
        ))
    }

    fn system_config(&self) -> &openvm_circuit::arch::SystemConfig {
        self.instance.vm.config().as_ref()
    }

    /// Digest of the machine, as [`crate::VerifyingKeys::machine_digest`].
    pub fn machine_digest(&self) -> [u8; 32] {
        machine_digest(&self.key)
    }
}

fn input_streams(input: &[u8]) -> Streams<F> {
    Streams::new(vec![input.iter().map(|byte| F::from_u8(*byte)).collect::<Vec<F>>()])
}
