//! The loaded adapters, and the source of further ones.

use std::{
    collections::BTreeMap,
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use confide_engine::{AdapterLossPolicy, Engine, EngineError};
use confide_lora::{DeltaProvider, Guarantee, ProjectionSite, ProjectionWidth};

use crate::detached::DetachedAdapter;

/// Opens adapters by the paths of a command line or of a request.
pub trait AdapterSource: Send + Sync + 'static {
    /// Opens the adapter at `path`: a folder, or an adapter host's address. `asker` states who
    /// named the path. Blocks until a host has answered.
    ///
    /// # Errors
    /// [`SourceError::Refused`] for a path that a request may not name, [`SourceError::Unusable`]
    /// if no usable adapter is found.
    fn open(&self, name: &str, path: &str, asker: Requester) -> Result<OpenedAdapter, SourceError>;
}

/// Who named an adapter's path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Requester {
    /// The operator, who started the program and may name any path.
    Operator,
    /// A request, which may name the folders and hosts that the operator allowed.
    Request,
}

/// An opened adapter.
pub struct OpenedAdapter {
    /// The adapter, with its protection.
    pub adapter: Arc<dyn DeltaProvider>,
    /// Its path, as `/v1/models` shows it.
    pub root: String,
    /// The same adapter without encryption, if this process has it, as the reference of the
    /// self-test.
    pub reference: Option<Arc<dyn DeltaProvider>>,
    /// Whether it was trained for the served model.
    pub base: BaseModelMatch,
}

/// Whether an adapter was trained for the served model; its widths are checked separately.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BaseModelMatch {
    /// Its configuration names the served model.
    Confirmed,
    /// Its base model is unknown, so nothing is confirmed.
    NotEvaluated,
    /// Its configuration names another model, and the operator allowed that.
    OtherModel,
}

impl BaseModelMatch {
    /// The text in the ready line and in `/v1/models`.
    pub fn name(self) -> &'static str {
        match self {
            BaseModelMatch::Confirmed => "confirmed",
            BaseModelMatch::NotEvaluated => "not evaluated",
            BaseModelMatch::OtherModel => "another model (dangerous)",
        }
    }
}

/// The reason why a source has no adapter at a path.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SourceError {
    /// A request may not name this path.
    #[error("adapter path {path:?} is not allowed: {reason}")]
    Refused {
        /// The path, as it was given.
        path: String,
        /// Why it is refused.
        reason: String,
    },
    /// The path has no adapter that can be used.
    #[error("adapter at {path:?} cannot be used: {reason}")]
    Unusable {
        /// The path, as it was given.
        path: String,
        /// What is wrong with the adapter.
        reason: String,
    },
}

