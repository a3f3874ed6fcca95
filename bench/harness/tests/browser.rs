//! The page in a real Chromium, driven over its debugging pipe. Skipped by name where there is none.

use std::{
    collections::VecDeque,
    fs::{self, File},
    io::{Read, Write},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use confide_bench::{LoadedRecord, Report};
use confide_tests::Folder;
use serde_json::{Value, json};

/// The most bytes of a page of one record with its samples; a larger one opens slowly on a
/// telephone.
const PAGE_BYTES_MAX: usize = 2 << 20;
/// The time that a browser may take on a busy machine.
const PATIENCE: Duration = Duration::from_secs(180);
const NAMES: &[&str] = &["chromium", "chromium-browser", "google-chrome"];

#[test]
fn filters_keyboard_download_and_silence_in_a_real_browser() {
    let Some(program) = NAMES.iter().find_map(|name| find_program(name)) else {
        println!("skipped: no Chromium on the path ({})", NAMES.join(", "));
        return;
    };
    let scratch = Folder::new("browser");
    let folder = scratch.path();
    let page = page(folder);
    let mut browser = Browser::start(&program, folder);
    browser.width(1280);
    browser.open(&page);
    filters_change_the_address_and_the_rows(&mut browser, &page);
    the_address_alone_brings_the_choice_back(&mut browser, &page);
    the_keyboard_reaches_everything_and_is_seen(&mut browser, &page);
    headings_sort(&mut browser);
    nothing_is_wider_than_a_telephone(&mut browser, &page);
    the_download_is_the_record(&mut browser, &page, folder);
    browser.was_silent(&page);
    drop(browser);
}

fn filters_change_the_address_and_the_rows(browser: &mut Browser, page: &str) {
    let all = browser.number("document.querySelectorAll('.counted').length");
    assert_eq!(browser.number(SHOWN), all);
    assert!(all > 10.0, "{page} has {all} rows");
    // The next choice of the list is taken by the keyboard.
    browser.ask("document.querySelector('select[name=verdict]').focus()");
    browser.key("ArrowDown", 40);
    let verdict = browser.text("document.querySelector('select[name=verdict]').value");
    assert!(!verdict.is_empty(), "the arrow chose nothing");
    assert_eq!(browser.text("location.search"), format!("?verdict={verdict}"));
    let shown = browser.number(SHOWN);
    assert!(shown > 0.0 && shown < all, "{shown} of {all}");
    let others = format!(
        "[...document.querySelectorAll('.counted:not(.off)')].filter(e => e.dataset.verdict !== \
         '{verdict}').length"
    );
    assert_eq!(browser.number(&others), 0.0);
    let said = browser.text("document.getElementById('said').textContent");
    assert!(said.starts_with(&format!("{shown} of {all}")), "{said}");
    // The A/A rows are hidden.
    browser.ask("document.querySelector('input[name=aa]').focus()");
    browser.key(" ", 32);
    assert_eq!(browser.text("location.search"), format!("?verdict={verdict}&aa=0"));
    assert_eq!(browser.number("document.querySelectorAll('[data-aa]:not(.off)').length"), 0.0);
    // Back takes one choice back; "show all" takes all.
    browser.ask("history.back()");
    browser.until("location.search", &format!("?verdict={verdict}"));
    browser.ask("document.querySelector('button[type=reset]').click()");
    browser.until("location.search", "");
    assert_eq!(browser.number(SHOWN), all);
}

fn the_address_alone_brings_the_choice_back(browser: &mut Browser, page: &str) {
    browser.open(&format!("{page}?aa=0&suite=verify&verdict=no+such"));
    assert!(browser.number("document.querySelectorAll('[data-aa]:not(.off)').length") == 0.0);
    assert_eq!(browser.text("document.querySelector('select[name=suite]').value"), "verify");
    assert_eq!(browser.text("document.querySelector('select[name=verdict]').value"), "");
    assert!(browser.number(SHOWN) > 0.0, "an unknown choice hides nothing");
}

fn the_keyboard_reaches_everything_and_is_seen(browser: &mut Browser, page: &str) {
    browser.open(page);
    let wanted = browser.number(
        "window.all = [...document.querySelectorAll('a[href],button,select,input,summary')]\
         .filter(e => e.checkVisibility()); all.length",
    );
    let mut reached = 0.0;
    for _ in 0..(wanted as usize * 2 + 20) {
        browser.key("Tab", 9);
        let new = browser.text(
            "(() => { const e = document.activeElement; if (e === document.body) return 'end'; \
             const seen = getComputedStyle(e).outlineStyle !== 'none'; \
             if (!seen) return 'unseen ' + e.outerHTML.slice(0, 80); \
             if (!all.includes(e) || e.dataset.reached) return 'known'; \
             e.dataset.reached = 1; return 'new'; })()",
        );
        assert!(!new.starts_with("unseen"), "focus cannot be seen: {new}");
        reached += if new == "new" { 1.0 } else { 0.0 };
        if new == "end" || reached >= wanted {
            break;
        }
    }
    let left = browser
        .text("all.filter(e => !e.dataset.reached).map(e => e.outerHTML.slice(0, 80)).join('; ')");
    assert_eq!(left, "", "the keyboard does not reach them");
    browser.open(page);
    browser.key("Tab", 9);
    browser.key("Enter", 13);
    browser.until("location.hash", "#overview");
}

fn headings_sort(browser: &mut Browser) {
    browser.ask("document.querySelectorAll('details').forEach(e => { e.open = true })");
    let order = "(() => { const t = [...document.querySelectorAll('table.sorts')].at(-1); \
                 t.tHead.rows[0].cells[4].querySelector('button').click(); \
                 const v = [...t.tBodies[0].rows].map(r => Number(r.cells[4].dataset.v)); \
                 return String(v.every((x, i) => i === 0 || v[i - 1] <= x)) + ' ' + \
                 t.tHead.rows[0].cells[4].getAttribute('aria-sort'); })()";
    assert_eq!(browser.text(order), "true ascending");
}

fn nothing_is_wider_than_a_telephone(browser: &mut Browser, page: &str) {
    browser.width(390);
    browser.open(page);
    browser.ask("document.querySelectorAll('details').forEach(e => { e.open = true })");
    let wide = browser.number("document.documentElement.scrollWidth - innerWidth");
    assert!(wide <= 0.0, "{wide} px too wide");
    browser.width(1280);
}

fn the_download_is_the_record(browser: &mut Browser, page: &str, folder: &Path) {
    browser.open(page);
    let into = folder.join("downloads");
    fs::create_dir_all(&into).unwrap();
    browser.call(
        "Browser.setDownloadBehavior",
        json!({"behavior": "allow", "downloadPath": into.to_str().unwrap()}),
        false,
    );
    browser.ask("document.querySelector('a[download]').click()");
    let since = Instant::now();
    let file = loop {
        // The browser may create the file before it writes to it.
        let done = |path: &PathBuf| {
            path.extension().is_some_and(|e| e == "gz") && LoadedRecord::read(path).is_ok()
        };
        let found = fs::read_dir(&into).unwrap().map(|entry| entry.unwrap().path()).find(done);
        if let Some(file) = found {
            break file;
        }
        assert!(since.elapsed() < PATIENCE, "nothing was downloaded");
        std::thread::sleep(Duration::from_millis(50));
    };
    let again = Report::read(std::slice::from_ref(&file)).unwrap();
    let kept = Report::read(&[known_record()]).unwrap();
    // The kept record's rows are an older version's; those of the download were computed for the page.
    let bare = |report: &Report| {
        let text = report.markdown();
        let lines: Vec<&str> = text
            .lines()
            .filter(|line| !line.is_empty() && !line.contains("computed again here"))
            .collect();
        lines.join("\n")
    };
    assert_eq!(bare(&again), bare(&kept));
}

const SHOWN: &str = "document.querySelectorAll('.counted:not(.off)').length";

fn known_record() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../records/2026-11-27-verify")
}

