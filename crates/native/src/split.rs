//! The transformer without its LM head, for split mode.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use candle_core::{Device, Tensor};
use confide_engine::{AdapterReport, EngineError, SplitModel, SplitSession};
use rayon::ThreadPool;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::{
    adapter::{AppliedAdapter, NativeAdapters},
    config::DecoderConfig,
    decode::{CacheMode, DecoderSession},
    model::DecoderModel,
};

/// The largest number of open sessions. Each holds a cache that grows with its text.
const SESSIONS_MAX: usize = 32;

/// The transformer, for clients that keep the LM head.
pub(crate) struct NativeSplitModel {
    adapters: Arc<NativeAdapters>,
    context: usize,
    model: Arc<DecoderModel>,
    /// Pools for sessions only, so that a session does not wait for the end of a generation.
    pools: Arc<[ThreadPool]>,
    opened: AtomicUsize,
    sessions: Arc<Semaphore>,
    vocabulary: usize,
    width: usize,
}

impl NativeSplitModel {
    pub(crate) fn new(
        config: &DecoderConfig,
        context: usize,
        model: &Arc<DecoderModel>,
        adapters: &Arc<NativeAdapters>,
        pools: Vec<ThreadPool>,
    ) -> Self {
        Self {
            adapters: Arc::clone(adapters),
            context,
            model: Arc::clone(model),
            pools: pools.into(),
            opened: AtomicUsize::new(0),
            sessions: Arc::new(Semaphore::new(SESSIONS_MAX)),
            vocabulary: config.vocabulary,
            width: config.hidden,
        }
    }
}

impl SplitModel for NativeSplitModel {
    fn width(&self) -> usize {
        self.width
    }

    fn context_tokens(&self) -> u32 {
        self.context as u32
    }

    fn open_session(&self, adapter: Option<&str>) -> Result<Box<dyn SplitSession>, EngineError> {
        let adapter = adapter.map(|name| self.adapters.find(name)).transpose()?.flatten();
        let permit = Arc::clone(&self.sessions).try_acquire_owned();
        let permit = permit.map_err(|_| EngineError::QueueFull { limit: SESSIONS_MAX })?;
        let adapter = adapter.map(AppliedAdapter::open).transpose()?;
        Ok(Box::new(NativeSplitSession {
            reader: DecoderSession::new(&self.model, CacheMode::Cached, adapter),
            model: Arc::clone(&self.model),
            pools: Arc::clone(&self.pools),
            pool: self.opened.fetch_add(1, Ordering::Relaxed) % self.pools.len().max(1),
            context: self.context,
            vocabulary: self.vocabulary,
            width: self.width,
            _permit: permit,
        }))
    }
}

struct NativeSplitSession {
    reader: DecoderSession,
    model: Arc<DecoderModel>,
    pools: Arc<[ThreadPool]>,
    pool: usize,
    context: usize,
    vocabulary: usize,
    width: usize,
    /// The permit of this session, which is returned when it is dropped.
    _permit: OwnedSemaphorePermit,
}

impl SplitSession for NativeSplitSession {
    fn forward(&mut self, ids: &[u32]) -> Result<Vec<f32>, EngineError> {
        if let Some(id) = ids.iter().find(|id| **id as usize >= self.vocabulary) {
            let reason = format!("token: wanted a number below {}, got {id}", self.vocabulary);
            return Err(EngineError::Prompt { reason });
        }
        self.check_fits_context(ids.len())?;
        let tokens = Tensor::new(ids, &Device::Cpu).map_err(EngineError::failure)?;
        let embedded = self.model.embed(&tokens).map_err(EngineError::failure)?;
        self.forward_tensor(&embedded)
    }

    fn forward_embeddings(&mut self, rows: &[f32]) -> Result<Vec<f32>, EngineError> {
        if !rows.len().is_multiple_of(self.width) {
            let reason =
                format!("wanted rows of {} numbers, got {} numbers in all", self.width, rows.len());
            return Err(EngineError::Prompt { reason });
        }
        let count = rows.len() / self.width;
        self.check_fits_context(count)?;
        let embedded = Tensor::from_slice(rows, (count, self.width), &Device::Cpu);
        self.forward_tensor(&embedded.map_err(EngineError::failure)?)
    }

    fn token_count(&self) -> u32 {
        self.reader.len() as u32
    }

    fn restart(&mut self) {
        self.reader.restart();
    }

    fn adapter_report(&self) -> Option<AdapterReport> {
        self.reader.report()
    }
}

impl NativeSplitSession {
    fn check_fits_context(&self, count: usize) -> Result<(), EngineError> {
        let limit = self.context - self.reader.len();
        match count {
            0 => Err(EngineError::Prompt { reason: "it has no tokens".into() }),
            count if count > limit => {
                Err(EngineError::PromptTooLong { got: count as u32, limit: limit as u32 })
            }
            _ => Ok(()),
        }
    }

    fn forward_tensor(&mut self, embedded: &Tensor) -> Result<Vec<f32>, EngineError> {
        let (reader, pools) = (&mut self.reader, &self.pools);
        let read = || {
            let hidden = reader.forward_embeddings(embedded, || false)?;
            hidden.map_or_else(|| Ok(Vec::new()), |hidden| hidden.squeeze(0)?.to_vec1())
        };
        let hidden = pools[self.pool].install(read);
        hidden.map_err(|error| self.reader.to_engine_error(&error))
    }
}
