// Makes dist/confide-page.html: the page of page/, with its style, the package of npm/ and the WebAssembly in one file
// that needs nothing else, so that it works from disk; and next to it the file's SHA-256.
//
//     web/build.sh && node web/bundle.mjs

import { createHash } from 'node:crypto';
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { dirname, join, relative } from 'node:path';
import { fileURLToPath } from 'node:url';
import { gzipSync } from 'node:zlib';

const folder = dirname(fileURLToPath(import.meta.url));
const NAME = 'confide-page.html';

const IMPORT = /^import (?:(\w+))?(?:, )?(?:\{([^}]*)\})? from '(\.[^']+)';$/gm;
const REEXPORT = /^export \{([^}]*)\} from '(\.[^']+)';$/gm;
const EXPORT_LIST = /^export \{([^}]*)\};$/gm;
const EXPORT = /^export ((?:async )?function|class|const) (\w+)/gm;

/** `a, b as c` as pairs of the name there and the name here. */
function readNames(list) {
  const names = list.split(',').map((name) => name.trim()).filter(Boolean);
  return names.map((name) => name.split(/\s+as\s+/)).map(([from, to = from]) => [from, to]);
}

/** All modules that `entry` needs, each once, after those that it needs itself. */
function collectModules(entry) {
  const modules = new Map();
  const running = [];
  const visit = (path) => {
    if (modules.has(path)) return;
    if (running.includes(path)) throw new Error(`${path} imports itself: ${running.join(' > ')}`);
    running.push(path);
    const text = readFileSync(path, 'utf8');
    const wanted = [...text.matchAll(IMPORT), ...text.matchAll(REEXPORT)].map((match) => match.at(-1));
    for (const other of wanted) visit(join(dirname(path), other));
    running.pop();
    modules.set(path, { text, variable: `module${modules.size}` });
  };
  visit(entry);
  return modules;
}

/** A module as a function that returns what it exports. */
function wrapModule(path, { text, variable }, modules) {
  const exported = [];
  const variableOf = (other) => modules.get(join(dirname(path), other)).variable;
  const destructure = (names, other) => {
    const pairs = names.map(([from, to]) => (from === to ? from : `${from}: ${to}`));
    return `const { ${pairs.join(', ')} } = ${variableOf(other)};`;
  };
  const body = text
    .replace(IMPORT, (_, whole, list = '', other) => {
      const names = readNames(list);
      return destructure(whole ? [['default', whole], ...names] : names, other);
    })
    .replace(REEXPORT, (_, list, other) => {
      for (const [from, to] of readNames(list)) exported.push(`${to}: ${variableOf(other)}.${from}`);
      return '';
    })
    .replace(EXPORT_LIST, (_, list) => {
      for (const [from, to] of readNames(list)) exported.push(`${to}: ${from}`);
      return '';
    })
    .replace(EXPORT, (_, kind, name) => {
      exported.push(name);
      return `${kind} ${name}`;
    });
  const rest = body.match(/^\s*(import|export)\s.*$/m);
  if (rest) throw new Error(`${path}: this form is not known here: ${rest[0].trim()}`);
  const name = relative(folder, path);
  return `// ${name}\nconst ${variable} = (() => {\n${body}\nreturn { ${exported.join(', ')} };\n})();\n`;
}

function bundleScript(entry) {
  const modules = collectModules(entry);
  const parts = [...modules].map(([path, module]) => wrapModule(path, module, modules));
  const script = `\n${parts.join('')}`;
  if (/<\/script|<!--/i.test(script)) throw new Error('the script would end its own element');
  return script;
}

/** The source expression of a Content-Security-Policy that allows exactly this text. */
function hashSource(text) {
  return `'sha256-${createHash('sha256').update(text).digest('base64')}'`;
}

function bundlePage() {
  const read = (name) => readFileSync(join(folder, name));
  const style = `\n${read('page/page.css')}`;
  const script = bundleScript(join(folder, 'page/page.js'));
  const wasm = gzipSync(read('npm/confide_web_bg.wasm'), { level: 9 });
  // The system that compressed it does not belong to the file.
  wasm[9] = 255;
  const parts = {
    POLICY: [
      "default-src 'none'", `script-src ${hashSource(script)} 'wasm-unsafe-eval'`, `style-src ${hashSource(style)}`,
      'connect-src ws: wss:', 'img-src data:', "base-uri 'none'", "form-action 'none'",
      "require-trusted-types-for 'script'",
    ].join('; '),
    SCRIPT: script,
    STYLE: style,
    WASM: wasm.toString('base64'),
  };
  return read('page/page.html').toString().replace(/\{\{(\w+)\}\}/g, (_, name) => {
    if (!(name in parts)) throw new Error(`page.html names {{${name}}}, wanted ${Object.keys(parts).join(', ')}`);
    return parts[name];
  });
}

const page = bundlePage();
mkdirSync(join(folder, 'dist'), { recursive: true });
writeFileSync(join(folder, 'dist', NAME), page);
const digest = createHash('sha256').update(page).digest('hex');
writeFileSync(join(folder, 'dist', `${NAME}.sha256`), `${digest}  ${NAME}\n`);
console.log(`web: dist/${NAME} has ${Buffer.byteLength(page)} bytes, SHA-256 ${digest}`);