fn page(folder: &Path) -> String {
    let path = folder.join("report.html");
    let text = Report::read(&[known_record()]).unwrap().html(&path);
    assert!(text.len() < PAGE_BYTES_MAX, "{} bytes", text.len());
    fs::write(&path, text).unwrap();
    format!("file://{}", path.display())
}

fn find_program(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|folder| folder.join(name)).find(|file| file.is_file())
}

/// A browser with one page. Messages are JSON, each ended by a zero byte, over two pipes.
struct Browser {
    child: Child,
    to: File,
    messages: std::sync::mpsc::Receiver<Value>,
    events: VecDeque<Value>,
    session: String,
    last: u64,
}

impl Browser {
    fn start(program: &Path, folder: &Path) -> Self {
        let (to, from) = (folder.join("to"), folder.join("from"));
        for pipe in [&to, &from] {
            assert!(Command::new("mkfifo").arg(pipe).status().unwrap().success());
        }
        // File descriptors 3 and 4 are what the browser reads and writes.
        let child = Command::new("sh")
            .arg("-c")
            .arg(
                "exec \"$1\" --headless=new --no-sandbox --disable-gpu --no-first-run \
                 --user-data-dir=\"$4\" --remote-debugging-pipe about:blank 3<\"$2\" 4>\"$3\"",
            )
            .arg("sh")
            .args([program, &to, &from, &folder.join("profile")])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let to = File::options().write(true).open(to).unwrap();
        let from = File::open(from).unwrap();
        let (send, messages) = std::sync::mpsc::channel();
        std::thread::spawn(move || read_messages(from, &send));
        let events = VecDeque::new();
        let mut browser = Self { child, to, messages, events, session: String::new(), last: 0 };
        let targets = browser.call("Target.getTargets", json!({}), false);
        let targets = targets["targetInfos"].as_array().unwrap();
        let target = targets.iter().find(|target| target["type"] == "page").unwrap();
        let attach = json!({"targetId": target["targetId"], "flatten": true});
        let attached = browser.call("Target.attachToTarget", attach, false);
        browser.session = attached["sessionId"].as_str().unwrap().to_owned();
        for domain in ["Page", "Runtime", "Network", "Log"] {
            browser.call(&format!("{domain}.enable"), json!({}), true);
        }
        browser
    }

