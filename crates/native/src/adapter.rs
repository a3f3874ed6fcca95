//! The adapters of the native engine's model, and their use in one text.

use std::{
    collections::BTreeMap,
    sync::{Arc, PoisonError, RwLock},
};

use candle_core::{Device, Tensor};
use confide_engine::{AdapterLossPolicy, AdapterReport, EngineError, check_adapter_sites};
use confide_lora::{
    AdaptError, DeltaProvider, DeltaSession, Projection, ProjectionSite, Reservation,
};

use crate::{config::DecoderConfig, model::AdapterHook};

/// The largest number of adapters. Each may hold a connection and batches of masks, and names are
/// looked up for every request.
const ADAPTERS_MAX: usize = 64;

/// The adapters of a model, by name.
pub(crate) struct NativeAdapters {
    config: DecoderConfig,
    base: String,
    loaded: RwLock<BTreeMap<String, Arc<LoadedAdapter>>>,
}

/// A loaded adapter, which was checked against the model.
pub(crate) struct LoadedAdapter {
    name: String,
    adapter: Arc<dyn DeltaProvider>,
    on_loss: AdapterLossPolicy,
}

impl NativeAdapters {
    pub(crate) fn new(config: &DecoderConfig, base: &str) -> Self {
        Self { config: config.clone(), base: base.into(), loaded: RwLock::default() }
    }

    pub(crate) fn names(&self) -> Vec<String> {
        self.loaded.read().unwrap_or_else(PoisonError::into_inner).keys().cloned().collect()
    }

    /// The adapter of this name; `None` for the base model.
    pub(crate) fn find(&self, name: &str) -> Result<Option<Arc<LoadedAdapter>>, EngineError> {
        if name == self.base {
            return Ok(None);
        }
        let loaded = self.loaded.read().unwrap_or_else(PoisonError::into_inner);
        match loaded.get(name) {
            Some(found) => Ok(Some(Arc::clone(found))),
            None => Err(EngineError::UnknownModel { got: name.into() }),
        }
    }

    pub(crate) fn load(
        &self,
        name: &str,
        adapter: Arc<dyn DeltaProvider>,
        on_loss: AdapterLossPolicy,
    ) -> Result<(), EngineError> {
        check_adapter_sites(name, &*adapter, |site| self.config.projection_width(site))?;
        let mut loaded = self.loaded.write().unwrap_or_else(PoisonError::into_inner);
        if name == self.base || loaded.contains_key(name) {
            return Err(EngineError::NameTaken { name: name.into() });
        }
        if loaded.len() >= ADAPTERS_MAX {
            return Err(EngineError::TooManyAdapters { limit: ADAPTERS_MAX });
        }
        loaded.insert(name.into(), Arc::new(LoadedAdapter { name: name.into(), adapter, on_loss }));
        Ok(())
    }

    /// Unloads an adapter. Generations that use it keep it until their end.
    pub(crate) fn unload(&self, name: &str) -> Result<(), EngineError> {
        let mut loaded = self.loaded.write().unwrap_or_else(PoisonError::into_inner);
        match loaded.remove(name) {
            Some(_) => Ok(()),
            None => Err(EngineError::UnknownModel { got: name.into() }),
        }
    }
}

/// The reservation of an adapter's budget for a text, or the reason why the base model answers
/// instead.
pub(crate) type ReservedBudget = Result<Reservation, AdaptError>;

impl LoadedAdapter {
    /// Reserves the part of the adapter's budget that a text needs, before any of it is used.
    pub(crate) fn reserve(
        &self,
        prompt: u32,
        completion: Option<u32>,
    ) -> Result<ReservedBudget, EngineError> {
        match self.adapter.reserve_answers(prompt, completion) {
            Err(error) if self.on_loss == AdapterLossPolicy::Fail => {
                Err(EngineError::Adapter { name: self.name.clone(), error })
            }
            reserved => Ok(reserved),
        }
    }
}

/// An adapter that is applied to one text.
pub(crate) struct AppliedAdapter {
    loaded: Arc<LoadedAdapter>,
    /// The opened adapter; `None` if it could not be opened.
    deltas: Option<Box<dyn DeltaSession>>,
    lost: Option<AdaptError>,
}

