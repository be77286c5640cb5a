// Check a flag file by flagd's own schemas, then evaluate a flag for many contexts through the
// OpenFeature SDK with flagd's provider; print the variants and the metadata.
const fs = require("fs");
const { FlagdCore } = require("@openfeature/flagd-core");
const { FlagdProvider } = require("@openfeature/flagd-provider");
const { OpenFeature } = require("@openfeature/server-sdk");
const { file, key, contexts } = JSON.parse(fs.readFileSync(0, "utf8"));
const quiet = { debug() {}, info() {}, warn: console.error, error: console.error };

async function main() {
  new FlagdCore(undefined, quiet).setConfigurations(fs.readFileSync(file, "utf8"), true);
  const provider = new FlagdProvider({ resolverType: "in-process", offlineFlagSourcePath: file });
  await OpenFeature.setProviderAndWait(provider);
  const client = OpenFeature.getClient();
  const variants = {};
  let last;
  for (const context of contexts) {
    last = await client.getStringDetails(key, "", context);
    variants[last.variant] = (variants[last.variant] || 0) + 1;
  }
  console.log(JSON.stringify({ variants, metadata: last.flagMetadata, reason: last.reason }));
  await OpenFeature.close();
  process.exit(0);
}
main().catch((error) => {
  console.error(error);
  process.exit(1);
});