    fn call(&mut self, method: &str, params: Value, page: bool) -> Value {
        self.last += 1;
        let mut message = json!({"id": self.last, "method": method, "params": params});
        if page {
            message["sessionId"] = self.session.clone().into();
        }
        self.to.write_all(format!("{message}\0").as_bytes()).unwrap();
        loop {
            let answer = self.messages.recv_timeout(PATIENCE).expect("the browser answers");
            if answer["id"] == self.last {
                assert!(answer["error"].is_null(), "{method}: {answer}");
                return answer["result"].clone();
            }
            self.events.push_back(answer);
        }
    }

    /// Loads a page and waits for it.
    fn open(&mut self, page: &str) {
        self.call("Page.navigate", json!({"url": page}), true);
        self.until(
            "document.readyState + String(!!document.getElementById('said')?.textContent)",
            "completetrue",
        );
    }

    fn width(&mut self, width: u32) {
        let size = json!({"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": false});
        self.call("Emulation.setDeviceMetricsOverride", size, true);
    }

    fn ask(&mut self, script: &str) -> Value {
        let asked = json!({"expression": script, "returnByValue": true, "userGesture": true});
        let answer = self.call("Runtime.evaluate", asked, true);
        assert!(answer["exceptionDetails"].is_null(), "{script}: {answer}");
        answer["result"]["value"].clone()
    }

    fn number(&mut self, script: &str) -> f64 {
        self.ask(script).as_f64().unwrap_or_else(|| panic!("{script} is no number"))
    }

    fn text(&mut self, script: &str) -> String {
        let answer = self.ask(script);
        answer.as_str().unwrap_or_else(|| panic!("{script} is no text: {answer}")).to_owned()
    }

    /// Asks until this is the answer.
    fn until(&mut self, script: &str, wanted: &str) {
        let since = Instant::now();
        loop {
            let answer = self.text(script);
            if answer == wanted {
                return;
            }
            assert!(since.elapsed() < PATIENCE, "{script}: wanted {wanted}, got {answer}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn key(&mut self, key: &str, code: u32) {
        let text = if key == " " { " " } else { "" };
        for kind in ["rawKeyDown", "char", "keyUp"] {
            if kind == "char" && text.is_empty() && key != "Enter" {
                continue;
            }
            let text = if key == "Enter" { "\r" } else { text };
            let event = json!({
                "type": kind, "key": key, "windowsVirtualKeyCode": code,
                "nativeVirtualKeyCode": code, "text": text,
            });
            self.call("Input.dispatchKeyEvent", event, true);
        }
    }

    /// Asserts that the console has no error, and that nothing was asked of anywhere but the page
    /// itself.
    fn was_silent(&mut self, page: &str) {
        self.events.extend(self.messages.try_iter());
        for event in &self.events {
            let (method, params) = (event["method"].as_str().unwrap_or_default(), &event["params"]);
            let silent = match method {
                "Runtime.exceptionThrown" | "Runtime.consoleAPICalled" => false,
                "Log.entryAdded" => params["entry"]["level"] != "error",
                "Network.requestWillBeSent" => {
                    let url = params["request"]["url"].as_str().unwrap_or_default();
                    url.starts_with(page) || url.starts_with("data:application/gzip;base64,")
                }
                _ => true,
            };
            assert!(silent, "{}", &event.to_string().chars().take(400).collect::<String>());
        }
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn read_messages(mut from: File, send: &std::sync::mpsc::Sender<Value>) {
    let (mut kept, mut chunk) = (Vec::new(), vec![0; 1 << 16]);
    while let Ok(count) = from.read(&mut chunk) {
        if count == 0 {
            return;
        }
        kept.extend_from_slice(&chunk[..count]);
        while let Some(end) = kept.iter().position(|byte| *byte == 0) {
            let message: Vec<u8> = kept.drain(..=end).collect();
            let Ok(value) = serde_json::from_slice(&message[..end]) else { continue };
            if send.send(value).is_err() {
                return;
            }
        }
    }
}