/// The reason why an adapter was not loaded or unloaded.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum LoadError {
    /// The operator did not allow requests to change adapters.
    #[error("loading adapters at run time is disabled")]
    Disabled,
    /// The name is empty, too long, or has characters that are not allowed.
    #[error("adapter name: wanted 1 to {limit} letters, digits, '.', '_', '-' or '/', got {got:?}")]
    Name {
        /// The limit, in bytes.
        limit: usize,
        /// The name that was given.
        got: String,
    },
    /// An adapter of this name is loaded already.
    #[error("adapter {name:?} has already been loaded")]
    AlreadyLoaded {
        /// The name that was given.
        name: String,
    },
    /// No adapter of this name is loaded.
    #[error("adapter {name:?} cannot be found")]
    NotLoaded {
        /// The name that was given.
        name: String,
    },
    /// The source has no adapter at the path.
    #[error(transparent)]
    Source(#[from] SourceError),
    /// The engine refused the adapter.
    #[error(transparent)]
    Engine(#[from] EngineError),
}

/// The longest name of an adapter, in bytes. Every chunk of its answers contains the name.
pub const NAME_BYTES_MAX: usize = 128;

/// An adapter that is loaded.
pub struct LoadedAdapter {
    /// The adapter's name in requests.
    pub name: String,
    /// The name of the model that it changes.
    pub parent: String,
    /// Its path, as `/v1/models` shows it.
    pub root: String,
    /// Whether it was trained for the served model.
    pub base: BaseModelMatch,
    adapter: Arc<dyn DeltaProvider>,
    reference: Option<Arc<dyn DeltaProvider>>,
}

impl LoadedAdapter {
    /// The guarantee at this moment: which party is protected against which other.
    pub fn guarantee(&self) -> Guarantee {
        self.adapter.guarantee()
    }

    /// The projections that it changes, with their widths.
    pub fn sites(&self) -> &BTreeMap<ProjectionSite, ProjectionWidth> {
        self.adapter.sites()
    }

    /// The same adapter without encryption, if this process has it.
    pub fn reference(&self) -> Option<&Arc<dyn DeltaProvider>> {
        self.reference.as_ref()
    }
}

/// The adapters of one engine.
pub struct AdapterRegistry {
    engine: Arc<dyn Engine>,
    source: Option<Arc<dyn AdapterSource>>,
    on_loss: AdapterLossPolicy,
    runtime: bool,
    table: Mutex<AdapterTable>,
    /// The lock that each load and unload holds, so that nothing changes between its check and its
    /// change.
    changing: Mutex<()>,
}

#[derive(Default)]
struct AdapterTable {
    loaded: BTreeMap<String, Arc<LoadedAdapter>>,
    /// The adapter that answers requests without a model's name: the first one loaded, until
    /// another is chosen.
    active: Option<String>,
}

impl AdapterRegistry {
    /// A registry without adapters and without a source.
    pub fn empty(engine: Arc<dyn Engine>) -> Self {
        let table = Mutex::default();
        let changing = Mutex::default();
        Self {
            engine,
            source: None,
            on_loss: AdapterLossPolicy::Fail,
            runtime: false,
            table,
            changing,
        }
    }

    /// A registry that loads adapters from `source`. Requests may load and unload them only if
    /// `runtime` is set.
    pub fn new(
        engine: Arc<dyn Engine>,
        source: Arc<dyn AdapterSource>,
        on_loss: AdapterLossPolicy,
        runtime: bool,
    ) -> Self {
        Self { source: Some(source), on_loss, runtime, ..Self::empty(engine) }
    }

    /// Loads an adapter from its path. Blocks.
    ///
    /// # Errors
    /// [`LoadError`] if it is not allowed, not found, or refused by the engine.
    pub fn load(
        &self,
        name: &str,
        path: &str,
        asker: Requester,
    ) -> Result<Arc<LoadedAdapter>, LoadError> {
        let source = self.allowed_source(asker)?;
        check_adapter_name(name)?;
        let _changing = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        if self.find(name).is_some() {
            return Err(LoadError::AlreadyLoaded { name: name.into() });
        }
        let OpenedAdapter { adapter, root, reference, base } = source.open(name, path, asker)?;
        // The last owner may be a task of the event loop.
        let adapter: Arc<dyn DeltaProvider> = Arc::new(DetachedAdapter::new(adapter));
        self.engine.load_adapter(name, Arc::clone(&adapter), self.on_loss)?;
        let model = self.engine.models().into_iter().find(|model| model.name == name);
        let parent = model.and_then(|model| model.parent).unwrap_or_default();
        let loaded =
            Arc::new(LoadedAdapter { name: name.into(), parent, root, base, adapter, reference });
        let mut table = self.lock_table();
        table.loaded.insert(name.into(), Arc::clone(&loaded));
        table.active.get_or_insert_with(|| name.into());
        Ok(loaded)
    }

    /// Unloads an adapter. Answers that use it continue.
    ///
    /// # Errors
    /// [`LoadError`] if it is not allowed, or not loaded.
    pub fn unload(&self, name: &str, asker: Requester) -> Result<(), LoadError> {
        self.allowed_source(asker)?;
        let _changing = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        if self.find(name).is_none() {
            return Err(LoadError::NotLoaded { name: name.into() });
        }
        self.engine.unload_adapter(name)?;
        let mut table = self.lock_table();
        table.loaded.remove(name);
        if table.active.as_deref() == Some(name) {
            table.active = table.loaded.keys().next().cloned();
        }
        Ok(())
    }

    /// All loaded adapters, sorted by name.
    pub fn list(&self) -> Vec<Arc<LoadedAdapter>> {
        self.lock_table().loaded.values().cloned().collect()
    }

    /// The adapter of this name; `None` if it is not loaded.
    pub fn find(&self, name: &str) -> Option<Arc<LoadedAdapter>> {
        self.lock_table().loaded.get(name).cloned()
    }

    /// The adapter that answers requests without a model's name.
    pub fn active(&self) -> Option<Arc<LoadedAdapter>> {
        let table = self.lock_table();
        table.active.as_ref().and_then(|name| table.loaded.get(name)).cloned()
    }

    /// Makes another adapter the active one; returns the name of the previous one.
    ///
    /// # Errors
    /// [`LoadError::NotLoaded`] if no adapter has this name.
    pub fn activate(&self, name: &str) -> Result<Option<String>, LoadError> {
        let mut table = self.lock_table();
        if !table.loaded.contains_key(name) {
            return Err(LoadError::NotLoaded { name: name.into() });
        }
        Ok(table.active.replace(name.into()))
    }

    /// Loads `reference`, runs `work` with its name, and unloads it again.
    ///
    /// # Errors
    /// Those of the engine's loading and unloading.
    pub fn run_with_reference<T>(
        &self,
        loaded: &LoadedAdapter,
        reference: &Arc<dyn DeltaProvider>,
        work: impl FnOnce(&str) -> T,
    ) -> Result<T, EngineError> {
        let _changing = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        // No request can use this name: `#` is not allowed in names, and the name is not listed.
        let name = format!("{}#reference", loaded.name);
        self.engine.load_adapter(&name, Arc::clone(reference), AdapterLossPolicy::Fail)?;
        let done = work(&name);
        self.engine.unload_adapter(&name)?;
        Ok(done)
    }

    fn allowed_source(&self, asker: Requester) -> Result<&Arc<dyn AdapterSource>, LoadError> {
        match (&self.source, asker) {
            (None, _) => Err(LoadError::Disabled),
            (Some(_), Requester::Request) if !self.runtime => Err(LoadError::Disabled),
            (Some(source), _) => Ok(source),
        }
    }

    fn lock_table(&self) -> MutexGuard<'_, AdapterTable> {
        // A panic while the lock was held leaves a valid table.
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for AdapterRegistry {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Adapters").field("names", &self.lock_table().loaded.keys()).finish()
    }
}

fn check_adapter_name(name: &str) -> Result<(), LoadError> {
    let odd = |c: char| !c.is_ascii_alphanumeric() && !"._-/".contains(c);
    if name.is_empty() || name.len() > NAME_BYTES_MAX || name.contains(odd) {
        let got = crate::clip::truncate_with_ellipsis(name);
        return Err(LoadError::Name { limit: NAME_BYTES_MAX, got });
    }
    Ok(())
}
