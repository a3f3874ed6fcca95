//! The adapters that are loaded now, and where more may come from.

use std::{
    collections::BTreeMap,
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use confide_engine::{Engine, EngineError, OnLoss};
use confide_lora::{Adapt, Guarantee, Site, Width};

use crate::detached::DetachedAdapter;

/// Opens adapters by the paths that a command line or a request gives.
pub trait AdapterSource: Send + Sync + 'static {
    /// Opens the adapter at `path`: a folder, or an adapter host's address. `asked` says who gave
    /// the path. Blocks, for as long as a host takes to answer.
    ///
    /// # Errors
    /// [`SourceError::Refused`] for a path that a request may not name, [`SourceError::Unusable`]
    /// if no usable adapter is found.
    fn open(&self, name: &str, path: &str, asker: AskedBy) -> Result<Opened, SourceError>;
}

/// Who gave a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AskedBy {
    /// The operator, who started the program and may name any path.
    Operator,
    /// A request, which may name the folders and hosts that the operator allowed.
    Request,
}

/// An adapter that was opened.
pub struct Opened {
    /// The adapter, with its protection.
    pub adapter: Arc<dyn Adapt>,
    /// Its path, as `/v1/models` shows it.
    pub root: String,
    /// The same adapter in the clear, if this process holds it anyway, for the self-test to compare
    /// with.
    pub reference: Option<Arc<dyn Adapt>>,
    /// Whether it was trained for the served model.
    pub base: BaseCheck,
}

/// Whether an adapter was trained for the served model; its widths are checked separately.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BaseCheck {
    /// Its configuration names the served model.
    Confirmed,
    /// Its base model is unknown, which is not a confirmation.
    NotEvaluated,
    /// Its configuration names another model, and the operator allowed that.
    OtherModel,
}

impl BaseCheck {
    /// The text in the ready line and in `/v1/models`.
    pub fn name(self) -> &'static str {
        match self {
            BaseCheck::Confirmed => "confirmed",
            BaseCheck::NotEvaluated => "not evaluated",
            BaseCheck::OtherModel => "another model (dangerous)",
        }
    }
}

/// Why a source has no adapter at a path.
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

