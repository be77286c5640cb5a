// The agents' tasks and tools: each tool answers, and logs that it ran for the tests to compare.
import { appendFileSync, readFileSync } from "node:fs";

const tasks = JSON.parse(readFileSync(new URL("./tasks.json", import.meta.url)));
export const IN_A_ROW = tasks.in_a_row;
export const AT_ONCE = tasks.at_once;

function logged(name, city, answer) {
  const failed = city === "Atlantis";
  const line = {
    name,
    arguments: { city },
    result: failed ? null : answer,
    error: failed ? `Error: no such city: ${city}` : null,
    start_unix_ns: Date.now() * 1e6,
    end_unix_ns: Date.now() * 1e6,
  };
  appendFileSync(process.env.TOOL_LOG, JSON.stringify(line) + "\n");
  if (failed) throw new Error(`no such city: ${city}`);
  return answer;
}

export const TOOLS = {
  sun: ({ city }) => logged("sun", city, `The sun shines in ${city}.`),
  rain: ({ city }) => logged("rain", city, `It rains in ${city} until noon.`),
};

export const PARAMETERS = {
  type: "object",
  properties: { city: { type: "string" } },
  required: ["city"],
  additionalProperties: false,
};

// An agent without a framework tells the model of an error by the tool's result.
export function run(name, args) {
  try {
    return TOOLS[name](JSON.parse(args));
  } catch (error) {
    return `Error: ${error.message}`;
  }
}
