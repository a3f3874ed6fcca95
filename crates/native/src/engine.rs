//! The native engine: one model, its adapters and its computing threads.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    path::Path,
    sync::{
        Arc, Mutex, PoisonError,
        mpsc::{self, Receiver, SyncSender, TrySendError},
    },
    thread,
};

#[cfg(feature = "report-003")]
use confide_engine::SplitModel;
use confide_engine::text::{
    FolderError, ModelText, manifest::check_folder_against_manifest, model_name_from_folder,
    read_file_limited,
};
use confide_engine::{
    AdapterLossPolicy, Engine, EngineError, Generation, Model as ServedModel, Prompt, Request,
};
use confide_lora::{DeltaProvider, Reservation};

use crate::{
    adapter::NativeAdapters,
    config::DecoderConfig,
    decode::{self, CacheMode, GenerationInput},
    error::NativeError,
    model::{DecoderModel, OperationKind},
    weights,
};

#[cfg(feature = "report-003")]
use crate::split::NativeSplitModel;

/// Configuration of the native engine.
#[derive(Clone, Debug, Default)]
pub struct NativeOptions {
    /// The model's name in requests; by default the name of its folder.
    pub model_name: Option<String>,
}

/// The native engine: one model, its adapters and its computing threads.
pub struct NativeEngine {
    adapters: Arc<NativeAdapters>,
    jobs: SyncSender<GenerationInput>,
    served: ServedModel,
    slots: usize,
    #[cfg(feature = "report-003")]
    split: Arc<NativeSplitModel>,
    text: Arc<ModelText>,
}

/// The longest context in tokens. The cache of an 8B shape takes 256 KiB per token in float32,
/// which is 2 GiB at this length.
const CONTEXT_TOKENS_MAX: usize = 8192;
/// The largest number of requests that wait inside the engine; its caller may set a smaller limit.
const QUEUED_MAX: usize = 64;
/// Models with fewer weights run on one thread, which is faster than two for them (measured: 421
/// and 190 tokens/s).
pub(crate) const SMALL_PARAMETERS: u64 = 100_000_000;
const SLOTS_MAX: usize = 4;
const CONFIG_BYTES_MAX: u64 = 1 << 20;

impl NativeEngine {
    /// Loads a model and starts its threads. If the folder has a manifest, every file is checked
    /// against it first.
    ///
    /// # Errors
    /// [`NativeError`] for the first invalid file of the folder.
    pub fn load(dir: &Path, options: NativeOptions) -> Result<Self, NativeError> {
        let manifest_sha256 = check_folder_against_manifest(dir)?;
        let config = read_decoder_config(dir)?;
        let text = Arc::new(ModelText::load(dir)?);
        let context = config.context.min(CONTEXT_TOKENS_MAX);
        let weights = weights::load_tensors(dir, &config, |_| true)?;
        let model = Arc::new(DecoderModel::new(&config, weights, context, OperationKind::Fused)?);
        let cores = thread::available_parallelism().map_or(1, usize::from);
        let is_small = config.parameter_count() < SMALL_PARAMETERS;
        let (slots, threads) = if is_small { (cores.min(SLOTS_MAX), 1) } else { (1, cores) };
        let (jobs, waiting) = mpsc::sync_channel(QUEUED_MAX);
        let waiting = Arc::new(Mutex::new(waiting));
        for _ in 0..slots {
            start_generation_thread(threads, &model, &text, &waiting)?;
        }
        let name = options.model_name.unwrap_or_else(|| model_name_from_folder(dir));
        let adapters = Arc::new(NativeAdapters::new(&config, &name));
        #[cfg(feature = "report-003")]
        let split = {
            let pools = (0..slots).map(|_| build_thread_pool(threads)).collect::<Result<_, _>>()?;
            Arc::new(NativeSplitModel::new(&config, context, &model, &adapters, pools))
        };
        let served = ServedModel {
            name,
            context_tokens: context as u32,
            manifest_sha256,
            weights: None,
            parent: None,
        };
        Ok(Self {
            adapters,
            jobs,
            served,
            slots,
            #[cfg(feature = "report-003")]
            split,
            text,
        })
    }
}

