// node tokenise.js MODULES GRAMMAR FILE...: for each file, the tokens of each line as [start, end, innermost scope],
// as VS Code's own engine finds them; columns are UTF-16 code units.
const fs = require('fs');
const path = require('path');

const [modules, grammarFile, ...files] = process.argv.slice(2);
const textmate = require(path.join(modules, 'vscode-textmate'));
const oniguruma = require(path.join(modules, 'vscode-oniguruma'));

async function main() {
  const wasm = fs.readFileSync(path.join(modules, 'vscode-oniguruma', 'release', 'onig.wasm'));
  await oniguruma.loadWASM(wasm.buffer.slice(wasm.byteOffset, wasm.byteOffset + wasm.byteLength));
  const registry = new textmate.Registry({
    onigLib: Promise.resolve({
      createOnigScanner: patterns => new oniguruma.OnigScanner(patterns),
      createOnigString: text => new oniguruma.OnigString(text),
    }),
    loadGrammar: async () => textmate.parseRawGrammar(fs.readFileSync(grammarFile, 'utf8'), grammarFile),
  });
  const grammar = await registry.loadGrammar('source.moe');
  const out = {};
  for (const file of files) {
    let stack = textmate.INITIAL;
    out[file] = fs.readFileSync(file, 'utf8').split('\n').map(line => {
      const result = grammar.tokenizeLine(line, stack);
      stack = result.ruleStack;
      return result.tokens.map(t => [t.startIndex, t.endIndex, t.scopes[t.scopes.length - 1]]);
    });
  }
  process.stdout.write(JSON.stringify(out));
}

main().catch(error => {
  console.error(error);
  process.exit(1);
});