impl AppliedAdapter {
    /// Opens the adapter, unless its budget is too small for the text and the base model answers
    /// instead.
    pub(crate) fn open_reserved(
        loaded: Arc<LoadedAdapter>,
        reserved: &ReservedBudget,
    ) -> Result<Self, EngineError> {
        match reserved {
            Ok(_) => Self::open(loaded),
            Err(error) => Ok(Self { loaded, deltas: None, lost: Some(error.clone()) }),
        }
    }

    /// Opens the adapter, which may take a round trip.
    pub(crate) fn open(loaded: Arc<LoadedAdapter>) -> Result<Self, EngineError> {
        match loaded.adapter.open_session() {
            Ok(deltas) => Ok(Self { loaded, deltas: Some(deltas), lost: None }),
            Err(error) if loaded.on_loss == AdapterLossPolicy::Base => {
                Ok(Self { loaded, deltas: None, lost: Some(error) })
            }
            Err(error) => Err(EngineError::Adapter { name: loaded.name.clone(), error }),
        }
    }

    /// The reason why the adapter was lost; `None` while it works.
    pub(crate) fn loss(&self) -> Option<&AdaptError> {
        self.lost.as_ref()
    }

    /// The error that ends the text; `None` if the adapter works, or if the base model may
    /// continue.
    pub(crate) fn failure(&self) -> Option<EngineError> {
        let error = self.lost.clone().filter(|_| self.loaded.on_loss == AdapterLossPolicy::Fail)?;
        Some(EngineError::Adapter { name: self.loaded.name.clone(), error })
    }

    pub(crate) fn report(&self) -> AdapterReport {
        AdapterReport {
            report: self.deltas.as_ref().map(|deltas| deltas.report()).unwrap_or_default(),
            guarantee: self.loaded.adapter.guarantee(),
            lost: self.lost.clone(),
        }
    }

    /// The outputs that the adapter changes, as vectors of numbers.
    fn adapted_outputs(
        &self,
        layer: u32,
        outputs: &[(Projection, Tensor)],
    ) -> candle_core::Result<Vec<(usize, Projection, Vec<f32>)>> {
        let sites = self.loaded.adapter.sites();
        let adapted = outputs.iter().enumerate().filter(|(_, (projection, _))| {
            sites.contains_key(&ProjectionSite { layer, projection: *projection })
        });
        adapted
            .map(|(index, (projection, output))| {
                Ok((index, *projection, output.flatten_all()?.to_vec1()?))
            })
            .collect()
    }
}

impl AdapterHook for AppliedAdapter {
    /// Adds the adapter's part. After a loss within a pass, this layer and the later ones are the
    /// base model's, if it may answer.
    fn add_deltas(
        &mut self,
        layer: u32,
        rows: &Tensor,
        outputs: &mut [(Projection, Tensor)],
    ) -> candle_core::Result<()> {
        if self.lost.is_some() {
            return Ok(());
        }
        let mut adapted = self.adapted_outputs(layer, outputs)?;
        let (Some(deltas), Some(first)) = (&mut self.deltas, adapted.first()) else {
            return Ok(());
        };
        let input = first.1.input();
        let rows: Vec<f32> = rows.flatten_all()?.to_vec1()?;
        let mut plain: Vec<(Projection, &mut [f32])> = adapted
            .iter_mut()
            .map(|(_, projection, values)| (*projection, values.as_mut_slice()))
            .collect();
        if let Err(error) = deltas.add_deltas(layer, input, &rows, &mut plain) {
            let message = error.to_string();
            self.lost = Some(error);
            return match self.loaded.on_loss {
                AdapterLossPolicy::Base => Ok(()),
                AdapterLossPolicy::Fail => Err(candle_core::Error::Msg(message)),
            };
        }
        for (index, _, values) in adapted {
            let shape = outputs[index].1.shape().clone();
            outputs[index].1 = Tensor::from_vec(values, shape, &Device::Cpu)?;
        }
        Ok(())
    }
}
