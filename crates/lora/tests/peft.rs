//! PEFT's adapters that are read, and those that are refused with their errors. tests/python/test_peft.py
//! compares the deltas with PEFT's.

use std::{
    collections::{BTreeMap, HashMap},
    fs,
    path::PathBuf,
};

use confide_lora::{
    Adapter, LayerInput, LoraPair, Matrix, PeftError, Projection, ProjectionSite,
    peft::{BaseFolder, BaseWeights, CONFIG_FILE, Config, WEIGHTS_FILE},
    plain,
};
use safetensors::{Dtype, tensor::TensorView};
use serde_json::{Map, Value, json};

const VECTORS: &str = include_str!("../vectors/adapter_config.json");
const INPUT: usize = 6;
const OUTPUT: usize = 5;

#[test]
fn every_supported_field_gives_the_scale_that_peft_gives() {
    for case in cases("accepted") {
        let name = &case["name"];
        let config =
            Config::parse(&config(&case["with"])).unwrap_or_else(|e| panic!("{name}: {e}"));
        let scales = case.get("scale").and_then(Value::as_object).cloned().unwrap_or_default();
        for (path, wanted) in scales {
            assert_eq!(config.module_scale(&path), Ok(wanted.as_f64().unwrap()), "{name}: {path}");
        }
    }
}

#[test]
fn every_supported_choice_of_modules_chooses_the_same_ones() {
    for case in cases("accepted") {
        let name = &case["name"];
        let config = config(&case["with"]);
        let parsed = Config::parse(&config).unwrap();
        let mut tensors = Tensors::default();
        for path in [query(0), key(0), query(1), key(1)] {
            tensors.pair(&path, parsed.module_rank(&path).unwrap(), INPUT, OUTPUT);
        }
        let adapter = Adapter::from_bytes("a", &config, &tensors.bytes(), None);
        let adapter = adapter.unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(adapter.modules.len(), 4, "{name}");
    }
}

#[test]
fn everything_that_changes_the_output_otherwise_is_refused_by_name() {
    for case in cases("refused") {
        let error = Config::parse(&config(&case["with"])).expect_err(&case["name"].to_string());
        assert_eq!(json!(kind(&error)), case["by"], "{}: {error}", case["name"]);
    }
}