/// Why an adapter was not loaded, or not unloaded.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum LoadError {
    /// The operator did not allow requests to change adapters.
    #[error("adapters are not loaded at run time here")]
    Off,
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
    Loaded {
        /// The name that was given.
        name: String,
    },
    /// No adapter of this name is loaded.
    #[error("adapter {name:?} cannot be found")]
    Unknown {
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

/// The longest name of an adapter, in bytes: it is part of every chunk of its answers.
pub const NAME_BYTES_MAX: usize = 128;

/// An adapter that is loaded.
pub struct Loaded {
    /// The adapter's name in requests.
    pub name: String,
    /// Name of the model that it changes.
    pub parent: String,
    /// Its path, as `/v1/models` shows it.
    pub root: String,
    /// Whether it was trained for the served model.
    pub base: BaseCheck,
    adapter: Arc<dyn Adapt>,
    reference: Option<Arc<dyn Adapt>>,
}

impl Loaded {
    /// The guarantee at this moment: who is protected from whom.
    pub fn guarantee(&self) -> Guarantee {
        self.adapter.guarantee()
    }

    /// The projections that it changes, with their widths.
    pub fn sites(&self) -> &BTreeMap<Site, Width> {
        self.adapter.sites()
    }

    /// The same adapter in the clear, if this process holds it.
    pub fn reference(&self) -> Option<&Arc<dyn Adapt>> {
        self.reference.as_ref()
    }
}

/// The adapters of one engine.
pub struct Adapters {
    engine: Arc<dyn Engine>,
    source: Option<Arc<dyn AdapterSource>>,
    on_loss: OnLoss,
    runtime: bool,
    table: Mutex<AdapterTable>,
    /// Held during a load or an unload, of which one runs at a time: nothing may change between its
    /// check and its change.
    changing: Mutex<()>,
}

#[derive(Default)]
struct AdapterTable {
    loaded: BTreeMap<String, Arc<Loaded>>,
    /// The adapter that answers requests without a model's name: the first one loaded, until
    /// another is chosen.
    active: Option<String>,
}

impl Adapters {
    /// No adapters, and no way to load one.
    pub fn empty(engine: Arc<dyn Engine>) -> Self {
        let table = Mutex::default();
        let changing = Mutex::default();
        Self { engine, source: None, on_loss: OnLoss::Fail, runtime: false, table, changing }
    }

    /// Adapters from `source`. Requests may load and unload them only if `runtime` is set.
    pub fn new(
        engine: Arc<dyn Engine>,
        source: Arc<dyn AdapterSource>,
        on_loss: OnLoss,
        runtime: bool,
    ) -> Self {
        Self { source: Some(source), on_loss, runtime, ..Self::empty(engine) }
    }

    /// Loads an adapter from its path. Blocks.
    ///
    /// # Errors
    /// [`LoadError`] if it is not allowed, not found, or refused by the engine.
    pub fn load(&self, name: &str, path: &str, asker: AskedBy) -> Result<Arc<Loaded>, LoadError> {
        let source = self.source(asker)?;
        check_name(name)?;
        let _changing = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        if self.find(name).is_some() {
            return Err(LoadError::Loaded { name: name.into() });
        }
        let Opened { adapter, root, reference, base } = source.open(name, path, asker)?;
        // The last owner may be a task of the event loop.
        let adapter: Arc<dyn Adapt> = Arc::new(DetachedAdapter::new(adapter));
        self.engine.load_adapter(name, Arc::clone(&adapter), self.on_loss)?;
        let model = self.engine.models().into_iter().find(|model| model.name == name);
        let parent = model.and_then(|model| model.parent).unwrap_or_default();
        let loaded = Arc::new(Loaded { name: name.into(), parent, root, base, adapter, reference });
        let mut table = self.table();
        table.loaded.insert(name.into(), Arc::clone(&loaded));
        table.active.get_or_insert_with(|| name.into());
        Ok(loaded)
    }

    /// Unloads an adapter. Answers that run with it go on.
    ///
    /// # Errors
    /// [`LoadError`] if it is not allowed, or not loaded.
    pub fn unload(&self, name: &str, asker: AskedBy) -> Result<(), LoadError> {
        self.source(asker)?;
        let _changing = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        if self.find(name).is_none() {
            return Err(LoadError::Unknown { name: name.into() });
        }
        self.engine.unload_adapter(name)?;
        let mut table = self.table();
        table.loaded.remove(name);
        if table.active.as_deref() == Some(name) {
            table.active = table.loaded.keys().next().cloned();
        }
        Ok(())
    }

    /// All loaded adapters, sorted by name.
    pub fn all(&self) -> Vec<Arc<Loaded>> {
        self.table().loaded.values().cloned().collect()
    }

    /// The adapter of this name; `None` if it is not loaded.
    pub fn find(&self, name: &str) -> Option<Arc<Loaded>> {
        self.table().loaded.get(name).cloned()
    }

    /// The adapter that answers requests without a model's name.
    pub fn active(&self) -> Option<Arc<Loaded>> {
        let table = self.table();
        table.active.as_ref().and_then(|name| table.loaded.get(name)).cloned()
    }

    /// Makes another adapter the active one; returns the one before.
    ///
    /// # Errors
    /// [`LoadError::Unknown`] if no adapter has this name.
    pub fn activate(&self, name: &str) -> Result<Option<String>, LoadError> {
        let mut table = self.table();
        if !table.loaded.contains_key(name) {
            return Err(LoadError::Unknown { name: name.into() });
        }
        Ok(table.active.replace(name.into()))
    }

    /// Runs `work` while `reference` is loaded, under the name that `work` gets.
    ///
    /// # Errors
    /// Those of the engine's loading and unloading.
    pub fn with_reference<T>(
        &self,
        loaded: &Loaded,
        reference: &Arc<dyn Adapt>,
        work: impl FnOnce(&str) -> T,
    ) -> Result<T, EngineError> {
        let _changing = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        // No request can use it: `#` is in no name that may be loaded, and it is not listed.
        let name = format!("{}#reference", loaded.name);
        self.engine.load_adapter(&name, Arc::clone(reference), OnLoss::Fail)?;
        let done = work(&name);
        self.engine.unload_adapter(&name)?;
        Ok(done)
    }

    fn source(&self, asker: AskedBy) -> Result<&Arc<dyn AdapterSource>, LoadError> {
        match (&self.source, asker) {
            (None, _) => Err(LoadError::Off),
            (Some(_), AskedBy::Request) if !self.runtime => Err(LoadError::Off),
            (Some(source), _) => Ok(source),
        }
    }

    fn table(&self) -> MutexGuard<'_, AdapterTable> {
        // A panic while the lock was held leaves a valid table.
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Adapters {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Adapters").field("names", &self.table().loaded.keys()).finish()
    }
}

fn check_name(name: &str) -> Result<(), LoadError> {
    let odd = |c: char| !c.is_ascii_alphanumeric() && !"._-/".contains(c);
    if name.is_empty() || name.len() > NAME_BYTES_MAX || name.contains(odd) {
        let got = crate::clip::clip(name);
        return Err(LoadError::Name { limit: NAME_BYTES_MAX, got });
    }
    Ok(())
}
