import { OpenAIInstrumentation } from "@arizeai/openinference-instrumentation-openai";
import { NodeSDK } from "@opentelemetry/sdk-node";
import OpenAI from "openai";

const instrumentation = new OpenAIInstrumentation();
instrumentation.manuallyInstrument(OpenAI);
const sdk = new NodeSDK({ instrumentations: [instrumentation] });
sdk.start();
process.once("beforeExit", () => sdk.shutdown());