#[test]
fn the_first_pattern_that_matches_decides_in_the_order_of_the_file() {
    let file = |patterns: &str| {
        let text = format!(
            r#"{{"peft_type": "LORA", "target_modules": [], "rank_pattern": {{{patterns}}}}}"#
        );
        Config::parse(text.as_bytes())
    };
    let one = file(r#""q_proj": 2, "(q|k)_proj": 3"#).unwrap();
    let other = file(r#""(q|k)_proj": 3, "q_proj": 2"#).unwrap();
    assert_eq!((one.module_rank("a.q_proj"), other.module_rank("a.q_proj")), (Ok(2), Ok(3)));
    assert!(matches!(file(r#""q_proj": 2, "q_proj": 3"#), Err(PeftError::Json { .. })));
}

#[test]
fn values_of_16_bits_are_read_exactly() {
    for (dtype, one_and_a_half) in [(Dtype::F16, 0x3E00_u16), (Dtype::BF16, 0x3FC0)] {
        let mut tensors = Tensors::default();
        let half = |count: usize| one_and_a_half.to_le_bytes().repeat(count);
        tensors.raw(&a(&query(0)), dtype, &[4, INPUT], half(4 * INPUT));
        tensors.raw(&b(&query(0)), dtype, &[OUTPUT, 4], half(4 * OUTPUT));
        let adapter = tensors.read(json!({"target_modules": ["q_proj"]})).unwrap();
        let pair = &adapter.modules[&site(0, Projection::Query)];
        assert!(pair.a.values.iter().chain(&pair.b.values).all(|value| *value == 1.5));
    }
}

#[test]
fn matrices_that_do_not_fit_are_refused_by_name() {
    let with = |change: fn(&mut Tensors)| {
        let mut tensors = Tensors::default();
        tensors.pair(&query(0), 4, INPUT, OUTPUT).pair(&key(0), 4, INPUT, OUTPUT);
        change(&mut tensors);
        let error = tensors.read(json!({})).expect_err("it was read");
        kind(&error)
    };
    let name = |end: &str| format!("base_model.model.{}.{end}", query(0));
    let missing = |end: &str| format!("missing {}", name(end));
    assert_eq!(with(|t| t.drop(&a(&query(0)))), missing("lora_A.weight"));
    assert_eq!(with(|t| t.drop(&b(&query(0)))), missing("lora_B.weight"));
    assert_eq!(with(|t| t.drop_module(&query(0))), missing("lora_A.weight"));
    let shape = |end: &str| format!("shape {}", name(end));
    assert_eq!(with(|t| t.floats(&a(&query(0)), &[3, INPUT])), shape("lora_A.weight"));
    assert_eq!(with(|t| t.floats(&b(&query(0)), &[OUTPUT, 3])), shape("lora_B.weight"));
    assert_eq!(with(|t| t.floats(&a(&query(0)), &[4 * INPUT])), shape("lora_A.weight"));
    assert_eq!(with(|t| t.floats(&a(&query(0)), &[4, 0])), shape("lora_A.weight"));
    assert_eq!(with(|t| t.floats(&a(&query(0)), &[4, 131_073])), shape("lora_A.weight"));
    assert_eq!(with(|t| t.floats(&a(&query(0)), &[4, INPUT + 1])), "width Attention of layer 0");
    let wide = |t: &mut Tensors| t.raw(&a(&query(0)), Dtype::F64, &[4, INPUT], vec![0; 32 * INPUT]);
    assert_eq!(with(wide), format!("dtype {}", name("lora_A.weight")));
    let bad = |t: &mut Tensors| {
        let bytes = f32::NAN.to_le_bytes().repeat(4 * INPUT);
        t.raw(&a(&query(0)), Dtype::F32, &[4, INPUT], bytes);
    };
    assert_eq!(with(bad), format!("not finite {}", name("lora_A.weight")));
}

#[test]
fn tensors_that_are_left_over_are_refused_by_name() {
    let with = |extra: &str| {
        let mut tensors = Tensors::default();
        tensors.pair(&query(0), 4, INPUT, OUTPUT).pair(&key(0), 4, INPUT, OUTPUT);
        tensors.floats(extra, &[4, INPUT]);
        kind(&tensors.read(json!({})).expect_err(extra))
    };
    for extra in [
        "base_model.model.lm_head.weight",
        "base_model.model.model.norm.lora_A.weight",
        "base_model.model.model.embed_tokens.lora_embedding_A",
        "base_model.model.model.layers.0.self_attn.q_proj.lora_B.bias",
        "base_model.model.model.layers.0.self_attn.q_proj.lora_magnitude_vector",
        "base_model.model.model.layers.0.self_attn.q_proj.lora_A.other.weight",
        "base_model.model.model.model.layers.0.self_attn.q_proj.lora_A.weight",
        "model.layers.0.self_attn.q_proj.lora_A.weight",
    ] {
        assert_eq!(with(extra), format!("unexpected {extra}"));
    }
    let value = "base_model.model.model.layers.0.self_attn.v_proj.lora_A.weight";
    assert_eq!(with(value), "not targeted model.layers.0.self_attn.v_proj");
}

#[test]
fn a_layer_that_the_configuration_leaves_out_or_asks_for_is_noticed() {
    let read = |with: Value| {
        let mut tensors = Tensors::default();
        tensors.pair(&query(0), 4, INPUT, OUTPUT).pair(&query(2), 4, INPUT, OUTPUT);
        tensors.read(with).map_err(|error| kind(&error))
    };
    assert!(read(json!({"target_modules": ["q_proj"], "layers_to_transform": [0, 2]})).is_ok());
    let got = read(json!({"target_modules": ["q_proj"]})).unwrap_err();
    assert_eq!(got, format!("missing base_model.model.{}.lora_A.weight", query(1)));
    let got = read(json!({"target_modules": ["q_proj"], "layers_to_transform": [0]}));
    assert_eq!(got.unwrap_err(), format!("not targeted {}", query(2)));
    let got = read(json!({"target_modules": ["q_proj"], "layers_to_transform": [0, 2, 5]}));
    assert_eq!(got.unwrap_err(), format!("missing base_model.model.{}.lora_A.weight", query(5)));
}

#[test]
fn what_is_no_safetensors_is_refused() {
    let huge = (1_u64 << 40).to_le_bytes();
    for bytes in [&b""[..], b"12345", b"PK\x03\x04rest of a zip archive", &huge] {
        let error = Adapter::from_bytes("a", &config(&json!({})), bytes, None).unwrap_err();
        assert!(matches!(error, PeftError::Weights { .. } | PeftError::Limit { .. }), "{error}");
    }
    let none = Tensors::default().bytes();
    let error = Adapter::from_bytes("a", &config(&json!({})), &none, None).unwrap_err();
    assert_eq!(kind(&error), "missing every lora_A");
}

#[test]
fn a_pickle_is_refused_by_name_and_never_opened() {
    let dir = Scratch::new("pickle");
    fs::write(dir.0.join(CONFIG_FILE), config(&json!({}))).unwrap();
    fs::write(dir.0.join("adapter_model.bin"), b"\x80\x02.").unwrap();
    let error = Adapter::load(&dir.0).unwrap_err();
    assert_eq!(error, PeftError::Pickle { path: dir.0.join("adapter_model.bin") });
    fs::remove_file(dir.0.join("adapter_model.bin")).unwrap();
    assert!(matches!(Adapter::load(&dir.0), Err(PeftError::Read { .. })));
    fs::create_dir(dir.0.join(WEIGHTS_FILE)).unwrap();
    assert!(matches!(Adapter::load(&dir.0), Err(PeftError::Read { .. })));
    fs::write(dir.0.join(CONFIG_FILE), vec![b' '; (1 << 20) + 1]).unwrap();
    assert!(matches!(Adapter::load(&dir.0), Err(PeftError::TooLong { .. })));
}

#[test]
fn dora_is_folded_with_the_base_weight_and_refused_without_it() {
    let mut tensors = Tensors::default();
    tensors.pair(&query(0), 4, INPUT, OUTPUT);
    let magnitude = format!("base_model.model.{}.lora_magnitude_vector", query(0));
    tensors.floats(&magnitude, &[OUTPUT]);
    let with = json!({"target_modules": ["q_proj"], "use_dora": true});
    assert_eq!(tensors.read(with.clone()), Err(PeftError::BaseNeeded));

    let base = Base(matrix(OUTPUT, INPUT, 5));
    let folded = tensors.read_with(with.clone(), &base).unwrap();
    let folded = &folded.modules[&site(0, Projection::Query)];
    let mut plain_tensors = Tensors::default();
    plain_tensors.pair(&query(0), 4, INPUT, OUTPUT);
    let pair = plain_tensors.read(json!({"target_modules": ["q_proj"]})).unwrap();
    let pair = &pair.modules[&site(0, Projection::Query)];
    let input: Vec<f64> = (0..INPUT).map(|i| i as f64 - 2.5).collect();
    // The magnitudes times the adapted weight with normalised rows, minus the base weight.
    let wanted = dora_by_hand(&base.0, pair, tensors.values(&magnitude), &input);
    for (got, wanted) in plain::delta(folded, &input).iter().zip(wanted) {
        assert!((got - wanted).abs() < 1e-5, "{got} {wanted}");
    }
    // A contains the whole adapter, so protecting A protects it.
    assert_eq!(folded.b.values.iter().filter(|value| **value != 0.0).count(), OUTPUT);

    let narrow = Base(matrix(OUTPUT, INPUT - 1, 5));
    assert!(matches!(tensors.read_with(with.clone(), &narrow), Err(PeftError::Shape { .. })));
    let long = 33_000;
    let mut wide = Tensors::default();
    wide.pair(&query(0), 1, 1, long);
    wide.floats(&magnitude, &[long]);
    let narrow_base = Base(matrix(long, 1, 5));
    let with_one = json!({"target_modules": ["q_proj"], "use_dora": true, "r": 1});
    let error = wide.read_with(with_one, &narrow_base).unwrap_err();
    assert!(matches!(error, PeftError::Limit { .. }), "{error}");
    let zero = Base(Matrix::zeroes(OUTPUT, INPUT));
    let mut still = Tensors::default();
    still.raw(&a(&query(0)), Dtype::F32, &[4, INPUT], vec![0; 16 * INPUT]);
    still.floats(&b(&query(0)), &[OUTPUT, 4]);
    still.floats(&magnitude, &[OUTPUT]);
    assert!(matches!(still.read_with(with.clone(), &zero), Err(PeftError::NotFinite { .. })));
    tensors.drop(&magnitude);
    let error = tensors.read_with(with, &base).unwrap_err();
    assert_eq!(kind(&error), format!("missing {magnitude}"));
}

#[test]
fn base_weights_are_found_in_a_folder_of_several_files() {
    let dir = Scratch::new("base");
    let mut one = Tensors::default();
    one.floats("model.embed_tokens.weight", &[3, 2]);
    let mut two = Tensors::default();
    two.floats(&format!("{}.weight", query(0)), &[OUTPUT, INPUT]);
    two.floats("lm_head.weight", &[3, 2]);
    fs::write(dir.0.join("model-00001-of-00002.safetensors"), one.bytes()).unwrap();
    fs::write(dir.0.join("model-00002-of-00002.safetensors"), two.bytes()).unwrap();
    let base = BaseFolder::open(&dir.0).unwrap();
    let weight = base.weight(site(0, Projection::Query)).unwrap();
    assert_eq!((weight.rows, weight.columns), (OUTPUT, INPUT));
    assert_eq!(weight.values, two.values(&format!("{}.weight", query(0))));
    let missing = site(1, Projection::Query);
    assert_eq!(base.weight(missing), Err(PeftError::BaseWeight { site: missing }));
    let empty = Scratch::new("no-base");
    assert!(matches!(BaseFolder::open(&empty.0), Err(PeftError::Read { .. })));
}

#[test]
fn what_is_saved_is_read_again() {
    for (name, sites, ranks) in [
        ("every-layer", vec![(0, Projection::Query), (1, Projection::Query)], [3, 3]),
        ("some-layers", vec![(1, Projection::Query), (2, Projection::MlpDown)], [2, 7]),
    ] {
        let dir = Scratch::new(name);
        let modules = sites.into_iter().zip(ranks).map(|((layer, projection), rank)| {
            let (a, b) = (matrix(rank, INPUT, 1), matrix(OUTPUT, rank, 2));
            (site(layer, projection), LoraPair { a, b, scale: 1.5 + f64::from(layer) / 3.0 })
        });
        let adapter = Adapter {
            name: dir.0.file_name().unwrap().to_string_lossy().into(),
            base_model: Some("tiny".into()),
            modules: modules.collect(),
        };
        adapter.save(&dir.0).unwrap();
        let read = Adapter::load(&dir.0).unwrap();
        assert_eq!((&read.name, &read.base_model), (&adapter.name, &adapter.base_model));
        for (site, pair) in &adapter.modules {
            let again = &read.modules[site];
            assert_eq!((&again.a, &again.b), (&pair.a, &pair.b));
            assert!((again.scale - pair.scale).abs() <= 1e-15 * pair.scale, "{site}");
        }
        assert!(matches!(adapter.save(&dir.0), Err(PeftError::Exists { .. })));
    }
}

#[test]
fn final_hidden_is_the_first_pair_alone() {
    let square = |width: usize| {
        let mut tensors = Tensors::default();
        tensors.pair(&query(0), 4, INPUT, width).pair(&query(1), 4, INPUT, width);
        tensors.read(json!({"target_modules": ["q_proj"]})).unwrap()
    };
    let whole = square(INPUT);
    let one = whole.clone().into_final_hidden_adapter().unwrap();
    let here = site(0, Projection::FinalHidden);
    assert_eq!(one.modules.keys().collect::<Vec<_>>(), [&here]);
    assert_eq!(one.modules[&here], whole.modules[&site(0, Projection::Query)]);
    let dir = Scratch::new("final");
    assert_eq!(one.save(&dir.0), Err(PeftError::NotInPeft { site: here }));
    let error = square(OUTPUT).into_final_hidden_adapter().unwrap_err();
    assert!(matches!(error, PeftError::NoFinalHidden { .. }));
    assert!(one.into_final_hidden_adapter().is_err());
}

#[test]
fn debug_output_shows_no_value() {
    let mut tensors = Tensors::default();
    tensors.pair(&query(0), 4, INPUT, OUTPUT);
    let adapter = tensors.read(json!({"target_modules": ["q_proj"]})).unwrap();
    let shown = format!("{adapter:?}");
    assert!(shown.contains("Matrix(4x6)") && !shown.contains("0.0"), "{shown}");
}

fn cases(list: &str) -> Vec<Value> {
    let vectors: Value = serde_json::from_str(VECTORS).unwrap();
    vectors[list].as_array().unwrap().clone()
}

fn config(with: &Value) -> Vec<u8> {
    let vectors: Value = serde_json::from_str(VECTORS).unwrap();
    let mut fields: Map<String, Value> = vectors["base"].as_object().unwrap().clone();
    fields.extend(with.as_object().unwrap().clone());
    serde_json::to_vec(&fields).unwrap()
}

fn kind(error: &PeftError) -> String {
    match error {
        PeftError::Field { field, .. } => format!("field {field}"),
        PeftError::Pattern { field, .. } => format!("pattern {field}"),
        PeftError::Json { .. } => "json".into(),
        PeftError::Missing { tensor } => format!("missing {tensor}"),
        PeftError::Unexpected { tensor, .. } => format!("unexpected {tensor}"),
        PeftError::NotTargeted { module } => format!("not targeted {module}"),
        PeftError::Shape { tensor, .. } => format!("shape {tensor}"),
        PeftError::Dtype { tensor, .. } => format!("dtype {tensor}"),
        PeftError::NotFinite { tensor, .. } => format!("not finite {tensor}"),
        PeftError::InputWidth { layer, input: LayerInput::Attention, .. } => {
            format!("width Attention of layer {layer}")
        }
        other => other.to_string(),
    }
}

fn query(layer: u32) -> String {
    format!("model.layers.{layer}.self_attn.q_proj")
}

fn key(layer: u32) -> String {
    format!("model.layers.{layer}.self_attn.k_proj")
}

fn a(path: &str) -> String {
    format!("base_model.model.{path}.lora_A.weight")
}

fn b(path: &str) -> String {
    format!("base_model.model.{path}.lora_B.weight")
}

fn site(layer: u32, projection: Projection) -> ProjectionSite {
    ProjectionSite { layer, projection }
}

fn matrix(rows: usize, columns: usize, seed: u64) -> Matrix {
    Matrix { rows, columns, values: numbers(rows * columns, seed) }
}

/// Arbitrary numbers from 0.5 to 1.5.
fn numbers(count: usize, seed: u64) -> Vec<f32> {
    let mixed = |index: usize| (index as u64 + 1 + seed).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 40;
    (0..count).map(|index| 0.5 + mixed(index) as f32 / (1 << 24) as f32).collect()
}

fn dora_by_hand(base: &Matrix, pair: &LoraPair, magnitude: Vec<f32>, input: &[f64]) -> Vec<f64> {
    let row = |index: usize| {
        let adapted = (0..INPUT).map(|column| {
            let product = |k: usize| f64::from(pair.b.row(index)[k] * pair.a.row(k)[column]);
            let old = f64::from(base.row(index)[column]);
            (old, old + pair.scale * (0..4).map(product).sum::<f64>())
        });
        let adapted: Vec<(f64, f64)> = adapted.collect();
        let norm = adapted.iter().map(|(_, new)| new * new).sum::<f64>().sqrt();
        let gain = f64::from(magnitude[index]) / norm;
        adapted.iter().zip(input).map(|((old, new), x)| (gain * new - old) * x).sum::<f64>()
    };
    (0..OUTPUT).map(row).collect()
}

struct Base(Matrix);

impl BaseWeights for Base {
    fn weight(&self, _: ProjectionSite) -> Result<Matrix, PeftError> {
        Ok(self.0.clone())
    }
}

/// The tensors of a file that is to be written.
#[derive(Default)]
struct Tensors(BTreeMap<String, (Dtype, Vec<usize>, Vec<u8>)>);

impl Tensors {
    fn pair(&mut self, path: &str, rank: usize, input: usize, output: usize) -> &mut Self {
        self.floats(&a(path), &[rank, input]);
        self.floats(&b(path), &[output, rank]);
        self
    }

    fn floats(&mut self, name: &str, shape: &[usize]) {
        let values = numbers(shape.iter().product(), name.len() as u64);
        let bytes = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        self.raw(name, Dtype::F32, shape, bytes);
    }

    fn raw(&mut self, name: &str, dtype: Dtype, shape: &[usize], bytes: Vec<u8>) {
        self.0.insert(name.into(), (dtype, shape.to_vec(), bytes));
    }

    fn drop(&mut self, name: &str) {
        self.0.remove(name).expect("it is there");
    }

    fn drop_module(&mut self, path: &str) {
        self.drop(&a(path));
        self.drop(&b(path));
    }

    fn values(&self, name: &str) -> Vec<f32> {
        let four = |bytes: &[u8]| f32::from_le_bytes(bytes.try_into().unwrap());
        self.0[name].2.chunks_exact(4).map(four).collect()
    }

    fn bytes(&self) -> Vec<u8> {
        let views = self.0.iter().map(|(name, (dtype, shape, bytes))| {
            (name, TensorView::new(*dtype, shape.clone(), bytes).unwrap())
        });
        safetensors::serialize(views, None::<HashMap<String, String>>).unwrap()
    }

    fn read(&self, with: Value) -> Result<Adapter, PeftError> {
        Adapter::from_bytes("a", &config(&with), &self.bytes(), None)
    }

    fn read_with(&self, with: Value, base: &dyn BaseWeights) -> Result<Adapter, PeftError> {
        Adapter::from_bytes("a", &config(&with), &self.bytes(), Some(base))
    }
}

/// A temporary folder, which is deleted on drop.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Scratch {
        let dir = std::env::temp_dir().join(format!("confide-peft-{}-{name}", std::process::id()));
        let _ = fs::remove_dir_all(&dir);
        fs::create_dir_all(&dir).unwrap();
        Scratch(fs::canonicalize(dir).unwrap())
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}
