// Vercel AI SDK: in a row with generateText, at once with streamText.
import { openai } from "@ai-sdk/openai";
import { generateText, jsonSchema, stepCountIs, streamText, tool } from "ai";
import { AT_ONCE, IN_A_ROW, PARAMETERS, TOOLS } from "./desk.mjs";

const tools = Object.fromEntries(
  Object.entries(TOOLS).map(([name, execute]) => [
    name,
    tool({
      description: `Tell about ${name} in a city.`,
      inputSchema: jsonSchema(PARAMETERS),
      execute: async (given) => execute(given),
    }),
  ]),
);

async function work(turns, ask) {
  const messages = [];
  for (const turn of turns) {
    messages.push({ role: "user", content: turn });
    const settings = { model: openai.chat("m"), messages, tools, stopWhen: stepCountIs(9) };
    messages.push(...(await ask(settings)));
  }
}

const generated = async (settings) => (await generateText(settings)).responseMessages;

async function streamed(settings) {
  const result = streamText(settings);
  await result.consumeStream();
  return await result.responseMessages;
}

for (const turns of IN_A_ROW) {
  await work(turns, generated).catch((error) => console.log(error.message));
}
await Promise.all(AT_ONCE.map((turns) => work(turns, streamed)));
