// openai in JavaScript: in a row with chat completions, at once streamed.
import { AT_ONCE, IN_A_ROW, PARAMETERS, TOOLS, run } from "./desk.mjs";
import OpenAI from "openai";

const client = new OpenAI();
const tools = Object.keys(TOOLS).map((name) => ({
  type: "function",
  function: { name, description: `Tell about ${name} in a city.`, parameters: PARAMETERS },
}));

async function said(messages) {
  const answer = await client.chat.completions.create({ model: "m", messages, tools });
  return answer.choices[0].message;
}

async function streamed(messages) {
  const stream = client.chat.completions.stream({
    model: "m",
    messages,
    tools,
    stream_options: { include_usage: true },
  });
  return await stream.finalMessage();
}

async function work(turns, ask) {
  const messages = [{ role: "system", content: "Answer about the weather." }];
  for (const turn of turns) {
    messages.push({ role: "user", content: turn });
    for (;;) {
      const message = await ask(messages);
      messages.push(message);
      if (!message.tool_calls?.length) break;
      for (const call of message.tool_calls) {
        const content = run(call.function.name, call.function.arguments);
        messages.push({ role: "tool", tool_call_id: call.id, content });
      }
    }
  }
}

for (const turns of IN_A_ROW) {
  await work(turns, said).catch((error) => console.log(error.message));
}
await Promise.all(AT_ONCE.map((turns) => work(turns, streamed)));