impl Engine for NativeEngine {
    fn models(&self) -> Vec<ServedModel> {
        let names = self.adapters.names().into_iter();
        let adapted = names.map(|name| self.served.with_adapter(name));
        [self.served.clone()].into_iter().chain(adapted).collect()
    }

    fn count_prompt_tokens(&self, model: &str, prompt: &Prompt) -> Result<u32, EngineError> {
        self.adapters.find(model)?;
        Ok(self.text.encode(prompt)?.len() as u32)
    }

    fn generate(&self, request: Request) -> Result<Generation, EngineError> {
        let adapter = self.adapters.find(&request.model)?;
        let ids = self.text.encode(&request.prompt)?;
        let got = ids.len() as u32;
        let room = request.remaining_completion_tokens(got, self.served.context_tokens)?;
        let completion = request.max_tokens.map(|most| most.min(room));
        let reserved = match &adapter {
            Some(loaded) => loaded.reserve(got, completion)?,
            None => Ok(Reservation::UNLIMITED),
        };
        let left = reserved.as_ref().ok().and_then(Reservation::completion_max);
        let room = left.map_or(room, |left| left.min(room));
        let (sender, generation) = confide_engine::generation_channel(got);
        let job = GenerationInput { ids, request, adapter, reserved, room, sender };
        match self.jobs.try_send(job) {
            Ok(()) => Ok(generation),
            Err(TrySendError::Full(_)) => Err(EngineError::QueueFull { limit: QUEUED_MAX }),
            Err(TrySendError::Disconnected(_)) => Err(EngineError::Stopped),
        }
    }

    fn slots(&self) -> usize {
        self.slots
    }

    fn load_adapter(
        &self,
        name: &str,
        adapter: Arc<dyn DeltaProvider>,
        on_loss: AdapterLossPolicy,
    ) -> Result<(), EngineError> {
        self.adapters.load(name, adapter, on_loss)
    }

    fn unload_adapter(&self, name: &str) -> Result<(), EngineError> {
        self.adapters.unload(name)
    }

    #[cfg(feature = "report-003")]
    fn split_model(&self) -> Option<Arc<dyn SplitModel>> {
        Some(Arc::clone(&self.split) as Arc<dyn SplitModel>)
    }
}

/// Starts a thread that runs generations in its own pool of `threads` threads until the engine is
/// dropped.
fn start_generation_thread(
    threads: usize,
    model: &Arc<DecoderModel>,
    text: &Arc<ModelText>,
    waiting: &Arc<Mutex<Receiver<GenerationInput>>>,
) -> Result<(), NativeError> {
    let pool = build_thread_pool(threads)?;
    let (model, text, waiting) = (Arc::clone(model), Arc::clone(text), Arc::clone(waiting));
    let work = move || {
        loop {
            let job = waiting.lock().unwrap_or_else(PoisonError::into_inner).recv();
            let Ok(job) = job else { return };
            // A panic in a tensor kernel must end one answer, not the thread. It drops the job's
            // sender, which the reader sees as a failure.
            let run = || decode::run_generation(&model, &text, CacheMode::Cached, &job);
            let _ = catch_unwind(AssertUnwindSafe(|| pool.install(run)));
        }
    };
    let started = thread::Builder::new().name("native-engine".into()).spawn(work);
    started.map(drop).map_err(NativeError::thread_pool_error)
}

/// Makes a pool of exactly `threads` threads. candle computes in the pool of its caller.
pub(crate) fn build_thread_pool(threads: usize) -> Result<rayon::ThreadPool, NativeError> {
    let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build();
    pool.map_err(NativeError::thread_pool_error)
}

/// Reads the configuration of the model in a folder.
pub(crate) fn read_decoder_config(dir: &Path) -> Result<DecoderConfig, NativeError> {
    let path = dir.join("config.json");
    let bytes = read_file_limited(&path, CONFIG_BYTES_MAX)?;
    Ok(DecoderConfig::parse(&bytes).map_err(|error| FolderError::malformed_file(&path, error))?)
}
