//! The part of a machine that signs: a quoting enclave or a secure processor.

use confide_evidence::ReportData;

use crate::{
    endorsements::FakeEndorsements,
    keys::{Key, numbered_name},
    measurements::chip_id,
    options::FakeAttesterOptions,
    plan::{Fault, SimulationPlan},
    quote::Quoter,
    snp::{ReportFields, Reporter, SnpTcb},
    variant::SimulatedPlatform,
};

/// One simulated machine and its key.
pub(crate) struct SimulatedMachine {
    signer: MachineSigner,
    empty: bool,
    trailing: bool,
}

enum MachineSigner {
    QuotingEnclave(Box<Quoter>),
    SecureProcessor(Box<Reporter>),
}

impl SimulatedMachine {
    pub(crate) fn with_quoting_enclave(
        options: &FakeAttesterOptions,
        variant: &SimulatedPlatform,
        plan: &SimulationPlan,
        pck: &Key,
        chain: &str,
    ) -> Self {
        let quoter = Quoter::new(options, variant, plan, pck, chain);
        Self::new(MachineSigner::QuotingEnclave(Box::new(quoter)), plan)
    }

    pub(crate) fn with_secure_processor(
        vendors: &FakeEndorsements,
        options: &FakeAttesterOptions,
        variant: &SimulatedPlatform,
        plan: &SimulationPlan,
    ) -> Self {
        let chip = ChipIdentity::new(options, variant);
        let key = vendors.chip_key(variant.product, variant.signer, &chip.id, chip.tcb);
        let fields = ReportFields {
            version: variant.report_version,
            product: variant.product,
            signer: variant.signer,
            chip_id: &chip.id,
            tcb: chip.tcb,
            debug: options.debug || plan.has_fault(Fault::Debug),
            low_privilege: plan.has_fault(Fault::LowPrivilege),
            migration_agent: plan.has_fault(Fault::MigrationAgent),
        };
        Self::new(MachineSigner::SecureProcessor(Box::new(Reporter::new(key, &fields))), plan)
    }

    /// The certificate of the key with which [`Self::with_secure_processor`] signs.
    pub(crate) fn endorsement_key_certificate(
        vendors: &FakeEndorsements,
        options: &FakeAttesterOptions,
        variant: &SimulatedPlatform,
        plan: &SimulationPlan,
    ) -> Vec<u8> {
        let ChipIdentity { mut id, mut tcb } = ChipIdentity::new(options, variant);
        let key = vendors.chip_key(variant.product, variant.signer, &id, tcb);
        if plan.has_fault(Fault::WrongChip) {
            id[0] ^= 1;
        }
        if plan.has_fault(Fault::WrongTcb) {
            tcb.microcode -= 1;
        }
        vendors.certify_chip_key(variant.product, variant.signer, &key, &id, tcb)
    }

    pub(crate) fn quote(&self, report_data: &ReportData) -> Vec<u8> {
        if self.empty {
            return Vec::new();
        }
        let mut evidence = match &self.signer {
            MachineSigner::QuotingEnclave(quoter) => quoter.quote(report_data),
            MachineSigner::SecureProcessor(reporter) => reporter.report(report_data),
        };
        if self.trailing {
            evidence.push(1);
        }
        evidence
    }

    fn new(signer: MachineSigner, plan: &SimulationPlan) -> Self {
        Self {
            signer,
            empty: plan.has_fault(Fault::EmptyQuote),
            trailing: plan.has_fault(Fault::TrailingByte),
        }
    }
}

/// The identifier of a chip, and the versions that it runs.
struct ChipIdentity {
    id: [u8; 64],
    tcb: SnpTcb,
}

impl ChipIdentity {
    fn new(options: &FakeAttesterOptions, variant: &SimulatedPlatform) -> Self {
        let mut id = chip_id(&options.seed, &numbered_name("chip", variant.platform));
        id[variant.product.chip_id_length()..].fill(0);
        Self { id, tcb: variant.product.tcb() }
    }
}
