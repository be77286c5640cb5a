// Evaluate a flag for many contexts with flagd's own core; print the variants and the metadata.
const fs = require("fs");
const { FlagdCore } = require("@openfeature/flagd-core");
const { file, key, contexts } = JSON.parse(fs.readFileSync(0, "utf8"));
const quiet = { debug() {}, info() {}, warn: console.error, error: console.error };
const core = new FlagdCore(undefined, quiet);
core.setConfigurations(fs.readFileSync(file, "utf8"), true);
const answers = contexts.map((context) => core.resolveStringEvaluation(key, "", context, quiet));
const variants = {};
for (const answer of answers) variants[answer.variant] = (variants[answer.variant] || 0) + 1;
console.log(JSON.stringify({ variants, metadata: answers[0].flagMetadata, reason: answers[0].reason }));
