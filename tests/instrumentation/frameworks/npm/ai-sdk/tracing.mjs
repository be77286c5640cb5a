import { OpenTelemetry } from "@ai-sdk/otel";
import { NodeSDK } from "@opentelemetry/sdk-node";
import { registerTelemetry } from "ai";

const sdk = new NodeSDK();
sdk.start();
registerTelemetry(new OpenTelemetry());
process.once("beforeExit", () => sdk.shutdown());
