//! The same proof as the back end's own prover gives, to the bit.

use confide_zkvm_constraints::prove;
use openvm_stark_backend::{
    StarkEngine as _,
    keygen::types::MultiStarkProvingKey,
    proof::Proof,
    prover::{DeviceDataTransporter as _, ProvingContext},
    test_utils::{
        CachedFixture11, FibFixture, InteractionsFixture11, MixtureFixture, MixtureFixtureEnum,
        PreprocessedAndCachedFixture, SelfInteractionFixture, TestFixture,
        test_system_params_small,
    },
};
use openvm_stark_sdk::config::baby_bear_poseidon2::{
    BabyBearPoseidon2Config as SC, BabyBearPoseidon2CpuEngine as Engine,
};

/// Proves by both provers, on one thread: a proof of work is otherwise found at any of several
/// places.
fn prove_twice(engine: &Engine, fixture: &(impl TestFixture<SC> + Sync)) -> [Proof<SC>; 2] {
    let pool = rayon::ThreadPoolBuilder::new().num_threads(1).build().expect("a thread");
    let (key, vk) = fixture.keygen(engine);
    let device = engine.device();
    let traces = || device.transport_proving_ctx_to_device(&fixture.generate_proving_ctx());
    let key = device.transport_pk_to_device(&key);
    let proofs = pool.install(|| {
        [
            engine.prove(&key, traces()).expect("the back end's own prover"),
            prove(engine, &key, traces()).expect("this one"),
        ]
    });
    for proof in &proofs {
        engine.verify(&vk, proof).expect("a proof that holds");
    }
    proofs
}

fn assert_same(engine: &Engine, fixture: &(impl TestFixture<SC> + Sync), named: &str) {
    let [wanted, got] = prove_twice(engine, fixture);
    assert!(wanted.gkr_proof == got.gkr_proof, "{named}: lookups");
    assert!(wanted.batch_constraint_proof == got.batch_constraint_proof, "{named}: constraints");
    assert!(wanted == got, "{named}");
}

/// Skips, heights of most tables, room for the stack: one register and many, tables lower than what is skipped at once,
/// tables that end in different rounds.
const SHAPES: [[usize; 3]; 7] =
    [[4, 3, 4], [4, 5, 4], [4, 8, 8], [4, 11, 10], [2, 5, 6], [1, 9, 10], [3, 6, 7]];

#[test]
fn tables_of_all_kinds_are_proved_as_the_back_end_proves_them() {
    for [l_skip, log_height, n_stack] in SHAPES {
        let engine = Engine::new(test_system_params_small(l_skip, n_stack, 3));
        let fixture = MixtureFixture::standard(log_height, engine.config().clone());
        assert_same(&engine, &fixture, &format!("{l_skip} {log_height}"));
    }
}

#[test]
fn tables_without_lookups_and_with_nothing_else_are_proved_too() {
    let engine = Engine::new(test_system_params_small(4, 8, 3));
    let config = || engine.config().clone();
    assert_same(&engine, &FibFixture::new(1, 1, 1 << 9), "no lookups");
    assert_same(
        &engine,
        &FibFixture::new_with_num_airs(1, 1, 8, 3).with_empty_air_indices([1]),
        "one is empty",
    );
    assert_same(&engine, &InteractionsFixture11, "lookups of four and eight rows");
    assert_same(&engine, &CachedFixture11::new(config()), "cached columns");
    assert_same(&engine, &SelfInteractionFixture::new(vec![4, 30], 7, 2), "lookups within a table");
    let selectors = (0..64).map(|at| at % 3 == 0).collect();
    let fixture = PreprocessedAndCachedFixture::new(selectors, config(), 2);
    assert_same(&engine, &fixture, "preprocessed and cached columns");
}

/// A sender whose lookups nobody receives.
struct Unmet;

impl TestFixture<SC> for Unmet {
    fn airs(&self) -> Vec<openvm_stark_backend::AirRef<SC>> {
        InteractionsFixture11.airs()
    }

    fn generate_proving_ctx(
        &self,
    ) -> ProvingContext<openvm_stark_backend::prover::CpuColMajorBackend<SC>> {
        let mut traces = TestFixture::<SC>::generate_proving_ctx(&InteractionsFixture11);
        traces.per_trace[0].1.common_main.values[0] +=
            openvm_stark_sdk::p3_baby_bear::BabyBear::new(1);
        traces
    }
}

#[test]
fn lookups_that_do_not_meet_are_not_proved() {
    let engine = Engine::new(test_system_params_small(4, 8, 3));
    let (key, _): (MultiStarkProvingKey<SC>, _) = Unmet.keygen(&engine);
    let device = engine.device();
    let traces = device.transport_proving_ctx_to_device(&Unmet.generate_proving_ctx());
    assert!(prove(&engine, &device.transport_pk_to_device(&key), traces).is_err());
}

#[test]
fn a_mixture_of_one_table_in_every_round_is_proved() {
    let engine = Engine::new(test_system_params_small(4, 9, 3));
    let tables = (0..10).map(|log| {
        MixtureFixtureEnum::SelfInteractionFixture(SelfInteractionFixture::new(vec![5], log, 1))
    });
    assert_same(&engine, &MixtureFixture::new(tables.collect()), "heights of 1 to 512");
}
